//! The source ranges of clients that may connect to a load balancer.
//!
//! Behavior of `kubernetes/cloud-provider` `service/helpers/helper.go` (`GetLoadBalancerSourceRanges`).
use std::collections::BTreeSet;
use std::fmt;

use ipnet::{IpNet, Ipv4Net};

use crate::address::parse_cidr;
use crate::plan::{Finding, Severity};
use crate::service::Service;
use crate::well_known::ANNOTATION_SOURCE_RANGES;

/// A sorted set of networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceRanges(pub BTreeSet<IpNet>);

/// The ranges of a Service cannot be parsed. Displays as upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceRangesError {
    /// In `spec.loadBalancerSourceRanges`.
    #[error(
        "service.Spec.LoadBalancerSourceRanges: [{}] is not valid. Expecting a list of IP ranges. For example, 10.0.0.0/24. Error msg: invalid CIDR address: {bad}",
        .ranges.join(" ")
    )]
    Spec {
        /// The whole list.
        ranges: Vec<String>,
        /// The entry that is not a CIDR.
        bad: String,
    },
    /// In the annotation.
    #[error(
        "{ANNOTATION_SOURCE_RANGES}: {value} is not valid. Expecting a comma-separated list of source IP ranges. For example, 10.0.0.0/24,192.168.2.0/24"
    )]
    Annotation {
        /// Its value, trimmed.
        value: String,
        /// The entry that is not a CIDR.
        bad: String,
    },
}

impl SourceRanges {
    /// The ranges of a Service: `spec.loadBalancerSourceRanges` if it has entries, else the annotation
    /// `service.beta.kubernetes.io/load-balancer-source-ranges`, else `0.0.0.0/0`.
    ///
    /// # Errors
    ///
    /// An entry is not a CIDR: a bare address, an empty entry (trailing comma), an invalid prefix.
    pub fn of(service: &Service) -> Result<Self, SourceRangesError> {
        let ranges = service.spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
        if !ranges.is_empty() {
            return Self::parse(ranges.iter().map(String::as_str))
                .map_err(|bad| SourceRangesError::Spec { ranges: ranges.to_vec(), bad });
        }
        match service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES).map_or("", |value| value.trim()) {
            "" => Ok(Self::all_v4()),
            value => Self::parse(value.split(','))
                .map_err(|bad| SourceRangesError::Annotation { value: value.to_owned(), bad }),
        }
    }

    /// `0.0.0.0/0` alone: the default.
    #[must_use]
    pub fn all_v4() -> Self {
        Self(BTreeSet::from([IpNet::V4(Ipv4Net::default())]))
    }

    /// The networks, sorted, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter()
    }

    /// Parses the entries; the error is the invalid entry.
    fn parse<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        entries
            .map(str::trim)
            .map(|entry| parse_cidr(entry).ok_or_else(|| entry.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Findings about the ranges of a Service: invalid entries, and an annotation that is ignored because the spec has
/// ranges.
pub fn review(service: &Service) -> Vec<Finding> {
    const WANT: &str = "not an IP range; write a network with its prefix length, such as 10.0.0.0/24";
    let finding = |severity, key: String, value: &str, message: &str| Finding {
        severity,
        key,
        value: Some(value.to_owned()),
        message: message.to_owned(),
    };
    let is_bad = |entry: &str| parse_cidr(entry.trim()).is_none();
    let annotation = service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES);
    let ranges = service.spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
    if ranges.is_empty() {
        let entries = annotation.map_or("", |value| value.trim()).split(',');
        let bad = entries.filter(|entry| is_bad(entry) && SourceRanges::of(service).is_err());
        return bad
            .map(|entry| finding(Severity::Error, ANNOTATION_SOURCE_RANGES.to_owned(), entry.trim(), WANT))
            .collect();
    }
    let bad = ranges.iter().enumerate().filter(|(_, entry)| is_bad(entry));
    let mut findings: Vec<Finding> = bad
        .map(|(at, entry)| finding(Severity::Error, format!("spec.loadBalancerSourceRanges[{at}]"), entry, WANT))
        .collect();
    findings.extend(annotation.map(|value| {
        let message = "no effect: spec.loadBalancerSourceRanges wins; remove one of them";
        finding(Severity::Warning, ANNOTATION_SOURCE_RANGES.to_owned(), value, message)
    }));
    findings
}

/// The networks, comma separated.
impl fmt::Display for SourceRanges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, net) in self.0.iter().enumerate() {
            write!(formatter, "{}{net}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(spec: Option<&[&str]>, annotation: Option<&str>) -> Result<String, String> {
        let mut service = Service::default();
        service.spec.load_balancer_source_ranges = spec.map(|list| list.iter().map(|&text| text.into()).collect());
        service.metadata.annotations =
            annotation.map(|value| (ANNOTATION_SOURCE_RANGES.to_owned(), value.to_owned())).into_iter().collect();
        SourceRanges::of(&service).map(|ranges| ranges.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_spec_wins_over_the_annotation_and_an_empty_spec_does_not() {
        assert_eq!(ranges(Some(&["10.0.0.0/8"]), Some("192.168.0.0/16")).unwrap(), "10.0.0.0/8");
        assert_eq!(ranges(Some(&[]), Some("192.168.0.0/16")).unwrap(), "192.168.0.0/16");
        assert_eq!(ranges(None, Some(" 192.168.0.0/16 , 10.0.0.0/8 ")).unwrap(), "10.0.0.0/8,192.168.0.0/16");
    }

    #[test]
    fn nothing_or_blank_means_everybody() {
        assert_eq!(ranges(None, None).unwrap(), "0.0.0.0/0");
        assert_eq!(ranges(None, Some("")).unwrap(), "0.0.0.0/0");
        assert_eq!(ranges(None, Some("  ")).unwrap(), "0.0.0.0/0");
    }

    #[test]
    fn entries_are_trimmed_masked_and_not_repeated() {
        assert_eq!(
            ranges(Some(&[" 10.0.0.7/24 ", "10.0.0.0/24", "010.0.0.9/24", "fd00::1/64"]), None).unwrap(),
            "10.0.0.0/24,fd00::/64"
        );
    }

    #[test]
    fn a_bad_entry_names_the_whole_list() {
        assert_eq!(
            ranges(Some(&["10.0.0.0/8", "10.0.0.1/33"]), None).unwrap_err(),
            "service.Spec.LoadBalancerSourceRanges: [10.0.0.0/8 10.0.0.1/33] is not valid. Expecting a list of IP ranges. \
             For example, 10.0.0.0/24. Error msg: invalid CIDR address: 10.0.0.1/33"
        );
        for value in ["10.0.0.0/8,", "10.0.0.1", "10.0.0.0/8 192.168.0.0/16", "10.0.0.0/33"] {
            assert_eq!(
                ranges(None, Some(value)).unwrap_err(),
                format!(
                    "service.beta.kubernetes.io/load-balancer-source-ranges: {value} is not valid. Expecting a \
                     comma-separated list of source IP ranges. For example, 10.0.0.0/24,192.168.2.0/24"
                )
            );
        }
    }

    #[test]
    fn a_review_names_every_bad_entry_and_an_annotation_that_is_not_read() {
        let review = |spec: &[&str], annotation: Option<&str>| {
            let mut service = Service::default();
            service.spec.load_balancer_source_ranges = Some(spec.iter().map(|&text| text.into()).collect());
            service.metadata.annotations =
                annotation.map(|value| (ANNOTATION_SOURCE_RANGES.to_owned(), value.to_owned())).into_iter().collect();
            review(&service).into_iter().map(|f| (f.severity, f.key, f.value.unwrap())).collect::<Vec<_>>()
        };
        let key = || ANNOTATION_SOURCE_RANGES.to_owned();
        assert_eq!(
            review(&["10.0.0.0/8", "10.0.0.1", " x "], Some("10.0.0.0/8")),
            [
                (Severity::Error, "spec.loadBalancerSourceRanges[1]".to_owned(), "10.0.0.1".to_owned()),
                (Severity::Error, "spec.loadBalancerSourceRanges[2]".to_owned(), " x ".to_owned()),
                (Severity::Warning, key(), "10.0.0.0/8".to_owned()),
            ]
        );
        assert_eq!(
            review(&[], Some("10.0.0.0/8, y,")),
            [(Severity::Error, key(), "y".to_owned()), (Severity::Error, key(), String::new())]
        );
        for fine in [None, Some(""), Some(" "), Some("10.0.0.0/8 , ::/0")] {
            assert_eq!(review(&[], fine), []);
        }
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "\\PC*", near in "[0-9./:, ]{0,60}") {
            for text in [text, near] {
                let _ = ranges(None, Some(&text));
                let _ = ranges(Some(&[&text]), None);
            }
        }
    }
}
