//! The first page: short, with the two commands near its beginning, and no claim without a proof.

pub(super) const PAGE: &str = "README.md";
/// The maximum number of lines.
const LINES: usize = 150;
/// The two commands stand before this line.
const NEAR: usize = 60;

pub(super) fn problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let count = text.lines().count();
    if count > LINES {
        problems.push(format!("{PAGE}: {count} lines; at most {LINES}: move the rest to another page"));
    }
    for command in ["cargo demo", "hack/test.sh"] {
        if !text.lines().take(NEAR).any(|line| line.starts_with(command)) {
            problems.push(format!("{PAGE}: `{command}` is not in a line of its own before line {NEAR}"));
        }
    }
    let reasons: Vec<(usize, String)> = section(text, "Why").filter(|(_, line)| line.starts_with("- ")).collect();
    if reasons.is_empty() {
        problems.push(format!("{PAGE}: there is no list below ## Why"));
    }
    for (number, _) in reasons.iter().filter(|(_, line)| !line.contains("](")) {
        problems.push(format!("{PAGE}:{number}: a reason without a link to its proof"));
    }
    for title in ["Status", "Tested versions"] {
        let rows: Vec<(usize, String)> = section(text, title).filter(|(_, line)| line.starts_with('|')).collect();
        if rows.len() < 3 {
            problems.push(format!("{PAGE}: there is no table below ## {title}"));
        }
        // The heading and the line below it claim nothing.
        for (number, _) in rows.iter().skip(2).filter(|(_, row)| !is_dated(row)) {
            problems.push(format!("{PAGE}:{number}: a state without the version and the date of its run"));
        }
    }
    problems
}

/// The items and rows of a section, with their numbers; an item on several lines is one.
fn section(text: &str, title: &str) -> impl Iterator<Item = (usize, String)> {
    let heading = format!("## {title}");
    let lines = text.lines().enumerate().skip_while(move |(_, line)| *line != heading).skip(1);
    let mut items: Vec<(usize, String)> = Vec::new();
    for (at, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        match (line.strip_prefix("  "), items.last_mut()) {
            (Some(more), Some((_, item))) => {
                item.push(' ');
                item.push_str(more);
            }
            _ => items.push((at + 1, line.to_owned())),
        }
    }
    items.into_iter()
}

/// Whether a row has a day such as 2026-11-27 and a version such as 1.37.
fn is_dated(row: &str) -> bool {
    let words = || row.split(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '.'))).filter(|word| !word.is_empty());
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let day = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        matches!(parts.as_slice(), [year, month, day] if year.len() == 4 && [month, day].iter().all(|p| p.len() == 2 && is_number(p)))
    };
    let version = |word: &str| {
        let parts: Vec<&str> = word.trim_end_matches('.').split('.').collect();
        parts.len() >= 2 && parts.iter().all(|part| is_number(part))
    };
    words().any(day) && words().any(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_a_link_or_a_version_and_a_day() {
        let page = "# x\ncargo demo\nhack/test.sh\n## Why\n- **A**: a\n  b [proof](x)\n- **B**\n## Status\n\n| a | b |\n|---|---|\n\
             | AWS | moto 5.2.5, 2026-11-27 |\n| GCE | works |\n| Azure | 1.37 |\n\
             ## Tested versions\n| a | b |\n|---|---|\n| 1.36 | 2026-11-29 |\n| 1.37 | all |\n";
        let found = problems(page);
        let expected = [
            "README.md:7: a reason without a link to its proof",
            "README.md:13: a state without the version and the date of its run",
            "README.md:14: a state without the version and the date of its run",
            "README.md:19: a state without the version and the date of its run",
        ];
        assert_eq!(found, expected);
        assert!(problems(&"x\n".repeat(LINES + 1))[0].starts_with("README.md: 151 lines"));
    }
}
