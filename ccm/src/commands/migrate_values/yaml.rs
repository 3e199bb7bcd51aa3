//! YAML in block style, with texts as in JSON.

use serde_json::Value;

/// A document.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text
}

fn key(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        // Booleans of YAML 1.1.
        && name.len() > 3;
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

fn is_block(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty())
}

fn write(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                *text += &format!("{indent}{}:", key(name));
                below(text, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                *text += &format!("{indent}-");
                below(text, item, depth + 1);
            }
        }
        _ => *text += &format!("{indent}{value}\n"),
    }
}

fn below(text: &mut String, value: &Value, depth: usize) {
    if is_block(value) {
        text.push('\n');
        write(text, value, depth);
    } else {
        *text += &format!(" {value}\n");
    }
}
