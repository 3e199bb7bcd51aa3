//! Checks values against schemas.

use super::{Description, Finding, Schema, Way, Why};
use serde_json::Value;

/// The number of checked elements of a list in an answer: the same code creates all elements.
const SAMPLE: usize = 20;

/// The mismatch of a parameter, which is a string for all types.
pub(super) fn parameter(schema: &Schema, name: &str, text: &str) -> Option<Finding> {
    let why = match schema.kind.as_deref() {
        Some("integer") if !is_whole(text, schema.format.as_deref()) => Some(whole(schema)),
        Some("boolean") if !matches!(text, "true" | "false") => Some(Why::Type("TYPE_BOOL".to_owned())),
        Some("string") => text_fits(schema, text),
        _ => None,
    };
    why.map(|why| Finding { at: name.to_owned(), is: text.to_owned(), why })
}

/// The mismatches of a value, recursively.
pub(super) fn value(
    description: &Description,
    schema: &Schema,
    at: &str,
    value: &Value,
    way: Way<'_>,
    found: &mut Vec<Finding>,
) {
    if let Some(name) = &schema.reference {
        match description.schemas.get(name) {
            Some(schema) => self::value(description, schema, at, value, way, found),
            None => found.push(Finding { at: at.to_owned(), is: name.clone(), why: Why::Unknown }),
        }
        return;
    }
    // A request may have a property with an empty value.
    if value.is_null() && matches!(way, Way::In(_)) {
        return;
    }
    let mut wrong = |why| found.push(Finding { at: at.to_owned(), is: shown(value), why });
    let other = |name: &str| Why::Type(name.to_owned());
    match (schema.kind.as_deref(), value) {
        (None | Some("any"), _) => {}
        (Some("object"), Value::Object(_)) => object(description, schema, at, value, way, found),
        (Some("array"), Value::Array(items)) => {
            let most = if way == Way::Out { SAMPLE } else { usize::MAX };
            for (number, item) in items.iter().enumerate().take(most) {
                if let Some(schema) = &schema.items {
                    self::value(description, schema, &format!("{at}[{number}]"), item, way, found);
                }
            }
        }
        (Some("string"), Value::String(text)) => {
            if let Some(why) = text_fits(schema, text) {
                wrong(why);
            }
        }
        (Some("integer"), Value::Number(number)) => {
            let number = number.as_i64();
            if !is_whole(&value.to_string(), schema.format.as_deref()) {
                wrong(whole(schema));
            } else if schema.least.zip(number).is_some_and(|(least, number)| number < least)
                || schema.most.zip(number).is_some_and(|(most, number)| number > most)
            {
                wrong(Why::Range(schema.least, schema.most));
            }
        }
        // Requests may send numbers as strings, and 64-bit integers as numbers.
        (Some("integer"), Value::String(text)) if way != Way::Out && is_whole(text, schema.format.as_deref()) => {}
        (Some("string"), Value::Number(_)) if way != Way::Out && is_long(schema) => {}
        (Some("number"), Value::Number(_)) | (Some("boolean"), Value::Bool(_)) => {}
        (Some("integer"), _) => wrong(whole(schema)),
        (Some("boolean"), _) => wrong(other("TYPE_BOOL")),
        (Some("number"), _) => wrong(other("TYPE_FLOAT")),
        (Some("string"), _) => wrong(other("TYPE_STRING")),
        (Some(kind), _) => wrong(other(kind)),
    }
}

fn object(description: &Description, schema: &Schema, at: &str, value: &Value, way: Way<'_>, found: &mut Vec<Finding>) {
    let Some(fields) = value.as_object() else { return };
    for (name, inner) in fields {
        let at = format!("{at}.{name}");
        match (schema.properties.get(name), &schema.additional_properties) {
            (Some(property), _) => {
                if property.read_only && matches!(way, Way::In(_)) && !inner.is_null() {
                    found.push(Finding { at, is: shown(inner), why: Why::ReadOnly });
                } else {
                    self::value(description, property, &at, inner, way, found);
                }
            }
            (None, Some(any)) => self::value(description, any, &at, inner, way, found),
            (None, None) => found.push(Finding { at, is: shown(inner), why: Why::Unknown }),
        }
    }
    if let Way::In(method) = way {
        let needed = |property: &Schema| property.required_by.iter().any(|needs| needs == method || needs == "*");
        for (name, _) in schema.properties.iter().filter(|(_, property)| needed(property)) {
            if fields.get(name).is_none_or(Value::is_null) {
                found.push(Finding { at: format!("{at}.{name}"), is: String::new(), why: Why::Missing });
            }
        }
    }
}

fn text_fits(schema: &Schema, text: &str) -> Option<Why> {
    if schema.allowed.as_ref().is_some_and(|allowed| !allowed.iter().any(|allowed| allowed == text)) {
        return Some(Why::Value);
    }
    if is_long(schema) && !is_whole(text, schema.format.as_deref()) {
        return Some(whole(schema));
    }
    let misses = schema.compiled().is_some_and(|pattern| !pattern.is_match(text));
    misses.then(|| Why::Pattern(schema.pattern.clone().unwrap_or_default()))
}

/// Whether the schema is a 64-bit integer, which JSON represents as a string.
fn is_long(schema: &Schema) -> bool {
    matches!(schema.format.as_deref(), Some("int64" | "uint64"))
}

fn is_whole(text: &str, format: Option<&str>) -> bool {
    match format {
        Some("int32") => text.parse::<i32>().is_ok(),
        Some("uint32") => text.parse::<u32>().is_ok(),
        Some("uint64") => text.parse::<u64>().is_ok(),
        _ => text.parse::<i64>().is_ok(),
    }
}

fn whole(schema: &Schema) -> Why {
    Why::Type(format!("TYPE_{}", schema.format.as_deref().unwrap_or("int64").to_uppercase()))
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
