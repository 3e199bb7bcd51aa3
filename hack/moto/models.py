"""Writes botocore's models of the AWS services that the provider calls as plain JSON: models.py FOLDER"""

import json
import pathlib
import sys

import botocore.loaders

# The file name, and the only API version that the SDKs of the provider speak.
VERSIONS = {"ec2": "2016-11-15", "elb": "2012-06-01", "elbv2": "2015-12-01", "sts": "2011-06-15"}


def without_documentation(node):
    if isinstance(node, dict):
        return {key: without_documentation(value) for key, value in node.items() if not is_documentation(key, value)}
    if isinstance(node, list):
        return [without_documentation(value) for value in node]
    return node


def is_documentation(key, value):
    # A shape or member may have that name too, and is then an object.
    return key == "documentation" and isinstance(value, str)


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
loader = botocore.loaders.Loader()
for service, version in VERSIONS.items():
    model = without_documentation(loader.load_service_model(service, "service-2", version))
    (folder / f"{service}.json").write_text(json.dumps(model, sort_keys=True))
