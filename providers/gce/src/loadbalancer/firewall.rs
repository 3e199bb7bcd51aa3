//! Firewall rules: the desired rule, its comparison with the current one, and the equivalent command. Pure.
//!
//! Upstream: `gce_loadbalancer_external.go`, `gce_loadbalancer_internal.go` and `gce_firewall.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ccm_provider::Change;
use ccm_provider::address::parse_cidr;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::ports;
use crate::client::balancing::{Firewall, Traffic};

/// A desired firewall rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRule {
    pub(crate) name: String,
    pub(crate) description: String,
    /// A URL.
    pub(crate) network: String,
    pub(crate) sources: Vec<String>,
    /// Empty: any.
    pub(crate) destinations: Vec<String>,
    /// Sorted, not empty.
    pub(crate) tags: Vec<String>,
    pub(crate) traffic: Admission,
    /// `None`: left to the API, and never changed.
    pub(crate) priority: Option<i64>,
}

/// The action of a rule on matching traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The protocol, in lower case, and its ports; none: all ports.
    Allow(String, BTreeSet<u16>),
    /// What forwarding rules serve, the current one and maybe the next.
    These(Vec<Traffic>),
    DenyAll,
}

impl WantedRule {
    /// The rule to insert.
    pub(super) fn rule(&self) -> Firewall {
        let (allowed, denied) = match &self.traffic {
            Admission::Allow(protocol, ports) => {
                (vec![Traffic { protocol: protocol.clone(), ports: ports::merged(ports) }], Vec::new())
            }
            Admission::These(allowed) => (allowed.clone(), Vec::new()),
            Admission::DenyAll => (Vec::new(), vec![Traffic { protocol: "all".to_owned(), ports: Vec::new() }]),
        };
        Firewall {
            name: self.name.clone(),
            description: self.description.clone(),
            network: self.network.clone(),
            source_ranges: self.sources.clone(),
            destination_ranges: self.destinations.clone(),
            target_tags: self.tags.clone(),
            allowed,
            denied,
            priority: self.priority,
            disabled: false,
        }
    }

    /// This rule as far as it concerns no forwarding rule: it admits what the current one admits, also at the address of
    /// the forwarding rule, which it may have got when it came back.
    pub(super) fn as_before(&self, found: &Firewall, ip: &str) -> Self {
        let mut destinations = found.destination_ranges.clone();
        if !ip.is_empty() && !destinations.is_empty() && !covers(&destinations, &[ip.to_owned()]) {
            destinations.push(ip.to_owned());
        }
        Self {
            description: found.description.clone(),
            destinations,
            traffic: Admission::These(found.allowed.clone()),
            priority: found.priority,
            ..self.clone()
        }
    }

    /// The rule that also admits what the next one does.
    pub(super) fn and(mut self, next: &Self) -> Self {
        let allowed = merged(self.rule().allowed.into_iter().chain(next.rule().allowed));
        let is_new = |ip: &&String| !covers(&self.destinations, std::slice::from_ref(*ip));
        let new: Vec<String> = next.destinations.iter().filter(is_new).cloned().collect();
        match self.destinations.is_empty() || next.destinations.is_empty() {
            true => self.destinations.clear(),
            false => self.destinations.extend(new),
        }
        Self { traffic: Admission::These(allowed), ..self }
    }

    /// The body of an insertion.
    pub(super) fn body(&self) -> Value {
        json!(self.rule())
    }

    /// The body of a patch: all managed fields, and the name, which the API requires. An empty list clears the field.
    pub(super) fn patch(&self, found: &Firewall) -> Value {
        let mut body = self.body();
        if let Value::Object(fields) = &mut body {
            fields.remove("network");
            if !found.destination_ranges.is_empty() {
                fields.entry("destinationRanges").or_insert_with(|| json!([]));
            }
        }
        body
    }

    /// The fields in which a rule differs.
    pub(super) fn differences(&self, found: &Firewall) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut note = |field: &'static str, is_same: bool, before: String, after: String| {
            if !is_same {
                let some = |text: String| Some(text).filter(|text| !text.is_empty());
                changes.push(Change { field: field.into(), before: some(before), after: some(after) });
            }
        };
        let rule = self.rule();
        note("description", found.description == self.description, found.description.clone(), self.description.clone());
        let same_sources = nets(&found.source_ranges).is_some_and(|now| Some(now) == nets(&self.sources));
        note("sourceRanges", same_sources, found.source_ranges.join(","), self.sources.join(","));
        let same_destination =
            nets(&found.destination_ranges).is_some_and(|now| Some(now) == nets(&rule.destination_ranges));
        note(
            "destinationRanges",
            same_destination,
            found.destination_ranges.join(","),
            rule.destination_ranges.join(","),
        );
        let tags = |tags: &[String]| tags.iter().cloned().collect::<BTreeSet<_>>();
        note(
            "targetTags",
            tags(&found.target_tags) == tags(&self.tags),
            found.target_tags.join(","),
            self.tags.join(","),
        );
        let same = traffic(&found.allowed) == traffic(&rule.allowed) && traffic(&found.allowed).is_some();
        note("allowed", same, shown(&found.allowed), shown(&rule.allowed));
        let same = traffic(&found.denied) == traffic(&rule.denied) && traffic(&found.denied).is_some();
        note("denied", same, shown(&found.denied), shown(&rule.denied));
        if let Some(priority) = self.priority {
            let now = found.priority.unwrap_or(DEFAULT_PRIORITY);
            note("priority", now == priority, now.to_string(), priority.to_string());
        }
        changes
    }

    /// Whether a rule admits all traffic that this one should, whatever else it does.
    pub(super) fn is_admitted_by(&self, found: &Firewall) -> bool {
        let allows = match &self.traffic {
            Admission::Allow(protocol, ports) => merged(found.allowed.iter().cloned()).iter().any(|entry| {
                let is_protocol = entry.protocol.eq_ignore_ascii_case(protocol) || entry.protocol == "all";
                let is_open = |open: BTreeSet<u16>| open.is_superset(ports);
                is_protocol && (entry.ports.is_empty() || ports::expanded(&entry.ports).is_some_and(is_open))
            }),
            Admission::These(_) => true,
            Admission::DenyAll => false,
        };
        let any = |list: &[String]| list.is_empty();
        let sources = covers(&found.source_ranges, &self.sources);
        let destinations = any(&found.destination_ranges)
            || covers(&found.destination_ranges, &self.destinations) && !any(&self.destinations);
        let tags = any(&found.target_tags) || self.tags.iter().all(|tag| found.target_tags.contains(tag));
        !found.disabled && sources && destinations && tags && allows
    }
}

/// The default of the API.
const DEFAULT_PRIORITY: i64 = 1000;

/// Parses a list of networks or addresses into a set. `None`: not readable.
fn nets(ranges: &[String]) -> Option<BTreeSet<IpNet>> {
    let one = |range: &String| parse_cidr(range).or_else(|| range.parse().ok().map(|ip: std::net::IpAddr| ip.into()));
    ranges.iter().map(one).collect()
}

/// Whether all wanted networks are inside of others.
pub(super) fn covers(found: &[String], wanted: &[String]) -> bool {
    match (nets(found), nets(wanted)) {
        (Some(found), Some(wanted)) => wanted.iter().all(|wanted| found.iter().any(|found| found.contains(wanted))),
        _ => false,
    }
}

/// One entry for each protocol.
fn merged(entries: impl IntoIterator<Item = Traffic>) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    for more in entries {
        match all.iter_mut().find(|entry| entry.protocol.eq_ignore_ascii_case(&more.protocol)) {
            Some(entry) if entry.ports.is_empty() || more.ports.is_empty() => entry.ports.clear(),
            Some(entry) => {
                entry.ports.extend(more.ports);
                entry.ports =
                    ports::expanded(&entry.ports).map_or_else(|| entry.ports.clone(), |all| ports::merged(&all));
            }
            None => all.push(more),
        }
    }
    all
}

/// Ports by protocol; an empty set: all ports. `None`: not readable.
fn traffic(entries: &[Traffic]) -> Option<BTreeMap<String, BTreeSet<u16>>> {
    let entries = merged(entries.iter().cloned());
    entries.iter().map(|entry| Some((entry.protocol.to_lowercase(), ports::expanded(&entry.ports)?))).collect()
}

/// `tcp:80,tcp:443`, sorted; the protocol alone if it has no ports.
fn shown(entries: &[Traffic]) -> String {
    let each = |entry: &Traffic| -> Vec<String> {
        match &*entry.ports {
            [] => vec![entry.protocol.clone()],
            ports => ports.iter().map(|port| format!("{}:{port}", entry.protocol)).collect(),
        }
    };
    let mut all: Vec<String> = entries.iter().flat_map(each).collect();
    all.sort();
    all.join(",")
}

/// The command that an administrator of the network runs instead of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Create,
    Update,
    Delete,
}

impl Command {
    /// The `gcloud` command line.
    pub(super) fn line(self, rule: &Firewall, project: &str) -> String {
        let name = &rule.name;
        let begin = "gcloud compute firewall-rules";
        match self {
            Self::Create => {
                let network = rule.network.rsplit('/').next().unwrap_or_default();
                format!("{begin} create {name} --network {network} {}", arguments(rule, project))
            }
            Self::Update => format!("{begin} update {name} {}", arguments(rule, project)),
            Self::Delete => format!("{begin} delete {name} --project {project}"),
        }
    }
}

fn arguments(rule: &Firewall, project: &str) -> String {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list.join(",")
    };
    let mut line = String::new();
    let mut add = |flag: &str, value: String| {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(line, "--{flag} {value} ");
        }
    };
    add("description", format!("{:?}", rule.description));
    add("allow", shown(&rule.allowed));
    add("deny", shown(&rule.denied));
    add("source-ranges", sorted(&rule.source_ranges));
    add("destination-ranges", sorted(&rule.destination_ranges));
    add("target-tags", sorted(&rule.target_tags));
    add("priority", rule.priority.filter(|priority| *priority != 0).map(|it| it.to_string()).unwrap_or_default());
    line + &format!("--project {project}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> WantedRule {
        WantedRule {
            name: "k8s-fw-a".to_owned(),
            description: r#"{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"203.0.113.7"}"#
                .to_owned(),
            network: "https://www.googleapis.com/compute/v1/projects/host/global/networks/default".to_owned(),
            sources: vec!["0.0.0.0/0".to_owned()],
            destinations: vec!["203.0.113.7".to_owned()],
            tags: vec!["k8s-node".to_owned()],
            traffic: Admission::Allow("tcp".to_owned(), [80, 443].into()),
            priority: Some(1000),
        }
    }

    fn fields(wanted: &WantedRule, found: &Firewall) -> Vec<String> {
        wanted.differences(found).into_iter().map(|change| change.field.into_owned()).collect()
    }

    #[test]
    fn a_rule_is_compared_by_what_it_means() {
        let wanted = wanted();
        let mut found = wanted.rule();
        assert_eq!(fields(&wanted, &found), [] as [&str; 0]);
        found.destination_ranges = vec!["203.0.113.7/32".to_owned()];
        found.allowed = vec![Traffic { protocol: "tcp".to_owned(), ports: vec!["443".to_owned(), "80".to_owned()] }];
        found.priority = None;
        assert_eq!(fields(&wanted, &found), [] as [&str; 0]);
        found.disabled = true;
        assert_eq!(fields(&wanted, &found), [] as [&str; 0]);
    }

    #[test]
    fn another_protocol_on_the_same_ports_is_a_difference() {
        let mut found = wanted().rule();
        found.allowed[0].protocol = "udp".to_owned();
        assert_eq!(fields(&wanted(), &found), ["allowed"]);
        found = wanted().rule();
        found.target_tags = vec!["other".to_owned()];
        found.priority = Some(999);
        found.source_ranges = vec!["10.0.0.0/8".to_owned()];
        assert_eq!(fields(&wanted(), &found), ["sourceRanges", "targetTags", "priority"]);
    }

    #[test]
    fn a_rule_admits_what_all_its_entries_of_a_protocol_admit() {
        let entry = |protocol: &str, ports: &[&str]| Traffic {
            protocol: protocol.to_owned(),
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        };
        let found = |allowed: [Traffic; 2]| Firewall { allowed: allowed.into(), ..wanted().rule() };
        let needed = || entry("tcp", &["80", "443"]);
        // Ports that somebody has opened beside those of the Service.
        for more in [entry("tcp", &["1-65535"]), entry("tcp", &[]), entry("TCP", &["81"])] {
            assert_eq!(fields(&wanted(), &found([more.clone(), needed()])), ["allowed"], "{more:?}");
            assert_eq!(fields(&wanted(), &found([needed(), more.clone()])), ["allowed"], "{more:?}");
        }
        let split = found([entry("tcp", &["80"]), entry("tcp", &["443"])]);
        assert_eq!(fields(&wanted(), &split), [] as [&str; 0]);
        assert!(wanted().is_admitted_by(&split));
    }

    #[test]
    fn a_patch_clears_a_destination_and_names_no_network() {
        let open = WantedRule { destinations: Vec::new(), ..wanted() };
        let patch = open.patch(&wanted().rule());
        assert_eq!(patch["destinationRanges"], json!([]));
        assert_eq!((patch.get("network"), &patch["name"]), (None, &json!("k8s-fw-a")));
        assert_eq!(fields(&open, &wanted().rule()), ["destinationRanges"]);
    }

    #[test]
    fn a_wider_rule_admits_the_traffic() {
        let mut found = wanted().rule();
        found.description = "by hand".to_owned();
        found.destination_ranges = Vec::new();
        found.target_tags = Vec::new();
        found.allowed = vec![Traffic { protocol: "tcp".to_owned(), ports: vec!["1-1000".to_owned()] }];
        assert!(wanted().is_admitted_by(&found));
        for spoil in [
            |rule: &mut Firewall| rule.source_ranges = vec!["10.0.0.0/8".to_owned()],
            |rule: &mut Firewall| rule.allowed[0].ports = vec!["80".to_owned()],
            |rule: &mut Firewall| rule.allowed[0].protocol = "udp".to_owned(),
            |rule: &mut Firewall| rule.target_tags = vec!["other".to_owned()],
            |rule: &mut Firewall| rule.destination_ranges = vec!["203.0.113.8".to_owned()],
            |rule: &mut Firewall| rule.disabled = true,
        ] {
            let mut found = found.clone();
            spoil(&mut found);
            assert!(!wanted().is_admitted_by(&found), "{found:?}");
        }
    }

    #[test]
    fn the_command_has_every_field_in_upstreams_order() {
        let rule = Firewall { priority: Some(999), ..wanted().rule() };
        let arguments = r#"--description "{\"kubernetes.io/service-name\":\"default/web\", \"kubernetes.io/service-ip\":\"203.0.113.7\"}" --allow tcp:443,tcp:80 --source-ranges 0.0.0.0/0 --destination-ranges 203.0.113.7 --target-tags k8s-node --priority 999 --project host"#;
        assert_eq!(
            Command::Create.line(&rule, "host"),
            format!("gcloud compute firewall-rules create k8s-fw-a --network default {arguments}")
        );
        assert_eq!(
            Command::Update.line(&rule, "host"),
            format!("gcloud compute firewall-rules update k8s-fw-a {arguments}")
        );
        assert_eq!(Command::Delete.line(&rule, "host"), "gcloud compute firewall-rules delete k8s-fw-a --project host");
        let plain = Firewall { description: String::new(), priority: None, ..wanted().rule() };
        assert!(Command::Update.line(&plain, "host").contains(r#" k8s-fw-a --description "" --allow "#));
        let deny = WantedRule { traffic: Admission::DenyAll, ..wanted() }.rule();
        assert!(Command::Create.line(&deny, "host").contains(" --deny all "));
    }
}
