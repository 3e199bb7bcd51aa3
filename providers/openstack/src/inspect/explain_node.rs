//! Explains a node: its server, and that server's ports, addresses and routes.

use std::sync::Arc;

use ccm_kit::inspect::{first_few, node as links};
use ccm_kit::routes::RouteTable as _;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, ProviderError};

use super::{Inspector, unreadable};
use crate::client::compute::Server;
use crate::client::network::Port;
use crate::node::identity::{BadProviderId, Wanted};
use crate::routes::{RouterTable, entries};

const NO_ADDRESS: &str = "check public-network-name and internal-network-name in section [Networking] of cloud.conf, and the ports \
                          of the server";

pub(super) async fn explain(openstack: &Inspector, node: &Node) -> Result<Vec<Fact>, ProviderError> {
    let wanted = openstack.identity.wanted(node);
    let found = match &wanted {
        Wanted::Never(error) => return Ok(vec![no_server(node, error)]),
        Wanted::Server(id) => openstack.client.server(id.as_str()).await?.into_iter().collect(),
        Wanted::Name(name) => openstack.client.servers_named(name).await?,
    };
    let mut facts = vec![links::provider_id(node, "a server", "server")];
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
    match error {
        BadProviderId::Foreign(_) => links::foreign(node),
        BadProviderId::Malformed(_) => links::malformed(node, error),
        BadProviderId::OtherRegion { .. } => Fact {
            hint: Some("correct region in section [Global] of cloud.conf, or run a program for each region".to_owned()),
            ..links::malformed(node, error)
        },
    }
}

/// The reaction of the controllers to a missing server.
async fn gone(openstack: &Inspector, node: &Node, wanted: &Wanted) -> Fact {
    let (about, seen) = match wanted {
        Wanted::Name(name) => (format!("server named {name}"), "no server of the project has the node's name"),
        _ => (format!("server of {}", node.name), "Nova does not show it"),
    };
    let answer = lookup(openstack, node, Aspects::LIFECYCLE).await;
    let elsewhere = "another project or region than this program logs in to: correct the login or region";
    links::missing(about, seen, answer.as_ref(), "Nova", elsewhere)
}

async fn lookup(openstack: &Inspector, node: &Node, aspects: Aspects) -> Option<Lookup> {
    let instances = openstack.instances.as_ref()?;
    instances.lookup(&[Arc::new(node.clone())], aspects).await.into_iter().next()
}

async fn server_facts(openstack: &Inspector, node: &Node, server: &Server) -> Vec<Fact> {
    let mut facts = vec![state(server)];
    if let Some(Lookup::Found(instance)) = lookup(openstack, node, Aspects::METADATA).await {
        facts.extend(links::addresses(node, &instance, NO_ADDRESS));
    }
    match openstack.client.ports_of(&[&server.id]).await {
        Ok(ports) => facts.extend(ports.iter().filter_map(port)),
        Err(error) => facts.push(unreadable("ports", error)),
    }
    if let Some(router) = &openstack.router {
        match openstack.client.router(router).await {
            Ok(found) => {
                let hops = [RouterTable::hops(node), RouterTable::other_hops(node)].concat();
                let entries = entries(&found.routes, &openstack.cluster_cidrs);
                let router = format!("router {router}");
                let none = format!("not in {router} yet");
                facts.extend(links::routes(node, &hops, &entries, &router, Some(&none)));
            }
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

fn port(port: &Port) -> Option<Fact> {
    let ips: Vec<&str> = port.fixed_ips.iter().map(|ip| &*ip.ip_address).collect();
    (port.status != "ACTIVE").then(|| {
        let text = format!("{}, with {}: its addresses come from Nova alone", port.status, first_few(&ips));
        Fact::waiting(format!("port {}", port.id), text)
    })
}
