//! The shape of a JSON body: its fields and their types. Each cloud has its own messages for mismatches.

use serde_json::{Map, Value};
use std::net::IpAddr;

/// A field of an object.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it is required.
    pub need: Need,
}

/// Whether a field is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It may be absent or null.
    Optional,
    /// The field is required.
    Required,
    /// The field is output only.
    ReadOnly,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A string of at most this many characters.
    Text(usize),
    Uuid,
    /// An IP address.
    Address,
    /// A CIDR; host bits are allowed.
    Cidr,
    /// An integer in this range.
    Int(i64, i64),
    Bool,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    List(&'static Kind),
    Object(&'static [Field]),
    /// An object with string values.
    Texts,
    /// Any value: the handler checks it.
    Any,
}

/// The kind of a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The field does not exist.
    Unknown,
    /// The field is output only.
    ReadOnly,
    /// A required field is missing.
    Missing,
    /// The value does not have this type.
    Type(&'static str),
    /// The value has more characters than this.
    Long(usize),
    /// The value is less than this.
    Low(i64),
    /// The value is greater than this.
    High(i64),
    /// The value is none of these.
    NotOneOf(&'static [&'static str]),
}

/// A field that does not match.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// The enclosing objects, joined by dots; empty at the top level.
    pub inside: String,
    pub field: String,
    pub value: Value,
    pub why: Why,
}

/// An optional field.
pub const fn may(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, need: Need::Optional }
}

/// A required field.
pub const fn must(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, need: Need::Required }
}

/// An output-only field.
pub const fn answer(name: &'static str) -> Field {
    Field { name, kind: Kind::Any, need: Need::ReadOnly }
}

/// Checks an object against its fields. The error is the first mismatch, in this order: unknown fields, invalid fields,
/// missing fields.
pub fn check(object: &Map<String, Value>, fields: &[Field]) -> Result<(), Mismatch> {
    look(object, fields, "")
}

fn look(object: &Map<String, Value>, fields: &[Field], inside: &str) -> Result<(), Mismatch> {
    let wrong = |field: &str, value: &Value, why| {
        Err(Mismatch { inside: inside.to_owned(), field: field.to_owned(), value: value.clone(), why })
    };
    for (name, value) in object {
        match fields.iter().find(|field| field.name == name) {
            None => return wrong(name, value, Why::Unknown),
            Some(field) if field.need == Need::ReadOnly => return wrong(name, value, Why::ReadOnly),
            Some(_) => {}
        }
    }
    for field in fields {
        match object.get(field.name) {
            None | Some(Value::Null) if field.need == Need::Required => {
                return wrong(field.name, &Value::Null, Why::Missing);
            }
            None | Some(Value::Null) => {}
            Some(value) => kind(value, field.kind, field.name, inside)?,
        }
    }
    Ok(())
}

fn kind(value: &Value, wanted: Kind, field: &str, inside: &str) -> Result<(), Mismatch> {
    let text = value.as_str();
    let why = match wanted {
        Kind::Text(max) => match text {
            Some(text) => (text.chars().count() > max).then_some(Why::Long(max)),
            None => Some(Why::Type("string")),
        },
        Kind::Uuid => (!text.is_some_and(uuid)).then_some(Why::Type("UUID format")),
        Kind::Address => {
            text.is_none_or(|text| text.parse::<IpAddr>().is_err()).then_some(Why::Type("IPv4 or IPv6 format"))
        }
        Kind::Cidr => (!text.is_some_and(cidr)).then_some(Why::Type("IPv4 or IPv6 CIDR format")),
        Kind::Int(low, high) => match value.as_i64() {
            None => Some(Why::Type("integer")),
            Some(number) if number < low => Some(Why::Low(low)),
            Some(number) => (number > high).then_some(Why::High(high)),
        },
        Kind::Bool => (!value.is_boolean()).then_some(Why::Type("boolean")),
        Kind::OneOf(names) => (!text.is_some_and(|text| names.contains(&text))).then_some(Why::NotOneOf(names)),
        Kind::Texts => {
            let fits = value.as_object().is_some_and(|map| map.values().all(Value::is_string));
            (!fits).then_some(Why::Type("dict"))
        }
        Kind::List(item) => match value.as_array() {
            None => Some(Why::Type("list")),
            Some(items) => return items.iter().try_for_each(|value| kind(value, *item, field, inside)),
        },
        Kind::Object(fields) => match value.as_object() {
            None => Some(Why::Type("object")),
            Some(object) => {
                let dot = if inside.is_empty() { "" } else { "." };
                return look(object, fields, &format!("{inside}{dot}{field}"));
            }
        },
        Kind::Any => None,
    };
    match why {
        None => Ok(()),
        Some(why) => Err(Mismatch { inside: inside.to_owned(), field: field.to_owned(), value: value.clone(), why }),
    }
}

/// Whether a string is a UUID.
pub fn uuid(text: &str) -> bool {
    let hex = text.bytes().filter(u8::is_ascii_hexdigit).count();
    hex == 32 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Whether a string is a CIDR, with or without host bits.
pub fn cidr(text: &str) -> bool {
    text.parse::<ipnet::IpNet>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ITEM: &[Field] =
        &[must("port", Kind::Int(1, 65535)), may("cidrs", Kind::List(&Kind::Cidr)), answer("status")];
    const BODY: &[Field] = &[may("name", Kind::Text(3)), may("items", Kind::List(&Kind::Object(ITEM)))];

    fn found(body: &Value) -> Option<(String, String, Why)> {
        check(body.as_object().unwrap(), BODY).err().map(|wrong| (wrong.inside, wrong.field, wrong.why))
    }

    #[test]
    fn a_body_is_held_against_its_shape() {
        let at = |inside: &str, field: &str, why| Some((inside.to_owned(), field.to_owned(), why));
        assert_eq!(found(&json!({"name": "abc", "items": [{"port": 1, "cidrs": ["10.1.2.3/8"]}]})), None);
        assert_eq!(found(&json!({"name": null})), None);
        assert_eq!(found(&json!({"nome": "abc"})), at("", "nome", Why::Unknown));
        assert_eq!(found(&json!({"name": "abcd"})), at("", "name", Why::Long(3)));
        assert_eq!(found(&json!({"items": [{}]})), at("items", "port", Why::Missing));
        assert_eq!(found(&json!({"items": [{"port": 0}]})), at("items", "port", Why::Low(1)));
        assert_eq!(found(&json!({"items": [{"port": 1, "status": "x"}]})), at("items", "status", Why::ReadOnly));
        let cidr = Why::Type("IPv4 or IPv6 CIDR format");
        assert_eq!(found(&json!({"items": [{"port": 1, "cidrs": ["x"]}]})), at("items", "cidrs", cidr));
    }
}
