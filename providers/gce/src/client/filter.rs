//! The filter of a list: one condition with a pattern, `name eq "a.*"`.
//!
//! A pattern is RE2 and has to match the whole field. Google's own tool quotes every pattern, and its documentation says
//! that patterns for several fields cannot be combined: callers check further conditions themselves. Literal text is
//! escaped.

use std::fmt;

/// A condition that the objects of a list must meet; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter(Option<(&'static str, String)>);

impl Filter {
    /// A field is exactly this text.
    pub(crate) fn is(field: &'static str, text: &str) -> Self {
        Self(Some((field, literal(text))))
    }

    /// A field begins with this text.
    pub(crate) fn begins(field: &'static str, text: &str) -> Self {
        Self(Some((field, format!("{}.*", literal(text)))))
    }

    /// A field ends with this text.
    pub(crate) fn ends(field: &'static str, text: &str) -> Self {
        Self(Some((field, format!(".*{}", literal(text)))))
    }

    /// A field is exactly one of these texts.
    pub(crate) fn one_of<'a>(field: &'static str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let texts: Vec<String> = texts.into_iter().map(literal).collect();
        let pattern = match &*texts {
            [one] => one.clone(),
            several => format!("({})", several.join("|")),
        };
        Self(Some((field, pattern)))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((field, pattern)) => write!(f, "{field} eq \"{pattern}\""),
            None => Ok(()),
        }
    }
}

/// Escapes literal text for a quoted pattern, if possible without backslashes.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '{' | '}' | '$' => pattern.extend(['[', c, ']']),
            '[' | ']' | '^' | '\\' | '"' => pattern.extend(['\\', c]),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_quoted() {
        for (filter, expected) in [
            (Filter::is("address", "10.0.0.1"), r#"address eq "10[.]0[.]0[.]1""#),
            (Filter::begins("name", "kubernetes-"), r#"name eq "kubernetes-.*""#),
            (Filter::begins("name", r#"a"b\"#), r#"name eq "a\"b\\.*""#),
            (Filter::ends("network", "/n"), r#"network eq ".*/n""#),
            (Filter::one_of("name", ["a"]), r#"name eq "a""#),
            (Filter::one_of("name", ["a", "b.c"]), r#"name eq "(a|b[.]c)""#),
            (Filter::default(), ""),
        ] {
            assert_eq!(filter.to_string(), expected);
        }
    }
}
