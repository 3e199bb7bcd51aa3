//! Patterns over whole texts.

use std::fmt;

/// A pattern: `*` is any run of characters (also none, and `/` too), `?` is exactly one character, everything else is
/// itself. The whole text must match.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Token {
    Run,
    One,
    Exactly(char),
}

impl Glob {
    /// Every text is a pattern.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let tokens = text
            .chars()
            .map(|c| match c {
                '*' => Token::Run,
                '?' => Token::One,
                c => Token::Exactly(c),
            })
            .collect();
        Self { text, tokens }
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern has no `*` and no `?`.
    pub fn is_literal(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, Token::Exactly(_)))
    }

    /// Whether the whole text matches. Takes time proportional to the product of both lengths at worst.
    pub fn matches(&self, text: &str) -> bool {
        // Only the last `*` ever needs to be extended: what an earlier one could swallow, the later one can too.
        let mut tokens = self.tokens.as_slice();
        let mut chars = text.chars();
        let mut retry: Option<(&[Token], std::str::Chars<'_>)> = None;
        loop {
            let next = match tokens.split_first() {
                Some((Token::Run, rest)) => {
                    retry = Some((rest, chars.clone()));
                    Some(rest)
                }
                Some((Token::One, rest)) => chars.next().map(|_| rest),
                Some((Token::Exactly(wanted), rest)) => chars.next().filter(|c| c == wanted).map(|_| rest),
                None if chars.as_str().is_empty() => return true,
                None => None,
            };
            if let Some(rest) = next {
                tokens = rest;
                continue;
            }
            let Some((after_run, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            tokens = after_run;
            chars = from.clone();
        }
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word by word.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            Some((c, rest)) => text.split_first().is_some_and(|(t, tail)| (*c == '?' || c == t) && naive(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(Glob::new(&*pattern).matches(&text), naive(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn a_pattern_covers_the_whole_text_and_star_crosses_slashes() {
        for (pattern, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("default/*", "default/a", true),
            ("default/*", "default/a/b", true),
            ("default/*", "other/a", false),
            ("*/public", "default/public", true),
            ("*/public", "default/public2", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?c", "a\u{e9}c", true),
            ("?", "", false),
            ("?*", "", false),
            ("?*", "x", true),
            ("worker-*-*", "worker-1-2", true),
            ("worker-*-*", "worker-1", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*aab", "aaaab", true),
            ("a.c", "abc", false),
            ("[ab]", "a", false),
            ("**", "x", true),
            ("Abc", "abc", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), want, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = Glob::new("*a".repeat(40) + "b");
        assert!(!pattern.matches(&"a".repeat(2000)));
    }

    #[test]
    fn a_literal_has_no_wildcards() {
        assert!(Glob::new("InstanceExists").is_literal());
        assert!(!Glob::new("Instance*").is_literal());
    }
}
