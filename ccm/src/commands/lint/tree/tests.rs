use proptest::prelude::*;
use serde_json::json;

use super::*;

fn only(text: &str) -> Node {
    let mut parsed = parse(text);
    assert_eq!(parsed.broken, [], "{text}");
    assert_eq!(parsed.documents.len(), 1, "{text}");
    parsed.documents.remove(0).1
}

fn broken(text: &str) -> Vec<(usize, String)> {
    parse(text).broken.into_iter().map(|broken| (broken.line, broken.message)).collect()
}

#[test]
fn the_line_of_a_key_is_found_in_block_and_flow_style_quoted_and_with_crlf() {
    let rows = [
        "a:\n  b.c/d:\n    - x\n    - {y: 1}\n",
        "a:\r\n  \"b.c/d\":\r\n    - x\r\n    - {y: 1}\r\n",
        "{\"a\":\n{'b.c/d': [\nx,\n{y: 1}]}}",
        "{\t\"a\":\n\t{\t\"b.c/d\":\t[\n\t\"x\",\n\t{\"y\":\t1}]}}\n",
        "\u{feff}a:\n  ? 'b.c/d'\n  : - x\n    - {y: 1}\n",
    ];
    for text in rows {
        let node = only(text);
        let line = |path: &str| node.line_of(path);
        assert_eq!(node.json(), json!({"a": {"b.c/d": ["x", {"y": 1}]}}), "{text:?}");
        assert_eq!((line(""), line("a")), (1, 1), "{text:?}");
        assert_eq!(line("a[\"b.c/d\"]"), 2, "{text:?}");
        assert_eq!((line("a[\"b.c/d\"][0]"), line("a[\"b.c/d\"][1].y")), (3, 4), "{text:?}");
    }
}

#[test]
fn a_missing_path_has_the_line_of_its_parent() {
    let node = only("a: 1\nb:\n  c:\n  - d: 2\n");
    let line = |path: &str| node.line_of(path);
    assert_eq!((line("b.x"), line("b.c[7].d"), line("b.c[0].e.f"), line("nope")), (2, 3, 4, 1));
    assert_eq!((line("a.b.c"), line("b[\"c"), line("b[x]")), (1, 2, 2));
}

#[test]
fn scalars_have_the_meaning_of_kubectl() {
    let rows = [
        ("yes", json!(true)),
        ("off", json!(false)),
        ("'yes'", json!("yes")),
        ("!!str true", json!("true")),
        ("~", json!(null)),
        ("80", json!(80)),
        ("0x50", json!(80)),
        ("0120", json!(80)),
        ("-1", json!(-1)),
        ("1_000", json!(1000)),
        ("1.5", json!(1.5)),
        ("1.5.2", json!("1.5.2")),
        ("10.0.0.0/8", json!("10.0.0.0/8")),
        ("-", json!([null])),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        ("\"\\ud83d\\ude00\"", json!("😀")),
    ];
    for (text, expected) in rows {
        assert_eq!(only(&format!("- {text}\n")).json(), json!([expected]), "{text}");
    }
}

#[test]
fn documents_are_counted_and_a_broken_one_leaves_the_others() {
    let parsed = parse("# first\n---\na: 1\n---\nb: [\n---\nc: 1\n...\n---\n# nothing\n---\nd: {e: f\n");
    let numbers: Vec<(usize, usize)> = parsed.documents.iter().map(|(number, node)| (*number, node.line)).collect();
    assert_eq!(numbers, [(1, 3), (3, 7), (4, 9)], "{parsed:?}");
    assert_eq!(parsed.broken.iter().map(|broken| broken.line).collect::<Vec<_>>(), [5, 12]);
    assert_eq!(
        broken("a:\n\tb: 1\n"),
        [(2, "cannot be read: tabs disallowed within this context (block indentation)".into())]
    );
    assert!(parse("").documents.is_empty() && parse("# x\n").documents.is_empty());
}

#[test]
fn json_objects_may_follow_each_other_and_keep_their_lines() {
    let text = "\u{feff}{\n\"a\": 1}{\"b\":\n2}\n\n{\n\"c\": 3,\n\"c\": 4}\n";
    let parsed = parse(text);
    let seen: Vec<_> = parsed.documents.iter().map(|(number, node)| (*number, node.line, node.json())).collect();
    assert_eq!(seen, [(1, 1, json!({"a": 1})), (2, 2, json!({"b": 2})), (3, 5, json!({"c": 4}))]);
    assert_eq!(parsed.documents[1].1.line_of("b"), 2);
    assert_eq!(broken(text), [(7, "duplicate key \"c\"; the first one is at line 6".into())]);

    let parsed = parse("{\"a\": 1}\n---\nb: 2\n---\nc: [\n");
    let seen: Vec<_> = parsed.documents.iter().map(|(number, node)| (*number, node.line, node.json())).collect();
    assert_eq!(seen, [(1, 1, json!({"a": 1})), (2, 3, json!({"b": 2}))]);
    assert_eq!(parsed.broken.iter().map(|broken| broken.line).collect::<Vec<_>>(), [5]);
    assert_eq!(parse("{\"a\": 1}\n{\"b\": [}\n").broken[0].line, 2);
    assert_eq!(parse("{a: 1}\n").documents.len(), 1, "flow style is no JSON");
}

#[test]
fn a_byte_order_mark_may_begin_every_document() {
    let parsed = parse("\u{feff}a: 1\n---\n\u{feff}b:\n  c: 2\n");
    assert_eq!(parsed.broken, []);
    assert_eq!(parsed.documents[1].1.line_of("b.c"), 4);
}

#[test]
fn a_key_that_comes_twice_is_reported_with_both_lines() {
    assert_eq!(broken("a: 1\nb: 2\n\"a\": 3\n"), [(3, "duplicate key \"a\"; the first one is at line 1".into())]);
    assert_eq!(broken("{[a]: 1}"), [(1, "a key must be a text".into())]);
}

#[test]
fn merges_and_aliases_are_followed() {
    let node = only("base: &base {a: 1, b: 2}\nmore:\n  b: 3\n  <<: *base\nless:\n  <<: [*base]\n  b: 4\n");
    assert_eq!(node.get("more").unwrap().json(), json!({"a": 1, "b": 3}));
    assert_eq!(node.get("less").unwrap().json(), json!({"a": 1, "b": 4}));
    assert_eq!(only("a: &k x\n*k : 1\n").json(), json!({"a": "x", "x": 1}));
}

#[test]
fn aliases_that_multiply_end_in_an_error() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let found = broken(&text);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("aliases multiply"), "{found:?}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[-a:\\[\\]{}&*<>|!'\"?, #%\\n\\t~0-9.]{0,60}", path in "[a.\\[\\]\"0-9\\\\]{0,12}") {
        for (_, node) in parse(&text).documents {
            let _ = (node.json(), node.line_of(&path));
        }
    }
}
