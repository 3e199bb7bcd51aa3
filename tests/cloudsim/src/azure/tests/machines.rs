//! Machines and scale sets.

use super::super::seed::{MachineSeed, SetSeed};
use super::super::{Azure, Options};
use super::{GROUP, call, cloud, done, get, public_ip};
use serde_json::{Value, json};

fn pool(azure: &Azure) -> Value {
    let lb = "Microsoft.Network/loadBalancers/lb";
    done(azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &public_ip());
    let address = format!("{GROUP}/Microsoft.Network/publicIPAddresses/a");
    let frontends = json!([{"name": "f", "properties": {"publicIPAddress": {"id": address}}}]);
    let properties = json!({"frontendIPConfigurations": frontends, "backendAddressPools": [{"name": "p"}]});
    done(azure, "PUT", lb, &json!({"location": "eastus", "properties": properties}));
    get(azure, lb)["properties"]["backendAddressPools"][0]["id"].clone()
}

#[test]
fn lists_of_machines_restrict_the_instance_view() {
    let azure = cloud(Options::default());
    let flexible = SetSeed { name: "flex", flexible: true, instances: 2, ..SetSeed::default() };
    let set = azure.world(|world| world.scale_set(&flexible));
    let view = |path: &str| call(&azure, "GET", path, &Value::Null);
    let refused = view("Microsoft.Compute/virtualMachines?$expand=instanceView");
    assert_eq!((refused.status, refused.code()), (400, "InvalidParameter"));
    let of_set = format!(
        "Microsoft.Compute/virtualMachines?$expand=instanceView&$filter=%27virtualMachineScaleSet%2Fid%27%20eq%20%27{set}%27"
    );
    let found = view(&of_set).json;
    assert_eq!(found["value"].as_array().unwrap().len(), 2);
    assert_eq!(found["value"][0]["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/running");
    assert_eq!(found["value"][1]["properties"]["osProfile"]["computerName"], "flex000001");
    let all = view("/subscriptions/sub/providers/Microsoft.Compute/virtualMachines?statusOnly=true").json;
    assert_eq!(all["value"].as_array().unwrap().len(), 3);
    assert!(all["value"][0]["properties"]["instanceView"].is_object());
    assert_eq!(view("Microsoft.Compute/virtualMachines/vm0").json["properties"].get("instanceView"), None);
    let refused = view("/subscriptions/sub/providers/Microsoft.Compute/virtualMachines?$expand=instanceView");
    assert_eq!(refused.status, 400);
    azure.world(|world| {
        world.power(
            "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/vm0",
            "deallocated",
        );
    });
    let one = view("Microsoft.Compute/virtualMachines/vm0?$expand=instanceView").json;
    assert_eq!(one["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/deallocated");
    assert_eq!(azure.take_violations().len(), 2);
}

#[test]
fn instances_of_a_uniform_set_have_interfaces_and_addresses() {
    let azure = cloud(Options::default());
    let seed = SetSeed { instances: 2, public: true, dual: false, zones: &["1", "2"], ..SetSeed::default() };
    azure.world(|world| world.scale_set(&seed));
    let set = "Microsoft.Compute/virtualMachineScaleSets/pool";
    let listed = get(&azure, &format!("{set}/virtualMachines?$expand=instanceView"));
    let second = &listed["value"][1];
    assert_eq!(
        (&second["name"], &second["instanceId"], &second["zones"]),
        (&json!("pool_1"), &json!("1"), &json!(["2"]))
    );
    assert_eq!(second["properties"]["osProfile"]["computerName"], "pool000001");
    let interfaces = get(&azure, &format!("{set}/networkInterfaces"));
    let first = &interfaces["value"][0]["properties"];
    assert_eq!(first["ipConfigurations"][0]["properties"]["privateIPAddress"], "10.240.0.5");
    assert!(
        first["virtualMachine"]["id"].as_str().unwrap().ends_with("/virtualMachineScaleSets/pool/virtualMachines/0")
    );
    let public = get(&azure, &format!("{set}/publicIPAddresses"));
    assert_eq!(public["value"].as_array().unwrap().len(), 2);
    azure.world(|world| world.delete_machine("/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0"));
    assert_eq!(call(&azure, "GET", &format!("{set}/virtualMachines/0"), &Value::Null).code(), "NotFound");
    let wrong = call(&azure, "GET", &format!("{set}/virtualMachines/x"), &Value::Null);
    assert_eq!((wrong.code(), &wrong.json["error"]["target"]), ("InvalidParameter", &json!("instanceId")));
    azure.world(|world| {
        world.remove("/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool");
    });
    assert_eq!(call(&azure, "GET", &format!("{set}/virtualMachines"), &Value::Null).code(), "ParentResourceNotFound");
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn an_instance_that_is_being_deleted_takes_no_write() {
    let azure = cloud(Options::default());
    let set = azure.world(|world| world.scale_set(&SetSeed { instances: 1, ..SetSeed::default() }));
    let instance = format!("{set}/virtualMachines/0");
    azure.world(|world| world.state(&instance, "Deleting"));
    let refused = call(&azure, "PUT", &instance, &json!({"location": "eastus", "properties": {}}));
    assert_eq!((refused.status, refused.code()), (409, "OperationNotAllowed"));
}

#[test]
fn a_put_of_a_set_keeps_what_it_lacks_and_a_list_replaces_the_whole_list() {
    let azure = cloud(Options::default());
    azure.world(|world| world.scale_set(&SetSeed { instances: 1, ..SetSeed::default() }));
    let set = "Microsoft.Compute/virtualMachineScaleSets/pool";
    let before = get(&azure, set);
    let mut interfaces = before["properties"]["virtualMachineProfile"]["networkProfile"].clone();
    let target = pool(&azure);
    let configuration = &mut interfaces["networkInterfaceConfigurations"][0]["properties"]["ipConfigurations"][0];
    configuration["properties"]["loadBalancerBackendAddressPools"] = json!([{ "id": target }]);
    let part = json!({"location": "eastus", "properties": {"virtualMachineProfile": {"networkProfile": interfaces}}});
    done(&azure, "PUT", set, &part);
    let after = get(&azure, set);
    assert_eq!(after["sku"], before["sku"]);
    assert_eq!(
        after["properties"]["virtualMachineProfile"]["osProfile"],
        before["properties"]["virtualMachineProfile"]["osProfile"]
    );
    let instance = get(&azure, &format!("{set}/virtualMachines/0"));
    assert_eq!(instance["properties"]["latestModelApplied"], false);
    let own = json!({"location": "eastus", "properties": {"networkProfileConfiguration": interfaces}});
    let put = done(&azure, "PUT", &format!("{set}/virtualMachines/0"), &own);
    assert_eq!((put.status, &put.json["etag"]), (200, &json!("\"3\"")));
    assert_eq!(get(&azure, &format!("{set}/virtualMachines/0"))["properties"]["latestModelApplied"], true);
    let lb = get(&azure, "Microsoft.Network/loadBalancers/lb");
    let members = &lb["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"];
    assert_eq!(members.as_array().unwrap().len(), 1);
    let lost = json!({"location": "eastus", "properties": {"networkProfileConfiguration": {"networkInterfaceConfigurations": []}}});
    let refused = call(&azure, "PUT", &format!("{set}/virtualMachines/0"), &lost);
    assert_eq!((refused.status, refused.code()), (409, "PropertyChangeNotAllowed"));
    let gone = call(&azure, "DELETE", "Microsoft.Network/loadBalancers/lb", &Value::Null);
    assert_eq!(gone.code(), "LoadBalancerInUseByVirtualMachineScaleSet");
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn a_set_has_few_active_models() {
    let azure = cloud(Options::default());
    let id = azure.world(|world| world.scale_set(&SetSeed { instances: 20, ..SetSeed::default() }));
    let set = "Microsoft.Compute/virtualMachineScaleSets/pool";
    let change = |number: usize| json!({"location": "eastus", "properties": {"virtualMachineProfile": {"userData": number.to_string()}}});
    for number in 1..10 {
        done(&azure, "PUT", set, &change(number));
        let instance = format!("{id}/virtualMachines/{number}");
        done(&azure, "PUT", &instance, &json!({"location": "eastus", "properties": {}}));
    }
    let refused = call(&azure, "PUT", set, &change(10));
    assert_eq!((refused.status, refused.code()), (409, "VMScaleSetActiveModelsCountLimitReached"));
}

#[test]
fn a_machine_of_an_availability_set_is_listed_in_it() {
    let azure = cloud(Options::default());
    azure.world(|world| {
        world.machine(&MachineSeed {
            name: "a",
            availability_set: "as",
            public: true,
            zone: "1",
            ..MachineSeed::default()
        })
    });
    let set = get(&azure, "Microsoft.Compute/availabilitySets/as");
    assert_eq!(set["properties"]["virtualMachines"].as_array().unwrap().len(), 1);
    let interface = get(&azure, "Microsoft.Network/networkInterfaces/a-nic");
    let public =
        interface["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]["id"].as_str().unwrap();
    assert!(get(&azure, public)["properties"]["ipConfiguration"]["id"].as_str().unwrap().ends_with("/ipconfig1"));
    assert_eq!(call(&azure, "DELETE", public, &Value::Null).code(), "PublicIPAddressCannotBeDeleted");
    assert_eq!(call(&azure, "DELETE", "Microsoft.Network/networkInterfaces/a-nic", &Value::Null).code(), "NicInUse");
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn the_provider_has_the_zones_of_locations_and_disks_have_theirs() {
    let azure = cloud(Options::default());
    azure.world(|world| world.disk("sub", "rg", "d", "2"));
    assert_eq!(get(&azure, "Microsoft.Compute/disks/d")["zones"], json!(["2"]));
    let token = format!("Bearer {}", azure.token());
    let path = "/subscriptions/sub/providers/Microsoft.Compute?api-version=2021-04-01";
    let got = super::send(&azure, "GET", path, &[("authorization", &token)], "").json;
    let types = got["resourceTypes"].as_array().unwrap();
    let machines = types.iter().find(|kind| kind["resourceType"] == "virtualMachines").unwrap();
    assert_eq!(machines["zoneMappings"][0], json!({"location": "East US", "zones": ["1", "2", "3"]}));
    assert_eq!(azure.violations(), Vec::<String>::new());
}
