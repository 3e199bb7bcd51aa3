//! Nodes: whether their instances exist, and the writes to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{
    LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA,
    TAINT_UNINITIALIZED,
};
use ccm_provider::{Check, ErrorClass, Lookup, Node, NodeRef, Plan, Schemes, Severity, Verb};

use super::joined;
use crate::commands::previewed::Previewed;

const PROVIDER_ID: &str = "node-provider-id";
pub(super) const INSTANCE: &str = "node-instance";

pub(super) struct Nodes<'a> {
    pub(super) nodes: &'a [NodeRef],
    /// The cloud's answer for each node; `None`: the provider has no instances.
    pub(super) answers: Option<&'a [Lookup]>,
    /// The schemes of the provider IDs of this cloud.
    pub(super) schemes: Schemes,
    pub(super) previewed: &'a Previewed,
}

/// A problem of a node: severity, check, message and fix.
type Kind = (Severity, &'static str, String, Cow<'static, str>);

pub(super) fn checks(seen: &Nodes<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    for (at, node) in seen.nodes.iter().enumerate() {
        let answer = seen.answers.and_then(|answers| answers.get(at));
        for (severity, check, message, fix) in
            [identity(node, seen), instance(node, answer, seen)].into_iter().flatten()
        {
            let (check, fix) = (check.to_owned(), fix.into_owned());
            checks.push(Check { severity, check, subject: format!("node {}", node.name), message, fix });
        }
    }
    checks.extend(all_foreign(seen));
    checks.extend(planned(&seen.previewed.plans));
    if checks.is_empty() && !seen.previewed.lacks("node ") {
        checks.push(Check::good("nodes", "", format!("nodes that stay as they are: {}", seen.nodes.len())));
    }
    checks
}

impl Nodes<'_> {
    /// Whether a finding already reports that this node, `node NAME`, is unknown to the cloud.
    pub(super) fn is_reported(&self, subject: &str) -> bool {
        let Some(answers) = self.answers else { return false };
        let is_lost = |answer: &Lookup| matches!(answer, Lookup::Gone(_) | Lookup::Unknown(_));
        let lost = self.nodes.iter().zip(answers).filter(|(_, answer)| is_lost(answer));
        lost.map(|(node, _)| &node.name).any(|name| subject.strip_prefix("node ") == Some(name.as_str()))
    }
}

fn is_foreign(node: &Node, schemes: &Schemes) -> bool {
    schemes.is_foreign(node.provider_id.as_deref())
}

/// Checks provider ID and taint.
fn identity(node: &Node, seen: &Nodes<'_>) -> Option<Kind> {
    if is_foreign(node, &seen.schemes) {
        let text = format!("its provider ID is of another cloud ({})", node.provider_scheme().unwrap_or_default());
        return Some((
            Severity::Warning,
            PROVIDER_ID,
            text,
            "none, if this is intended: the node is left alone".into(),
        ));
    }
    if node.has_taint(TAINT_UNINITIALIZED) {
        // Its initialization is reported with the other writes.
        let initialized = seen.previewed.plans.iter().any(|plan| plan.subject == format!("node {}", node.name));
        let text = "it waits for its initialization, and this program would not initialize it";
        let fix = || format!("if no other finding says why: ccm explain node/{}", node.name).into();
        return (!initialized).then(|| (Severity::Error, "node-uninitialized", text.into(), fix()));
    }
    if node.provider_id.is_some() {
        return None;
    }
    let labels =
        [LABEL_ZONE, LABEL_REGION, LABEL_INSTANCE_TYPE, LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_INSTANCE_TYPE_BETA];
    if labels.iter().any(|label| node.labels.contains_key(label)) {
        let text = "it has labels of a cloud and no provider ID: its instance is found by the node's name alone";
        let fix = "set spec.providerID, or delete the Node so that it registers again";
        return Some((Severity::Warning, PROVIDER_ID, text.into(), fix.into()));
    }
    let text = format!(
        "it has no provider ID, no labels of a cloud and no taint {TAINT_UNINITIALIZED}: its kubelet runs without \
         --cloud-provider=external, and no program initializes it"
    );
    let fix = "start the kubelet with --cloud-provider=external before nodes register; for this one: kubectl taint node NAME \
               node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule";
    Some((Severity::Error, "kubelet", text, fix.into()))
}

/// Whether its instance exists. The lifecycle controller decides whether a node without one is deleted.
fn instance(node: &Node, answer: Option<&Lookup>, seen: &Nodes<'_>) -> Option<Kind> {
    let find = "if the machine exists: compare spec.providerID and the name of the node with the instance in the cloud, and \
                account and region of --cloud-config with those of the cluster; if it does not: delete the node";
    match answer? {
        Lookup::Found(_) | Lookup::Foreign => None,
        Lookup::Gone(evidence) if is_deleted(node, &seen.previewed.plans) => {
            let text = format!("this program would delete the node: {evidence}, and it is not Ready");
            Some((Severity::Error, "node-deletion", text, find.into()))
        }
        Lookup::Gone(evidence) => {
            let ready = node.ready == Some(ConditionStatus::True);
            let then = if ready {
                "if it stops being Ready, this program deletes the node"
            } else {
                "this program deletes the node when a second answer confirms it"
            };
            Some((Severity::Error, INSTANCE, format!("{evidence}; {then}"), find.into()))
        }
        Lookup::Unknown(error) => {
            let class = error.class();
            let text =
                format!("unknown whether its instance exists, so that it is left alone: {error} ({})", class.as_str());
            let fix: Cow<'static, str> = match class {
                ErrorClass::NotFound => find.into(),
                // It may be about credentials, the region or the network: nothing says that the machine is gone.
                ErrorClass::Unknown => "do what the message says; until then nothing is deleted".into(),
                class => class.remediation().into(),
            };
            Some((Severity::Error, INSTANCE, text, fix))
        }
    }
}

fn is_deleted(node: &Node, plans: &[Plan]) -> bool {
    let steps = plans.iter().flat_map(|plan| &plan.steps);
    steps.filter(|step| step.verb == Verb::Delete && step.kind == "Node").any(|step| *step.id == *node.name)
}

fn all_foreign(seen: &Nodes<'_>) -> Option<Check> {
    let all = !seen.nodes.is_empty() && seen.nodes.iter().all(|node| is_foreign(node, &seen.schemes));
    all.then(|| {
        let text = format!("no node has a provider ID that begins with {}", seen.schemes);
        Check::error(PROVIDER_ID, "", text, "see that --cloud-provider is the cloud of this cluster")
    })
}

/// The controllers' planned writes to nodes: one finding per kind of write, with an example.
fn planned(plans: &[Plan]) -> Vec<Check> {
    let mut kinds: BTreeMap<&str, Vec<(&str, &Plan)>> = BTreeMap::new();
    for plan in plans {
        let Some(rest) = plan.subject.strip_prefix("node ") else { continue };
        let (name, what) = rest.split_once(' ').unwrap_or((rest, ""));
        let deletes = plan.steps.iter().any(|step| step.verb == Verb::Delete);
        // Reported by `instance`.
        if !plan.steps.is_empty() && !deletes {
            kinds.entry(what).or_default().push((name, plan));
        }
    }
    kinds.into_iter().map(|(what, plans)| of_kind(what, &plans)).collect()
}

fn of_kind(what: &str, plans: &[(&str, &Plan)]) -> Check {
    let names: Vec<&str> = plans.iter().map(|(name, _)| *name).collect();
    let changes = plans.first().map(|(_, plan)| {
        let changes = plan.steps.iter().flat_map(|step| &step.changes).map(ToString::to_string);
        changes.collect::<Vec<_>>().join(", ")
    });
    let example = changes.filter(|changes| !changes.is_empty()).unwrap_or_default();
    let (check, text) = match what {
        "addresses" => ("node-addresses", "addresses would change"),
        "labels" => ("node-labels", "labels would change"),
        "" => ("node-initialization", "waits for its initialization and would get it"),
        _ => ("node-plan", what),
    };
    let of = if plans.len() == 1 { String::new() } else { format!(", on {} nodes; the first", plans.len()) };
    let text = format!("{text}{of}: {example}");
    let text = text.trim_end_matches([':', ' ']).to_owned();
    let fix = match check {
        "node-addresses" => {
            "see that the certificate of the kubelet and all that connect to the nodes accept them; ccm plan node/NAME"
        }
        _ => "none, if this is intended; ccm plan node/NAME shows it whole",
    };
    Check::warning(check, format!("node {}", joined(&names)), text, fix)
}
