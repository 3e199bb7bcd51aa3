//! The cases: a change by each client has the same effect.

use super::run::GROUP;
use crate::calls::{Case, case};
use serde_json::{Value, json};

pub(crate) fn all() -> Vec<Case> {
    vec![balancer(), members(), addresses(), groups(), routes(), set(), machines()]
}

const LB: &str = "Microsoft.Network/loadBalancers/lb";

fn part(kind: &str, name: &str) -> Value {
    json!({"id": format!("{GROUP}/{LB}/{kind}/{name}")})
}

fn address(name: &str) -> Value {
    json!({"id": format!("{GROUP}/Microsoft.Network/publicIPAddresses/{name}")})
}

fn public() -> Value {
    json!({
        "location": "eastus", "sku": {"name": "Standard"}, "tags": {"a": "b"},
        "properties": {"publicIPAllocationMethod": "Static"},
    })
}

fn whole(ports: &[u16]) -> Value {
    let rule = |port: &u16| {
        json!({"name": format!("r{port}"), "properties": {
            "protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true,
            "frontendIPConfiguration": part("frontendIPConfigurations", "f"), "probe": part("probes", "x"),
            "backendAddressPool": part("backendAddressPools", "p"), "idleTimeoutInMinutes": 4,
        }})
    };
    json!({
        "location": "eastus", "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": address("a")}}],
            "backendAddressPools": [{"name": "p", "properties": {}}],
            "probes": [{"name": "x", "properties": {
                "protocol": "Http", "port": 30000, "intervalInSeconds": 5, "probeThreshold": 2, "requestPath": "/healthz",
            }}],
            "loadBalancingRules": ports.iter().map(rule).collect::<Vec<_>>(),
        },
    })
}

fn balancer() -> Case {
    let mut two = whole(&[80, 81]);
    two["properties"]["loadBalancingRules"][1]["properties"]["frontendPort"] = json!(80);
    case("the life of a load balancer")
        .send("load_balancers.put", "lb", whole(&[80]))
        .refused("InvalidResourceReference")
        .send("public_ip_addresses.put", "a", public())
        .send("load_balancers.put", "lb", whole(&[80]))
        .is("/properties/provisioningState", "Succeeded")
        .is("/properties/loadBalancingRules/0/properties/frontendPort", 80)
        .is("/properties/frontendIPConfigurations/0/properties/loadBalancingRules/0/id", {
            part("loadBalancingRules", "r80")["id"].clone()
        })
        .send("load_balancers.put", "lb", two)
        .refused("RulesUseSameFrontendPortProtocolAndIPConfig")
        .send("load_balancers.put", "lb", whole(&[81, 82]))
        .call("load_balancers.get", "lb")
        .is("/properties/loadBalancingRules/1/name", "r82")
        .is("/properties/loadBalancingRules/2", Value::Null)
        .is("/properties/probes/0/properties/requestPath", "/healthz")
        .call("public_ip_addresses.get", "a")
        .is("/properties/ipConfiguration/id", part("frontendIPConfigurations", "f")["id"].clone())
        .call("public_ip_addresses.delete", "a")
        .refused("PublicIPAddressCannotBeDeleted")
        .call("load_balancers.delete", "lb")
        .call("load_balancers.get", "lb")
        .refused("ResourceNotFound")
        .call("public_ip_addresses.delete", "a")
        .call("public_ip_addresses.list", "")
        .is("/0", Value::Null)
}

fn members() -> Case {
    let interface = json!({"location": "eastus", "properties": {"ipConfigurations": [{
        "name": "ipconfig1",
        "properties": {
            "primary": true, "loadBalancerBackendAddressPools": [part("backendAddressPools", "p")],
            "subnet": {"id": format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet")},
        },
    }]}});
    let pool = |address: &str| {
        json!({"name": "q", "properties": {
            "virtualNetwork": {"id": format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet")},
            "loadBalancerBackendAddresses": [{"name": "n", "properties": {"ipAddress": address}}],
        }})
    };
    case("members of pools")
        .send("public_ip_addresses.put", "a", public())
        .send("load_balancers.put", "lb", whole(&[80]))
        .send("network_interfaces.put", "vm0-nic", interface)
        .is("/properties/ipConfigurations/0/properties/privateIPAddress", "10.240.0.4")
        .send("load_balancer_backend_address_pools.put", "lb/q", pool("10.240.0.9"))
        .is("/properties/loadBalancerBackendAddresses/0/properties/ipAddress", "10.240.0.9")
        .call("load_balancers.get", "lb")
        .is("/properties/backendAddressPools/0/properties/backendIPConfigurations/0/id", {
            format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic/ipConfigurations/ipconfig1")
        })
        .is("/properties/backendAddressPools/1/name", "q")
        .send("load_balancer_backend_address_pools.put", "lb/q", pool("no address"))
        .refused("LoadBalancerBackendAddressInvalidIpAddress")
        .call("load_balancer_backend_address_pools.delete", "lb/q")
        .call("load_balancer_backend_address_pools.get", "lb/q")
        .refused("NotFound")
}

fn addresses() -> Case {
    let mut label = public();
    label["properties"]["dnsSettings"] = json!({"domainNameLabel": "shop"});
    case("labels of public addresses")
        .send("public_ip_addresses.put", "a", label.clone())
        .is("/properties/dnsSettings/fqdn", "shop.eastus.cloudapp.azure.com")
        .is("/tags/a", "b")
        .send("public_ip_addresses.put", "b", label)
        .refused("DnsRecordInUse")
        .send("public_ip_addresses.put", "b", public())
        .send("public_ip_addresses.put", "c", public())
        .call("public_ip_addresses.list", "")
        .is("/2/name", "c")
}

fn groups() -> Case {
    let rule = |name: &str, priority: u32| {
        json!({"name": name, "properties": {
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": priority, "sourcePortRange": "*",
            "sourceAddressPrefix": "Internet", "destinationAddressPrefixes": ["20.0.0.1", "20.0.0.2"],
            "destinationPortRanges": ["80", "443"],
        }})
    };
    let group = |rules: Vec<Value>| json!({"location": "eastus", "properties": {"securityRules": rules}});
    case("rules of security groups")
        .send("network_security_groups.put", "nsg", group(vec![rule("a", 500), rule("b", 501)]))
        .is("/properties/securityRules/1/properties/destinationPortRanges/1", "443")
        .send("network_security_groups.put", "nsg", group(vec![rule("a", 500), rule("b", 500)]))
        .refused("SecurityRuleConflict")
        .call("network_security_groups.get", "nsg")
        .is("/properties/securityRules/1/properties/priority", 501)
        .call("network_security_groups.delete", "nsg")
        .refused("InUseNetworkSecurityGroupCannotBeDeleted")
}

fn routes() -> Case {
    let table = json!({"location": "eastus", "properties": {"routes": [{"name": "n", "properties": {
        "addressPrefix": "10.0.0.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.240.0.4",
    }}]}});
    case("routes")
        .send("route_tables.put", "rt", table)
        .call("route_tables.get", "rt")
        .is("/properties/routes/0/properties/nextHopIpAddress", "10.240.0.4")
        .is("/properties/subnets/0/id", format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet"))
}

fn set() -> Case {
    let interfaces = json!({"networkInterfaceConfigurations": [{
        "name": "nic",
        "properties": {"primary": true, "enableIPForwarding": true, "ipConfigurations": [{
            "name": "ipconfig1",
            "properties": {
                "primary": true, "loadBalancerBackendAddressPools": [part("backendAddressPools", "p")],
                "subnet": {"id": format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet")},
            },
        }]},
    }]});
    let model = json!({"location": "eastus", "properties": {"virtualMachineProfile": {"networkProfile": interfaces}}});
    let instance = json!({"location": "eastus", "properties": {"networkProfileConfiguration": interfaces}});
    case("a scale set joins a pool")
        .send("public_ip_addresses.put", "a", public())
        .send("load_balancers.put", "lb", whole(&[80]))
        .send("virtual_machine_scale_sets.put", "pool", model)
        .is("/sku/capacity", 3)
        .is("/properties/virtualMachineProfile/osProfile/computerNamePrefix", "pool")
        .call("virtual_machine_scale_set_vms.get", "pool/1")
        .is("/properties/latestModelApplied", false)
        .send("virtual_machine_scale_set_vms.put", "pool/1", instance)
        .is("/properties/latestModelApplied", true)
        .is("/properties/osProfile/computerName", "pool000001")
        .call("load_balancers.get", "lb")
        .is("/properties/backendAddressPools/0/properties/backendIPConfigurations/0/id", {
            let set = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool");
            format!("{set}/virtualMachines/1/networkInterfaces/nic/ipConfigurations/ipconfig1")
        })
        .call("load_balancers.delete", "lb")
        .refused("LoadBalancerInUseByVirtualMachineScaleSet")
        .call("virtual_machine_scale_set_vms.list", "pool")
        .is("/2/instanceId", "2")
}

fn machines() -> Case {
    case("machines")
        .call("virtual_machines.get", "vm0")
        .is("/properties/instanceView", Value::Null)
        .is("/properties/osProfile/computerName", "vm0")
        .call("virtual_machines.list", "")
        .is("/0/name", "vm0")
        .call("virtual_machines.get", "no")
        .refused("ResourceNotFound")
}
