"""Runs cases with Microsoft's own Python clients: reads them as JSON from standard input and writes the answers.

A body goes through the models of the client in both directions, so that only what the client knows is sent and read.
"""

import json
import sys

import azure.mgmt.compute
import azure.mgmt.network
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import HeadersPolicy

# By group of operations: the model of its resources.
MODELS = {
    "load_balancers": "LoadBalancer",
    "load_balancer_backend_address_pools": "BackendAddressPool",
    "public_ip_addresses": "PublicIPAddress",
    "network_security_groups": "NetworkSecurityGroup",
    "network_interfaces": "NetworkInterface",
    "route_tables": "RouteTable",
    "virtual_machines": "VirtualMachine",
    "virtual_machine_scale_sets": "VirtualMachineScaleSet",
    "virtual_machine_scale_set_vms": "VirtualMachineScaleSetVM",
}
# Verbs whose name differs from the usual one.
PUTS = {"virtual_machine_scale_set_vms": "begin_update"}


def answered(value):
    if value is None:
        return None
    if hasattr(value, "serialize"):
        return value.serialize(keep_readonly=True)
    return [item.serialize(keep_readonly=True) for item in value]


def run(case):
    # The clients refuse to send a credential's token without TLS, so it is a plain header.
    options = {
        "base_url": case["root"],
        "credential_scopes": ["none"],
        "authentication_policy": HeadersPolicy({"Authorization": f"Bearer {case['token']}"}),
        "retry_total": 0,
        "polling_interval": 0.01,
    }
    network = azure.mgmt.network.NetworkManagementClient(object(), "sub", **options)
    compute = azure.mgmt.compute.ComputeManagementClient(object(), "sub", **options)
    answers = []
    for step in case["steps"]:
        group, verb = step["call"].split(".")
        client = compute if group.startswith("virtual_machine") else network
        operations = getattr(client, group)
        names = ["rg", *step["names"]]
        try:
            if verb == "put":
                body = client._deserialize.deserialize_data(step["body"], MODELS[group])
                value = getattr(operations, PUTS.get(group, "begin_create_or_update"))(*names, body, polling_interval=0.01).result()
            elif verb == "delete":
                value = operations.begin_delete(*names, polling_interval=0.01).result()
            else:
                value = getattr(operations, verb)(*names)
            answers.append(["", answered(value)])
        except HttpResponseError as error:
            answers.append([error.error.code if error.error else str(error), None])
    return answers


print(json.dumps([run(case) for case in json.load(sys.stdin)]))
