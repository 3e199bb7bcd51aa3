use std::collections::BTreeMap;

use super::*;

fn given(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

#[test]
fn an_ip_tag_has_one_equals_sign_and_the_last_of_a_type_wins() {
    let of = pairs_of_ip_tags;
    let pair = |kind: &str, tag: &str| (kind.to_owned(), tag.to_owned());
    assert_eq!(of("B=1, A=1,A=2,C=x=y"), [pair("A", "2"), pair("B", "1")]);
    assert_eq!(of(""), []);
}

#[test]
fn a_boolean_is_true_in_any_case() {
    for (text, expected) in [("true", Scheme::Internal), ("True", Scheme::Internal), ("1", Scheme::External)] {
        assert_eq!(scheme_of(Annotations::read(&given(LB_INTERNAL.row.key, text))), expected, "{text}");
    }
    assert_eq!(scheme_of(Annotations::read(&BTreeMap::new())), Scheme::External);
}

#[test]
fn blanks_around_a_boolean_count_except_for_private_link_services() {
    for (key, expected) in [
        (&PLS_CREATE, Some(true)),
        (&PLS_PROXY, Some(true)),
        (&LB_INTERNAL, None),
        (&HA_PORTS, None),
        (&DENY_ALL, None),
        (&NO_NSG_RULE, None),
        (&NO_TCP_RESET, None),
        (&NO_FLOATING_IP, None),
    ] {
        let given = given(key.row.key, " True ");
        assert_eq!(Annotations::read(&given).readable(key), expected, "{}", key.row.key);
    }
}

#[test]
fn an_idle_timeout_is_from_4_to_100() {
    for (text, expected) in [("4", Some(4)), ("100", Some(100)), ("3", None), ("101", None), ("5a", None), ("", None)] {
        let read = Annotations::read(&given(IDLE_TIMEOUT.row.key, text)).get(&IDLE_TIMEOUT);
        assert_eq!(read.as_ref().ok().copied().flatten(), expected, "{text}");
        assert_eq!(read.is_err(), expected.is_none(), "{text}");
    }
}

#[test]
fn a_misspelt_key_is_found_and_one_of_a_port_is_not_unknown() {
    let findings = lint(
        Annotations::read(&given("service.beta.kubernetes.io/azure-load-balancer-intrnal", "true")),
        Scheme::External,
    );
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("azure-load-balancer-internal"), "{}", findings[0].message);
    let port = given("service.beta.kubernetes.io/port_80_no_lb_rule", "true");
    assert_eq!(lint(Annotations::read(&port), Scheme::External), []);
}

#[test]
fn additional_addresses_must_all_be_addresses() {
    assert!(Annotations::read(&given(ADDITIONAL_IPS.row.key, "192.0.2.1, fd00::1")).get(&ADDITIONAL_IPS).is_ok());
    let error = Annotations::read(&given(ADDITIONAL_IPS.row.key, "192.0.2.1,x")).get(&ADDITIONAL_IPS).unwrap_err();
    assert!(error.to_string().contains("\"x\" is not an IP address"), "{error}");
}

#[test]
fn ip_tags_are_sorted_pairs() {
    let pairs = pairs_of_ip_tags("b=2, a=1,broken");
    assert_eq!(pairs, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
}
