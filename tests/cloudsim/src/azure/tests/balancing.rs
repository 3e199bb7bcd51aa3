//! Load balancers and what belongs to them.

use super::super::{Azure, Options};
use super::{GROUP, SUBNET, call, call_if, cloud, done, get, public_ip};
use crate::azure::options::Limits;
use serde_json::{Value, json};

const LB: &str = "Microsoft.Network/loadBalancers/lb";

fn id(kind: &str, name: &str) -> String {
    format!("{GROUP}/{LB}/{kind}/{name}")
}

/// A load balancer with a public frontend, a pool, and a rule for each port.
fn balancer(ports: &[u16]) -> Value {
    let rules: Vec<Value> = ports
        .iter()
        .map(|port| {
            json!({
                "name": format!("r{port}"),
                "properties": {
                    "protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true,
                    "frontendIPConfiguration": {"id": id("frontendIPConfigurations", "f")},
                    "backendAddressPool": {"id": id("backendAddressPools", "p")},
                    "probe": {"id": id("probes", "x")},
                },
            })
        })
        .collect();
    json!({
        "location": "eastus", "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [{
                "name": "f",
                "properties": {"publicIPAddress": {"id": format!("{GROUP}/Microsoft.Network/publicIPAddresses/a")}},
            }],
            "backendAddressPools": [{"name": "p", "properties": {}}],
            "probes": [{
                "name": "x",
                "properties": {"protocol": "Tcp", "port": 30000, "intervalInSeconds": 5, "probeThreshold": 2},
            }],
            "loadBalancingRules": rules,
        },
    })
}

fn made(azure: &Azure) {
    done(azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &public_ip());
    done(azure, "PUT", LB, &balancer(&[80]));
}

fn join(azure: &Azure) {
    let path = "Microsoft.Network/networkInterfaces/vm0-nic";
    let mut interface = get(azure, path);
    let configuration = &mut interface["properties"]["ipConfigurations"][0]["properties"];
    configuration["loadBalancerBackendAddressPools"] = json!([{"id": id("backendAddressPools", "p")}]);
    done(azure, "PUT", path, &interface);
}

#[test]
fn what_is_read_can_be_written_back_and_back_references_are_there() {
    let azure = cloud(Options::default());
    made(&azure);
    join(&azure);
    let before = get(&azure, LB);
    let properties = &before["properties"];
    let frontend = &properties["frontendIPConfigurations"][0];
    assert_eq!(frontend["properties"]["loadBalancingRules"][0]["id"], id("loadBalancingRules", "r80"));
    let pool = &properties["backendAddressPools"][0]["properties"];
    let member = format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic/ipConfigurations/ipconfig1");
    assert_eq!(pool["backendIPConfigurations"][0]["id"], member);
    done(&azure, "PUT", LB, &before);
    let mut after = get(&azure, LB);
    let address = get(&azure, "Microsoft.Network/publicIPAddresses/a");
    assert_eq!(address["properties"]["ipConfiguration"]["id"], frontend["id"]);
    // Nothing but the ETags differs.
    let text =
        after.to_string().replace(after["etag"].as_str().unwrap().trim_matches('"').trim_start_matches("W/\""), "");
    let old =
        before.to_string().replace(before["etag"].as_str().unwrap().trim_matches('"').trim_start_matches("W/\""), "");
    assert_eq!(text, old);
    // A PUT replaces the whole.
    after["properties"]["probes"] = json!([]);
    after["properties"]["loadBalancingRules"] = json!([]);
    done(&azure, "PUT", LB, &after);
    assert_eq!(get(&azure, LB)["properties"]["probes"], json!([]));
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn the_state_that_an_administrator_set_on_a_member_stays() {
    let azure = cloud(Options::default());
    made(&azure);
    join(&azure);
    let mut lb = get(&azure, LB);
    let address = "/properties/backendAddressPools/0/properties/loadBalancerBackendAddresses/0/properties";
    lb.pointer_mut(address).unwrap()["adminState"] = json!("Down");
    done(&azure, "PUT", LB, &lb);
    let lb = get(&azure, LB);
    assert_eq!(lb.pointer(address).unwrap()["adminState"], "Down");
    done(&azure, "PUT", LB, &lb);
    assert_eq!(get(&azure, LB).pointer(address).unwrap()["adminState"], "Down");
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn a_write_needs_a_permission_on_each_object_that_its_body_names() {
    let azure = cloud(Options::default());
    let path = "Microsoft.Network/networkInterfaces/vm0-nic";
    let interface = get(&azure, path);
    let right = "Microsoft.Network/virtualNetworks/subnets/join/action";
    azure.world(|world| world.options.not_actions = vec![right.to_owned()]);
    let refused = call(&azure, "PUT", path, &interface);
    assert_eq!((refused.status, refused.code()), (403, "LinkedAuthorizationFailed"));
    let text = refused.json["error"]["message"].as_str().unwrap();
    assert!(text.contains(&format!("does not have permission to perform action '{right}' on the linked")), "{text}");
    azure.world(|world| {
        let network = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet");
        world.options.actions_on.insert(network, vec![right.to_owned()]);
    });
    assert_eq!(call(&azure, "PUT", path, &interface).status, 200);
}

#[test]
fn a_link_to_another_tenant_needs_its_token() {
    let azure = cloud(Options::default());
    azure.world(|world| {
        world.tenant("net", "other");
        world.put(
            "/subscriptions/net/resourceGroups/n/providers/Microsoft.Network/loadBalancers/far",
            json!({
                "sku": {"name": "Standard"}, "properties": {"backendAddressPools": [{"name": "p", "properties": {}}]},
            }),
        )
    });
    let pool =
        "/subscriptions/net/resourceGroups/n/providers/Microsoft.Network/loadBalancers/far/backendAddressPools/p";
    let path = "Microsoft.Network/networkInterfaces/vm0-nic";
    let mut interface = get(&azure, path);
    let configuration = &mut interface["properties"]["ipConfigurations"][0]["properties"];
    configuration["loadBalancerBackendAddressPools"] = json!([{ "id": pool }]);
    let refused = call(&azure, "PUT", path, &interface);
    assert_eq!((refused.status, refused.code()), (403, "LinkedAuthorizationFailed"));
    let text = refused.json["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("the current tenant 'tenant' is not authorized to access linked subscription 'net'."),
        "{text}"
    );
    let (own, far) = azure.world(|world| (world.token("client", "tenant").0, world.token("client", "other").0));
    let (own, far) = (format!("Bearer {own}"), format!("Bearer {far}"));
    let headers = [("authorization", own.as_str()), ("x-ms-authorization-auxiliary", far.as_str())];
    let url = format!("{GROUP}/{path}?api-version=2025-05-01");
    assert_eq!(super::send(&azure, "PUT", &url, &headers, &interface.to_string()).status, 200);
}

#[test]
fn neighbors_get_new_etags() {
    let azure = cloud(Options::default());
    done(&azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &public_ip());
    let etag = |path: &str| get(&azure, path)["etag"].as_str().unwrap().to_owned();
    let address = etag("Microsoft.Network/publicIPAddresses/a");
    done(&azure, "PUT", LB, &balancer(&[80]));
    assert_ne!(etag("Microsoft.Network/publicIPAddresses/a"), address);
    let (address, lb) = (etag("Microsoft.Network/publicIPAddresses/a"), etag(LB));
    join(&azure);
    assert_eq!(etag("Microsoft.Network/publicIPAddresses/a"), address);
    assert_ne!(etag(LB), lb);
    let refused = call_if(&azure, "PUT", LB, &balancer(&[80]), &lb);
    assert_eq!(refused.status, 412);
}

#[test]
fn what_is_in_use_stays() {
    let azure = cloud(Options::default());
    made(&azure);
    join(&azure);
    let address = "Microsoft.Network/publicIPAddresses/a";
    assert_eq!(call(&azure, "DELETE", address, &Value::Null).code(), "PublicIPAddressCannotBeDeleted");
    let mut other = balancer(&[]);
    other["properties"]["frontendIPConfigurations"][0]["name"] = json!("g");
    let other = call(&azure, "PUT", "Microsoft.Network/loadBalancers/other", &other);
    assert_eq!(other.code(), "PublicIPAddressInUse");
    let mut without = balancer(&[]);
    without["properties"]["backendAddressPools"] = json!([]);
    assert_eq!(call(&azure, "PUT", LB, &without).code(), "InUseBackendAddressPoolCannotBeDeleted");
    // The address is free when the operation that drops the frontend has ended.
    let mut without = balancer(&[]);
    without["properties"]["frontendIPConfigurations"] = json!([]);
    let refused = call(&azure, "PUT", LB, &without);
    assert_eq!(refused.code(), "LoadBalancerWithoutFrontendIPCantHaveChildResources");
    done(&azure, "PUT", "Microsoft.Network/publicIPAddresses/b", &public_ip());
    let other = format!("{GROUP}/Microsoft.Network/publicIPAddresses/b");
    without["properties"]["frontendIPConfigurations"] =
        json!([{"name": "g", "properties": {"publicIPAddress": {"id": other}}}]);
    assert_eq!(call(&azure, "PUT", LB, &without).status, 200);
    assert_eq!(call(&azure, "DELETE", address, &Value::Null).code(), "PublicIPAddressCannotBeDeleted");
    azure.clock().step(std::time::Duration::from_secs(2));
    assert_eq!(call(&azure, "DELETE", address, &Value::Null).status, 202);
    // A load balancer goes with the references of single machines.
    done(&azure, "DELETE", LB, &Value::Null);
    let interface = get(&azure, "Microsoft.Network/networkInterfaces/vm0-nic");
    assert_eq!(
        interface["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"],
        json!([])
    );
}

#[test]
fn references_must_be_ready() {
    let azure = cloud(Options::default());
    call(&azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &public_ip());
    let busy = call(&azure, "PUT", LB, &balancer(&[80]));
    assert_eq!((busy.status, busy.code()), (429, "RetryableError"));
    assert_eq!(busy.json["error"]["details"][0]["code"], "ReferencedResourceNotProvisioned");
    azure.clock().step(std::time::Duration::from_secs(2));
    done(&azure, "PUT", LB, &balancer(&[80]));
    join(&azure);
    let interface = format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic");
    azure.world(|world| world.state(&interface, "Failed"));
    let refused = call(&azure, "PUT", LB, &balancer(&[80, 81]));
    assert_eq!((refused.status, refused.code()), (400, "ReferencedResourceNotProvisioned"));
    assert!(refused.json["error"]["message"].as_str().unwrap().contains(&interface));
    let lost = call(
        &azure,
        "PUT",
        "Microsoft.Network/loadBalancers/other",
        &json!({
            "location": "eastus",
            "properties": {"frontendIPConfigurations": [{"name": "f", "properties": {"subnet": {"id": format!("{SUBNET}x")}}}]},
        }),
    );
    assert_eq!((lost.status, lost.code()), (400, "InvalidResourceReference"));
}

#[test]
fn rules_that_conflict_are_refused() {
    let azure = cloud(Options::default());
    done(&azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &public_ip());
    let mut twice = balancer(&[80, 81]);
    twice["properties"]["loadBalancingRules"][1]["properties"]["frontendPort"] = json!(80);
    assert_eq!(call(&azure, "PUT", LB, &twice).code(), "RulesUseSameFrontendPortProtocolAndIPConfig");
    let mut same = balancer(&[80, 81]);
    for rule in same["properties"]["loadBalancingRules"].as_array_mut().unwrap() {
        rule["properties"]["enableFloatingIP"] = json!(false);
        rule["properties"]["backendPort"] = json!(30080);
    }
    assert_eq!(call(&azure, "PUT", LB, &same).code(), "RulesUseSameBackendPortProtocolAndPool");
    let mut outbound = balancer(&[80]);
    outbound["properties"]["outboundRules"] = json!([{"name": "o", "properties": {
        "protocol": "All", "frontendIPConfigurations": [{"id": id("frontendIPConfigurations", "f")}],
        "backendAddressPool": {"id": id("backendAddressPools", "p")},
    }}]);
    let code = "LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule";
    assert_eq!(call(&azure, "PUT", LB, &outbound).code(), code);
    let mut names = balancer(&[80, 81]);
    names["properties"]["loadBalancingRules"][1]["name"] = json!("R80");
    assert_eq!(call(&azure, "PUT", LB, &names).code(), "DuplicateResourceName");
}

#[test]
fn an_interface_has_few_rules() {
    let limits = Limits { rules_per_interface: 3, ..Limits::default() };
    let azure = cloud(Options { limits, ..Options::default() });
    made(&azure);
    join(&azure);
    assert_eq!(call(&azure, "PUT", LB, &balancer(&[80, 81])).status, 200);
    azure.clock().step(std::time::Duration::from_secs(2));
    let refused = call(&azure, "PUT", LB, &balancer(&[80, 81, 82]));
    let text = refused.json["error"]["message"].as_str().unwrap();
    assert!(text.ends_with("cannot have more than 2 NAT or load balancing rules combined."), "{text}");
}

#[test]
fn members_by_address_and_the_lane_of_pools() {
    let azure = cloud(Options::default());
    made(&azure);
    let network = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet");
    let pool = json!({"properties": {
        "virtualNetwork": {"id": network},
        "loadBalancerBackendAddresses": [{"name": "n1", "properties": {"ipAddress": "10.240.0.4"}}],
    }});
    let path = format!("{LB}/backendAddressPools/q");
    let put = call(&azure, "PUT", &path, &pool);
    assert_eq!(put.status, 201);
    assert_eq!(call(&azure, "PUT", LB, &get(&azure, LB)).status, 200);
    let text = &azure.superseded()[0];
    assert!(text.starts_with("Operation PutLoadBalancerBackendAddressPoolOperation"), "{text}");
    assert!(text.contains("superseded by operation PutLoadBalancerOperation"), "{text}");
    azure.clock().step(std::time::Duration::from_secs(2));
    let shown = get(&azure, &path);
    assert_eq!(shown["properties"]["loadBalancerBackendAddresses"][0]["properties"]["ipAddress"], "10.240.0.4");
    join(&azure);
    let moved = call(&azure, "POST", &format!("{LB}/migrateToIpBased"), &json!({"pools": ["p"]}));
    assert_eq!(moved.status, 200);
    let shown = get(&azure, &format!("{LB}/backendAddressPools/p"));
    let member = &shown["properties"]["loadBalancerBackendAddresses"][0];
    assert_eq!((&member["name"], &member["properties"]["ipAddress"]), (&json!("vm0"), &json!("10.240.0.4")));
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn private_frontends_have_addresses_of_their_subnet() {
    let azure = cloud(Options::default());
    let internal = |address: &str| {
        let mut properties = json!({"subnet": {"id": SUBNET}, "privateIPAllocationMethod": "Dynamic"});
        if !address.is_empty() {
            properties["privateIPAllocationMethod"] = json!("Static");
            properties["privateIPAddress"] = json!(address);
        }
        json!({"location": "eastus", "properties": {"frontendIPConfigurations": [{"name": "f", "properties": properties}]}})
    };
    done(&azure, "PUT", LB, &internal(""));
    let address = |azure: &Azure| {
        get(azure, LB)["properties"]["frontendIPConfigurations"][0]["properties"]["privateIPAddress"].clone()
    };
    assert_eq!(address(&azure), "10.240.0.5");
    done(&azure, "PUT", LB, &get(&azure, LB));
    assert_eq!(address(&azure), "10.240.0.5");
    assert_eq!(call(&azure, "PUT", LB, &internal("10.1.0.4")).code(), "PrivateIPAddressNotInSubnet");
    assert_eq!(call(&azure, "PUT", LB, &internal("10.240.0.4")).code(), "PrivateIPAddressIsAllocated");
    done(&azure, "PUT", LB, &internal("10.240.0.99"));
    assert_eq!(address(&azure), "10.240.0.99");
}

#[test]
fn rules_of_security_groups_are_checked() {
    let azure = cloud(Options::default());
    let path = "Microsoft.Network/networkSecurityGroups/nsg";
    let rule = |name: &str, priority: u32| {
        json!({"name": name, "properties": {
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": priority, "sourcePortRange": "*",
            "sourceAddressPrefix": "Internet", "destinationAddressPrefixes": ["20.0.0.1", "20.0.0.2"],
            "destinationPortRanges": ["80", "443"],
        }})
    };
    let group = |rules: Vec<Value>| json!({"location": "eastus", "properties": {"securityRules": rules}});
    done(&azure, "PUT", path, &group(vec![rule("a", 500), rule("b", 501)]));
    let shown = get(&azure, path);
    assert_eq!(shown["properties"]["defaultSecurityRules"].as_array().unwrap().len(), 6);
    assert!(shown["properties"]["subnets"][0]["id"].as_str().unwrap().ends_with("/subnets/subnet"));
    done(&azure, "PUT", path, &shown);
    let refused = |body: &Value| call(&azure, "PUT", path, body).code().to_owned();
    assert_eq!(refused(&group(vec![rule("a", 500), rule("b", 500)])), "SecurityRuleConflict");
    assert_eq!(refused(&group(vec![rule("a", 99)])), "SecurityRuleInvalidPriority");
    let mut many: Vec<Value> = (0..1001).map(|number| rule(&format!("r{number}"), 500 + number)).collect();
    assert_eq!(refused(&group(many.clone())), "SecurityRuleCountLimitReached");
    many.truncate(1);
    let prefixes: Vec<String> = (0..4001).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect();
    many[0]["properties"]["destinationAddressPrefixes"] = json!(prefixes);
    assert_eq!(refused(&group(many)), "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached");
    let mut overlap = rule("a", 500);
    overlap["properties"]["destinationAddressPrefixes"] = json!(["10.0.0.0/8", "10.1.0.0/16"]);
    assert_eq!(refused(&group(vec![overlap])), "OverlappingSubnetsNotPermittedInSecurityRule");
    assert_eq!(call(&azure, "DELETE", path, &Value::Null).code(), "InUseNetworkSecurityGroupCannotBeDeleted");
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn addresses_come_from_prefixes_and_have_labels() {
    let azure = cloud(Options { quotas: [("publicIPAddresses".to_owned(), 3)].into(), ..Options::default() });
    let prefix = azure.world(|world| world.public_ip_prefix("sub", "rg", "pre", "20.9.0.0/31"));
    let mut body = public_ip();
    body["properties"]["publicIPPrefix"] = json!({ "id": prefix });
    let path = |name: &str| format!("Microsoft.Network/publicIPAddresses/{name}");
    done(&azure, "PUT", &path("a"), &body);
    assert_eq!(get(&azure, &path("a"))["properties"]["ipAddress"], "20.9.0.0");
    let mut label = public_ip();
    label["properties"]["dnsSettings"] = json!({"domainNameLabel": "shop"});
    done(&azure, "PUT", &path("b"), &label);
    assert_eq!(get(&azure, &path("b"))["properties"]["dnsSettings"]["fqdn"], "shop.eastus.cloudapp.azure.com");
    assert_eq!(call(&azure, "PUT", &path("c"), &label).code(), "DnsRecordInUse");
    label["properties"]["dnsSettings"] = json!({"domainNameLabel": "Shop"});
    assert_eq!(call(&azure, "PUT", &path("c"), &label).code(), "InvalidDomainNameLabel");
    done(&azure, "PUT", &path("c"), &public_ip());
    assert_eq!(call(&azure, "PUT", &path("d"), &public_ip()).code(), "PublicIPCountLimitReached");
    let mut dynamic = public_ip();
    dynamic["properties"]["publicIPAllocationMethod"] = json!("Dynamic");
    assert_eq!(call(&azure, "PUT", &path("c"), &dynamic).status, 400);
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn routes_are_checked() {
    let azure = cloud(Options { limits: Limits { routes: 2, ..Limits::default() }, ..Options::default() });
    let path = "Microsoft.Network/routeTables/rt";
    let route = |name: &str, prefix: &str| {
        json!({"name": name, "properties": {
            "addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.240.0.4",
        }})
    };
    let table = |routes: Vec<Value>| json!({"location": "eastus", "properties": {"routes": routes}});
    done(&azure, "PUT", path, &table(vec![route("a", "10.0.0.0/24"), route("b", "10.0.1.0/24")]));
    let refused = |routes| call(&azure, "PUT", path, &table(routes)).code().to_owned();
    assert_eq!(refused(vec![route("a", "10.0.0.0/24"), route("b", "10.0.0.0/24")]), "RouteConflict");
    assert_eq!(refused(vec![route("a", "10.0.0.1/24")]), "InvalidAddressPrefix");
    let three = vec![route("a", "10.0.0.0/24"), route("b", "10.0.1.0/24"), route("c", "10.0.2.0/24")];
    assert_eq!(refused(three), "RouteTableRouteCountLimitReached");
}

#[test]
fn private_link_services_need_a_subnet_without_policies() {
    let azure = cloud(Options::default());
    let frontend = json!({"name": "f", "properties": {"subnet": {"id": SUBNET}}});
    done(&azure, "PUT", LB, &json!({"location": "eastus", "properties": {"frontendIPConfigurations": [frontend]}}));
    let path = "Microsoft.Network/privateLinkServices/s";
    let service = json!({"location": "eastus", "properties": {
        "loadBalancerFrontendIpConfigurations": [{"id": id("frontendIPConfigurations", "f")}],
        "ipConfigurations": [{"name": "i", "properties": {"primary": true, "subnet": {"id": SUBNET}}}],
    }});
    let refused = call(&azure, "PUT", path, &service);
    assert_eq!(refused.code(), "PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet");
    let mut subnet = get(&azure, SUBNET);
    subnet["properties"]["privateLinkServiceNetworkPolicies"] = json!("Disabled");
    done(&azure, "PUT", SUBNET, &subnet);
    let lb = get(&azure, LB)["etag"].clone();
    done(&azure, "PUT", path, &service);
    assert_ne!(get(&azure, LB)["etag"], lb);
    assert_eq!(call(&azure, "DELETE", LB, &Value::Null).code(), "InUseFrontendIPConfigurationCannotBeDeleted");
    azure.world(|world| world.connect(&format!("{GROUP}/{path}"), "e"));
    let refused = call(&azure, "DELETE", path, &Value::Null);
    assert_eq!(refused.code(), "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted");
    done(&azure, "DELETE", &format!("{path}/privateEndpointConnections/e"), &Value::Null);
    done(&azure, "DELETE", path, &Value::Null);
    done(&azure, "DELETE", LB, &Value::Null);
    assert_eq!(azure.violations(), Vec::<String>::new());
}
