//! Named values: those of the initial state, and those saved by earlier steps. `{name}` in a text is replaced by a
//! value.

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) type Values = BTreeMap<String, String>;

/// A text with its values filled in; other braces are unchanged.
pub(crate) fn fill(text: &str, values: &Values) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// A JSON value whose strings are filled in with the named values.
pub(crate) fn filled(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, values)),
        Value::Array(items) => items.iter().map(|item| filled(item, values)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, values))).collect())
        }
        other => other.clone(),
    }
}

/// Replaces values by their names, so that texts of two clouds can be compared. Longer values first: an ARN contains
/// names.
pub(crate) fn named(text: &str, values: &Values) -> String {
    let mut pairs: Vec<(&String, &String)> = values.iter().filter(|(_, value)| value.len() > 5).collect();
    pairs.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    pairs.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(value.as_str(), &format!("{{{name}}}")))
}

/// Saves the values at JSON pointers of an answer.
pub(crate) fn save(saves: &[(&str, &str)], answer: &Value, values: &mut Values) {
    for (name, pointer) in saves {
        values.insert((*name).to_owned(), answer.pointer(pointer).map_or("absent".to_owned(), plain));
    }
}

/// A value as it appears in texts.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
