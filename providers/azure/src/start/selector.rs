//! Label selectors of the Kubernetes API. Pure.

use ccm_provider::node::Pairs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// `matchLabels` and `matchExpressions`: all must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads a selector; `None` if it is empty.
    pub(crate) fn parse(value: &Value) -> Result<Option<Self>, String> {
        let selector: Self = Self::deserialize(value).map_err(|error| format!("{error}; expected a label selector"))?;
        Ok(Some(selector).filter(|selector| *selector != Self::default()))
    }

    /// Whether labels match.
    pub(crate) fn matches<'v>(&self, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        let has = |value: &str, values: &[String]| values.iter().any(|wanted| wanted == value);
        let expression = |it: &Expression| match (it.operator, label(&it.key)) {
            (Operator::In, found) => found.is_some_and(|value| has(value, &it.values)),
            (Operator::NotIn, found) => found.is_none_or(|value| !has(value, &it.values)),
            (Operator::Exists, found) => found.is_some(),
            (Operator::DoesNotExist, found) => found.is_none(),
        };
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(expression)
    }

    pub(crate) fn matches_pairs(&self, labels: &Pairs) -> bool {
        self.matches(|key| labels.get(key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_match() {
        let labels: Pairs = [("env", "prod"), ("gpu", "")].into_iter().collect();
        for (selector, expected) in [
            (json!({"matchLabels": {"env": "prod"}}), true),
            (json!({"matchLabels": {"env": "dev"}}), false),
            (json!({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}), false),
        ] {
            let parsed = Selector::parse(&selector).unwrap().unwrap();
            assert_eq!(parsed.matches_pairs(&labels), expected, "{selector}");
        }
        assert_eq!(Selector::parse(&json!({})).unwrap(), None);
        let error = Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "Is"}]})).unwrap_err();
        assert!(error.contains("Is"), "{error}");
    }
}
