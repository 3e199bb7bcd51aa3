use super::value::{cidrs, exact_bool, go_bool, integer, list, number, or_default, pairs, text, text_or_empty, word};
use super::*;

/// A cloud with three kinds of load balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Internal,
    Public,
    Shared,
}

impl BalancerKind for Kind {
    const ALL: &'static [Self] = &[Self::Internal, Self::Public, Self::Shared];

    fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal load balancer",
            Self::Public => "public load balancer",
            Self::Shared => "shared load balancer",
        }
    }
}

crate::annotation_table! {
    static ROWS: Kind;
    "lb.example.com/" {
        FLOATING: String = text_or_empty, "floating-network-id", On::Only(Kind::Public), "network ID", "", "Counts only while no address is attached.", "Where addresses come from.";
        TIMEOUT: i32 = |text| or_default(number(text)), "timeout-client-data", On::All, "milliseconds", "`50000`", "", "When silent connections are closed.";
        COUNT: i32 = number, "address-count", On::Strictly(Kind::Internal), "1 to 8", "`1`", "", "How many addresses.";
    }
    "service.beta.kubernetes.io/" {
        INTERNAL: bool = exact_bool, "example-internal-load-balancer", On::All, "boolean", "`false`", "", "No public address.";
    }
}

static TABLE: Table<Kind> =
    Table { spelling: Some(Spelling { prefix: "lb.example.com/", cloud: "", names: &[] }), rows: ROWS };

fn given(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
    annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn lines(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| format!("{} {finding}", finding.severity.as_str())).collect()
}

#[test]
fn an_empty_value_may_replace_the_default() {
    let given = given(&[("lb.example.com/floating-network-id", "")]);
    let annotations = Annotations::read(&given);
    assert_eq!(annotations.get(&FLOATING).unwrap(), Some(String::new()));
    assert!(annotations.has(&FLOATING) && !annotations.has(&COUNT));
    assert_eq!((text(""), text("x")), (Ok(None), Ok(Some("x".to_owned()))));
}

#[test]
fn a_value_that_does_not_count_is_a_warning_and_a_refused_one_an_error() {
    let given = given(&[
        ("lb.example.com/timeout-client-data", "5s"),
        ("lb.example.com/address-count", "nine"),
        ("service.beta.kubernetes.io/example-internal-load-balancer", "True"),
    ]);
    let annotations = Annotations::read(&given);
    assert_eq!(annotations.get(&TIMEOUT).unwrap(), None);
    assert_eq!((annotations.get(&INTERNAL).unwrap(), annotations.readable(&COUNT)), (None, None));
    let refused = annotations.get(&COUNT).unwrap_err();
    let text = "lb.example.com/address-count \"nine\": not a whole number from -2147483648 to 2147483647; write for \
                example \"10\"";
    assert_eq!(refused.to_string(), text);
    assert!(matches!(refused.class(), ErrorClass::Invalid { findings } if findings.len() == 1));
    assert_eq!(
        lines(TABLE.review(annotations, Kind::Internal)),
        [
            "warning lb.example.com/timeout-client-data \"5s\": not a whole number from -2147483648 to 2147483647; write for \
             example \"10\"; the default is used",
            &format!("error {text}"),
            "warning service.beta.kubernetes.io/example-internal-load-balancer \"True\": not a boolean; write \"true\" or \
             \"false\"; the default is used",
        ]
    );
}

#[test]
fn a_key_that_the_kind_does_not_read_is_ignored_or_refused() {
    let given = given(&[("lb.example.com/floating-network-id", "n"), ("lb.example.com/address-count", "x")]);
    let review = |kind| lines(TABLE.review(Annotations::read(&given), kind));
    let refused = "error lb.example.com/address-count \"x\": not possible on a public load balancer; remove it";
    assert_eq!(review(Kind::Public), [refused]);
    assert_eq!(
        review(Kind::Internal)[0],
        "warning lb.example.com/floating-network-id \"n\": has no effect on an internal load balancer; remove it"
    );
    assert_eq!(TABLE.first(Annotations::read(&given)).map(|row| row.key), Some("lb.example.com/floating-network-id"));
}

fn unknown(key: &str, others: &[&str]) -> Vec<String> {
    lines(TABLE.unknown(key, "v", others))
}

#[test]
fn a_misspelt_key_names_the_one_that_is_meant() {
    for (key, meant) in [
        ("lb.example.com/timeout-cleint-data", "lb.example.com/timeout-client-data"),
        ("lb.example.com/client-timeout", "lb.example.com/timeout-client-data"),
        ("lb.exmaple.com/timeout-client-data", "lb.example.com/timeout-client-data"),
        (
            "service.beta.kubernetes.io/example-internal-loadbalancer",
            "service.beta.kubernetes.io/example-internal-load-balancer",
        ),
        ("service.beta.kubernetes.io/load-balancer-source-range", ANNOTATION_SOURCE_RANGES),
    ] {
        assert_eq!(
            unknown(key, &[]),
            [format!("warning {key} \"v\": unknown key, no effect; did you mean {meant:?}?")]
        );
    }
}

#[test]
fn keys_of_others_are_left_alone() {
    for key in [
        ANNOTATION_SOURCE_RANGES,
        "lb.example.com/address-count",
        "example.org/address-count",
        "lb.exmaple.com/color",
        "service.beta.kubernetes.io/aws-load-balancer-type",
        "address-count",
    ] {
        assert_eq!(unknown(key, &[]), [""; 0], "{key}");
    }
}

#[test]
fn beside_another_program_only_keys_that_resemble_known_ones_are_unknown() {
    assert_eq!(unknown("lb.example.com/color", &[]), ["warning lb.example.com/color \"v\": unknown key, no effect"]);
    assert_eq!(unknown("lb.example.com/size", &["color"]), [""; 0]);
    assert_eq!(
        unknown("lb.example.com/colour", &["color"]),
        ["warning lb.example.com/colour \"v\": unknown key, no effect; did you mean \"lb.example.com/color\"?"]
    );
}

#[test]
fn without_a_common_beginning_keys_are_compared_whole() {
    let table: Table<Kind> = Table { spelling: None, rows: ROWS };
    let found = lines(table.unknown("lb.example.com/adress-count", "v", &[]));
    let message = "unknown key, no effect; did you mean \"lb.example.com/address-count\"?";
    assert_eq!(found, [format!("warning lb.example.com/adress-count \"v\": {message}")]);
    assert_eq!(table.unknown("lb.example.com/color", "v", &[]), None);
}

#[test]
fn booleans_follow_the_rule_of_their_cloud() {
    let read = |word: &str| [go_bool, exact_bool].map(|parse| parse(word).ok().flatten());
    for (yes, no) in [("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("t", "f"), ("T", "F"), ("1", "0")] {
        assert_eq!(read(yes), [Some(true), (yes == "true").then_some(true)], "{yes}");
        assert_eq!(read(no), [Some(false), (no == "false").then_some(false)], "{no}");
    }
    for other in ["tRUE", "yes", " true"] {
        assert_eq!(read(other), [None; 2], "{other}");
    }
    assert_eq!(go_bool(""), Ok(None));
    assert_eq!(go_bool("yes").unwrap_err().severity, Severity::Error);
    assert_eq!(exact_bool("").unwrap_err().severity, Severity::Warning);
}

#[test]
fn numbers_are_decimal_and_empty_is_none_only_where_that_is_the_rule() {
    assert_eq!((integer(""), integer("-5"), number("7")), (Ok(None), Ok(Some(-5)), Ok(Some(7))));
    for wrong in ["", "1.5", " 1", "0x10", "2147483648"] {
        assert!(number(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn lists_are_trimmed_and_in_the_order_written() {
    assert_eq!(list(" b, ,a ,").unwrap().unwrap(), ["b", "a"]);
    assert_eq!(list(" , "), Ok(None));
}

#[test]
fn pairs_keep_the_last_of_equal_keys_and_drop_those_without_key() {
    let found = pairs(" a=1,b , c=,=x,, a=2=3").unwrap().unwrap();
    assert_eq!(found, given(&[("a", "2=3"), ("b", ""), ("c", "")]));
}

#[test]
fn an_unknown_word_is_refused_with_the_known_ones() {
    let words = [("Standard", 1), ("Premium", 2)];
    assert_eq!(word("Premium", &words), Ok(Some(2)));
    let message = "unknown word \"premium\"; expected one of Standard, Premium; did you mean \"Premium\"?";
    assert_eq!(word("premium", &words).unwrap_err().message, message);
}

#[test]
fn networks_are_sorted_and_each_is_there_once() {
    let ranges = cidrs("10.1.2.3/8, 10.0.0.0/8,fd00::/8,").unwrap().unwrap();
    assert_eq!(ranges.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "fd00::/8"]);
    assert_eq!(cidrs(" "), Ok(None));
    assert_eq!(cidrs("10.0.0.1").unwrap_err().message, "\"10.0.0.1\" is not a CIDR; write for example 10.0.0.0/24");
}

#[test]
fn the_reference_has_a_line_for_each_key() {
    assert_eq!(
        TABLE.reference(),
        "| Annotation | Load balancers | Value | Default | Effect |\n\
         |---|---|---|---|---|\n\
         | `lb.example.com/floating-network-id` | public; ignored by internal and shared | network ID | – | Where addresses \
         come from. Counts only while no address is attached. |\n\
         | `lb.example.com/timeout-client-data` | all | milliseconds | `50000` | When silent connections are closed. |\n\
         | `lb.example.com/address-count` | internal; refused by public and shared | 1 to 8 | `1` | How many addresses. |\n\
         | `service.beta.kubernetes.io/example-internal-load-balancer` | all | boolean | `false` | No public address. |\n\
         | `service.beta.kubernetes.io/load-balancer-source-ranges` | all | list of CIDRs | `0.0.0.0/0` | Who may connect, \
         where `spec.loadBalancerSourceRanges` is empty. |\n"
    );
}

#[test]
fn the_reference_of_one_kind_has_no_column_of_balancers() {
    crate::annotation_table! {
        static ROWS: ();
        "example.com/" {
            SIZE: i32 = integer, "size", On::All, "number", "", "", "How large.";
        }
    }
    let page = Table::<()> { spelling: None, rows: ROWS }.reference();
    let expected = "| Annotation | Value | Default | Effect |\n|---|---|---|---|\n\
                    | `example.com/size` | number | – | How large. |\n";
    assert!(page.starts_with(expected), "{page}");
    assert_eq!(Annotations::read(&given(&[("example.com/size", "3")])).get_or_default(&SIZE).unwrap(), 3);
}
