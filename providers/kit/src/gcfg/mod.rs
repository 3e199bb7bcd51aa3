//! The gcfg dialect of INI, which most clouds use for their configuration.
//!
//! Accepts whatever the Go programs accept, with the same result (upstream: `gopkg.in/gcfg.v1`, `scanner/scanner.go`
//! and `read.go`). Existing INI crates do not: they cut values at `#` inside quotes, or parse the next header as part
//! of a name.
//!
//! * `[section]` or `[section "subsection"]`; then `key = value`, one per line. Outside quotes, `;` and `#` begin a
//!   comment.
//! * Names of sections and keys are case-insensitive; names of subsections are case-sensitive. A name is a letter,
//!   then letters, digits and hyphens.
//! * Double quotes may enclose any part of a value. Inside them `\\`, `\"`, `\n`, `\t` and `\b` mean the same as in Go.
//!   Outside, a backslash is only valid before a double quote, or at the end of a line to continue on the next.
//! * A key without `=` is not the same as an empty value: it sets a boolean to true and empties a list.
//! * Sections of the same name are merged. A repeated key adds to a list, and replaces any other value.
//!
//! Reading has two steps: the text becomes a [`Document`], and the [`table`]s of a provider's keys extract the values.
//!
//! ```
//! let document = ccm_kit::gcfg::parse("[Global] ; comment\nZone = \"a#\"b\\\n c\nFast\n").unwrap();
//! let entries: Vec<_> = document.sections[0].entries.iter().map(|e| (e.key.as_str(), e.value.as_deref())).collect();
//! assert_eq!(entries, [("Zone", Some("a#b c")), ("Fast", None)]);
//! ```

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

pub mod table;

#[cfg(test)]
mod tests;

pub use table::{Field, Key, Reader, Secret, Table};

/// A file as written: sections in order, not merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The sections as written; a section may occur more than once.
    pub sections: Vec<Section>,
}

/// A header and the lines below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The name as written; compared case-insensitively.
    pub name: String,
    /// The subsection; never empty.
    pub subsection: Option<String>,
    /// The position of the header.
    pub at: Position,
    /// The entries in order.
    pub entries: Vec<Entry>,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name as written; compared case-insensitively.
    pub key: String,
    /// The value without quotes and escapes. `None`: there was no `=`.
    pub value: Option<String>,
    /// The position of the key.
    pub at: Position,
}

/// A position in the text. Both numbers begin at 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A syntax error in a gcfg text. Never quotes a value, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct SyntaxError {
    /// The position of the error.
    pub at: Position,
    /// The description of the error.
    pub problem: String,
}

/// Parses a whole file. Stops at the first error, because the meaning of the rest is uncertain.
pub fn parse(text: &str) -> Result<Document, SyntaxError> {
    let mut scanner = Scanner { rest: text.chars().peekable(), at: Position { line: 1, column: 1 } };
    // Windows editors write a byte order mark. Go rejects it, which helps no user.
    scanner.take_if(|c| c == '\u{feff}');
    let mut document = Document::default();
    loop {
        scanner.skip_blanks();
        let at = scanner.at;
        match scanner.peek() {
            None => return Ok(document),
            Some('\n') => scanner.advance(),
            Some(';' | '#') => scanner.skip_comment()?,
            Some('[') => document.sections.push(scanner.header()?),
            Some(c) if c.is_alphabetic() => match document.sections.last_mut() {
                None => return Err(error(at, "expected a section header, [section], before the first key")),
                Some(section) => section.entries.push(scanner.entry()?),
            },
            Some(c) => return Err(error(at, format!("illegal character {c:?}; expected [section] or key = value"))),
        }
    }
}

struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    at: Position,
}

impl Scanner<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.at = match c {
            '\n' => Position { line: self.at.line + 1, column: 1 },
            _ => Position { column: self.at.column + 1, ..self.at },
        };
        Some(c)
    }

    fn advance(&mut self) {
        self.take();
    }

    fn take_if(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        if self.peek().is_some_and(wanted) { self.take() } else { None }
    }

    fn skip_blanks(&mut self) {
        while self.take_if(is_blank).is_some() {}
    }

    fn skip_comment(&mut self) -> Result<(), SyntaxError> {
        loop {
            let at = self.at;
            match self.take_if(|c| c != '\n') {
                Some('\0') => return Err(error(at, "illegal character NUL")),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    /// Skips blanks and a comment, and expects the end of the line.
    fn end_of_line(&mut self, after: &str) -> Result<(), SyntaxError> {
        self.skip_blanks();
        match self.peek() {
            None | Some('\n') => Ok(()),
            Some(';' | '#') => self.skip_comment(),
            Some(_) => Err(error(self.at, format!("expected the end of the line or a comment after {after}"))),
        }
    }

    fn identifier(&mut self) -> String {
        let mut name = String::new();
        let first = self.take_if(char::is_alphabetic);
        name.extend(first);
        while first.is_some()
            && let Some(c) = self.take_if(|c| c.is_alphabetic() || c.is_numeric() || c == '-')
        {
            name.push(c);
        }
        name
    }

    fn header(&mut self) -> Result<Section, SyntaxError> {
        let at = self.at;
        self.advance();
        self.skip_blanks();
        let name = self.identifier();
        if name.is_empty() {
            return Err(error(self.at, "expected the name of a section after '['"));
        }
        self.skip_blanks();
        let quoted_at = self.at;
        let subsection = match self.take_if(|c| c == '"') {
            Some(_) => Some(self.quoted(quoted_at)?),
            None => None,
        };
        if subsection.as_deref() == Some("") {
            return Err(error(quoted_at, "empty subsection name"));
        }
        self.skip_blanks();
        if self.take_if(|c| c == ']').is_none() {
            let wanted = if subsection.is_some() { "']'" } else { "']' or a subsection in double quotes" };
            return Err(error(self.at, format!("expected {wanted} after the name of section {name:?}")));
        }
        self.end_of_line("a section header")?;
        Ok(Section { name, subsection, at, entries: Vec::new() })
    }

    /// Reads the name of a subsection after its opening quote. Only quotes and backslashes can be escaped here.
    fn quoted(&mut self, opened: Position) -> Result<String, SyntaxError> {
        let mut name = String::new();
        loop {
            let at = self.at;
            match self.take_if(|c| c != '\n') {
                None => return Err(error(opened, "the quote is not closed on this line")),
                Some('\0') => return Err(error(at, "illegal character NUL")),
                Some('"') => return Ok(name),
                Some('\\') => match self.take_if(|c| matches!(c, '\\' | '"')) {
                    Some(c) => name.push(c),
                    None => return Err(error(at, "unknown escape: here only \\\\ and \\\" are")),
                },
                Some(c) => name.push(c),
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, SyntaxError> {
        let at = self.at;
        let key = self.identifier();
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | ';' | '#') => Ok(Entry { key, value: None, at }),
            Some('=') => {
                self.advance();
                self.skip_blanks();
                Ok(Entry { key, value: Some(self.value()?), at })
            }
            Some('_') => {
                Err(error(self.at, format!("expected '=' after {key:?}: keys hold no underscore, but hyphens")))
            }
            Some(_) => Err(error(self.at, format!("expected '=' after {key:?}"))),
        }
    }

    fn value(&mut self) -> Result<String, SyntaxError> {
        let mut value = String::new();
        // The length of the value without trailing blanks.
        let mut kept = 0;
        let mut quote = None;
        loop {
            let at = self.at;
            match (self.peek(), quote) {
                (None | Some('\n'), Some(opened)) => return Err(error(opened, "the quote is not closed on this line")),
                (None | Some('\n' | ';' | '#'), None) => break,
                _ => {}
            }
            let Some(c) = self.take() else { break };
            match c {
                '\0' => return Err(error(at, "illegal character NUL")),
                '\\' => value.extend(self.escape(at, quote.is_some())?),
                '"' => quote = if quote.is_some() { None } else { Some(at) },
                // Windows line endings. Go drops them even inside quotes.
                '\r' => {}
                c => value.push(c),
            }
            if quote.is_some() || !is_blank(c) {
                kept = value.len();
            }
        }
        value.truncate(kept);
        Ok(value)
    }

    /// The character after a backslash; `None` for a line continuation.
    fn escape(&mut self, at: Position, quoted: bool) -> Result<Option<char>, SyntaxError> {
        if quoted {
            return match self.take_if(|c| matches!(c, '\\' | '"' | 'n' | 't' | 'b')) {
                Some('n') => Ok(Some('\n')),
                Some('t') => Ok(Some('\t')),
                Some('b') => Ok(Some('\u{8}')),
                Some(c) => Ok(Some(c)),
                None => Err(error(at, "unknown escape: inside quotes only \\\\, \\\", \\n, \\t and \\b are")),
            };
        }
        self.take_if(|c| c == '\r');
        match self.take_if(|c| matches!(c, '\n' | '"')) {
            Some('"') => Ok(Some('"')),
            Some(_) => Ok(None),
            None => Err(error(
                at,
                "outside quotes a backslash must be the last character of its line, or be doubled inside quotes",
            )),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

fn error(at: Position, problem: impl Into<String>) -> SyntaxError {
    SyntaxError { at, problem: problem.into() }
}

/// Formats the document as text that parses to the same document.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            match &section.subsection {
                None => writeln!(f, "[{}]", section.name)?,
                Some(name) => {
                    writeln!(f, "[{} \"{}\"]", section.name, name.replace('\\', "\\\\").replace('"', "\\\""))?;
                }
            }
            for entry in &section.entries {
                match &entry.value {
                    None => writeln!(f, "{}", entry.key)?,
                    Some(value) => writeln!(f, "{} = {}", entry.key, quote(value))?,
                }
            }
        }
        Ok(())
    }
}

fn quote(value: &str) -> String {
    if value.chars().all(|c| c.is_alphanumeric() || "-_./:@+*,".contains(c)) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}
