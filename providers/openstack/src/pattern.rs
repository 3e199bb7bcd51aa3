//! Selection of subnets for floating IPs: patterns of their names, and expressions of their tags.
//!
//! Upstream: `pkg/openstack/loadbalancer_subnet_match.go` of cloud-provider-openstack, `glob/glob.go` of go-godo/godo.

use regex::Regex;

/// A name pattern. A leading `!` negates; `~` starts a regular expression, anything else is a glob.
#[derive(Debug, Clone)]
pub(crate) struct NamePattern {
    /// `None`: any name.
    regex: Option<Regex>,
    is_negated: bool,
}

impl NamePattern {
    /// Reads a pattern; an empty one matches every name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (is_negated, pattern) = negation(text.trim());
        if pattern.is_empty() && !is_negated {
            return Ok(Self { regex: None, is_negated });
        }
        let (kind, expression) = match pattern.strip_prefix('~') {
            Some(regex) => ("regular expression", regex.to_owned()),
            None => ("glob", of_glob(pattern)),
        };
        let regex = Regex::new(&expression).map_err(|error| {
            // The full error prints the pattern over several lines.
            let error = error.to_string();
            format!("{pattern:?} is not a {kind} ({})", error.lines().last().unwrap_or_default().trim())
        })?;
        Ok(Self { regex: Some(regex), is_negated })
    }

    /// Whether the pattern matches a name. As upstream, the leftmost match of a regular expression must be the name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let Some(regex) = &self.regex else { return true };
        regex.find(name).is_some_and(|found| found.as_str() == name) != self.is_negated
    }
}

/// Strips a leading `!`; the flag says whether there was one.
fn negation(text: &str) -> (bool, &str) {
    text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_start()))
}

/// `*` is any run without `/`, `?` one character, `[a-c]` a set, `{a,b}` alternatives; anything else is literal.
fn of_glob(glob: &str) -> String {
    let mut expression = String::from("^");
    let (mut is_in_set, mut depth) = (false, 0_usize);
    for c in glob.chars() {
        let part = match c {
            ']' | '-' if is_in_set => {
                is_in_set = c == '-';
                c.to_string()
            }
            _ if is_in_set => regex::escape(&c.to_string()),
            '[' => {
                is_in_set = true;
                "[".to_owned()
            }
            '{' => {
                depth += 1;
                "(?:".to_owned()
            }
            '}' if depth > 0 => {
                depth -= 1;
                ")".to_owned()
            }
            ',' if depth > 0 => "|".to_owned(),
            '*' => "[^/]*".to_owned(),
            '?' => ".".to_owned(),
            _ => regex::escape(&c.to_string()),
        };
        expression.push_str(&part);
    }
    expression.push('$');
    expression
}

/// The Neutron query parameter for a tag expression; `None`: any tags match.
///
/// `a,b` requests any of the tags, `&a,b` all; `!a,b` none, `!&a,b` at least one missing. In Neutron, `not-tags`
/// excludes objects with all the tags, and `not-tags-any` those with any. Upstream swaps the two, contrary to its own
/// documentation.
pub(crate) fn tag_query(expression: &str) -> Option<(&'static str, String)> {
    let (is_negated, rest) = negation(expression.trim());
    let (is_all, list) = rest.strip_prefix('&').map_or((false, rest), |list| (true, list));
    let tags: Vec<&str> = list.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
    let parameter = match (is_negated, is_all) {
        (false, false) => "tags-any",
        (false, true) => "tags",
        (true, false) => "not-tags-any",
        (true, true) => "not-tags",
    };
    (!tags.is_empty()).then(|| (parameter, tags.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let parsed = NamePattern::parse(pattern).unwrap();
        for (names, expected) in [(yes, true), (no, false)] {
            for name in names {
                assert_eq!(parsed.matches(name), expected, "{pattern:?} on {name:?}");
            }
        }
    }

    /// Pitfall 45.
    #[test]
    fn a_negated_regular_expression_leaves_its_names_out() {
        check("!~prod-.*", &["dev-1", "my-prod-1", ""], &["prod-1", "prod-"]);
        check("!prod-*", &["dev-1"], &["prod-1"]);
    }

    #[test]
    fn a_regular_expression_covers_the_whole_name_with_its_leftmost_match() {
        check("~ext.*", &["ext", "external"], &["my-ext"]);
        check("~a|ab", &["a"], &["ab"]);
        check("~(?i)EXT-\\d+", &["ext-12"], &["ext-"]);
    }

    #[test]
    fn globs_know_stars_marks_sets_and_alternatives() {
        check("", &["", "any"], &[]);
        check("ext-*", &["ext-", "ext-1"], &["my-ext-1", "ext-a/b", "ext"]);
        check("ext-?", &["ext-1", "ext-/"], &["ext-", "ext-12"]);
        check("ext-[a-c1]", &["ext-b", "ext-1"], &["ext-d", "ext--"]);
        check("[!^*?]", &["!", "^", "*", "?"], &["a"]);
        check("{dev,test{1,2}}-net", &["dev-net", "test2-net"], &["test-net", "prod-net"]);
        check("a.b+(c)|d$,}]", &["a.b+(c)|d$,}]"], &["axb+(c)|d$,}]", "d$,}]"]);
        check("{*.a,b?}", &["x.a", "b1"], &["xa", "b"]);
        check("!a", &["b"], &["a"]);
    }

    #[test]
    fn a_broken_pattern_is_an_error() {
        assert_eq!(NamePattern::parse("~(").unwrap_err(), "\"~(\" is not a regular expression (error: unclosed group)");
        for glob in ["{a", "[a", "[]"] {
            assert!(NamePattern::parse(glob).unwrap_err().starts_with(&format!("{glob:?} is not a glob (")), "{glob}");
        }
    }

    /// Pitfall 46.
    #[test]
    fn tag_expressions_ask_neutron_for_their_documented_meaning() {
        for (expression, expected) in [
            ("", None),
            ("!&", None),
            (" , ", None),
            ("a", Some(("tags-any", "a"))),
            ("a, b,", Some(("tags-any", "a,b"))),
            ("&a,b", Some(("tags", "a,b"))),
            ("!a,b", Some(("not-tags-any", "a,b"))),
            ("!&a,b", Some(("not-tags", "a,b"))),
        ] {
            let expected = expected.map(|(parameter, tags)| (parameter, tags.to_owned()));
            assert_eq!(tag_query(expression), expected, "{expression:?}");
        }
    }
}
