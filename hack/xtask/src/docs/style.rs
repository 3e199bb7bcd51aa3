//! Length of lines, spelling, words to avoid, tables.

use super::page::{Line, Page, without_code};

/// The maximum length of a line; a row of a table cannot be broken.
const WIDTH: usize = 160;

/// Words to avoid, with the better ones. The spelling is American, as in the documentation of Kubernetes.
const WORDS: &[(&str, &str)] = &[
    ("rights", "permissions"),
    ("remediation", "fix"),
    ("everybody", "anyone"),
    ("wins over", "takes precedence over"),
    ("is no", "is not a"),
    ("are no", "are not"),
    ("behaviour", "behavior"),
    ("colour", "color"),
    ("licence", "license"),
    ("labelled", "labeled"),
    ("labelling", "labeling"),
    ("honour", "honor"),
    ("honours", "honors"),
    ("honoured", "honored"),
    ("favour", "favor"),
    ("neighbour", "neighbor"),
    ("cancelled", "canceled"),
    ("catalogue", "catalog"),
    ("centre", "center"),
    ("organisation", "organization"),
    ("initialise", "initialize"),
    ("recognise", "recognize"),
    ("authorise", "authorize"),
    ("oddities", "quirks"),
    ("with the same eyes", "sees the same"),
];

pub(super) fn problems(page: &Page) -> Vec<String> {
    let lines = page.lines();
    let mut problems = Vec::new();
    let mut cells = None;
    for line in &lines {
        let mut problem = |text: String| problems.push(format!("{}:{}: {text}", page.path, line.number));
        let row = line.text.trim_start().starts_with('|');
        let length = line.text.chars().count();
        if length > WIDTH && !row && !line.generated {
            problem(format!("{length} characters; at most {WIDTH}"));
        }
        if !line.generated {
            for (word, better) in words(line) {
                problem(format!("{word:?}; better {better:?}"));
            }
        }
        cells = match (row.then(|| count(line.text)), cells) {
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

fn words(line: &Line<'_>) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let text = without_code(line.text).to_lowercase();
    // Good English, unlike "it is no evidence".
    let text =
        text.replace("there is no", "there's no").replace("there are no", "there's no").replace(" no longer", " not");
    WORDS.iter().filter(move |(word, _)| contains(&text, word))
}

/// Whether a word stands in a text, not as a part of another.
fn contains(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric();
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
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
            "`rights` are quoted; copyrights stay\nhas the rights\n| a | b |\n|---|---|\n| a \\| b |\n| {long} | c |\n{long}\n"
        );
        let found = problems(&Page { path: "p.md".to_owned(), text });
        let expected = [
            "p.md:2: \"rights\"; better \"permissions\"".to_owned(),
            "p.md:5: a row of 1 cells in a table of 2".to_owned(),
            format!("p.md:7: {} characters; at most {WIDTH}", WIDTH + 1),
        ];
        assert_eq!(found, expected);
    }
}
