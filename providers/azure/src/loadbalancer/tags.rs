//! The tags of objects. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::json;
pub(crate) use crate::annotations::parse_tags as parse;

/// Tags that say whose a public IP address is, with their older names.
pub(crate) const SERVICE: [&str; 2] = ["k8s-azure-service", "service"];
pub(crate) const CLUSTER: [&str; 2] = ["k8s-azure-cluster-name", "kubernetes-cluster-name"];
pub(crate) const DNS_SERVICE: [&str; 2] = ["k8s-azure-dns-label-service", "kubernetes-dns-label-service"];
/// The owner of a private link service.
pub(crate) const OWNER: &str = "k8s-azure-owner-service";

pub(crate) type Tags = BTreeMap<String, String>;

/// Adds `more`: the value of a key that is there in any case is replaced.
pub(crate) fn with(mut tags: Tags, more: Tags) -> Tags {
    for (key, value) in more {
        let present = tags.keys().find(|present| json::same(present, &key)).cloned();
        let slot = tags.entry(present.unwrap_or(key)).or_default();
        if !json::same(slot, &value) {
            *slot = value;
        }
    }
    tags
}

/// The value of a tag of an object, by the first of its names that is there, also if that is empty.
pub(crate) fn get<'v>(object: &'v Value, names: &[&str; 2]) -> &'v str {
    names.iter().find_map(|name| json::at(object, &["tags", name]).as_str()).unwrap_or_default()
}

/// Sets tags of an object. With `system`, all others are removed whose names do not begin with one of them.
pub(crate) fn set(object: &mut Value, wanted: &Tags, system: &[String]) {
    let has_none = json::at(object, &["tags"]).as_object().is_none_or(serde_json::Map::is_empty);
    if wanted.is_empty() && has_none {
        return;
    }
    let tags = json::object_mut(object, "tags");
    for (key, value) in wanted {
        let present = tags.keys().find(|present| json::same(present, key)).cloned();
        let slot = tags.entry(present.unwrap_or_else(|| key.clone())).or_insert(Value::Null);
        if !slot.as_str().is_some_and(|old| json::same(old, value)) {
            *slot = json!(value);
        }
    }
    if !system.is_empty() {
        tags.retain(|key, _| {
            wanted.contains_key(key) || system.iter().any(|begin| super::names::starts_with(key, begin))
        });
    }
}

/// Sets the configured tags of an object. As in the Go program, system tags have no effect without them.
pub(crate) fn set_configured(object: &mut Value, wanted: &Tags, system: &[String]) {
    set(object, wanted, if wanted.is_empty() { &[] } else { system });
}

/// The Services in a tag of a public IP address.
pub(crate) fn services(tag: &str) -> Vec<String> {
    tag.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether a public IP address has other IP tags than wanted.
pub(crate) fn differ_of_ip(address: &Value, wanted: &[(String, String)]) -> bool {
    let sorted = |list: &[Value]| {
        let text = |tag: &Value, field: &str| json::text(tag, &[field]).to_owned();
        let mut tags: Vec<_> = list.iter().map(|tag| (text(tag, "ipTagType"), text(tag, "tag"))).collect();
        tags.sort();
        tags
    };
    sorted(json::items(address, "ipTags")) != sorted(json::list(&of_ip(wanted), &[]))
}

/// Whether a public IP address lacks IP tags that are wanted. What Azure or a policy adds is no reason to replace it: the
/// next address would have the same.
pub(crate) fn lacks_ip(address: &Value, wanted: &[(String, String)]) -> bool {
    let has = |(kind, tag): &(String, String)| {
        json::items(address, "ipTags")
            .iter()
            .any(|it| json::same(json::text(it, &["ipTagType"]), kind) && json::same(json::text(it, &["tag"]), tag))
    };
    !wanted.iter().all(has)
}

/// IP tags as a field of a public IP address.
pub(crate) fn of_ip(tags: &[(String, String)]) -> Value {
    tags.iter().map(|(kind, tag)| json!({"ipTagType": kind, "tag": tag})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_pair_has_exactly_one_equals_sign_and_null_keeps_its_blanks() {
        let (parsed, wrong) = parse("a=1, b = 2 ,c=1=2,=x,e=,n= null ");
        assert_eq!(parsed, tags(&[("a", "1"), ("b", "2"), ("e", ""), ("n", " null ")]));
        assert_eq!(wrong, ["c=1=2", "=x"]);
        assert_eq!(parse(""), (Tags::new(), Vec::new()));
    }

    #[test]
    fn tags_of_others_stay_unless_system_tags_are_named() {
        let mut object = json!({"tags": {"Own": "1", "user": "x", "k8s-x": "y"}});
        set(&mut object, &tags(&[("own", "2"), ("new", "3")]), &[]);
        assert_eq!(object, json!({"tags": {"Own": "2", "user": "x", "k8s-x": "y", "new": "3"}}));
        set(&mut object, &tags(&[("new", "3")]), &["K8S".to_owned()]);
        assert_eq!(object, json!({"tags": {"k8s-x": "y", "new": "3"}}));
        let before = json!({"name": "a"});
        let mut object = before.clone();
        set(&mut object, &Tags::new(), &["x".to_owned()]);
        assert_eq!(object, before, "nothing is added to an object without tags");
    }

    #[test]
    fn equal_values_in_another_case_are_not_written() {
        let mut object = json!({"tags": {"a": "Value"}});
        set(&mut object, &tags(&[("A", "value")]), &[]);
        assert_eq!(object, json!({"tags": {"a": "Value"}}));
        assert_eq!(with(tags(&[("a", "1")]), tags(&[("A", "2"), ("c", "3")])), tags(&[("a", "2"), ("c", "3")]));
        assert_eq!(get(&json!({"tags": {"service": "ns/a"}}), &SERVICE), "ns/a");
    }
}
