//! Permissions of security groups: the API merges rules of the same protocol and ports, the state stores them
//! separately.

use super::model::{Peer, Rule, SecurityGroup};
use super::security_groups::{by_name, find, not_found};
use crate::aws::query::Params;
use crate::aws::{ApiError, World, Xml};
use ipnet::{Ipv4Net, Ipv6Net};

impl Rule {
    /// Whether both rules allow the same traffic; IDs and descriptions are ignored.
    pub(super) fn is(&self, other: &Rule) -> bool {
        self.range() == other.range() && self.peer == other.peer
    }

    fn range(&self) -> (&str, Option<i64>, Option<i64>) {
        (&self.protocol, self.from, self.to)
    }

    /// The rule as in EC2's error messages.
    pub(super) fn words(&self) -> String {
        let (_, _, peer) = self.peer.on_wire();
        let protocol = if self.protocol == "-1" { "ALL".to_owned() } else { self.protocol.to_uppercase() };
        match (self.from, self.to) {
            (Some(from), Some(to)) => {
                format!("\"peer: {peer}, {protocol}, from port: {from}, to port: {to}, ALLOW\"")
            }
            _ => format!("\"peer: {peer}, {protocol}, ALLOW\""),
        }
    }
}

/// The lists of a permission, with the element that identifies the peer.
const LISTS: [(&str, &str); 4] =
    [("groups", "groupId"), ("ipRanges", "cidrIp"), ("ipv6Ranges", "cidrIpv6"), ("prefixListIds", "prefixListId")];

impl Peer {
    /// The list of a permission that contains it, its element if it is answered alone, and its text.
    fn on_wire(&self) -> (&'static str, &'static str, &str) {
        match self {
            Peer::V4(block) => ("ipRanges", "cidrIpv4", block),
            Peer::V6(block) => ("ipv6Ranges", "cidrIpv6", block),
            Peer::Group(id) => ("groups", "referencedGroupId", id),
            Peer::Prefix(list) => ("prefixListIds", "prefixListId", list),
        }
    }
}

/// Parses the rules of a call, split to one peer each; they have no IDs yet.
pub(super) fn read(world: &World, params: &Params, vpc: &str) -> Result<Vec<Rule>, ApiError> {
    let mut wanted = Vec::new();
    for permission in params.items("IpPermissions") {
        let (protocol, from, to) = range(permission)?;
        let mut add = |peer: Peer, item: &Params| -> Result<(), ApiError> {
            let description = item.get("Description").map(str::to_owned);
            check_description(description.as_deref())?;
            wanted.push(Rule { id: String::new(), protocol: protocol.clone(), from, to, peer, description });
            Ok(())
        };
        for item in permission.items("IpRanges") {
            add(v4(item.required("CidrIp")?)?, item)?;
        }
        for item in permission.items("Ipv6Ranges") {
            add(v6(item.required("CidrIpv6")?)?, item)?;
        }
        for item in permission.items("PrefixListIds") {
            add(Peer::Prefix(item.required("PrefixListId")?.to_owned()), item)?;
        }
        for item in permission.items("Groups") {
            add(group(world, item, vpc)?, item)?;
        }
    }
    if let Some(cidr) = params.get("CidrIp") {
        let (protocol, from, to) = range(params)?;
        wanted.push(Rule { id: String::new(), protocol, from, to, peer: v4(cidr)?, description: None });
    }
    if wanted.is_empty() {
        return Err(ApiError::new("MissingParameter", "Source group missing and no CIDR or prefix list given."));
    }
    if wanted.iter().enumerate().any(|(n, rule)| wanted.iter().skip(n + 1).any(|other| other.is(rule))) {
        return Err(ApiError::new("InvalidParameterValue", "The same permission must not appear multiple times"));
    }
    Ok(wanted)
}

type Range = (String, Option<i64>, Option<i64>);

fn range(permission: &Params) -> Result<Range, ApiError> {
    let text = permission.required("IpProtocol")?;
    let (from, to) = (permission.int("FromPort")?, permission.int("ToPort")?);
    let protocol = match text.to_ascii_lowercase().as_str() {
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "58" => "icmpv6",
        "-1" | "all" => return Ok(("-1".to_owned(), None, None)),
        other if other.parse::<u8>().is_ok() => return Ok((other.to_owned(), None, None)),
        _ => {
            let text = format!("Invalid value '{text}' for IP protocol. Unknown protocol.");
            return Err(ApiError::new("InvalidParameterValue", text));
        }
    };
    let bad = |text: String| Err(ApiError::new("InvalidParameterValue", text));
    let (Some(from), Some(to)) = (from, to) else {
        return bad("Invalid value for portRange. Must specify both from and to ports with TCP/UDP.".to_owned());
    };
    let ports = matches!(protocol, "tcp" | "udp");
    if ports && (from < 0 || to < from || to > 65_535) {
        return bad(format!("Invalid {} port range: {from}-{to}", protocol.to_uppercase()));
    }
    if !ports && [from, to].iter().any(|number| !(-1..=255).contains(number)) {
        return bad(format!("ICMP type ({from}) and code ({to}) must be from -1 to 255"));
    }
    Ok((protocol.to_owned(), Some(from), Some(to)))
}

fn malformed(text: &str) -> ApiError {
    ApiError::new("InvalidParameterValue", format!("CIDR block {text} is malformed"))
}

/// unverified: host bits are cleared here as they are for routes.
fn v4(text: &str) -> Result<Peer, ApiError> {
    let block: Ipv4Net = text.parse().map_err(|_| malformed(text))?;
    Ok(Peer::V4(block.trunc().to_string()))
}

fn v6(text: &str) -> Result<Peer, ApiError> {
    let block: Ipv6Net = text.parse().map_err(|_| malformed(text))?;
    Ok(Peer::V6(block.trunc().to_string()))
}

fn group(world: &World, item: &Params, vpc: &str) -> Result<Peer, ApiError> {
    // The account is known; a pair may contain it.
    let owner = item.get("UserId").filter(|user| *user != world.ec2.account);
    if let Some(user) = owner {
        return Err(ApiError::new("InvalidGroup.NotFound", format!("Groups of account {user} are not simulated.")));
    }
    let id = match (item.get("GroupId"), item.get("GroupName")) {
        (Some(id), _) => id.to_owned(),
        (None, Some(name)) => by_name(world, vpc, name).ok_or_else(|| not_found(name))?,
        (None, None) => return Err(ApiError::missing("GroupId")),
    };
    if find(world, &id)?.vpc != vpc {
        let text = "You have specified two resources that belong to different networks.";
        return Err(ApiError::new("InvalidGroup.NotFound", text));
    }
    Ok(Peer::Group(id))
}

fn check_description(text: Option<&str>) -> Result<(), ApiError> {
    let Some(text) = text.filter(|text| !describes(text)) else { return Ok(()) };
    let text = format!(
        "Invalid rule description ({text}). Valid descriptions are strings less than 256 characters \
         from the following set: a-zA-Z0-9. _-:/()#,@[]+=&;{{}}!$*"
    );
    Err(ApiError::new("InvalidParameterValue", text))
}

/// Whether a text is a valid description of a security group or rule.
pub(super) fn describes(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(c);
    text.len() <= 255 && text.chars().all(allowed)
}

/// Writes the rules of one direction as merged permissions: one per protocol and port range.
pub(super) fn write(xml: &mut Xml, name: &str, account: &str, rules: &[Rule]) {
    let mut ranges = Vec::new();
    for rule in rules {
        if !ranges.contains(&rule.range()) {
            ranges.push(rule.range());
        }
    }
    xml.list(name, "item", ranges, |xml, range| {
        let (protocol, from, to) = range;
        xml.text("ipProtocol", protocol);
        if let (Some(from), Some(to)) = (from, to) {
            xml.value("fromPort", from);
            xml.value("toPort", to);
        }
        for (list, element) in LISTS {
            let inside = rules.iter().filter(|rule| rule.range() == range && rule.peer.on_wire().0 == list);
            xml.list(list, "item", inside, |xml, rule| {
                if list == "groups" {
                    xml.text("userId", account);
                }
                xml.text(element, rule.peer.on_wire().2);
                xml.opt("description", rule.description.as_deref());
            });
        }
    });
}

/// Writes single rules, as in the answers of the authorize and revoke operations.
pub(super) fn write_rules(xml: &mut Xml, name: &str, account: &str, group: &str, rules: &[Rule], revoked: bool) {
    xml.list(name, "item", rules, |xml, rule| {
        xml.text("securityGroupRuleId", &rule.id);
        xml.text("groupId", group);
        if !revoked {
            xml.text("groupOwnerId", account);
        }
        xml.text("isEgress", "false");
        xml.text("ipProtocol", &rule.protocol);
        xml.value("fromPort", rule.from.unwrap_or(-1));
        xml.value("toPort", rule.to.unwrap_or(-1));
        match (&rule.peer, rule.peer.on_wire()) {
            (Peer::Group(id), _) if !revoked => xml.elem("referencedGroupInfo", |xml| {
                xml.text("groupId", id);
                xml.text("userId", account);
            }),
            (_, (_, element, peer)) => xml.text(element, peer),
        }
        xml.opt("description", rule.description.as_deref());
    });
}

/// The number of rules that count towards the quotas for IPv4 and IPv6. References to security groups and prefix lists
/// count for both. unverified: how they are counted.
pub(super) fn load(group: &SecurityGroup) -> (usize, usize) {
    let v6 = group.ingress.iter().filter(|rule| matches!(rule.peer, Peer::V6(_))).count();
    let v4 = group.ingress.iter().filter(|rule| matches!(rule.peer, Peer::V4(_))).count();
    let other = group.ingress.len() - v4 - v6;
    (v4 + other, v6 + other)
}
