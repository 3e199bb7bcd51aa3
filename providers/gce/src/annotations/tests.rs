use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const NEW: &str = "networking.gke.io/load-balancer-type";
const OLD: &str = "cloud.google.com/load-balancer-type";

#[test]
fn keys_are_unique() {
    let keys: BTreeSet<&str> = TABLE.rows.iter().map(|row| row.key).collect();
    assert_eq!((keys.len(), TABLE.rows.len()), (10, 10));
    assert!(keys.iter().all(|key| PREFIXES.iter().any(|prefix| key.starts_with(prefix))));
    assert!(TABLE.reference().contains("| `cloud.google.com/network-tier` | external; ignored by internal |"));
}

#[test]
fn the_first_key_hides_the_older_one_even_when_empty() {
    for (pairs, expected) in [
        (&[(NEW, "Internal")][..], Scheme::Internal),
        (&[(NEW, "internal")], Scheme::Internal),
        (&[(NEW, "INTERNAL")], Scheme::External),
        (&[(OLD, "Internal")], Scheme::Internal),
        (&[(NEW, ""), (OLD, "Internal")], Scheme::External),
        (&[(NEW, "External"), (OLD, "Internal")], Scheme::External),
        (&[], Scheme::External),
    ] {
        assert_eq!(scheme_of(Annotations::read(&given(pairs))), expected, "{pairs:?}");
    }
}

#[test]
fn only_the_exact_word_hands_a_service_over() {
    let of = |text| Annotations::read(&given(&[(L4_RBS.row.key, text)])).readable(&L4_RBS);
    assert_eq!((of("enabled"), of("Enabled"), of("true")), (Some(true), None, None));
}

#[test]
fn a_tier_in_lower_case_is_refused() {
    let pairs = given(&[(NETWORK_TIER.row.key, "standard")]);
    let error = Annotations::read(&pairs).get(&NETWORK_TIER).unwrap_err().to_string();
    assert!(error.contains(r#"unsupported network tier: "standard""#), "{error}");
}

#[test]
fn a_key_under_another_domain_or_with_words_left_out_is_found_and_those_of_other_controllers_are_not() {
    for (key, meant) in [
        ("cloud.google.com/load-balancer-subnet", Some("networking.gke.io/internal-load-balancer-subnet")),
        ("networking.gke.io/network-tier", Some(NETWORK_TIER.row.key)),
        ("cloud.google.com/internal-load-balancer-allow-global-access", Some(GLOBAL_ACCESS.row.key)),
        ("networking.gke.io/load-balancer-ip-addresses", None),
        ("cloud.google.com/backend-config", None),
        ("cloud.google.com/app-protocols", None),
        ("cloud.google.com/neg", None),
        ("example.com/network-tier", None),
    ] {
        let found = TABLE.unknown(key, "x", &[]).map(|finding| finding.message);
        let wanted = meant.map(|meant| format!("unknown key, no effect; did you mean {meant:?}?"));
        assert_eq!(found, wanted, "{key}");
    }
}

#[test]
fn lint_names_what_has_no_effect() {
    let pairs = [
        (NEW, "Internal"),
        (OLD, "Internal"),
        (NETWORK_TIER.row.key, "Standard"),
        ("networking.gke.io/load-balancer-typ", "Internal"),
        ("cloud.google.com/neg", "{}"),
    ];
    let pairs = given(&pairs);
    let lines: Vec<String> =
        lint(Annotations::read(&pairs), Scheme::Internal).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            r#"cloud.google.com/network-tier "Standard": has no effect on an internal load balancer; remove it"#,
            r#"cloud.google.com/load-balancer-type "Internal": no effect: networking.gke.io/load-balancer-type wins; remove one of them"#,
            r#"networking.gke.io/load-balancer-typ "Internal": unknown key, no effect; did you mean "networking.gke.io/load-balancer-type"?"#,
        ]
    );
}
