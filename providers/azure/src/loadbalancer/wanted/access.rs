//! Who may connect to a Service. Pure.

use std::collections::BTreeMap;

use ccm_kit::annotations::Annotations;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{ErrorClass, ProviderError, Service};
use ipnet::IpNet;

use super::super::names::Family;
use crate::annotations::{self as keys, Scheme};

/// Reasons of events.
const INVALID_SOURCES: &str = "InvalidSourceRanges";
const INVALID_ALLOWED: &str = "InvalidAllowedIPRanges";
const INVALID_DESTINATIONS: &str = "InvalidAllowedDestinationIPRanges";
const FAMILY_MISMATCH: &str = "IPRangeFamilyMismatch";
const CONFLICT: &str = "ConflictConfiguration";
/// The service tag of all clients.
const INTERNET: &str = "Internet";

/// The security rules that a Service asks for, without their destinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Access {
    /// Each makes a rule of its own.
    pub(crate) tags: Vec<String>,
    /// The networks of each family, as few as possible.
    pub(crate) ranges: BTreeMap<Family, Vec<String>>,
    /// Whether all others are denied, also in the virtual network.
    pub(crate) denies: bool,
    /// Destinations in place of the nodes' addresses.
    pub(crate) destinations: Option<Vec<IpNet>>,
}

impl Access {
    /// Whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.ranges.is_empty() && !self.denies
    }
}

/// Findings, by the reason of their events.
pub(crate) type Remarks = Vec<(&'static str, String)>;

#[derive(Default)]
struct Ranges {
    valid: Vec<IpNet>,
    invalid: Vec<String>,
}

impl Ranges {
    fn add<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        for text in texts.map(str::trim) {
            match text.parse::<IpNet>().ok().filter(|net| net.addr() == net.network()) {
                Some(net) => self.valid.push(net),
                None => self.invalid.push(text.to_owned()),
            }
        }
    }

    fn of(annotation: Option<&str>) -> Self {
        let mut ranges = Self::default();
        if let Some(text) = annotation {
            ranges.add(text.trim().split(','));
        }
        ranges
    }

    fn allow_all(&self) -> bool {
        self.valid.iter().any(|net| net.prefix_len() == 0)
    }
}

/// The access that a Service asks for.
pub(super) fn access(
    service: &Service,
    scheme: Scheme,
    families: &[Family],
) -> Result<(Access, Remarks), ProviderError> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let mut remarks = Remarks::new();
    let mut sources = Ranges::default();
    sources.add(service.spec.load_balancer_source_ranges.iter().flatten().map(String::as_str));
    let mut allowed = Ranges::of(annotations.text(keys::IP_RANGES.row));
    let well_known = service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES);
    allowed.add(well_known.into_iter().flat_map(|text| text.trim().split(',')));
    let annotation = if annotations.has(&keys::IP_RANGES) { keys::IP_RANGES.row.key } else { ANNOTATION_SOURCE_RANGES };
    remarks.extend(invalid(INVALID_SOURCES, "spec.loadBalancerSourceRanges", &sources));
    remarks.extend(invalid(INVALID_ALLOWED, annotation, &allowed));
    if !sources.valid.is_empty() && !allowed.valid.is_empty() {
        let text = format!(
            "cannot set both spec.loadBalancerSourceRanges and {} or {ANNOTATION_SOURCE_RANGES}; remove one of them",
            keys::IP_RANGES.row.key
        );
        return Err(ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text));
    }
    let mut tags = annotations.readable(&keys::SERVICE_TAGS).unwrap_or_default();
    if !sources.valid.is_empty() && !tags.is_empty() {
        let text = format!(
            "Please use annotation {} instead of spec.loadBalancerSourceRanges while using {} annotation at the same time.",
            keys::IP_RANGES.row.key,
            keys::SERVICE_TAGS.row.key
        );
        remarks.push((CONFLICT, text));
    }
    let is_given = !sources.valid.is_empty() || !allowed.valid.is_empty();
    let is_open = |ranges: &Ranges| ranges.valid.is_empty() || ranges.allow_all();
    let is_invalid = !sources.invalid.is_empty() || !allowed.invalid.is_empty();
    let admits_all = !annotations.has(&keys::SERVICE_TAGS)
        && is_open(&sources)
        && is_open(&allowed)
        && !is_invalid
        && (scheme == Scheme::External || is_given);
    if admits_all && !sources.allow_all() && !allowed.allow_all() {
        tags.push(INTERNET.to_owned());
    }
    let denies = annotations.readable(&keys::DENY_ALL) == Some(true) && is_given || is_invalid;
    sources.valid.append(&mut allowed.valid);
    let (ranges, foreign) = by_family(&sources.valid, families);
    if !foreign.is_empty() {
        let text = format!("Found IP ranges {foreign:?} that do not match the Service's IP families, ignoring them");
        remarks.push((FAMILY_MISMATCH, text));
    }
    let destinations = destinations(annotations, &mut remarks);
    Ok((Access { tags, ranges, denies, destinations }, remarks))
}

/// The access that a Service asks for, without its families; `None` if it has no rules.
pub(crate) fn of(service: &Service) -> Option<Access> {
    let is_off = Annotations::read(&service.metadata.annotations).readable(&keys::NO_NSG_RULE) == Some(true);
    let (access, _) = access(service, Scheme::External, &[]).ok().filter(|_| !is_off)?;
    Some(access)
}

/// The networks of the families, merged, as texts in the order of the API; and those of other families.
fn by_family(nets: &[IpNet], families: &[Family]) -> (BTreeMap<Family, Vec<String>>, Vec<String>) {
    let merged = IpNet::aggregate(&nets.to_vec());
    let (mut ranges, mut foreign) = (BTreeMap::<Family, Vec<String>>::new(), Vec::new());
    for net in merged {
        let family = Family::of(net.addr());
        match families.contains(&family) {
            true => ranges.entry(family).or_default().push(net.to_string()),
            false => foreign.push(net.to_string()),
        }
    }
    ranges.values_mut().for_each(|list| list.sort());
    (ranges, foreign)
}

fn invalid(reason: &'static str, key: &str, ranges: &Ranges) -> Option<(&'static str, String)> {
    let wrong = &ranges.invalid;
    let text = format!("{key}: {wrong:?}: not networks without host bits; write for example 10.0.0.0/24");
    (!wrong.is_empty()).then_some((reason, text))
}

fn destinations(annotations: Annotations<'_>, remarks: &mut Remarks) -> Option<Vec<IpNet>> {
    let text = annotations.text(keys::DESTINATION_RANGES.row)?;
    let ranges = Ranges::of(Some(text));
    remarks.extend(invalid(INVALID_DESTINATIONS, keys::DESTINATION_RANGES.row.key, &ranges));
    Some(ranges.valid).filter(|valid| !valid.is_empty())
}
