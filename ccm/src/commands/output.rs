//! Output of results: for users and for programs.

use std::io::IsTerminal as _;

use ccm_provider::Severity;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Aligned text for users.
    Text,
    /// One JSON document, stable.
    Json,
    /// Workflow commands that GitHub shows next to the lines of a change.
    Github,
}

impl Format {
    fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Github => "github",
        }
    }

    /// The format with this name: `text`, `json`, or one of `more`.
    pub(crate) fn parse(word: &str, more: &[Self]) -> Result<Self, String> {
        let known = [Self::Text, Self::Json].into_iter().chain(more.iter().copied());
        let found = known.clone().find(|format| format.word() == word);
        found.ok_or_else(|| {
            let words: Vec<&str> = known.map(Self::word).collect();
            format!("--output={word}: want {}", words.join(" or "))
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    colours: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Bold,
    Dim,
}

impl Output {
    /// Coloured on a terminal, unless `NO_COLOR` is set.
    pub(crate) fn new(format: Format) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        Self { format, colours: format == Format::Text && !plain && std::io::stdout().is_terminal() }
    }

    /// Without colours, for tests.
    #[cfg(test)]
    pub(crate) fn plain(format: Format) -> Self {
        Self { format, colours: false }
    }

    /// The text in this colour, if colours are enabled.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Bold => 1,
            Colour::Dim => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// `error`, `warning` or `info` in its colour.
    pub(crate) fn severity(self, severity: Severity) -> String {
        let colour = match severity {
            Severity::Error => Colour::Red,
            Severity::Warning => Colour::Yellow,
            Severity::Info => Colour::Dim,
        };
        self.paint(colour, severity.as_str())
    }
}

/// A document for programs: `kind`, `version` and the fields of `body`, sorted by name. The version changes when a
/// field changes its meaning or is removed, not when fields are added.
pub(crate) fn document(kind: &str, body: Value) -> String {
    let mut document = serde_json::Map::new();
    document.insert("kind".into(), kind.into());
    document.insert("version".into(), 1.into());
    if let Value::Object(fields) = body {
        document.extend(fields);
    }
    format!("{:#}\n", Value::Object(document))
}

/// One line without terminal control characters, since the text may contain untrusted input.
pub(crate) fn flat(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// `1 node`, `2 nodes`
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Columns, each as wide as its longest cell; the last column is not padded. Cells must not contain colour codes.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_form_is_an_error_that_names_the_known_ones() {
        assert_eq!(Format::parse("json", &[]), Ok(Format::Json));
        assert_eq!(Format::parse("yaml", &[]).unwrap_err(), "--output=yaml: want text or json");
        assert_eq!(Format::parse("x", &[Format::Github]).unwrap_err(), "--output=x: want text or json or github");
        assert_eq!(Format::parse("github", &[Format::Github]), Ok(Format::Github));
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "bb", "c"]), row(["aaa", "b", ""])]), "a    bb  c\naaa  b\n");
    }
}
