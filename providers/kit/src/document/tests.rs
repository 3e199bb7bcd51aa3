use proptest::prelude::*;

use super::*;

fn problems(text: &str, read: impl FnOnce(&mut Fields<'_>)) -> Vec<String> {
    let tree = parse(text).unwrap();
    let problems = Problems::default();
    read(&mut Value::root(&tree, &problems).fields().unwrap());
    problems.into_result().map_or_else(|error| error.problems(), |()| Vec::new())
}

#[test]
fn unknown_keys_are_named_with_path_and_hint() {
    let found = problems("a: {nmae: x, Zone: y, zzz: 1}", |fields| {
        let mut a = fields.fields("a").unwrap();
        let _ = (a.text("name"), a.text("zone"));
    });
    assert_eq!(
        found,
        [
            "a.Zone: unknown key; did you mean \"zone\"?",
            "a.nmae: unknown key; did you mean \"name\"?",
            "a.zzz: unknown key; known keys: name, zone",
        ]
    );
}

#[test]
fn wrong_types_are_named_with_path_and_all_mistakes_are_reported() {
    let found = problems("{t: 5, f: 'true', n: -1, d: 5, d2: 5x, l: {}, m: [], w: blu, s: {a.b/c: 1}}", |f| {
        assert_eq!((f.text("t"), f.flag("f"), f.count("n")), (None, None, None));
        assert_eq!((f.duration("d"), f.duration("d2")), (None, None));
        assert!(f.list("l").is_empty() && f.fields("m").is_none());
        assert_eq!(f.word("w", &[("blue", 1), ("red", 2)]), None);
        assert!(f.texts("s").is_empty());
    });
    assert_eq!(
        found,
        [
            "t: expected text (in quotes), found the number 5",
            "f: expected true or false, found the text \"true\"",
            "n: expected a whole number, 0 or more, found the number -1",
            "d: expected a duration such as \"1m30s\", found the number 5",
            "d2: time: unknown unit \"x\" in duration \"5x\"",
            "l: expected a list, found a map",
            "m: expected a map, found a list",
            "w: unknown word \"blu\"; expected one of blue, red; did you mean \"blue\"?",
            "s[\"a.b/c\"]: expected text (in quotes), found the number 1",
        ]
    );
}

#[test]
fn a_whole_number_may_have_a_fraction_of_zero_or_an_exponent() {
    let found = problems("{a: 5.0, b: 1e3, c: 2.5, d: 1e99, e: -1.0}", |f| {
        assert_eq!((f.count("a"), f.count("b")), (Some(5), Some(1000)));
        assert_eq!((f.count("c"), f.count("d"), f.count("e")), (None, None, None));
    });
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn yes_is_a_text_and_null_counts_as_left_out() {
    let found = problems("{y: yes, n: null, e: }", |f| {
        assert_eq!(f.text("y").as_deref(), Some("yes"));
        assert_eq!(f.flag("n"), None);
        assert!(f.list("e").is_empty());
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn an_empty_document_is_null() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "null", "~", "---\n# x\n...\n"] {
        assert_eq!(parse(text), Ok(Json::Null), "{text:?}");
    }
}

#[test]
fn a_key_that_comes_twice_is_an_error_that_names_it() {
    for text in ["a: 1\na: 2\n", r#"{"a": 1, "a": 2}"#, "x: {a: 1, a: 1}"] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("duplicate mapping key `a` is not allowed here at line "), "{error}");
    }
}

fn as_go(text: &str) -> (Json, Vec<String>) {
    let (tree, findings) = parse_as_go(text, |path| path.starts_with("new")).unwrap();
    (tree, findings.iter().map(ToString::to_string).collect())
}

#[test]
fn a_document_of_a_go_program_has_old_booleans_and_octals_with_a_warning() {
    let doubt = "read as YAML 1.1; write this value, or a text in quotes";
    let (tree, doubts) = as_go("a: {b.c: yes, d: 'no'}\nl: [Off, true, 010, \"on\"]\n");
    assert_eq!(tree, serde_json::json!({"a": {"b.c": true, "d": "no"}, "l": [false, true, 8, "on"]}));
    let expected = [("a[\"b.c\"]", "true"), ("l[0]", "false"), ("l[2]", "8")];
    assert_eq!(as_go("new: {a: on}\n"), (serde_json::json!({"new": {"a": "on"}}), vec![]));
    assert_eq!(doubts, expected.map(|(key, value)| format!("{key} {value:?}: {doubt}")));
}

#[test]
fn a_document_of_a_go_program_may_repeat_a_key_whose_last_value_counts() {
    let doubt = "comes more than once, and the last value counts; keep one";
    for (text, tree, key) in [
        ("a: x\na: z\n", serde_json::json!({"a": "z"}), "a \"z\""),
        (r#"{"a": {"b": 1, "b": 2}, "c": 1}"#, serde_json::json!({"a": {"b": 2}, "c": 1}), "a.b \"2\""),
        ("- {a: 1, a: }\n- 1\n", serde_json::json!([{"a": null}, 1]), "[0].a"),
        ("a: {b: 1}\na: {c: 1}\n", serde_json::json!({"a": {"c": 1}}), "a"),
    ] {
        assert_eq!(as_go(text), (tree, vec![format!("{key}: {doubt}")]), "{text}");
    }
    assert_eq!(as_go("a: 1\na: 1\n"), (serde_json::json!({"a": 1}), vec![]), "the same value");
    assert_eq!(as_go("# nothing\n"), (Json::Null, vec![]));
    assert!(parse_as_go("a: [", |_| false).is_err());
}

#[test]
fn broken_text_and_a_second_document_are_errors() {
    for text in ["a: [", "a: 1\n---\nb: 2\n", "{\"a\": }x"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn json_is_yaml() {
    assert_eq!(parse(r#"{"a": ["1", 2, true, null]}"#).unwrap(), serde_json::json!({"a": ["1", 2, true, null]}));
}

#[test]
fn a_large_document_is_read() {
    let text: String = (0..20_000).map(|i| format!("- {{name: worker-{i}, labels: {{a: b}}}}\n")).collect();
    assert_eq!(parse(&text).unwrap().as_array().unwrap().len(), 20_000);
}

#[test]
fn hints_are_given_only_when_close() {
    assert_eq!(did_you_mean("provider_id", &["providerID", "name"]), Some("; did you mean \"providerID\"?".into()));
    assert_eq!(did_you_mean("colour", &["providerID", "name"]), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[-a:{}\\[\\], \n\t'\"|>&*!#?~.0-9é]{0,40}") {
        let _ = parse(&text);
    }
}

#[test]
fn mistakes_are_findings_with_the_path_as_key() {
    let tree = parse("a: 1\nb: []\nlong: x\n").unwrap();
    let problems = Problems::default();
    {
        let root = Value::root(&tree, &problems);
        root.problem("odd as a whole");
        let mut fields = root.fields().unwrap();
        let _ = (fields.text("a"), fields.flag("b"));
    }
    let error = problems.into_result().unwrap_err();
    let texts: Vec<String> = error.findings("file").iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "file: odd as a whole",
            "a: expected text (in quotes), found the number 1",
            "b: expected true or false, found a list",
            "long: unknown key; known keys: a, b"
        ]
    );
    let broken = parse("a: [").unwrap_err().findings("file");
    assert_eq!((broken.len(), &*broken[0].key, broken[0].severity), (1, "file", Severity::Error));
}

#[test]
fn the_nearest_word_is_one_of_the_known_ones() {
    assert_eq!(nearest("Shutdwon", &["shut", "shutdown", "shutdowns"]), Some("shutdown"));
    assert_eq!(nearest("x", &["shutdown"]), None);
    assert_eq!(nearest("asw", &["gce", "aws"]), Some("aws"), "two swapped letters are one error");
}
