use std::collections::BTreeMap;

use ccm_provider::AddressType;
use serde_json::json;

use super::*;
use crate::node::machine::Interface;

fn machine(zone: &str) -> Machine {
    let id = ArmId::new("s", "g", "Microsoft.Compute/virtualMachines", "Vm");
    let nic = ArmId::new("s", "g", "Microsoft.Network/networkInterfaces", "nic");
    let object = json!({
        "id": id, "location": "WestUS", "zones": [zone],
        "properties": {
            "provisioningState": "Succeeded", "hardwareProfile": {"vmSize": "D2"}, "osProfile": {"computerName": "Node"},
            "networkProfile": {"networkInterfaces": [{"id": nic}]},
        },
    });
    Machine::read(&object).unwrap()
}

/// The interfaces of the machine: one with an address of each family.
fn interfaces(machine: &Machine) -> Interfaces {
    let public_ip = ArmId::new("s", "g", "Microsoft.Network/publicIPAddresses", "p");
    let config = |address: &str, primary: bool| {
        let public_ip = primary.then(|| json!({"id": public_ip}));
        json!({"properties": {"primary": primary, "privateIPAddress": address, "publicIPAddress": public_ip}})
    };
    let interface = |primary: bool, configs: serde_json::Value| {
        let machine = json!({"id": machine.id.folded()});
        let object =
            json!({"properties": {"primary": primary, "virtualMachine": machine, "ipConfigurations": configs}});
        Interface::read(&object).unwrap()
    };
    let second = interface(false, json!([config("10.9.0.1", false)]));
    let first = interface(true, json!([config("fd00::1", false), config("10.0.0.4", true), config("10.0.0.5", false)]));
    Interfaces::new(BTreeMap::from([(machine.id.clone(), vec![second, first])]))
}

fn stamped<T>(value: T) -> Stamped<T> {
    Stamped { began: Instant::now(), value: Arc::new(value) }
}

fn details(machine: &Machine, aspects: Aspects) -> Details {
    let holder = Holder::group("s", "g");
    let public = ArmId::new("s", "g", "Microsoft.Network/publicIPAddresses", "P");
    Details {
        aspects,
        interfaces: [(holder.clone(), Ok(stamped(interfaces(machine))))].into(),
        public_ips: [(holder, Ok(stamped(PublicIps::new([(public, "20.0.0.1".parse().unwrap())].into()))))].into(),
        ..Details::default()
    }
}

fn settings() -> Settings {
    let text = "subscriptionId: s\nresourceGroup: g\nlocation: l\n";
    Settings::of(&Config::parse(text, &|_| None).unwrap().0, false)
}

fn node() -> Node {
    Node { name: "node".into(), ..Node::default() }
}

#[tokio::test]
async fn metadata_is_read_from_the_primary_interface() {
    let machine = machine("2");
    let details = details(&machine, Aspects::METADATA);
    let settings = settings();
    let metadata = Judge { settings: &settings, details: &details }.metadata(&node(), &machine).unwrap();
    let addresses: Vec<(AddressType, &str)> =
        metadata.node_addresses.iter().map(|address| (address.kind.clone(), &*address.address)).collect();
    let expected = [
        (AddressType::InternalIp, "10.0.0.4"),
        (AddressType::Hostname, "node"),
        (AddressType::ExternalIp, "20.0.0.1"),
        (AddressType::InternalIp, "fd00::1"),
    ];
    assert_eq!(addresses, expected);
    assert_eq!((&*metadata.zone, &*metadata.region, &*metadata.instance_type), ("westus-2", "westus", "D2"));
    let id = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/Vm";
    assert_eq!(metadata.provider_id, id);
}

#[tokio::test]
async fn the_provider_id_of_a_node_stays_as_it_is() {
    let machine = machine("2");
    let details = details(&machine, Aspects::METADATA);
    let own = "azure:///Subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/vm";
    let node = Node { provider_id: Some(own.into()), ..node() };
    let settings = settings();
    assert_eq!(Judge { settings: &settings, details: &details }.metadata(&node, &machine).unwrap().provider_id, own);
}

#[tokio::test]
async fn a_node_keeps_its_addresses_when_they_cannot_be_read() {
    let machine = machine("2");
    let settings = settings();
    let failed = |details: Details| {
        Judge { settings: &settings, details: &details }.metadata(&node(), &machine).unwrap_err().to_string()
    };
    let throttled = || ApiError::of_kind(VM_GET, ErrorKind::Throttled { after: None }, "later");
    let holder = || Holder::group("s", "g");
    let error =
        failed(Details { interfaces: [(holder(), Err(throttled()))].into(), ..details(&machine, Aspects::ADDRESSES) });
    assert!(error.contains("asks for fewer calls"), "{error}");
    let error =
        failed(Details { public_ips: [(holder(), Err(throttled()))].into(), ..details(&machine, Aspects::ADDRESSES) });
    assert!(error.contains("asks for fewer calls"), "{error}");
    let empty = Ok(stamped(Interfaces::new(BTreeMap::new())));
    let error = failed(Details { interfaces: [(holder(), empty)].into(), ..details(&machine, Aspects::ADDRESSES) });
    assert!(error.contains("no private address of"), "{error}");
}

#[tokio::test]
async fn a_machine_is_stopped_if_nothing_else_is_under_way() {
    let settings = settings();
    let shutdown = |provisioning: &str, power: &str| {
        let machine = Machine { provisioning: provisioning.to_owned(), ..machine("1") };
        let state = State { power: power.to_owned(), fault_domain: None };
        let details = Details { states: [(machine.id.clone(), Ok(state))].into(), ..Details::default() };
        Judge { settings: &settings, details: &details }.shutdown(&machine).unwrap()
    };
    assert!(shutdown("succeeded", "deallocated"));
    assert!(!shutdown("Updating", "deallocated"));
    assert!(!shutdown("Succeeded", "stopping"));
    assert!(!shutdown("Succeeded", ""));
}
