//! Conditions of a Service about its load balancer. Pure.
//!
//! Types, reasons and meaning are those of KEP-4631, with two exceptions that follow the convention of all other
//! conditions: `lastTransitionTime` changes only when `status` does, and unchanged conditions are not written. So
//! neither a restart nor the sync of an unchanged Service is a write.

use std::net::IpAddr;

use ccm_provider::{Condition, ErrorClass, LoadBalancerStatus, Note, Service};
use ccm_runtime::clock::rfc3339;
use ccm_runtime::writer::ConditionChanges;

#[cfg(test)]
mod tests;

/// Whether the load balancer accepts traffic.
pub const SERVING: &str = "LoadBalancerServing";
/// Whether it is being created or changed.
pub const PROVISIONING: &str = "LoadBalancerProvisioning";
/// Whether it is known to lack something that the Service requests. Present only in that case.
pub const DEGRADED: &str = "LoadBalancerDegraded";

/// Reasons that this controller sets.
mod reason {
    pub(super) const SERVING: &str = "Serving";
    pub(super) const PROVISIONING: &str = "Provisioning";
    pub(super) const COMPLETE: &str = "Complete";
    pub(super) const UNSUPPORTED: &str = "Unsupported";
    pub(super) const INFRASTRUCTURE: &str = "Infrastructure";
    pub(super) const FAMILIES: &str = "IPFamiliesNotSupported";
    pub(super) const PORTS: &str = "PortsNotSupported";
    pub(super) const ADDRESS: &str = "LoadBalancerIPNotSupported";
    pub(super) const MULTIPLE: &str = "Multiple";
    pub(super) const OF_DEGRADED: [&str; 4] = [FAMILIES, PORTS, ADDRESS, MULTIPLE];
}

pub(super) const ENSURING: &str = "Ensuring load balancer";
const ENSURED: &str = "Ensured load balancer";
const NO_ADDRESS: &str = "The load balancer has no address yet";
/// Prefix of the message of each failed sync, in events too.
pub(super) const FAILED: &str = "Error syncing load balancer: ";
/// Longest message of a condition, in bytes. Source: `metav1.Condition`.
const MESSAGE: usize = 32_768;

/// The progress of the sync of a Service.
#[derive(Debug, Clone, Copy)]
pub(super) enum Progress<'a> {
    /// The sync has begun, and writes the finalizer in any case.
    Begun,
    /// The provider returned this status.
    Ensured(&'a LoadBalancerStatus),
    /// The provider failed.
    Failed {
        /// The class of the error.
        class: &'a ErrorClass,
        /// The message, as in the event.
        message: &'a str,
    },
    /// Another controller manages the load balancer.
    ImplementedElsewhere,
    /// No load balancer is left, and none is requested.
    Gone,
}

/// The conditions that change with this progress; `None` if none does. `present` are the conditions as last seen, which
/// may be newer than `service`.
pub(super) fn changes(
    service: &Service,
    present: &[Condition],
    progress: Progress<'_>,
    now: jiff::Timestamp,
) -> Option<ConditionChanges> {
    let find = |kind: &str| present.iter().find(|condition| condition.kind == kind);
    let (wanted, unwanted) = wanted(service, present, progress);
    let set = complete(service, present, wanted, now);
    let gone: Vec<_> = unwanted.into_iter().filter(|kind| find(kind).is_some()).collect();
    (!set.is_empty() || !gone.is_empty()).then_some(ConditionChanges { set, gone })
}

/// The provider's own conditions that must be written; empty if all are up to date.
pub(super) fn noted(service: &Service, present: &[Condition], notes: &[Note], now: jiff::Timestamp) -> Vec<Condition> {
    let wanted = notes.iter().map(|note| {
        let status = if note.status { "True" } else { "False" };
        (note.kind, status, note.reason, note.message.clone())
    });
    complete(service, present, wanted.collect(), now)
}

/// The conditions that differ from the present ones, with the fields that the provider does not set.
fn complete(service: &Service, present: &[Condition], wanted: Vec<Wanted>, now: jiff::Timestamp) -> Vec<Condition> {
    let find = |kind: &str| present.iter().find(|condition| condition.kind == kind);
    let complete = wanted.into_iter().map(|(kind, status, reason, message)| {
        let since = find(kind).filter(|old| old.status == status && !old.last_transition_time.is_empty());
        Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            observed_generation: service.metadata.generation,
            last_transition_time: since.map_or_else(|| rfc3339(now), |old| old.last_transition_time.clone()),
            reason: reason.to_owned(),
            message: cut(message),
        }
    });
    complete.filter(|new| find(&new.kind) != Some(new)).collect()
}

/// Type, status, reason, message.
type Wanted = (&'static str, &'static str, &'static str, String);

/// The conditions to set, and the types to remove. Other conditions stay unchanged.
fn wanted(service: &Service, present: &[Condition], progress: Progress<'_>) -> (Vec<Wanted>, Vec<&'static str>) {
    let has_address = !service.status.load_balancer.ingress.is_empty();
    let has = |kinds: &[&str]| present.iter().any(|condition| kinds.contains(&&*condition.kind));
    match progress {
        // Whichever controller wrote them, they stay valid until this sync ends.
        Progress::Begun if has(&[SERVING, PROVISIONING]) => Default::default(),
        Progress::Begun => (pair(has_address, Stand::Working, ENSURING), Vec::new()),
        Progress::Ensured(status) => {
            let mut set = match status.ingress.is_empty() {
                true => pair(false, Stand::Working, NO_ADDRESS),
                false => pair(true, Stand::Done, ENSURED),
            };
            let others = |one: &&Condition| one.kind == DEGRADED && !reason::OF_DEGRADED.contains(&&*one.reason);
            let foreign = present.iter().find(others).is_some();
            match degraded(service, status) {
                _ if foreign => (set, Vec::new()),
                None => (set, vec![DEGRADED]),
                Some((reason, message)) => {
                    set.push((DEGRADED, "True", reason, message));
                    (set, Vec::new())
                }
            }
        }
        Progress::Failed { class, message } => (pair(has_address, stand(class), message), Vec::new()),
        Progress::ImplementedElsewhere => {
            let ours = |kind: &&str| present.iter().any(|one| one.kind == **kind && is_ours(one));
            (Vec::new(), [SERVING, PROVISIONING, DEGRADED].into_iter().filter(ours).collect())
        }
        Progress::Gone => (Vec::new(), vec![SERVING, PROVISIONING, DEGRADED]),
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// In progress.
    Working,
    Done,
    /// It failed, for this reason.
    Failed(&'static str),
}

/// In progress if the error has a delay or is a conflict; unsupported if the Service must change; else a cloud error.
fn stand(class: &ErrorClass) -> Stand {
    match class {
        ErrorClass::Transient { after: Some(_) } | ErrorClass::InProgress { .. } | ErrorClass::Conflict => {
            Stand::Working
        }
        ErrorClass::Invalid { .. } | ErrorClass::Unsupported => Stand::Failed(reason::UNSUPPORTED),
        ErrorClass::NotFound
        | ErrorClass::Unknown
        | ErrorClass::Throttled { .. }
        | ErrorClass::Transient { after: None }
        | ErrorClass::Denied { .. }
        | ErrorClass::Bug => Stand::Failed(reason::INFRASTRUCTURE),
    }
}

/// The two conditions of every load balancer. One with an address keeps serving even if a change fails.
fn pair(has_address: bool, stand: Stand, message: &str) -> Vec<Wanted> {
    let serving = match stand {
        _ if has_address => (SERVING, "True", reason::SERVING, ENSURED.to_owned()),
        Stand::Failed(reason) => (SERVING, "False", reason, message.to_owned()),
        Stand::Working | Stand::Done => (SERVING, "False", reason::PROVISIONING, message.to_owned()),
    };
    let provisioning = match stand {
        Stand::Working => (PROVISIONING, "True", reason::PROVISIONING, message.to_owned()),
        Stand::Done | Stand::Failed(_) => (PROVISIONING, "False", reason::COMPLETE, message.to_owned()),
    };
    vec![serving, provisioning]
}

/// The missing parts according to the status. A status with host names instead of addresses shows fewer of them.
fn degraded(service: &Service, status: &LoadBalancerStatus) -> Option<(&'static str, String)> {
    let ips: Vec<IpAddr> = status.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok()).collect();
    let only_ips = !ips.is_empty() && ips.len() == status.ingress.len();
    let mut found = Vec::new();
    let one_family = ips.iter().all(IpAddr::is_ipv4) || ips.iter().all(IpAddr::is_ipv6);
    if only_ips && one_family && service.spec.ip_families.len() > 1 {
        let text = "the Service has two IP families, and the load balancer has addresses of one".to_owned();
        found.push((reason::FAMILIES, text));
    }
    let broken: Vec<String> = status
        .ingress
        .iter()
        .flat_map(|ingress| &ingress.ports)
        .filter_map(|port| Some(format!("{}/{}: {}", port.port, port.protocol, port.error.as_ref()?)))
        .collect();
    if !broken.is_empty() {
        found.push((reason::PORTS, format!("ports that the load balancer does not serve: {}", broken.join(", "))));
    }
    let asked = service.spec.load_balancer_ip.parse::<IpAddr>();
    if only_ips && asked.is_ok_and(|asked| !ips.contains(&asked)) {
        let text = format!("the load balancer does not have the address {:?}", service.spec.load_balancer_ip);
        found.push((reason::ADDRESS, text));
    }
    let reason = match &found[..] {
        [] => return None,
        [(reason, _)] => *reason,
        _ => reason::MULTIPLE,
    };
    let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
    Some((reason, texts.join("; ")))
}

/// Whether a condition of these types was written by this controller, and not by another one that manages the load
/// balancer.
fn is_ours(condition: &Condition) -> bool {
    match &*condition.kind {
        DEGRADED => reason::OF_DEGRADED.contains(&&*condition.reason),
        _ => {
            [ENSURED, NO_ADDRESS].contains(&&*condition.message)
                || [ENSURING, FAILED].iter().any(|ours| condition.message.starts_with(ours))
        }
    }
}

/// Cut to the length that the API allows, at a character boundary.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE));
    text
}
