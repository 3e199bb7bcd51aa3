//! Explains a node: its server, and that server's ports, addresses and routes.

use std::sync::Arc;

use ccm_provider::address::{parse_cidr, parse_ip};
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    AddressType, Aspects, Fact, InstanceMetadata, InstancesV2 as _, Lookup, Node, NodeAddress, ProviderError,
};

use super::{Inspector, members, unreadable};
use crate::client::compute::Server;
use crate::client::network::{ExtraRoute, Port};
use crate::node::identity::{BadProviderId, Wanted};

pub(super) async fn explain(openstack: &Inspector, node: &Node) -> Result<Vec<Fact>, ProviderError> {
    let wanted = openstack.identity.wanted(node);
    let found = match &wanted {
        Wanted::Never(error) => return Ok(vec![no_server(node, error)]),
        Wanted::Server(id) => openstack.client.server(id.as_str()).await?.into_iter().collect(),
        Wanted::Name(name) => {
            let mut found = openstack.client.servers_named(name).await?;
            // Nova may ignore case.
            found.retain(|server| server.name == *name);
            found
        }
    };
    let mut facts = vec![id_fact(node)];
    match &*found {
        [server] => facts.extend(server_facts(openstack, node, server).await),
        [] => facts.push(gone(openstack, node, &wanted).await),
        several => {
            let ids: Vec<&str> = several.iter().map(|server| &*server.id).collect();
            facts.push(Fact::bad(
                format!("server named {}", node.name),
                format!("several servers have this name: {}", ids.join(", ")),
                "start the kubelet with --provider-id=openstack:///<ID of the server>",
            ));
        }
    }
    Ok(facts)
}

fn no_server(node: &Node, error: &BadProviderId) -> Fact {
    let about = format!("provider ID {}", node.provider_id_or_empty());
    let hint = match error {
        BadProviderId::Foreign(_) => {
            return Fact::good(about, "belongs to another cloud: this provider does nothing with the node");
        }
        BadProviderId::OtherRegion { .. } => {
            "correct region in section [Global] of cloud.conf, or run a program for each region"
        }
        BadProviderId::Malformed(_) => {
            "spec.providerID cannot be changed: delete the Node and let the kubelet register it again, with the right \
             --provider-id or none"
        }
    };
    Fact::bad(about, error.to_string(), hint)
}

fn id_fact(node: &Node) -> Fact {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Fact::good(format!("provider ID {id}"), "names a server"),
        None if node.has_taint(TAINT_UNINITIALIZED) => Fact::waiting(
            "provider ID",
            "not set yet: it is set when the node is initialized, from the server with its name",
        ),
        None => Fact::good("provider ID", "not set: the server is found by the node's name"),
    }
}

/// What the controllers do about a missing server.
async fn gone(openstack: &Inspector, node: &Node, wanted: &Wanted) -> Fact {
    let (about, seen) = match wanted {
        Wanted::Name(name) => (format!("server named {name}"), "no server of the project has exactly the node's name"),
        _ => (format!("server of {}", node.name), "Nova does not show it"),
    };
    let text = match lookup(openstack, node, Aspects::LIFECYCLE).await {
        Some(Lookup::Gone(evidence)) => format!(
            "{seen}: {evidence}. The node is deleted once it is not Ready and older than {} s",
            evidence.grace.as_secs()
        ),
        Some(Lookup::Unknown(error)) => format!("{seen}: {error}. The node is left unchanged"),
        _ => format!("{seen}, in one of two reads: Nova is not consistent yet"),
    };
    let hint = "if the machine exists, it is in another project or region than this program logs in to: correct the login or \
                region; if it no longer exists, leave the node to the controllers or delete it";
    Fact::bad(about, text, hint)
}

async fn lookup(openstack: &Inspector, node: &Node, aspects: Aspects) -> Option<Lookup> {
    let instances = openstack.instances.as_ref()?;
    instances.lookup(&[Arc::new(node.clone())], aspects).await.into_iter().next()
}

async fn server_facts(openstack: &Inspector, node: &Node, server: &Server) -> Vec<Fact> {
    let mut facts = vec![state(server)];
    if let Some(Lookup::Found(instance)) = lookup(openstack, node, Aspects::METADATA).await {
        match &instance.metadata {
            Ok(Some(metadata)) => facts.push(addresses(node, metadata)),
            Ok(None) => {}
            Err(error) => facts.push(unreadable("addresses", error.clone())),
        }
    }
    match openstack.client.ports_of(&[&server.id]).await {
        Ok(ports) => facts.extend(ports.iter().filter_map(port)),
        Err(error) => facts.push(unreadable("ports", error)),
    }
    if let Some(router) = &openstack.router {
        match openstack.client.router(router).await {
            Ok(found) => facts.extend(routes(node, router, &found.routes)),
            Err(error) => facts.push(unreadable(format!("router {router}"), error)),
        }
    }
    facts
}

fn state(server: &Server) -> Fact {
    let about = format!("server {}", server.id);
    let place = format!("{}, in zone {:?}", server.name, server.zone);
    match &*server.status {
        "ACTIVE" => Fact::good(about, format!("ACTIVE, {place}")),
        "SHUTOFF" => Fact::bad(
            about,
            format!("SHUTOFF, {place}: a node that is not Ready keeps the taint for stopped servers"),
            "start the server, or delete it: then the node is deleted",
        ),
        "ERROR" => Fact::bad(
            about,
            format!("ERROR, {place}: it exists, so that the node is kept"),
            "openstack server show names the fault; repair or delete the server",
        ),
        other => Fact::waiting(about, format!("{other}, {place}: it exists, so that the node is kept")),
    }
}

/// What the node has, against what it would get.
fn addresses(node: &Node, metadata: &InstanceMetadata) -> Fact {
    let text = |address: &NodeAddress| format!("{:?} {}", address.kind, address.address);
    let all: Vec<String> = metadata.node_addresses.iter().map(text).collect();
    let internal = |address: &&NodeAddress| address.kind == AddressType::InternalIp;
    if !metadata.node_addresses.iter().any(|address| internal(&address)) {
        return Fact::bad(
            "addresses",
            format!("no internal one among: {}", all.join(", ")),
            "check public-network-name and internal-network-name in section [Networking] of cloud.conf, and the ports of the \
             server",
        );
    }
    let missing: Vec<&String> =
        all.iter().filter(|text_of| !node.addresses.iter().any(|one| text(one) == **text_of)).collect();
    match missing.is_empty() {
        true => Fact::good("addresses", all.join(", ")),
        false => Fact::waiting("addresses", format!("{}; the node does not have all of them yet", all.join(", "))),
    }
}

fn port(port: &Port) -> Option<Fact> {
    let ips: Vec<&str> = port.fixed_ips.iter().map(|ip| &*ip.ip_address).collect();
    (port.status != "ACTIVE").then(|| {
        let text = format!("{}, with {}: its addresses come from Nova alone", port.status, members::first_few(&ips));
        Fact::waiting(format!("port {}", port.id), text)
    })
}

/// The routes to the pods of the node.
fn routes(node: &Node, router: &str, routes: &[ExtraRoute]) -> Vec<Fact> {
    let has = |hop: &str| {
        let hop = parse_ip(hop);
        hop.is_some() && node.addresses.iter().any(|address| address.ip() == hop)
    };
    let fact = |cidr: &str| {
        let range = parse_cidr(cidr)?;
        let about = format!("route {cidr}");
        Some(match routes.iter().find(|route| parse_cidr(&route.destination) == Some(range)) {
            Some(route) if has(&route.nexthop) => Fact::good(about, format!("leads to the node in router {router}")),
            Some(route) => Fact::bad(
                about,
                format!("leads to {} in router {router}, which is no address of the node", route.nexthop),
                "if the route controller does not correct it, remove the route from the router",
            ),
            None => Fact::waiting(about, format!("not in router {router} yet")),
        })
    };
    node.pod_cidrs.iter().filter_map(|cidr| fact(cidr)).collect()
}
