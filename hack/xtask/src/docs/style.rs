//! Length of lines, words to avoid, tables. The spelling is a matter of `hack/typos.sh`.

use std::path::Path;

use anyhow::Context as _;

use super::literals::literals;
use super::page::{Page, each, without_code};

/// The maximum length of a line.
pub(super) const WIDTH: usize = 160;

/// Words to avoid, with the better ones.
const WORDS: &[(&str, &str)] = &[
    ("rights", "permissions"),
    ("any right", "any permission"),
    ("every right", "every permission"),
    ("the right to", "permission to"),
    ("the right that", "the permission that"),
    ("remediation", "fix"),
    ("everybody", "anyone"),
    ("whoever", "anyone who"),
    ("wins over", "takes precedence over"),
    ("win over", "override"),
    ("whatever stands", "regardless of"),
    ("is no", "is not a"),
    ("are no", "are not"),
    ("balancer", "load balancer"),
    ("balancers", "load balancers"),
    ("switched on", "enabled"),
    ("tried again", "retried"),
    ("going on with", "using"),
    ("goes on with", "continues with"),
    ("want", "expected"),
    ("when something is wrong", "troubleshooting"),
    ("oddities", "quirks"),
    ("with the same eyes", "sees the same"),
];

/// Good English with such words, and Go's own texts.
const GOOD: &[&str] = &[
    "there is no",
    "there are no",
    "is no longer",
    "are no longer",
    "load balancer",
    "load-balancer",
    "enough rights to create",
];

/// Where the texts of the program are.
const SOURCES: &[&str] = &["ccm/src", "controllers", "providers", "hack/demo/src"];

pub(super) fn problems(page: &Page) -> Vec<String> {
    let lines = page.text.lines().enumerate().map(|(at, text)| (at + 1, text));
    let long = lines.filter(|(_, text)| text.chars().count() > WIDTH);
    let mut problems: Vec<String> = long
        .map(|(number, text)| format!("{}:{number}: {} characters; at most {WIDTH}", page.path, text.chars().count()))
        .collect();
    let mut cells = None;
    for line in page.lines() {
        let mut problem = |text: String| problems.push(format!("{}:{}: {text}", page.path, line.number));
        words(line.text).for_each(&mut problem);
        cells = match (is_row(line.text).then(|| count(line.text)), cells) {
            (Some(now), Some(before)) if now != before => {
                problem(format!("a row of {now} cells in a table of {before}"));
                Some(before)
            }
            (Some(now), None) => Some(now),
            (None, _) => None,
            (_, before) => before,
        };
    }
    problems
}

/// The words in the texts of the program: its messages and its help.
pub(super) fn problems_of_texts(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for source in SOURCES {
        each(&root.join(source), &mut |path| {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            if name.ends_with(".rs") && !["test", "examples/", "benches/"].iter().any(|part| name.contains(part)) {
                let code = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
                problems.extend(of_code(&name, &code));
            }
            Ok(())
        })?;
    }
    Ok(problems)
}

fn of_code(name: &str, code: &str) -> Vec<String> {
    let texts = literals(code).into_iter().filter(|(_, text)| text.contains(' '));
    texts.flat_map(|(number, text)| words(text).map(move |text| format!("{name}:{number}: {text}"))).collect()
}

pub(super) fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The words of a text that should be others; not those in backticks, and not the names of values in braces.
fn words(text: &str) -> impl Iterator<Item = String> {
    let joined = without_code(text).to_lowercase().replace("\\\n", " ");
    let one_line = joined.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = one_line.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    let mut text = parts.collect::<Vec<_>>().join("{}");
    for good in GOOD {
        text = text.replace(good, "");
    }
    let bad = WORDS.iter().filter(move |(word, _)| contains(&text, word));
    bad.map(|(word, better)| format!("{word:?}; better {better:?}"))
}

/// Whether a word stands in a text, not as a part of another.
fn contains(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// The cells of a row; `\|` is part of a cell.
fn count(row: &str) -> usize {
    row.trim().replace("\\|", "").trim_matches('|').matches('|').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_names_its_line() {
        let long = "x".repeat(WIDTH + 1);
        let text = format!(
            "`rights` are quoted; copyrights stay\nhas the rights\n| a | b |\n|---|---|\n| a \\| b |\n| {long} | c |\n{long}\n\
             <!-- generated: x -->\na balancer, a load balancer\n<!-- end of x -->\n```\n{long}\nthe rights\n```\n"
        );
        let found = problems(&Page { path: "p.md".to_owned(), text });
        let expected = [
            format!("p.md:6: {} characters; at most {WIDTH}", WIDTH + 9),
            format!("p.md:7: {} characters; at most {WIDTH}", WIDTH + 1),
            format!("p.md:12: {} characters; at most {WIDTH}", WIDTH + 1),
            "p.md:2: \"rights\"; better \"permissions\"".to_owned(),
            "p.md:5: a row of 1 cells in a table of 2".to_owned(),
            "p.md:9: \"balancer\"; better \"load balancer\"".to_owned(),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn words_in_the_texts_of_the_program_are_found() {
        let code = "fn f() {\n    g(\"{balancer}: the load \\\n       balancer stays\");\n    // \"the balancer stays\"\n    \
             h(\"balancer\", \"which object? want node/NAME\", \"enough rights to create x\");\n    h(\"it is \\\n    no JSON\");\n}\n";
        let expected = ["x.rs:5: \"want\"; better \"expected\"", "x.rs:6: \"is no\"; better \"is not a\""];
        assert_eq!(of_code("x.rs", code), expected);
    }
}
