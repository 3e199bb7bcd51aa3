//! A table whose routes lead to addresses, as routers of OpenStack have. One of instances is tested with the AWS provider.

use std::net::IpAddr;
use std::sync::Arc;

use ccm_provider::{AddressType, ErrorClass, NodeAddress, NodeRef};

use super::*;

#[derive(Debug)]
struct Router;

#[async_trait]
impl RouteTable for Router {
    type Id = ();
    type Hop = IpAddr;
    type Facts = ();
    type Write = String;
    const NO_HOP: &'static str = "has no internal address";

    async fn read(&self, _: &str, _: Duration, _: Option<Instant>) -> Result<Table<(), IpAddr>, ProviderError> {
        Err(ProviderError::NotImplemented)
    }

    async fn facts(&self, _: &BTreeSet<IpAddr>, _: &BTreeSet<IpAddr>, _: Option<Instant>) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn write(&self, _: &String) -> Result<(), ProviderError> {
        Ok(())
    }

    fn hops(node: &Node) -> Vec<IpAddr> {
        node.addresses.iter().filter_map(NodeAddress::ip).collect()
    }

    fn hop<'a>(hops: &'a [IpAddr], destination: &IpNet) -> Option<&'a IpAddr> {
        hops.iter().find(|hop| hop.is_ipv4() == destination.addr().is_ipv4())
    }

    fn is_stranger((): &(), _: &IpAddr) -> bool {
        false
    }

    fn prepare((): &(), _: &NodeName, hop: &IpAddr) -> Result<Vec<(String, String)>, ProviderError> {
        Ok(vec![(format!("allow {hop}"), "it forwards".to_owned())])
    }

    fn create((): &(), (): &(), _: &NewRoute, destination: IpNet, hop: &IpAddr, old: Option<&Entry<IpAddr>>) -> String {
        format!("{} {destination} -> {hop}", if old.is_some() { "replace" } else { "add" })
    }

    fn delete((): &(), entry: &Entry<IpAddr>) -> String {
        match &entry.target {
            Target::Hop(hop) => format!("remove {} -> {hop}", entry.destination),
            _ => format!("remove {}", entry.destination),
        }
    }
}

fn node(name: &str, addresses: &[&str]) -> NodeRef {
    let addresses = addresses.iter().map(|ip| NodeAddress::new(AddressType::InternalIp, *ip)).collect();
    Arc::new(Node { name: name.into(), addresses, ..Node::default() })
}

fn observed(nodes: &[NodeRef], routes: &[(&str, &str)], former: &BTreeMap<IpAddr, NodeName>) -> Observed<Router> {
    let entry = |(destination, hop): &(&str, &str)| Entry {
        name: (*destination).to_owned(),
        destination: (*destination).to_owned(),
        target: hop.parse().map_or(Target::Nowhere, Target::Hop),
    };
    Observed::new(Table { id: (), entries: routes.iter().map(entry).collect() }, nodes, former)
}

fn route(name: &str, destination: &str) -> Route {
    Route { target_node: Some(name.into()), destination_cidr: destination.into(), ..Route::default() }
}

fn text(plan: Result<Vec<Step<String>>, ProviderError>) -> Vec<String> {
    plan.unwrap().into_iter().map(|step| step.write).collect()
}

#[test]
fn the_hop_is_that_of_the_range_and_is_prepared_once() {
    let nodes = [node("a", &["10.0.0.1", "fd00::1"]), node("b", &["10.0.0.2"])];
    let observed = observed(&nodes, &[("10.1.1.0/24", "gone"), ("10.1.2.0/24", "10.9.9.9")], &BTreeMap::new());
    let wanted = [("a", "10.1.1.0/24"), ("a", "fd00:1::/80"), ("a", "10.1.2.0/24"), ("b", "fd00:2::/80")];
    let wanted = wanted.map(|(name, range)| NewRoute { name_hint: String::new(), route: route(name, range) });
    let mut plans = observed.create_all(&wanted);
    let error = plans.pop().unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict);
    assert_eq!(error.to_string(), "node b has no internal address: no route can lead there");
    let plans: Vec<_> = plans.into_iter().map(text).collect();
    assert_eq!(plans[0], ["allow 10.0.0.1", "remove 10.1.1.0/24", "add 10.1.1.0/24 -> 10.0.0.1"]);
    assert_eq!(plans[1], ["allow fd00::1", "add fd00:1::/80 -> fd00::1"]);
    assert_eq!(plans[2], ["replace 10.1.2.0/24 -> 10.0.0.1"]);
}

#[test]
fn a_hop_that_two_nodes_claim_is_that_of_neither() {
    let nodes = [node("a", &["10.0.0.1"]), node("b", &["10.0.0.1"])];
    let observed = observed(&nodes, &[("10.1.1.0/24", "10.0.0.1")], &BTreeMap::new());
    assert!(observed.routes().is_empty());
    assert_eq!(observed.delete(&route("a", "10.1.1.0/24")).unwrap_err().class(), ErrorClass::Conflict);
}

#[test]
fn a_node_that_is_gone_keeps_its_route_in_the_list_until_it_is_deleted() {
    let first = observed(&[node("a", &["10.0.0.1"])], &[("10.1.1.0/24", "10.0.0.1")], &BTreeMap::new());
    let second = observed(&[], &[("10.1.1.0/24", "10.0.0.1")], &first.former);
    assert_eq!(second.routes(), first.routes());
    assert_eq!(text(second.delete(&second.routes()[0])), ["remove 10.1.1.0/24 -> 10.0.0.1"]);
    let third = observed(&[], &[], &second.former);
    assert!(third.former.is_empty(), "a hop is forgotten with its last route");
}
