//! Ports in the formats of firewall and forwarding rules. Pure.

use std::collections::BTreeSet;

/// Sorted and unique, with consecutive ports joined: `15 37 900 2002-2004`.
pub(super) fn merged(ports: &BTreeSet<u16>) -> Vec<String> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for port in ports {
        match runs.last_mut() {
            Some((_, last)) if u32::from(*last) + 1 == u32::from(*port) => *last = *port,
            _ => runs.push((*port, *port)),
        }
    }
    runs.into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect()
}

/// From the lowest to the highest port, the format of forwarding rules without discrete ports.
pub(super) fn range(ports: &BTreeSet<u16>) -> String {
    format!("{}-{}", ports.first().copied().unwrap_or_default(), ports.last().copied().unwrap_or_default())
}

/// The first and last port of `80` or `80-90`.
fn parse(range: &str) -> Option<(u16, u16)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// The ports of a list of ports and ranges; `None` if an entry is neither.
pub(super) fn expanded(ranges: &[String]) -> Option<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    for range in ranges {
        let (first, last) = parse(range)?;
        ports.extend(first..=last);
    }
    Some(ports)
}

/// Whether two strings are the same range: `80` is `80-80`.
pub(super) fn is_same_range(a: &str, b: &str) -> bool {
    a == b || parse(a).is_some() && parse(a) == parse(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ports_are_joined() {
        let ports = |list: &[u16]| merged(&list.iter().copied().collect()).join(" ");
        assert_eq!(ports(&[15, 37, 900, 2002, 2003, 2003, 2004]), "15 37 900 2002-2004");
        assert_eq!(ports(&[65_534, 65_535, 1]), "1 65534-65535");
        assert_eq!(ports(&[]), "");
    }

    #[test]
    fn lists_and_ranges_of_the_same_ports_are_equal() {
        let list = |texts: &[&str]| expanded(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(list(&["80-82", "90"]), list(&["80", "81", "82", "90"]));
        assert_eq!(list(&["http"]), None);
        assert!(is_same_range("80", "80-80") && !is_same_range("80", "80-81") && is_same_range("", ""));
        assert_eq!(range(&[443, 80].into()), "80-443");
    }
}
