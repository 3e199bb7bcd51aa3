//! Variables of containers in their commands, as the kubelet and a shell replace them.

use std::collections::BTreeMap;

use super::objects::{Container, Variable};

/// The variables whose values are known.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables<'a>(BTreeMap<&'a str, String>);

impl<'a> Variables<'a> {
    /// The kubelet replaces in each value those that stand before it.
    pub(super) fn of(container: &'a Container) -> Self {
        let mut known = Self::default();
        for Variable { name, value, value_from } in &container.env {
            let value = value_from.is_none().then(|| known.in_command(value));
            known.0.remove(&**name);
            known.0.extend(value.map(|value| (&**name, value)));
        }
        known
    }

    /// Without those that this script sets itself.
    pub(super) fn not_set_by(mut self, script: &str) -> Self {
        let words = || script.split(|c: char| c.is_whitespace() || ";&|(".contains(c));
        let sets = |name: &str| words().any(|word| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
        self.0.retain(|name, _| !sets(name));
        self
    }

    /// Replaces `$(NAME)` as the kubelet does, and `$$`, which stands for `$`. Unknown names are kept.
    pub(super) fn in_command(&self, word: &str) -> String {
        let mut replaced = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('$') {
            replaced.push_str(before);
            let named = after.strip_prefix('(').and_then(|after| after.split_once(')'));
            let known = named.and_then(|(name, after)| Some((self.0.get(name)?.as_str(), after)));
            let (value, after) = known.unwrap_or_else(|| ("$", after.strip_prefix('$').unwrap_or(after)));
            replaced.push_str(value);
            rest = after;
        }
        replaced + rest
    }

    /// The value of `NAME` or `{NAME}` behind a `$` in a script, and the text after it.
    pub(super) fn in_script<'t>(&self, text: &'t str) -> Option<(&str, &'t str)> {
        let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let (name, rest) = match text.strip_prefix('{') {
            Some(text) => text.split_once('}')?,
            None => text.split_at(text.find(ends).unwrap_or(text.len())),
        };
        Some((self.0.get(name)?, rest))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(env: &Value) -> Container {
        serde_json::from_value(json!({ "env": env })).unwrap()
    }

    #[test]
    fn a_value_has_those_before_it_and_may_be_empty() {
        let env = json!([
            {"name": "LATE", "value": "$(DIR)"}, {"name": "DIR", "value": "x"}, {"name": "CN", "value": "$(DIR)-y"},
            {"name": "EMPTY"}, {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]);
        let container = container(&env);
        let known = Variables::of(&container);
        let rows = [
            ("--a=$(CN)/$(CN)", "--a=x-y/x-y"),
            ("$(EMPTY)", ""),
            ("$(LATE)", "$(DIR)"),
            ("$(FROM)-$(NONE)-$(open", "$(FROM)-$(NONE)-$(open"),
            ("$$(CN) $DIR $", "$(CN) $DIR $"),
        ];
        for (word, expected) in rows {
            assert_eq!(known.in_command(word), expected, "{word}");
        }
    }

    #[test]
    fn a_shell_takes_the_longest_name_and_what_a_script_sets_is_unknown() {
        let container = container(&json!([{"name": "CN", "value": "prod"}, {"name": "CNX", "value": "other"}]));
        let known = Variables::of(&container);
        assert_eq!(known.in_script("CN-1"), Some(("prod", "-1")));
        assert_eq!(known.in_script("CNX"), Some(("other", "")));
        assert_eq!(known.in_script("{CN}1"), Some(("prod", "1")));
        for text in ["CN_1", "{CN:-x}", "{CN", "(cat x)", ""] {
            assert_eq!(known.in_script(text), None, "{text}");
        }
        let known = known.not_set_by("set -e; CN=x\nexec /bin/ccm --cluster-name=$CN");
        assert_eq!((known.in_script("CN"), known.in_script("CNX")), (None, Some(("other", ""))));
    }
}
