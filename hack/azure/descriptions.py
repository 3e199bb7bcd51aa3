"""Writes what Microsoft says of the APIs that the provider calls as plain JSON: descriptions.py FOLDER

Of each method: how it is called, its version, its parameters, and what goes in and comes out; of each model: its fields with
types, ranges, and what only answers have. It is read from the sources of the official Python client, without running them: its
models flatten `properties`, so the nesting is taken from the names on the wire. What is required inside of `properties` is only in the
models of a later client, which is downloaded and read, but not installed: it calls other versions of the API.
"""

import ast
import json
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

# The later client whose models say what is required at all levels.
NESTED = "azure-mgmt-network==31.0.1"

# The groups of operations that are kept, by package, with the file that has them.
WANTED = {
    "network": {
        "_operations.py": (
            "load_balancers load_balancer_backend_address_pools network_interfaces network_security_groups public_ip_addresses "
            "public_ip_prefixes private_link_services route_tables subnets virtual_networks"
        ).split(),
    },
    "compute": {
        f"_{group}_operations.py": [group]
        for group in (
            "availability_sets disks virtual_machines virtual_machine_scale_sets virtual_machine_scale_set_vms"
        ).split()
    },
}
PLAIN = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
}


def schema_of(kind, prefix):
    """The schema of a type as the models write it: str, [str], {str}, or the name of a model."""
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if kind.startswith("["):
        return {"type": "array", "items": schema_of(kind[1:-1], prefix)}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": schema_of(kind[1:-1], prefix)}
    if kind[0].isupper():
        return {"$ref": f"{prefix}.{kind}"}
    return {}


def models(path, prefix):
    found = {}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        tables = {
            item.targets[0].id: ast.literal_eval(item.value)
            for item in node.body
            if isinstance(item, ast.Assign)
            and isinstance(item.targets[0], ast.Name)
            and item.targets[0].id in ("_attribute_map", "_validation")
        }
        if "_attribute_map" not in tables:
            # A model may add nothing to another one.
            bases = [f"{prefix}.{base.id}" for base in node.bases if isinstance(base, ast.Name)]
            found |= {f"{prefix}.{node.name}": found[base] for base in bases if base in found}
            continue
        top = {"type": "object", "properties": {}}
        for name, entry in tables["_attribute_map"].items():
            *path_, last = entry["key"].replace("\\.", "\0").split(".")
            at = top
            for part in path_:
                at = at["properties"].setdefault(part.replace("\0", "."), {"type": "object", "properties": {}})
            field = schema_of(entry["type"], prefix)
            rules = tables.get("_validation", {}).get(name, {})
            if rules.get("readonly"):
                field["readOnly"] = True
            if rules.get("required"):
                field["requiredBy"] = ["*"]
            for theirs, ours in (("minimum", "least"), ("maximum", "most"), ("pattern", "pattern")):
                if theirs in rules:
                    field[ours] = rules[theirs]
            at["properties"][last.replace("\0", ".")] = field
        found[f"{prefix}.{node.name}"] = top
    return found


def later_models():
    """The source of the models of the later client."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--dest", folder, NESTED], check=True)
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        return zipfile.ZipFile(wheel).read("azure/mgmt/network/models/_models.py").decode()


def required(source):
    """By model: the fields on the wire that its `properties` require."""
    fields, inner = {}, {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for item in node.body:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.value, ast.Call):
                continue
            words = {word.arg: word.value for word in item.value.keywords}
            wire = constant(words["name"]) if "name" in words else item.target.id
            visible = ast.literal_eval(words["visibility"]) if "visibility" in words else []
            kind = ast.unparse(item.annotation)
            if wire == "properties":
                inner[node.name] = kind.removeprefix("Optional[").rstrip("]").strip("'\"").removeprefix("_models.")
            elif not kind.startswith("Optional[") and visible != ["read"]:
                fields.setdefault(node.name, []).append(wire)
    return {name: fields[kind] for name, kind in inner.items() if kind in fields}


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def request(function):
    """The method, path, version and query parameters of a function that builds a request."""
    found = {"parameters": {}}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "_params":
            name = constant(node.slice)
            if name:
                found["parameters"][name] = {"location": "query"}
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        arguments = [constant(argument) for argument in node.args]
        if name == "pop" and arguments[0] == "template_url":
            found["path"] = arguments[1]
        if name == "pop" and arguments[0] == "api-version" and len(arguments) > 1:
            found["version"] = arguments[1]
        if name == "HttpRequest":
            found["httpMethod"] = next(constant(word.value) for word in node.keywords if word.arg == "method")
    return found


def bodies(method, prefix):
    """What a method of the client sends and receives."""
    found = {}
    for node in ast.walk(method):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "body" and len(node.args) == 2:
            found["request"] = constant(node.args[1])
        if node.func.attr == "_deserialize":
            found["response"] = constant(node.args[0])
    return {name: f"{prefix}.{kind}" for name, kind in found.items() if kind and kind[0].isupper()}


def methods(path, groups, prefix):
    tree = ast.parse(path.read_text())
    found = {}

    def named(function):
        """The name with its group, which the functions in a file for one group lack."""
        name = function.removeprefix("build_").removesuffix("_request")
        return f"{groups[0]}_{name}" if len(groups) == 1 else name

    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("build_"):
            continue
        name = named(node.name)
        group = max((group for group in groups if name.startswith(group + "_")), key=len, default=None)
        if group:
            found[name] = request(node)
    # A client's method calls the function that builds its request; the one that begins a long operation has the answer.
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Operations"):
            continue
        for method in node.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            called = [
                named(inner.func.id)
                for inner in ast.walk(method)
                if isinstance(inner, ast.Call) and getattr(inner.func, "id", "").startswith("build_")
            ]
            for name in called:
                if name in found:
                    found[name] |= bodies(method, prefix)
            if method.name.startswith("begin_"):
                initial = method.name.removeprefix("begin_")
                own = [name for name in found if name.endswith("_" + initial) and matches(node.name, name, initial)]
                for name in own:
                    found[name] |= bodies(method, prefix)
    return {f"{prefix}.{name}": method for name, method in found.items() if "path" in method}


def matches(operations, name, initial):
    """Whether a class of operations has the function with this name: LoadBalancersOperations, load_balancers_delete."""
    group = name.removesuffix("_" + initial).replace("_", "")
    return operations.removesuffix("Operations").lower() == group


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from references(inner)


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
all_methods, all_models = {}, {}
for package, files in WANTED.items():
    source = pathlib.Path(sysconfig.get_paths()["purelib"]) / "azure" / "mgmt" / package
    all_models |= models(source / "models" / "_models_py3.py", package)
    if package == "network":
        for name, fields in required(later_models()).items():
            known = all_models.get(f"network.{name}", {}).get("properties", {}).get("properties", {}).get("properties", {})
            for field in fields:
                if field in known:
                    known[field]["requiredBy"] = ["*"]
    for file, groups in files.items():
        all_methods |= methods(source / "operations" / file, groups, package)
kept, wanted = {}, [kind for method in all_methods.values() for kind in (method.get("request"), method.get("response")) if kind]
while wanted:
    name = wanted.pop()
    if name not in kept:
        kept[name] = all_models[name]
        wanted.extend(references(kept[name]))
(folder / "azure.json").write_text(json.dumps({"methods": all_methods, "schemas": kept}, sort_keys=True))
