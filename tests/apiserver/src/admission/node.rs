//! Nodes.

use crate::error::Cause;
use crate::value::{at, list, set, set_default, text};
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn default_new(object: &mut Value) {
    // As the admission plugin TaintNodesByCondition does for every new node.
    let mut taints = list(object, "/spec/taints").to_vec();
    if !taints.iter().any(|one| text(one, "/key") == NOT_READY && text(one, "/effect") == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        set(object, "/spec/taints", taints);
    }
    default_old(object);
}

pub(super) fn default_old(object: &mut Value) {
    let single = text(object, "/spec/podCIDR").to_owned();
    match text(object, "/spec/podCIDRs/0").to_owned() {
        first if single.is_empty() && !first.is_empty() => set(object, "/spec/podCIDR", first),
        // The older single field takes precedence if the two differ.
        first if !single.is_empty() && first != single => set(object, "/spec/podCIDRs", json!([single])),
        _ => {}
    }
    if let Some(capacity) = at(object, "/status/capacity").cloned() {
        set_default(object, "/status/allocatable", capacity);
    }
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = list(object, "/spec/taints");
    for (index, taint) in taints.iter().enumerate() {
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if key.is_empty() {
            causes.push(Cause::required(&format!("metadata.taints[{index}].key"), ""));
        }
        let field = format!("metadata.taints[{index}].effect");
        causes.extend(effect.is_empty().then(|| Cause::required(&field, "")));
        causes.extend(Cause::unless_one_of(&field, effect, &EFFECTS));
        if taints.iter().take(index).any(|other| text(other, "/key") == key && text(other, "/effect") == effect) {
            let value = text(taint, "/value");
            let shown =
                format!("{{\"Key\":\"{key}\",\"Value\":\"{value}\",\"Effect\":\"{effect}\",\"TimeAdded\":null}}");
            let detail = "taints must be unique by key and effect pair";
            causes.push(Cause::duplicate(&format!("metadata.taints[{index}]"), &shown, detail));
        }
    }
    let cidrs = list(object, "/spec/podCIDRs");
    for (index, cidr) in cidrs.iter().enumerate() {
        causes.extend(super::service::validate_cidr(&format!("spec.podCIDRs[{index}]"), text(cidr, "")));
    }
    let v6 = |cidr: &Value| text(cidr, "").contains(':');
    if cidrs.len() > 2 || matches!(cidrs, [one, two] if v6(one) == v6(two)) {
        let detail = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid("spec.podCIDRs", &json!(cidrs), detail));
    }
    let addresses = list(object, "/status/addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|other| other == address) {
            let (kind, address) = (text(address, "/type"), text(address, "/address"));
            let shown = format!("{{\"Type\":\"{kind}\",\"Address\":\"{address}\"}}");
            causes.push(Cause::duplicate(&format!("status.addresses[{index}]"), &shown, ""));
        }
    }
    causes
}

pub(super) fn validate_change(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let provider_id = text(old, "/spec/providerID");
    if !provider_id.is_empty() && provider_id != text(new, "/spec/providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden("spec.providerID", detail));
    }
    let cidrs = list(old, "/spec/podCIDRs");
    if !cidrs.is_empty() && cidrs != list(new, "/spec/podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        causes.push(Cause::forbidden("spec.podCIDRs", detail));
    }
    causes
}
