//! The state of the object itself. Pure.

use ccm_controllers::service::decide;
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{FINALIZER_LOAD_BALANCER, TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use ccm_provider::{Fact, Node, NodeTaskSpec, Service};
use ccm_runtime::InstanceView;
use jiff::Timestamp;
use serde_json::json;

use super::cluster::unreachable;
use super::events::ago;
use super::report::Story;

fn born(created: Option<Timestamp>, now: Timestamp) -> String {
    created.map_or_else(|| "exists".to_owned(), |created| format!("created {}", ago(created, now)))
}

/// `handled`: whether a controller of this program handles Services of its class (or without a class).
pub(super) fn service(service: &Service, handled: bool, now: Timestamp) -> Story {
    let (metadata, key) = (&service.metadata, service.key());
    let wants = handled && service.is_load_balancer() && !decide::is_leaving(service);
    let mut facts = Vec::new();
    facts.push(match metadata.deletion_timestamp {
        Some(since) => {
            let left = metadata.finalizers.join(", ");
            let text = format!("being deleted since {}; finalizers that are left: {left}", ago(since, now));
            Fact::waiting("Service", text)
        }
        None => {
            let born = born(metadata.creation_timestamp, now);
            Fact::good("Service", format!("type {}, {born}", service.spec.kind))
        }
    });
    facts.push(match (service.has_finalizer(), wants) {
        (true, true) => Fact::good("finalizer", "present: the load balancer is deleted before the Service"),
        (true, false) => Fact::waiting("finalizer", "still present: the load balancer must be deleted first"),
        (false, true) => Fact::waiting("finalizer", format!("{FINALIZER_LOAD_BALANCER} is not set yet")),
        (false, false) => Fact::good("finalizer", "none of ours"),
    });
    let addresses: Vec<&str> = service.status.load_balancer.ingress.iter().map(address).collect();
    if !addresses.is_empty() {
        facts.push(Fact::good("address", addresses.join(" ")));
    } else if service.is_load_balancer() && !decide::is_leaving(service) {
        facts.push(Fact::waiting("address", "none yet"));
    }
    let mut story = Story {
        title: format!("service {key}"),
        object: json!({"kind": "Service", "namespace": key.namespace, "name": key.name, "uid": metadata.uid}),
        now,
        ..Story::default()
    };
    if !wants && !service.needs_cleanup() {
        facts.extend(elsewhere(service, &addresses, &mut story));
        // A Service of another controller needs neither our finalizer nor an address.
        facts.retain(|fact| fact.about != "finalizer" && (fact.about != "address" || !addresses.is_empty()));
    }
    story.symptoms = facts;
    story
}

fn address(ingress: &ccm_provider::LoadBalancerIngress) -> &str {
    if ingress.ip.is_empty() { &ingress.hostname } else { &ingress.ip }
}

/// The controller of a Service that this program does not manage.
fn elsewhere(service: &Service, addresses: &[&str], story: &mut Story) -> Option<Fact> {
    let kind = &service.spec.kind;
    let Some(class) = &service.spec.load_balancer_class else {
        story.not_ours = Some(match decide::is_leaving(service) {
            true => "this program has nothing left to do for it; only finalizers of others keep it".to_owned(),
            false => format!("a Service of type {kind} gets no load balancer"),
        });
        return None;
    };
    let why = format!("loadBalancerClass {class:?} is another controller's: this program leaves the Service alone");
    let fact = match addresses.is_empty() {
        true => Fact {
            hint: Some(format!(
                "see that the controller of the class {class:?} runs, or recreate the Service without it"
            )),
            ..Fact::waiting("the controller of the class", &why)
        },
        false => Fact::good("class", &why),
    };
    story.not_ours = Some(why);
    Some(fact)
}

/// A node that another program manages, according to its label.
pub(super) fn unmanaged(node: &Node, label: &str, now: Timestamp) -> Story {
    let why = format!(
        "it has the label {label}: somebody else manages it, and this program neither initializes nor deletes it, nor gives it pod \
         ranges"
    );
    Story {
        title: format!("node {}", node.name),
        object: json!({"kind": "Node", "name": node.name, "uid": node.uid}),
        now,
        symptoms: vec![Fact::good("Node", born(node.created, now)), Fact::good("label", &why)],
        not_ours: Some(why),
        ..Story::default()
    }
}

/// `tasks`: the provider's controllers that run.
pub(super) fn node(node: &Node, view: Option<&InstanceView>, tasks: &[&NodeTaskSpec], now: Timestamp) -> Story {
    let foreign = view.is_some_and(|view| view.is_foreign(node.provider_id.as_deref()));
    let mut story = Story {
        title: format!("node {}", node.name),
        object: json!({"kind": "Node", "name": node.name, "uid": node.uid}),
        now,
        ..Story::default()
    };
    let facts = &mut story.symptoms;
    facts.push(match node.deleting {
        true => Fact::waiting("Node", "is being deleted; finalizers of others keep it"),
        false => Fact::good("Node", born(node.created, now)),
    });
    if foreign {
        let id = node.provider_id_or_empty();
        let why = format!("the provider ID {id} is another cloud's: this program never touches the node");
        facts.push(Fact::good("provider ID", &why));
        if node.has_taint(TAINT_UNINITIALIZED) {
            let text = format!("{TAINT_UNINITIALIZED} stays until a controller manager of that cloud removes it");
            let hint = "run that one too; or, if the machine is of this cloud, correct --provider-id of its kubelet and delete the \
                        Node, so that it registers again";
            facts.push(Fact::bad("taint", text, hint));
        }
        story.not_ours = Some(why);
        return story;
    }
    facts.push(match (&node.provider_id, node.has_taint(TAINT_UNINITIALIZED)) {
        (Some(id), _) => Fact::good("provider ID", &**id),
        (None, true) => Fact::waiting("provider ID", "none yet; it comes with the initialization"),
        (None, false) => Fact::good("provider ID", "none, and the node counts as initialized"),
    });
    facts.extend(taints(node, tasks));
    facts.push(ready(node));
    facts.extend(network(node));
    facts.extend(
        node.left_out_of_balancers().map(|why| Fact::good("load balancers", format!("not behind them: {why}"))),
    );
    let addresses: Vec<&str> = node.addresses.iter().map(|address| &*address.address).collect();
    if !addresses.is_empty() {
        facts.push(Fact::good("addresses", addresses.join(" ")));
    }
    story
}

fn taints(node: &Node, tasks: &[&NodeTaskSpec]) -> Vec<Fact> {
    let mut facts = vec![match node.has_taint(TAINT_UNINITIALIZED) {
        true => Fact::waiting("initialization", format!("the taint {TAINT_UNINITIALIZED} keeps pods away until then")),
        false => Fact::good("initialization", "done: the node has no taint that says otherwise"),
    }];
    if node.has_taint(TAINT_SHUTDOWN) {
        let text = format!("{TAINT_SHUTDOWN}: the cloud said that the instance is stopped");
        facts.push(Fact::bad("taint", text, "start the instance; the taint goes once the node is Ready"));
    }
    let mut others = Vec::new();
    for taint in &node.taints {
        match tasks.iter().find(|task| task.taints.iter().any(|own| own.is(taint))) {
            Some(NodeTaskSpec { name, .. }) => {
                facts.push(Fact::good("taint", format!("{}:{}: {name} adds and removes it", taint.key, taint.effect)));
            }
            None if [TAINT_UNINITIALIZED, TAINT_SHUTDOWN].contains(&&*taint.key) => {}
            None => others.push(&*taint.key),
        }
    }
    if !others.is_empty() {
        facts.push(Fact::good("other taints", format!("{}: not from this program", others.join(", "))));
    }
    facts
}

fn ready(node: &Node) -> Fact {
    let text = match node.ready {
        Some(ConditionStatus::True) => return Fact::good("Ready", "True"),
        Some(ConditionStatus::False) => "False: the kubelet says why in the conditions of the node",
        Some(ConditionStatus::Unknown) => {
            "Unknown: the kubelet sends no heartbeats, and the cloud is asked whether the instance exists"
        }
        None => "not set: the kubelet has not reported yet",
    };
    Fact {
        hint: Some(format!("see kubectl describe node {}", node.name)),
        ..Fact::waiting("the kubelet", format!("Ready is {text}"))
    }
}

fn network(node: &Node) -> Vec<Fact> {
    let mut facts = Vec::new();
    if !node.pod_cidrs.is_empty() {
        facts.push(Fact::good("pod ranges", node.pod_cidrs.join(" ")));
    }
    if let Some(reason) = unreachable(node) {
        let text = format!("NetworkUnavailable is True ({reason}): no route to its pods yet");
        facts.push(Fact::waiting("the network", text));
    }
    facts
}
