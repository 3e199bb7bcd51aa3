//! Patterns that match whole strings: `*` matches any characters (including none, and `/`), `?` exactly one character,
//! and everything else itself. Every string is a valid pattern.

pub use wildmatch::WildMatch as Glob;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A literal implementation of the definition.
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
            prop_assert_eq!(Glob::new(&pattern).matches(&text), naive(&chars(&pattern), &chars(&text)));
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
        let pattern = Glob::new(&("*a".repeat(40) + "b"));
        assert!(!pattern.matches(&"a".repeat(2000)));
    }
}
