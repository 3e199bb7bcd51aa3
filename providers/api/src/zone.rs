//! Zones in label values, and the choice of zones for new volumes.
//!
//! Behaviour of `kubernetes/cloud-provider` `volume/helpers/zones.go`.
use std::collections::BTreeSet;

use crate::node::Pairs;
use crate::well_known::{LABEL_ZONE, LABEL_ZONE_BETA, ZONE_DELIMITER};

/// A list of zones has an empty element. Displays as upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{delimiter:?} separated list ({text:?}) must not contain an empty string")]
pub struct ZoneListError {
    /// What separates the elements.
    pub delimiter: &'static str,
    /// The list as written.
    pub text: String,
}

/// The zones of a label value: `a__b` is `a` and `b`. Elements are trimmed; the result is sorted and free of repetitions.
///
/// # Errors
///
/// An element is empty, which an empty value is too.
pub fn parse_label(value: &str) -> Result<BTreeSet<String>, ZoneListError> {
    parse(value, ZONE_DELIMITER)
}

/// The zones of a comma-separated parameter of a storage class.
///
/// # Errors
///
/// As [`parse_label`].
pub fn parse_commas(value: &str) -> Result<BTreeSet<String>, ZoneListError> {
    parse(value, ",")
}

fn parse(text: &str, delimiter: &'static str) -> Result<BTreeSet<String>, ZoneListError> {
    text.split(delimiter)
        .map(|zone| match zone.trim() {
            "" => Err(ZoneListError { delimiter, text: text.to_owned() }),
            zone => Ok(zone.to_owned()),
        })
        .collect()
}

/// The label value of a set of zones, sorted. (Upstream leaves the order to chance.)
pub fn to_label<'a>(zones: impl IntoIterator<Item = &'a String>) -> String {
    let sorted: BTreeSet<&str> = zones.into_iter().map(String::as_str).collect();
    sorted.into_iter().collect::<Vec<_>>().join(ZONE_DELIMITER)
}

/// The zone of a node by its labels; the stable label is preferred to the beta one.
pub fn of_labels(labels: &Pairs) -> Option<&str> {
    labels.get(LABEL_ZONE).or_else(|| labels.get(LABEL_ZONE_BETA))
}

/// The zone for a volume of that claim name; `None` when there are no zones. Claims of one member of a StatefulSet
/// (`<claim>-<set>-<number>`) get the same zone, and the members go round the zones.
pub fn choose_zone<'a>(zones: &'a BTreeSet<String>, claim: &str) -> Option<&'a str> {
    let (hash, offset) = hash_and_offset(claim);
    nth(zones, hash.wrapping_add(offset))
}

/// `count` zones for a replicated volume of that claim name; all zones where there are not more. The members of a
/// StatefulSet go round the zones in steps of `count`.
pub fn choose_zones<'a>(zones: &'a BTreeSet<String>, claim: &str, count: u32) -> BTreeSet<&'a str> {
    if usize::try_from(count).is_ok_and(|count| count >= zones.len()) {
        return zones.iter().map(String::as_str).collect();
    }
    let (hash, offset) = hash_and_offset(claim);
    let start = offset.wrapping_mul(count);
    (0..count).filter_map(|step| nth(zones, hash.wrapping_add(start.wrapping_add(step)))).collect()
}

fn nth(zones: &BTreeSet<String>, number: u32) -> Option<&str> {
    let place = usize::try_from(number).ok()?.checked_rem(zones.len())?;
    zones.iter().nth(place).map(String::as_str)
}

/// A claim of a StatefulSet is named `<claim>-<set>-<number>`; both parts may hold dashes themselves, and only what is
/// between the last two dashes is hashed.
fn hash_and_offset(claim: &str) -> (u32, u32) {
    let numbered = claim.rsplit_once('-').and_then(|(rest, number)| {
        let digits_only = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((rest, number.parse().ok().filter(|_: &u32| digits_only)?))
    });
    match numbered {
        Some((rest, offset)) => (fnv1(rest.rsplit_once('-').map_or(rest, |(_, set)| set)), offset),
        None => (fnv1(claim), 0),
    }
}

/// FNV-1, 32 bits: multiply, then xor (FNV-1a is the other way round).
fn fnv1(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(zones: &[&str]) -> BTreeSet<String> {
        zones.iter().map(|&zone| zone.to_owned()).collect()
    }

    #[test]
    fn a_label_value_splits_at_two_underscores() {
        assert_eq!(parse_label("c__a__b__a").unwrap(), set(&["a", "b", "c"]));
        assert_eq!(parse_label(" a __b ").unwrap(), set(&["a", "b"]));
        assert_eq!(parse_label("a_b").unwrap(), set(&["a_b"]));
        assert_eq!(to_label(&set(&["b", "a"])), "a__b");
        assert_eq!(to_label(&set(&[])), "");
    }

    #[test]
    fn an_empty_zone_is_an_error_that_names_the_list() {
        for value in ["", "__", "a__", "__a", "a____b", "a__ __b"] {
            assert_eq!(
                parse_label(value).unwrap_err().to_string(),
                format!("\"__\" separated list (\"{value}\") must not contain an empty string")
            );
        }
    }

    #[test]
    fn storage_class_parameters_use_commas() {
        assert_eq!(parse_commas("b, a").unwrap(), set(&["a", "b"]));
        assert_eq!(
            parse_commas("a,").unwrap_err().to_string(),
            r#""," separated list ("a,") must not contain an empty string"#
        );
    }

    #[test]
    fn the_stable_label_is_preferred() {
        let both: Pairs = [(LABEL_ZONE_BETA, "old"), (LABEL_ZONE, "new")].into_iter().collect();
        assert_eq!(of_labels(&both), Some("new"));
        let beta: Pairs = [(LABEL_ZONE_BETA, "old")].into_iter().collect();
        assert_eq!(of_labels(&beta), Some("old"));
        assert_eq!(of_labels(&Pairs::default()), None);
    }

    #[test]
    fn the_hash_is_fnv_1_and_not_1a() {
        // Published vectors of the FNV authors.
        assert_eq!(fnv1(""), 0x811c_9dc5);
        assert_eq!(fnv1("a"), 0x050c_5d7e);
        assert_eq!(fnv1("foobar"), 0x31f0_b262);
    }

    #[test]
    fn members_of_a_stateful_set_go_round_the_zones() {
        let zones = set(&["a", "b", "c"]);
        let chosen: Vec<_> =
            (0..6).map(|member| choose_zone(&zones, &format!("data-my-web-{member}")).unwrap()).collect();
        assert_eq!(chosen[..3], chosen[3..]);
        assert_eq!(chosen[..3].iter().collect::<BTreeSet<_>>().len(), 3);
        let other_claim = choose_zone(&zones, "logs-my-web-1").unwrap();
        assert_eq!(other_claim, chosen[1], "claims of one member share a zone");
    }

    #[test]
    fn only_a_32_bit_number_is_an_offset() {
        assert_eq!(hash_and_offset("data-web-4294967295"), (fnv1("web"), u32::MAX));
        assert_eq!(hash_and_offset("data-web-007"), (fnv1("web"), 7));
        assert_eq!(hash_and_offset("web-1"), (fnv1("web"), 1));
        for whole in ["data-web-4294967296", "data-web-+1", "data-web-", "data-web-1a", "web", ""] {
            assert_eq!(hash_and_offset(whole), (fnv1(whole), 0), "{whole}");
        }
    }

    #[test]
    fn replicas_take_neighbouring_zones_and_the_next_member_the_next_ones() {
        let zones = set(&["a", "b", "c", "d"]);
        let first = choose_zones(&zones, "data-web-0", 2);
        let second = choose_zones(&zones, "data-web-1", 2);
        assert_eq!((first.len(), second.len()), (2, 2));
        assert!(first.is_disjoint(&second));
        assert_eq!(choose_zones(&zones, "data-web-2", 2), first);
        assert_eq!(choose_zones(&zones, "x", 9).len(), 4);
        assert!(choose_zones(&set(&[]), "x", 2).is_empty());
        assert_eq!(choose_zone(&set(&[]), "x"), None);
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in "\\PC*", near in "[a-c_, ]{0,20}") {
            for text in [&text, &near] {
                let _ = (parse_label(text), parse_commas(text));
            }
        }

        #[test]
        fn a_set_survives_its_label(zones in proptest::collection::btree_set("[a-z0-9-]{1,8}", 1..5)) {
            prop_assert_eq!(parse_label(&to_label(&zones)).unwrap(), zones);
        }

        #[test]
        fn as_many_zones_as_asked_for(
            zones in proptest::collection::btree_set("[a-z]{1,4}", 0..6),
            claim in "[a-z0-9-]{0,20}",
            count in 0_u32..8,
        ) {
            let chosen = choose_zones(&zones, &claim, count).len();
            // Fewer only where the 32-bit sum wraps within the run of zones.
            prop_assert!(chosen <= zones.len().min(count as usize));
            prop_assert_eq!(chosen == 0, zones.is_empty() || count == 0);
            prop_assert_eq!(choose_zone(&zones, &claim).is_some(), !zones.is_empty());
        }
    }
}
