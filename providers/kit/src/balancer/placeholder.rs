//! Placeholders in paths and bodies: the IDs and addresses that earlier steps of a plan give are known only when a later
//! step is sent.

use serde_json::Value;

/// The placeholder of this name.
pub fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// The text with the values of its placeholders, as far as they are known.
pub fn filled(text: &str, value: &impl Fn(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        match after.split_once('}').and_then(|(name, left)| Some((value(name)?, left))) {
            Some((value, left)) => {
                filled.push_str(&value);
                rest = left;
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled + rest
}

/// The body with the values of the placeholders in its texts.
pub fn filled_body(body: &Value, value: &impl Fn(&str) -> Option<String>) -> Value {
    match body {
        Value::String(text) => Value::String(filled(text, value)),
        Value::Array(list) => list.iter().map(|item| filled_body(item, value)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, field)| (key.clone(), filled_body(field, value))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_known_is_filled_in_where_it_is_named() {
        let value = |name: &str| (name == "pool a").then(|| "p-1".to_owned());
        assert_eq!(filled(&format!("pools/{}/members", placeholder("pool a")), &value), "pools/p-1/members");
        let body = json!({"pool": {"id": "{pool a}", "tags": ["x", "{pool a}"], "size": 1}});
        assert_eq!(filled_body(&body, &value), json!({"pool": {"id": "p-1", "tags": ["x", "p-1"], "size": 1}}));
        for text in ["{unknown}", "{", "}{", "{{pool b}", ""] {
            assert_eq!(filled(text, &value), text);
        }
        assert_eq!(filled(r#"{"of": "a", "pool": "{pool a}"}"#, &value), r#"{"of": "a", "pool": "p-1"}"#);
    }
}
