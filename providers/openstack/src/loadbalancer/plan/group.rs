//! The security group of a Service: access to the node ports.
//!
//! Upstream: `pkg/openstack/loadbalancer_sg.go`.

use std::collections::BTreeSet;

use ccm_kit::balancer::{Kind, Part, placeholder};
use ccm_provider::{ErrorClass, ProviderError, Verb};

use super::super::observed::Group;
use super::super::step::{Step, Write};
use super::super::wanted::Settings;
use super::{Draft, missing, refused};
use crate::client::network::{Port, Rule, Subnet};
use crate::start::config::OVN;

/// A new group is of no use without its load balancer.
const NEEDS: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Rules];
/// Access is open as long as a member may need it.
const CLOSING_NEEDS: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Members];

/// The fields by which two rules are compared.
type Key = (String, String, String, String, Option<i64>, Option<i64>);

fn key(rule: &Rule) -> Key {
    let protocol = rule.protocol.to_lowercase();
    let (direction, ethertype, prefix) = (&rule.direction, &rule.ethertype, &rule.remote_ip_prefix);
    (direction.clone(), ethertype.clone(), protocol, prefix.clone(), rule.port_range_min, rule.port_range_max)
}

impl Draft<'_> {
    /// Plans a change of the group of an existing balancer. What opens access comes before the members and health
    /// monitors; what closes it is returned, and comes after them.
    pub(super) fn opening(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), ProviderError>,
    ) -> (Result<(), ProviderError>, Vec<Step>) {
        let first = self.steps.len();
        let result = change(self);
        let (closing, opening) = self.steps.drain(first..).partition(closes);
        self.steps.extend::<Vec<Step>>(opening);
        (result, closing)
    }

    /// Ensures the group of the Service if groups are managed; deletes it otherwise.
    pub(super) fn managed_group(&mut self, settings: &Settings) -> Result<(), ProviderError> {
        self.group_must_be_read()?;
        if !self.item.hosts.manages_group {
            self.delete_group();
            return Ok(());
        }
        let Some(observed) = self.observed.groups.get(&self.place) else { return Ok(()) };
        let is_new = self.observed.balancer(self.place).is_none();
        if is_new && self.observed.source_subnet(self.place, self.item).is_none() {
            let verb = if observed.group.is_none() { Verb::Create } else { Verb::Update };
            self.rules_part("");
            let why = "its rules need the subnet that the load balancer gets";
            self.push(Write::GroupLater, (verb, "SecurityGroup", &self.item.group), why);
            return Ok(());
        }
        let wanted = self.wanted_rules(settings, observed).inspect_err(|_| drop(self.hosts_of_group()))?;
        let group = match &observed.group {
            Some(group) => group.id.clone(),
            None => {
                self.part = Part::new(Kind::Rules);
                let (name, description) = (self.item.group.clone(), self.item.descriptions.security_group.clone());
                let id = placeholder(&format!("group {name}"));
                self.push(
                    Write::CreateGroup { name: name.clone(), description },
                    (Verb::Create, "SecurityGroup", &name),
                    "[LoadBalancer] manage-security-groups is on",
                );
                self.amend(|step| step.needs(NEEDS));
                // Neutron adds two rules to a new group, which needs ingress rules only.
                let write = Write::EmptyGroup { name: name.clone() };
                let why = "Neutron adds rules to a new group";
                self.push_rule(write, (Verb::Delete, "SecurityGroupRule", &format!("default rules of {name}")), why);
                id
            }
        };
        let present = observed.group.as_ref().map(|group| &*group.security_group_rules).unwrap_or_default();
        let (have, want): (BTreeSet<Key>, BTreeSet<Key>) =
            (present.iter().map(key).collect(), wanted.iter().map(key).collect());
        let is_needless = |rule: &&Rule| !want.contains(&key(rule)) && !may_serve_kept(observed, &wanted, rule);
        let needless: Vec<&Rule> = present.iter().filter(is_needless).collect();
        let makes_room = !needless.is_empty();
        for rule in wanted.iter().filter(|rule| !have.contains(&key(rule))) {
            let write = Write::CreateRule { group: group.clone(), rule: rule.clone(), makes_room };
            self.push_rule(write, (Verb::Create, "SecurityGroupRule", &shown(rule)), "the Service needs it");
        }
        self.ports_of_members(observed, &group);
        for rule in needless {
            let write = Write::DeleteRule { id: rule.id.clone() };
            let (shown, why) = (shown(rule), "the Service does not need it");
            // Clients that are not allowed any more do not wait for members: the port stays open to the others.
            match wanted.iter().any(|wanted| has_other_source(rule, wanted)) {
                true => self.push_rule(write, (Verb::Delete, "SecurityGroupRule", &shown), why),
                false => self.push_closing(write, (Verb::Delete, "SecurityGroupRule", &shown), why),
            }
        }
        all_nodes_known(observed)
    }

    fn wanted_rules(&self, settings: &Settings, observed: &Group) -> Result<Vec<Rule>, ProviderError> {
        let mut subnets = observed.subnet.iter().chain(&observed.kept_subnets).peekable();
        if subnets.peek().is_none() {
            return Err(refused(
                "the subnet of the members is not known, so no rule can be made; set subnet-id or member-subnet-id in \
                 [LoadBalancer] of cloud.conf",
            ));
        }
        // Subnets of one family have the same rules for clients.
        let mut rules: Vec<Rule> = Vec::new();
        for rule in subnets.flat_map(|subnet| self.rules_from(settings, subnet)) {
            if rules.iter().all(|other| key(other) != key(&rule)) {
                rules.push(rule);
            }
        }
        // An empty list of rules would lock every client out.
        if rules.is_empty() && settings.ports.iter().any(|port| port.node_port != 0) {
            return Err(refused("no source of traffic is of the IP family of the members' subnet: no rule is changed"));
        }
        Ok(rules)
    }

    /// The rules for members that are reached from this subnet.
    fn rules_from(&self, settings: &Settings, subnet: &Subnet) -> Vec<Rule> {
        let is_v6 = subnet.ip_version == 6;
        let ingress = |protocol: &str, prefix: &str, port: i32| Rule {
            direction: "ingress".to_owned(),
            ethertype: if is_v6 { "IPv6" } else { "IPv4" }.to_owned(),
            protocol: protocol.to_lowercase(),
            port_range_min: Some(port.into()),
            port_range_max: Some(port.into()),
            remote_ip_prefix: prefix.to_owned(),
            ..Rule::default()
        };
        // With ovn, nodes see client addresses.
        let sources: Vec<String> = match self.provider == OVN {
            true => {
                let of_family = settings.sources.iter().filter(|net| net.addr().is_ipv6() == is_v6);
                of_family.map(ToString::to_string).collect()
            }
            false => vec![subnet.cidr.clone()],
        };
        let health_check = self.item.hosts.health_check_port.map(|port| ingress("tcp", &subnet.cidr, port));
        let ports = settings.ports.iter().filter(|port| port.node_port != 0);
        let rules =
            ports.flat_map(|port| sources.iter().map(move |source| ingress(&port.transport, source, port.node_port)));
        health_check.into_iter().chain(rules).collect()
    }

    /// Adds the group to the ports of members, and removes it from those of former members.
    fn ports_of_members(&mut self, observed: &Group, group: &str) {
        let addresses: BTreeSet<&str> = self.item.hosts.members.iter().map(|member| &*member.address).collect();
        let is_member = |port: &Port| port.fixed_ips.iter().any(|ip| addresses.contains(&*ip.ip_address));
        // The groups of cached server ports may be outdated.
        let has_group = |port: &Port| observed.with_group.iter().any(|with| with.id == port.id);
        for port in observed.ports.iter().filter(|port| is_member(port) && port.is_secured()) {
            if !has_group(port) {
                let mut port = port.clone();
                port.security_groups.retain(|present| present != group);
                let groups = port.security_groups.iter().cloned().chain([group.to_owned()]).collect();
                let write = Write::PortGroups { port: Box::new(port.clone()), groups };
                self.push_rule(write, (Verb::Attach, "Port", &port.id), "its node is a member");
            }
        }
        for port in observed.with_group.iter().filter(|port| !is_member(port)) {
            self.without_group(port, group, "its node is no longer a member");
        }
    }

    fn without_group(&mut self, port: &Port, group: &str, reason: &'static str) {
        let groups = port.security_groups.iter().filter(|present| *present != group).cloned().collect();
        let write = Write::PortGroups { port: Box::new(port.clone()), groups };
        self.push_closing(write, (Verb::Detach, "Port", &port.id), reason);
        // Old releases of the Go program also tagged the port with the group.
        if port.tags.iter().any(|tag| tag == group) {
            let write = Write::UntagPort { port: port.id.clone(), tag: group.to_owned() };
            self.push_closing(write, (Verb::Update, "Port", &port.id), reason);
        }
    }

    /// Removes the group from all ports, and deletes it.
    pub(super) fn delete_group(&mut self) {
        let Some(Group { group: Some(group), with_group, .. }) = self.observed.groups.get(&self.place) else { return };
        for port in with_group {
            self.without_group(port, &group.id, "the security group goes");
        }
        self.part = Part::of(Kind::Retire, group.name.clone());
        let write = Write::DeleteGroup { id: group.id.clone(), name: group.name.clone() };
        self.push(write, (Verb::Delete, "SecurityGroup", &group.name), "no Service needs it");
        // As long as the load balancer is there, it needs the group.
        self.amend(|step| Step { needs_all: true, ..step.needs(&[Kind::Release]) });
    }

    /// Adds the group to the ports of new members, and removes it from those of former ones.
    pub(super) fn hosts_of_group(&mut self) -> Result<(), ProviderError> {
        self.group_must_be_read()?;
        let observed = self.observed.groups.get(&self.place).filter(|_| self.item.hosts.manages_group);
        let Some(observed) = observed else { return Ok(()) };
        let Some(group) = &observed.group else {
            return Err(missing(&format!("the security group {}", self.item.group)));
        };
        self.ports_of_members(observed, &group.id);
        all_nodes_known(observed)
    }

    /// Where no group is managed, the right to read it may be missing.
    pub(super) fn group_must_be_read(&self) -> Result<(), ProviderError> {
        let is_needless = !self.env.config.load_balancer.manage_security_groups;
        let is_denied = |error: &&ProviderError| matches!(error.class(), ErrorClass::Denied { .. });
        let problem = self.observed.group_problems.get(&self.place);
        problem.filter(|error| !is_needless || !is_denied(error)).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Each rule and each port fails alone; all of them need the group.
    fn push_rule(&mut self, write: Write, named: (Verb, &'static str, &str), reason: &'static str) {
        self.rules_part(named.2);
        self.push(write, named, reason);
        self.amend(|step| step.needs(NEEDS));
    }

    fn push_closing(&mut self, write: Write, named: (Verb, &'static str, &str), reason: &'static str) {
        self.push_rule(write, named, reason);
        self.amend(|step| Step { needs_all: true, ..step.needs(CLOSING_NEEDS) });
    }

    fn rules_part(&mut self, of: &str) {
        self.part = Part::of(Kind::Rules, of.to_owned());
    }
}

/// Whether a step takes access away.
fn closes(step: &Step) -> bool {
    matches!(step.write.write, Write::DeleteRule { .. } | Write::DeleteGroup { .. } | Write::UntagPort { .. })
        || step.summary.verb == Verb::Detach
}

/// Whether two rules differ only in where the traffic comes from.
fn has_other_source(rule: &Rule, wanted: &Rule) -> bool {
    let (source, ethertype) = (wanted.remote_ip_prefix.clone(), wanted.ethertype.clone());
    key(&Rule { remote_ip_prefix: source, ethertype, ..rule.clone() }) == key(wanted)
}

/// Whether a rule may let traffic to members in that stay in a subnet that is not known: it differs from a wanted one in
/// the subnet.
fn may_serve_kept(observed: &Group, wanted: &[Rule], rule: &Rule) -> bool {
    let is_of_subnet = |rule: &Rule| observed.subnet.iter().any(|subnet| subnet.cidr == rule.remote_ip_prefix);
    observed.has_unknown_subnets
        && !rule.remote_ip_prefix.is_empty()
        && wanted.iter().any(|wanted| is_of_subnet(wanted) && has_other_source(rule, wanted))
}

/// The ports of one node do not hold up those of others.
fn all_nodes_known(observed: &Group) -> Result<(), ProviderError> {
    let error = |node: &String| format!("node {node} has no provider ID yet: its ports are not known");
    observed.unknown_node.as_ref().map_or(Ok(()), |node| Err(ProviderError::unknown(error(node))))
}

/// `ingress tcp 30080 from 10.0.0.0/24`
fn shown(rule: &Rule) -> String {
    let port = rule.port_range_min.map(|port| port.to_string()).unwrap_or_default();
    format!("{} {} {port} from {}", rule.direction, rule.protocol, rule.remote_ip_prefix)
}
