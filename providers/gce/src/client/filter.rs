//! Filters of lists, in the older syntax of patterns: `name eq a.*`, `(name eq a.*) (network eq .*/n)`.
//!
//! A pattern is RE2 and has to match the whole field. Literal text is escaped.

use std::fmt;

/// A filter; all of its conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<(&'static str, String)>);

impl Filter {
    /// A field is exactly this text.
    #[must_use]
    pub(crate) fn is(self, field: &'static str, text: &str) -> Self {
        self.matches(field, &literal(text))
    }

    /// A field begins with this text.
    #[must_use]
    pub(crate) fn begins(self, field: &'static str, text: &str) -> Self {
        self.matches(field, &format!("{}.*", literal(text)))
    }

    /// A field ends with this text.
    #[must_use]
    pub(crate) fn ends(self, field: &'static str, text: &str) -> Self {
        self.matches(field, &format!(".*{}", literal(text)))
    }

    /// A field is exactly one of these texts.
    #[must_use]
    pub(crate) fn one_of<'a>(self, field: &'static str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let texts: Vec<String> = texts.into_iter().map(literal).collect();
        match &*texts {
            [one] => self.matches(field, one),
            several => self.matches(field, &format!("({})", several.join("|"))),
        }
    }

    fn matches(mut self, field: &'static str, pattern: &str) -> Self {
        self.0.push((field, pattern.to_owned()));
        self
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(field, pattern)] = &*self.0 {
            return write!(f, "{field} eq {pattern}");
        }
        let all: Vec<String> = self.0.iter().map(|(field, pattern)| format!("({field} eq {pattern})")).collect();
        f.write_str(&all.join(" "))
    }
}

/// Escapes literal text, if possible without backslashes: within quotes the API takes them for its own escapes.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '{' | '}' | '$' => pattern.extend(['[', c, ']']),
            '[' | ']' | '^' | '\\' => pattern.extend(['\\', c]),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_stands_alone_and_several_in_parentheses() {
        assert_eq!(Filter::default().is("address", "10.0.0.1").to_string(), "address eq 10[.]0[.]0[.]1");
        let filter = Filter::default().begins("name", "kubernetes-").ends("network", "/n");
        assert_eq!(filter.to_string(), "(name eq kubernetes-.*) (network eq .*/n)");
        assert_eq!(Filter::default().one_of("name", ["a"]).to_string(), "name eq a");
        assert_eq!(Filter::default().one_of("name", ["a", "b"]).to_string(), "name eq (a|b)");
        assert_eq!(Filter::default().to_string(), "");
    }
}
