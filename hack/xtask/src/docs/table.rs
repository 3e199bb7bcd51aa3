//! Tables that are too wide for a page become lists: a row of a table is one line and cannot be broken.

use std::collections::BTreeSet;

use super::style::{WIDTH, is_row};

/// The width of the lines of a list.
const COLUMNS: usize = 140;
/// The longest cell that stands in parentheses behind the first one.
const SHORT: usize = 64;
/// The most cells there.
const MANY: usize = 3;

/// The text with a list in place of each table that has a row longer than `WIDTH`, and of each other table with the same columns.
pub(crate) fn fit(text: &str) -> String {
    let tables = tables(text);
    let is_wide = |table: &Table<'_>| table.lines.iter().any(|row| row.chars().count() > WIDTH);
    let wide: BTreeSet<&str> = tables.iter().filter(|table| is_wide(table)).map(|table| table.head).collect();
    let mut fitted = text.to_owned();
    for head in wide {
        let tables: Vec<&Table<'_>> = tables.iter().filter(|table| table.head == head).collect();
        let form = Form::new(head, tables.iter().flat_map(|table| table.rows()));
        for table in tables {
            fitted = fitted.replacen(&format!("{}\n", table.lines.join("\n")), &form.list(table.rows()), 1);
        }
    }
    fitted
}

struct Table<'a> {
    head: &'a str,
    /// All of them, from the head on.
    lines: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// The cells of each row below the head and the rule.
    fn rows(&self) -> impl Iterator<Item = Vec<String>> + use<'a, '_> {
        self.lines.iter().skip(2).map(|row| cells(row))
    }
}

/// The tables outside of code.
fn tables(text: &str) -> Vec<Table<'_>> {
    let (mut fence, mut tables, mut current) = (false, Vec::new(), None::<Table<'_>>);
    for line in text.lines().chain([""]) {
        fence ^= line.trim_start().starts_with("```");
        if !fence && is_row(line) {
            current.get_or_insert_with(|| Table { head: line, lines: Vec::new() }).lines.push(line);
        } else {
            tables.extend(current.take());
        }
    }
    tables
}

/// The cells of a row, without what a table needs for its form.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').strip_suffix('|').unwrap_or(row);
    let row = row.replace("\\|", "\0");
    row.split('|').map(|cell| cell.trim().replace('\0', "|").replace("<br>", "\n")).collect()
}

/// How the rows of tables with the same columns are written.
struct Form {
    head: Vec<String>,
    /// The columns in parentheses behind the first one.
    short: Vec<usize>,
    /// The other columns.
    long: Vec<usize>,
}

impl Form {
    fn new(head: &str, rows: impl Iterator<Item = Vec<String>>) -> Self {
        let (head, rows): (_, Vec<_>) = (cells(head), rows.collect());
        let fits = |cell: &String| cell.chars().count() <= SHORT && !cell.contains("; ");
        let is_short = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(fits));
        let (short, long): (Vec<usize>, Vec<usize>) = (1..head.len()).partition(|at| is_short(*at));
        match short.len() {
            0..=MANY => Self { head, short, long },
            _ => Self { long: (1..head.len()).collect(), head, short: Vec::new() },
        }
    }

    fn list(&self, rows: impl Iterator<Item = Vec<String>>) -> String {
        let mut text = String::new();
        for row in rows {
            self.item(&mut text, &row);
        }
        text
    }

    fn item(&self, text: &mut String, row: &[String]) {
        let Some(name) = row.first() else { return };
        let named = |at: &usize| {
            let cell = row.get(*at).filter(|cell| !matches!(cell.as_str(), "" | "–"))?;
            Some((self.head.get(*at)?, cell))
        };
        let short = self.short.iter().filter_map(named).filter(|(_, cell)| *cell != "none");
        let short: Vec<String> = short.map(|(head, cell)| format!("{}: {cell}", head.to_lowercase())).collect();
        let first = if short.is_empty() { name.clone() } else { format!("{name} ({})", short.join("; ")) };
        let long: Vec<(&String, &String)> = self.long.iter().filter_map(named).collect();
        let is_code = name.starts_with('`') && name.chars().count() <= SHORT;
        match &long[..] {
            // The title of the rows below it.
            [] if name.starts_with("**") => {
                text.push_str(if text.is_empty() { "### " } else { "\n### " });
                text.push_str(&format!("{}\n\n", name.trim_matches('*')));
            }
            [(_, cell)] if self.head.len() <= 2 && first.contains(": ") => {
                item(text, "- ", &format!("{first} – {cell}"));
            }
            [(_, cell)] if self.head.len() <= 2 || is_code => item(text, "- ", &format!("{first}: {cell}")),
            _ => {
                item(text, "- ", &first);
                for (head, cell) in long {
                    item(text, "  - ", &format!("{head}: {cell}"));
                }
            }
        }
    }
}

/// Adds an item, broken between words. Lines of a cell are items below it.
fn item(text: &mut String, bullet: &str, content: &str) {
    let mut lines = content.split('\n');
    let indent = " ".repeat(bullet.len());
    let mut line = bullet.to_owned();
    for word in words(lines.next().unwrap_or_default()) {
        let is_first = line.len() == bullet.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > COLUMNS && !is_markup(&word) {
            text.push_str(&format!("{line}\n"));
            line.clone_from(&indent);
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(&word);
    }
    text.push_str(&format!("{line}\n"));
    for below in lines {
        item(text, &format!("{indent}- "), below);
    }
}

/// The words of a text; code, links and the term "load balancer" are not broken.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| open) {
            Some(last) => last.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
        let last = words.last().map_or("", String::as_str);
        open = last == "load"
            || last.matches('`').count() % 2 == 1
            || last.matches('[').count() > last.matches(']').count();
    }
    words
}

/// Whether a line that begins with this word would be something else than text.
fn is_markup(word: &str) -> bool {
    matches!(word, "-" | "+" | "*" | "=")
        || word.starts_with(['#', '>', '|'])
        || word.ends_with('.') && word.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_becomes_a_list_and_others_with_its_columns_too() {
        let long = "a word ".repeat(31);
        let text = format!(
            "# A\n\n| Key | Type | Effect |\n|---|---|---|\n| `a` | bool | {long}`b \\| c` |\n\n\
             | Key | Type | Effect |\n|---|---|---|\n| `b` |  | x |\n\n| Other | Table |\n|---|---|\n| c | d |\n"
        );
        let fitted = fit(&text);
        assert!(fitted.starts_with("# A\n\n- `a` (type: bool): a word a word"), "{fitted}");
        assert!(fitted.ends_with(" `b | c`\n\n- `b`: x\n\n| Other | Table |\n|---|---|\n| c | d |\n"), "{fitted}");
        assert!(fitted.lines().all(|line| line.chars().count() <= COLUMNS), "{fitted}");
        assert_eq!(fit(&fitted), fitted);
    }

    #[test]
    fn several_long_cells_are_items_below_the_first_one() {
        let long = "word ".repeat(20);
        let text = format!("| Reason | Type | Cause | Fix |\n|---|---|---|---|\n| `A` | Normal | {long}| {long}|\n");
        let fitted = fit(&text);
        let lines: Vec<&str> = fitted.lines().collect();
        assert_eq!(lines[0], "- `A` (type: Normal)");
        assert!(lines[1].starts_with("  - Cause: word") && lines[2].starts_with("  - Fix: word"), "{fitted}");
    }

    #[test]
    fn tables_in_code_stay() {
        let text = format!("```\n| a |\n|---|\n| {} |\n```\n", "x".repeat(WIDTH));
        assert_eq!(fit(&text), text);
    }
}
