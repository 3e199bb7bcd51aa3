use serde_json::json;

use super::*;

fn read(name: &str, range: &str, kind: &str, hop: &str) -> Option<Target<IpAddr>> {
    let properties = json!({"addressPrefix": range, "nextHopType": kind, "nextHopIpAddress": hop});
    let is_node = |name: &str, hop: &IpAddr| name == "node1" || hop.to_string() == "10.0.0.1";
    Some(entry(&json!({"name": name, "properties": properties}), is_node)?.target)
}

#[test]
fn a_route_is_ours_by_its_name_or_its_hop() {
    let ours = |hop: &str| Some(Target::Hop(hop.parse().unwrap()));
    let foreign = |kind: &str| Some(Target::Foreign(kind.to_owned()));
    let node = route_name("node1", "10.24.0.0/24");
    assert_eq!(node, "node1____10240024");
    assert_eq!(route_name("n", "fd00:10::/64"), "n____fd001064");
    assert_eq!(read(&node, "10.24.0.0/24", "VirtualAppliance", "10.0.0.9"), ours("10.0.0.9"));
    assert_eq!(read("node1", "10.24.0.0/24", "virtualAppliance", "10.0.0.9"), ours("10.0.0.9"));
    assert_eq!(read("other", "10.24.0.0/24", "VirtualAppliance", "10.0.0.1"), ours("10.0.0.1"));
    assert_eq!(read("other", "10.24.0.0/24", "VirtualAppliance", "10.0.0.9"), foreign("VirtualAppliance"));
    assert_eq!(read("a____b", "10.24.0.0/24", "VirtualAppliance", "10.0.0.9"), foreign("VirtualAppliance"));
    assert_eq!(read(&node, "10.24.0.0/24", "Internet", ""), foreign("Internet"));
    assert_eq!(read("tag", "AzureCloud", "Internet", ""), None);
}
