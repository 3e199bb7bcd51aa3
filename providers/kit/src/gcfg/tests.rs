use std::time::Duration;

use ccm_provider::{ErrorClass, Severity};
use proptest::prelude::*;
use regex::Regex;

use super::table::{line, refuse};
use super::{Document, Entry, Field, Key, Position, Reader, Section, Table, parse};

/// The values of the only section; `None` for a key alone.
fn values(text: &str) -> Vec<(String, Option<String>)> {
    let document = parse(&format!("[s]\n{text}")).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let [section] = document.sections.as_slice() else { panic!("{text:?}: {document:?}") };
    section.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
}

fn value(text: &str) -> Option<String> {
    let values = values(text);
    let [(_, value)] = values.as_slice() else { panic!("{text:?}: {values:?}") };
    value.clone()
}

#[test]
fn values_read_as_go_reads_them() {
    let cases: &[(&str, Option<&str>)] = &[
        ("k=v", Some("v")),
        ("  k  =  v  ", Some("v")),
        ("k = a b\tc", Some("a b\tc")),
        ("k = v ; comment", Some("v")),
        ("k = v# comment", Some("v")),
        ("k =", Some("")),
        ("k = ; comment", Some("")),
        ("k = \"\"", Some("")),
        ("k", None),
        ("k ; comment", None),
        ("k = \"a;#b\"", Some("a;#b")),
        ("k = \" a \" ", Some(" a ")),
        ("k = x\" y \"z ", Some("x y z")),
        (r#"k = "\\ \" \n \t \b""#, Some("\\ \" \n \t \u{8}")),
        (r#"k = say \"hi\""#, Some("say \"hi\"")),
        ("k = a \\\n  b", Some("a   b")),
        ("k = a\\\r\nb\r\n", Some("ab")),
        ("k = \\\n", Some("")),
        ("k = [x] = y", Some("[x] = y")),
        ("k = \u{e4} \u{1f980}", Some("\u{e4} \u{1f980}")),
        ("k = v\r\n", Some("v")),
        ("k-1 = v", Some("v")),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text).as_deref(), *expected, "{text:?}");
    }
}

#[test]
fn headers_comments_and_byte_order_marks() {
    let document =
        parse("\u{feff}; first\n\n# second\n [ Global ] ; third\n[Over \"a\\\"\\\\ b\"]\n[over]# x\n\tk=v").unwrap();
    let names: Vec<_> =
        document.sections.iter().map(|section| (section.name.as_str(), section.subsection.as_deref())).collect();
    assert_eq!(names, [("Global", None), ("Over", Some("a\"\\ b")), ("over", None)]);
    let [.., last] = document.sections.as_slice() else { panic!() };
    assert_eq!((last.at.line, last.at.column), (6, 1));
    assert_eq!(last.entries.first().map(|entry| entry.at), Some(Position { line: 7, column: 2 }));
    assert_eq!(parse(""), Ok(Document::default()));
}

#[test]
fn mistakes_name_line_and_column_and_no_value() {
    let cases = [
        ("k = v", "line 1, column 1: expected a section header, [section], before the first key"),
        ("[s]\n\n  =v", "line 3, column 3: illegal character '='; expected [section] or key = value"),
        ("[s]\nk v", "line 2, column 3: expected '=' after \"k\""),
        ("[s]\nauth_url=v", "line 2, column 5: expected '=' after \"auth\": keys hold no underscore, but hyphens"),
        ("[s]\nk = \"secret", "line 2, column 5: the quote is not closed on this line"),
        ("[s]\nk = \"secret\nx\"", "line 2, column 5: the quote is not closed on this line"),
        ("[s]\nk = \"\\s\"", "line 2, column 6: unknown escape: inside quotes only \\\\, \\\", \\n, \\t and \\b are"),
        (
            "[s]\nk = a\\b",
            "line 2, column 6: outside quotes a backslash must be the last character of its line, or be doubled inside quotes",
        ),
        ("[]", "line 1, column 2: expected the name of a section after '['"),
        ("[a.b]", "line 1, column 3: expected ']' or a subsection in double quotes after the name of section \"a\""),
        ("[a \"b\"", "line 1, column 7: expected ']' after the name of section \"a\""),
        ("[a \"\"]", "line 1, column 4: empty subsection name"),
        ("[a \"b]", "line 1, column 4: the quote is not closed on this line"),
        ("[a \"\\n\"]", "line 1, column 5: unknown escape: here only \\\\ and \\\" are"),
        ("[a] k = v", "line 1, column 5: expected the end of the line or a comment after a section header"),
        ("[s]\n; \0", "line 2, column 3: illegal character NUL"),
        ("[s]\nk = \0", "line 2, column 5: illegal character NUL"),
    ];
    for (text, expected) in cases {
        let error = parse(text).unwrap_err().to_string();
        assert_eq!(error, expected, "{text:?}");
        assert!(!error.contains("secret"));
    }
}

#[derive(Debug, Default)]
struct Plain {
    text: String,
    flag: bool,
    number: i64,
    list: Vec<String>,
    delay: Duration,
    pattern: Option<Regex>,
    even: i64,
    evens: Vec<i64>,
}

fn even(value: &str) -> Result<i64, String> {
    value.parse().ok().filter(|number| number % 2 == 0).ok_or_else(|| "not even".to_owned())
}

static PLAIN: Table<Plain> = Table {
    section: "Plain",
    doc: "All types.",
    keys: &[
        Key::new("Text", Field::Text(|plain| &mut plain.text), "", "A text."),
        Key::new("Password", Field::Text(|plain: &mut Plain| &mut plain.text), "", "Hidden.").secret(),
        Key::new("Flag", Field::Flag(|plain| &mut plain.flag), "false", "On | off."),
        Key::new("Number", Field::Integer { field: |plain| &mut plain.number, min: -5, max: 65535 }, "0", "A number."),
        Key::new("List", Field::List(|plain| &mut plain.list), "", "Some."),
        Key::new("Delay", Field::Duration(|plain| &mut plain.delay), "1m0s", "A while."),
        Key::new("Pattern", Field::Pattern(|plain| &mut plain.pattern), "", "A pattern."),
        Key::new(
            "even_number",
            Field::Custom { kind: "even number", set: |plain, value| even(value).map(|number| plain.even = number) },
            "",
            "Divisible.",
        ),
        Key::new(
            "Odd",
            Field::Lenient {
                kind: "odd number",
                set: |plain, value| {
                    plain.number = value.parse().map_err(|_| "no number".to_owned())?;
                    Ok(even(value).ok().map(|_| "even, taken all the same".to_owned()))
                },
            },
            "",
            "Better not divisible.",
        ),
        Key::new(
            "Evens",
            Field::CustomList {
                kind: "even numbers",
                clear: |plain| plain.evens.clear(),
                push: |plain, value| even(value).map(|number| plain.evens.push(number)),
            },
            "",
            "Divisible.",
        ),
        Key::new("Old", Field::Retired::<Plain>, "", "Nothing.").note("Until 1.26."),
    ],
};

fn read(text: &str, unknown: Severity) -> (Plain, Vec<String>) {
    let document = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let mut reader = Reader::new(&document, unknown);
    let plain = reader.section(&PLAIN);
    let findings = reader.finish();
    (plain, findings.iter().map(|finding| format!("{:?} {}", finding.severity, line(finding))).collect())
}

#[test]
fn every_type_is_read() {
    let text = "[PLAIN]\ntext = a\nFLAG\nnumber = 0x10\nlist = a\nlist = b\ndelay = 1m30s\npattern = ^a$\neven-number = 4\nevens = 2\n\
                [plain]\nlist = c\nevens = 6\n";
    let (plain, findings) = read(text, Severity::Error);
    assert_eq!(findings, Vec::<String>::new());
    assert_eq!(
        (plain.text.as_str(), plain.flag, plain.number, plain.delay, plain.even),
        ("a", true, 16, Duration::from_secs(90), 4)
    );
    assert_eq!((plain.list, plain.evens), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], vec![2, 6]));
    assert!(plain.pattern.is_some_and(|pattern| pattern.is_match("a")));
}

#[test]
fn words_and_numbers_of_go() {
    for (word, expected) in [("TRUE", true), ("Yes", true), ("on", true), ("1", true), ("no", false), ("OFF", false)] {
        assert_eq!(read(&format!("[plain]\nflag = {word}"), Severity::Error).0.flag, expected, "{word}");
    }
    for (word, expected) in [("010", 10), ("0xff", 255), ("-5", -5), ("+7", 7), ("\" 8 \"", 8)] {
        let (plain, findings) = read(&format!("[plain]\nnumber = {word}"), Severity::Error);
        assert_eq!((plain.number, findings.len()), (expected, 0), "{word}");
    }
    for word in ["", "1.5", "5x", "--5", "-+5", "0x", "65536", "-6", "99999999999999999999"] {
        let (plain, findings) = read(&format!("[plain]\nnumber = {word}"), Severity::Error);
        let expected = format!("Error [Plain] Number = {word:?}: line 2: not an integer from -5 to 65535");
        assert_eq!((plain.number, findings), (0, vec![expected]));
    }
}

#[test]
fn a_key_alone_switches_on_or_empties_or_is_refused() {
    let (plain, findings) = read("[plain]\nflag\nlist = a\nlist\nevens = 2\nevens\ntext\n", Severity::Warning);
    assert!(plain.flag && plain.list.is_empty() && plain.evens.is_empty());
    assert_eq!(findings, ["Error [Plain] Text: line 7: a value is missing; write key = string"]);
}

#[test]
fn findings_name_key_value_and_fix() {
    let text = "[plain]\nflag = maybe\ndelay = 5\npattern = (\neven-number = 3\nevens = 5\nPassword = hunter2\npassword = b\n\
                flga = true\nsomething = x\nold = 1\n[plain \"x\"]\n[Plian]\na = 1\n[plian]\nb = 1\n";
    assert_eq!(
        read(text, Severity::Warning).1,
        [
            "Error [Plain] Flag = \"maybe\": line 2: not a boolean; write true or false",
            "Error [Plain] Delay = \"5\": line 3: not a duration; write for example 30s, 5m or 1h30m",
            "Error [Plain] Pattern = \"(\": line 4: not a regular expression (error: unclosed group)",
            "Error [Plain] even_number = \"3\": line 5: not even",
            "Error [Plain] Evens = \"5\": line 6: not even",
            "Warning [Plain] Password: line 8: given more than once; the last one counts",
            "Warning [Plain] flga: line 9: unknown key, ignored; did you mean \"Flag\"?",
            "Warning [Plain] something: line 10: unknown key, ignored",
            "Warning [Plain] Old = \"1\": line 11: this key has no effect any more; remove it",
            "Warning [plain \"x\"]: line 12: this section has no subsections",
            "Warning [Plian]: line 13: unknown section, ignored; did you mean \"Plain\"?",
        ]
    );
    let (_, strict) = read("[nope]\n[plain]\nflga = 1\n", Severity::Error);
    assert_eq!(
        strict,
        ["Error [Plain] flga: line 3: unknown key; did you mean \"Flag\"?", "Error [nope]: line 1: unknown section"]
    );
}

#[test]
fn a_lenient_key_takes_a_doubtful_value_with_a_warning() {
    for (value, number, findings) in [
        ("3", 3, vec![]),
        ("4", 4, vec!["Warning [Plain] Odd = \"4\": line 2: even, taken all the same"]),
        ("x", 0, vec!["Error [Plain] Odd = \"x\": line 2: no number"]),
    ] {
        let (plain, found) = read(&format!("[plain]\nodd = {value}\n"), Severity::Error);
        assert_eq!((plain.number, found), (number, findings.into_iter().map(str::to_owned).collect()), "{value}");
    }
}

#[test]
fn subsections_merge_by_exact_name_and_keep_their_order() {
    let document =
        parse("[plain \"b\"]\ntext = 1\n[plain \"a\"]\ntext = 2\n[PLAIN \"b\"]\nflag\n[plain \"B\"]\n").unwrap();
    let mut reader = Reader::new(&document, Severity::Error);
    let found = reader.subsections(&PLAIN);
    let found: Vec<_> = found.iter().map(|(name, plain)| (name.as_str(), plain.text.as_str(), plain.flag)).collect();
    assert_eq!(found, [("b", "1", true), ("a", "2", false), ("B", "", false)]);
    assert_eq!(reader.finish(), []);
}

#[test]
fn errors_refuse_and_warnings_do_not() {
    let findings = |text: &str| {
        let document = parse(text).unwrap();
        let mut reader = Reader::new(&document, Severity::Warning);
        reader.section(&PLAIN);
        reader.finish()
    };
    assert!(refuse("bad file", &findings("[plain]\nold = 1\n[x]\n")).is_ok());
    let error = refuse("bad file", &findings("[x]\n[plain]\nflag = a\nnumber = b\n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bad file: [Plain] Flag = \"a\": line 3: not a boolean; write true or false; \
         [Plain] Number = \"b\": line 4: not an integer from -5 to 65535"
    );
    assert!(matches!(error.class(), ErrorClass::Invalid { findings } if findings.len() == 2));
}

#[test]
fn the_reference_is_a_table_of_markdown() {
    let reference = PLAIN.reference();
    assert!(
        reference.starts_with("### `[Plain]`\n\nAll types.\n\n| Key | Type | Default | Effect |\n| --- |"),
        "{reference}"
    );
    assert!(reference.contains("| `Flag` | boolean | `false` | On \\| off. |\n"), "{reference}");
    assert!(reference.contains("| `Old` | ignored | – | Nothing. *Until 1.26.* |\n"), "{reference}");
    assert!(reference.contains("| `Evens` | list of even numbers | – | Divisible. |\n"), "{reference}");
}

fn any_document() -> impl Strategy<Value = Document> {
    let at = Position { line: 0, column: 0 };
    let name = "[a-zA-Z][a-zA-Z0-9-]{0,6}";
    // Carriage returns are dropped from values, as in Go, and gcfg does not allow NUL.
    let value = prop::option::of("[^\r\0]{0,12}");
    let entry = (name, value).prop_map(move |(key, value)| Entry { key, value, at });
    let subsection = prop::option::of("[^\n\0]{1,6}");
    let section = (name, subsection, prop::collection::vec(entry, 0..4))
        .prop_map(move |(name, subsection, entries)| Section { name, subsection, at, entries });
    prop::collection::vec(section, 0..4).prop_map(|sections| Document { sections })
}

/// The same document without positions.
fn without_positions(mut document: Document) -> Document {
    let at = Position { line: 0, column: 0 };
    for section in &mut document.sections {
        section.at = at;
        section.entries.iter_mut().for_each(|entry| entry.at = at);
    }
    document
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(document in any_document()) {
        let text = document.to_string();
        let again = parse(&text).map(without_positions);
        prop_assert_eq!(again, Ok(document), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}|[\\[\\]=;#\"\\\\ntk \\n\\r\\t\0-]{0,40}") {
        for text in [text.clone(), format!("[plain]\n{text}"), format!("[plain]\nlist = {text}")] {
            if let Ok(document) = parse(&text) {
                let mut reader = Reader::new(&document, Severity::Warning);
                reader.section(&PLAIN);
                reader.finish();
                let again = parse(&document.to_string()).map(without_positions);
                prop_assert_eq!(again, Ok(without_positions(document)));
            }
        }
    }
}
