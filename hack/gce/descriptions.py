"""Writes what Google says of the APIs that the provider calls as plain JSON: descriptions.py FOLDER

Of each method: how it is called, its parameters, and what goes in and comes out; of each schema: its properties. Texts are
left out, after what stands only in them was taken: a property that only answers have says so in its text.
"""

import json
import pathlib
import sys

import googleapiclient.discovery_cache

# By document: the resources that are kept, with the path of the service.
WANTED = {
    "compute.v1": (
        "addresses disks firewalls forwardingRules globalAddresses globalForwardingRules globalOperations healthChecks "
        "httpHealthChecks instanceGroups instances networks projects regionBackendServices regionDisks regionHealthChecks "
        "regionInstanceGroups regionOperations regions routes subnetworks targetPools zoneOperations zones"
    ).split(),
    "cloudresourcemanager.v1": ["projects"],
}
KEPT = ("$ref", "type", "format", "pattern", "enum", "default", "required", "repeated", "location", "minimum", "maximum")


def slim(node):
    """A schema or a parameter without its texts."""
    found = {key: node[key] for key in KEPT if key in node}
    text = node.get("description", "")
    if node.get("readOnly") or text.startswith(("[Output Only]", "Output only.", "[Output only]", "[OutputOnly]")):
        found["readOnly"] = True
    if "annotations" in node:
        found["requiredBy"] = node["annotations"]["required"]
    if "properties" in node:
        found["properties"] = {name: slim(inner) for name, inner in node["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if inner in node:
            found[inner] = slim(node[inner])
    return found


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from references(inner)


def subset(document, resources):
    common = {name: slim(value) for name, value in document["parameters"].items()}
    methods = {}
    for resource in resources:
        for method in document["resources"][resource]["methods"].values():
            methods[method["id"]] = {
                "httpMethod": method["httpMethod"],
                "path": document["servicePath"] + method["path"],
                "parameters": common | {name: slim(value) for name, value in method.get("parameters", {}).items()},
                "request": method.get("request", {}).get("$ref"),
                "response": method.get("response", {}).get("$ref"),
            }
    schemas = {}
    wanted = [ref for method in methods.values() for ref in (method["request"], method["response"]) if ref]
    while wanted:
        name = wanted.pop()
        if name not in schemas:
            schemas[name] = slim(document["schemas"][name])
            wanted.extend(references(schemas[name]))
    return {"revision": document["revision"], "methods": methods, "schemas": schemas}


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
source = pathlib.Path(googleapiclient.discovery_cache.__file__).parent / "documents"
for name, resources in WANTED.items():
    document = json.loads((source / f"{name}.json").read_text())
    (folder / f"{name}.json").write_text(json.dumps(subset(document, resources), sort_keys=True))
