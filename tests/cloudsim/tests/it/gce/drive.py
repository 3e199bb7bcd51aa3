"""Carries out the calls of cases with the official client: reads a list of {"root", "token", "steps"} from standard input, and
writes for each a list of [status, answer]. Of a write the answer is its operation when it is done."""

import json
import sys
import urllib.parse

import google.oauth2.credentials
import googleapiclient.discovery
import googleapiclient.discovery_cache
import googleapiclient.errors

values = {}


def service(case):
    document = json.loads(googleapiclient.discovery_cache.get_static_doc("compute", "v1"))
    document["rootUrl"] = case["root"] + "/"
    document["baseUrl"] = case["root"] + "/" + document["servicePath"]
    document.pop("mtlsRootUrl", None)
    credentials = google.oauth2.credentials.Credentials(case["token"])
    return googleapiclient.discovery.build_from_document(document, credentials=credentials)


def filled(value):
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    return value


def at(answer, pointer):
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            answer = answer[int(part)] if isinstance(answer, list) else answer[part]
        except (KeyError, IndexError):
            return "absent"
    return answer if isinstance(answer, str) else json.dumps(answer)


def wait(compute, operation):
    """Waits for an operation where it belongs, which is what its link says."""
    parts = urllib.parse.urlparse(operation["selfLink"]).path.split("/")
    place = parts[parts.index("projects") + 2]
    arguments = {"project": parts[parts.index("projects") + 1], "operation": operation["name"]}
    resource = {"global": "globalOperations", "regions": "regionOperations", "zones": "zoneOperations"}[place]
    if place != "global":
        arguments[place[:-1]] = parts[parts.index(place) + 1]
    return getattr(compute, resource)().wait(**arguments).execute()


def call(compute, step):
    resource, verb = step["method"].split(".")
    arguments = {"project": "p"} | {name: filled(value) for name, value in step["parameters"]}
    if "maxResults" in arguments:
        arguments["maxResults"] = int(arguments["maxResults"])
    if step["body"] is not None:
        arguments["body"] = filled(step["body"])
    try:
        answer = getattr(getattr(compute, resource)(), verb)(**arguments).execute()
        if verb not in ("get", "list", "wait") and answer.get("kind") == "compute#operation" and answer["status"] != "DONE":
            answer = wait(compute, answer)
    except googleapiclient.errors.HttpError as error:
        return [error.resp.status, json.loads(error.content)]
    return [200, answer]


def run(case):
    values.clear()
    answers = []
    with service(case) as compute:
        for step in case["steps"]:
            status, answer = call(compute, step)
            answers.append([status, answer])
            values.update({name: at(answer, pointer) for name, pointer in step["saves"]})
    return answers


json.dump([run(case) for case in json.load(sys.stdin)], sys.stdout)
