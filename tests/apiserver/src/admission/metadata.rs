//! Names, labels, annotations and finalizers.

use crate::error::Cause;
use crate::kind::Kind;
use crate::value::{at, text, texts};
use serde_json::Value;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end \
with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    value.chars().all(|c| edge(c) || "-_.".contains(c)) && value.starts_with(edge) && value.ends_with(edge)
}

fn check_name(kind: &Kind, name: &str) -> Option<Cause> {
    let (good, text, limit) = match kind.plural {
        "namespaces" | "services" => (is_label(name), LABEL, 63),
        _ => (is_subdomain(name), SUBDOMAIN, 253),
    };
    let value = Value::from(name);
    if name.len() > limit {
        return Some(Cause::invalid("metadata.name", &value, &format!("must be no more than {limit} characters")));
    }
    (!good).then(|| Cause::invalid("metadata.name", &value, text))
}

fn check_key(field: &str, key: &str) -> Option<Cause> {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    let value = Value::from(key);
    if !is_subdomain(prefix) {
        return Some(Cause::invalid(field, &value, &format!("prefix part {SUBDOMAIN}")));
    }
    if name.len() > 63 {
        return Some(Cause::invalid(field, &value, "name part must be no more than 63 bytes"));
    }
    (!is_label_value(name)).then(|| Cause::invalid(field, &value, QUALIFIED))
}

/// Checks name, labels and annotations.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(check_name(kind, text(object, "/metadata/name")));
    for (key, value) in at(object, "/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        causes.extend(check_key("metadata.labels", key));
        let value_text = value.as_str().unwrap_or_default();
        if value_text.len() > 63 {
            causes.push(Cause::invalid("metadata.labels", value, "must be no more than 63 bytes"));
        }
        if !value_text.is_empty() && !is_label_value(value_text) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    if let Some(annotations) = at(object, "/metadata/annotations").and_then(Value::as_object) {
        // Annotation keys may have capitals in the prefix.
        causes.extend(annotations.keys().filter_map(|key| check_key("metadata.annotations", &key.to_lowercase())));
    }
    for (index, finalizer) in texts(object, "/metadata/finalizers").iter().enumerate() {
        let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer.as_str());
        causes.extend(check_key("metadata.finalizers", finalizer));
        if !standard && !finalizer.contains('/') {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&format!("metadata.finalizers[{index}]"), &finalizer.as_str().into(), detail));
        }
    }
    causes
}

/// A new finalizer on an object that is being deleted is rejected.
pub(super) fn added_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    at(old, "/metadata/deletionTimestamp")?;
    let before = texts(old, "/metadata/finalizers");
    let added: Vec<String> =
        texts(new, "/metadata/finalizers").into_iter().filter(|one| !before.contains(one)).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ")
    );
    (!added.is_empty()).then(|| Cause::forbidden("metadata.finalizers", &detail))
}
