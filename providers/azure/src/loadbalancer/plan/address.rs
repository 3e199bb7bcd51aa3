//! Changes of a public IP address: of all Services together, and each Service's apart. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::env::Env;
use super::super::json::{self, same};
use super::super::names::Family;
use super::super::tags::{self, Tags};
use super::super::wanted::PublicIp;
use crate::client::id::ArmId;

/// All changes of a public IP address.
#[derive(Debug, Clone)]
pub(crate) struct AddressChange {
    pub(crate) id: ArmId,
    pub(crate) cluster: String,
    /// The zones of the region.
    pub(crate) zones: Vec<String>,
    /// As it was read; null if it does not exist.
    pub(crate) before: Value,
    pub(crate) edits: Vec<AddressEdit>,
    /// The fingerprint of its Service, if this replaces it by one with other IP tags.
    pub(crate) replaced_by: Option<u64>,
}

/// The part of one Service.
#[derive(Debug, Clone)]
pub(crate) struct AddressEdit {
    pub(crate) place: usize,
    /// `namespace/name`
    pub(crate) key: String,
    pub(crate) family: Family,
    pub(crate) kind: EditKind,
}

/// What a Service does with an address.
#[derive(Debug, Clone)]
pub(crate) enum EditKind {
    /// Uses it. `is_users`: users made it, and it gets no tags.
    Use { settings: PublicIp, is_users: bool, binds: bool },
    /// Has it written as it is: whether that is allowed.
    Rewrite,
    /// Does not use it any more. `stays`: something else of the load balancer does.
    Release { stays: bool },
}

/// What becomes of an address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Same,
    Put(Value),
    Delete,
}

impl AddressChange {
    pub(crate) fn is_new(&self) -> bool {
        self.before.is_null()
    }

    /// Whether a Service needs the change before its load balancer is changed.
    pub(crate) fn is_used(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit.kind, EditKind::Use { .. } | EditKind::Rewrite))
    }

    /// The prefixes that a new address is from: keys and IDs.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.edits.iter().filter_map(|edit| match &edit.kind {
            EditKind::Use { settings, .. } => {
                settings.prefixes.get(&edit.family).map(|given| (given.key, &*given.text))
            }
            EditKind::Rewrite | EditKind::Release { .. } => None,
        })
    }

    /// The Services whose part changes the address. All of them need a new one.
    pub(crate) fn places(&self, env: &Env) -> BTreeSet<usize> {
        let changes = |edit: &&AddressEdit| {
            let alone = Self { edits: vec![(*edit).clone()], ..self.clone() };
            self.is_new() || alone.after(env, &self.before) != Outcome::Same
        };
        self.edits.iter().filter(changes).map(|edit| edit.place).collect()
    }

    /// The result of all parts, for the address as it is now.
    pub(crate) fn after(&self, env: &Env, now: &Value) -> Outcome {
        let mut after = now.clone();
        for edit in &self.edits {
            match &edit.kind {
                EditKind::Use { settings, is_users, binds } => {
                    if after.is_null() {
                        after = self.fresh(env, edit.family, settings);
                    }
                    edit.use_it(env, &mut after, settings, *is_users, *binds);
                }
                EditKind::Rewrite => {}
                EditKind::Release { .. } if after.is_null() => {}
                EditKind::Release { .. } => edit.release(&mut after),
            }
        }
        let has_users = !tags::services(tags::get(&after, &tags::SERVICE)).is_empty();
        let is_rewritten = self.edits.iter().any(|edit| matches!(edit.kind, EditKind::Rewrite));
        let stays = self.edits.iter().all(|edit| matches!(edit.kind, EditKind::Release { stays: true }));
        match () {
            () if after == *now && (now.is_null() || !is_rewritten) => Outcome::Same,
            () if !self.is_used() && !has_users && !stays => Outcome::Delete,
            () => Outcome::Put(after),
        }
    }

    fn fresh(&self, env: &Env, family: Family, settings: &PublicIp) -> Value {
        let ip_tags = settings.ip_tags.as_ref().filter(|tags| !tags.is_empty()).map(|tags| tags::of_ip(tags));
        let prefix = settings.prefixes.get(&family).map(|given| json!({"id": given.text}));
        let zone = env.edge_zone();
        let zones = Some(&self.zones).filter(|zones| !zones.is_empty());
        let mut fresh = json!({});
        json::overlay(
            &mut fresh,
            &json!({
                "name": self.id.name(),
                "location": env.location,
                "extendedLocation": zone,
                "sku": {"name": "Standard"},
                "zones": zones,
                "tags": {tags::SERVICE[0]: "", tags::CLUSTER[0]: self.cluster},
                "properties": {
                    "publicIPAllocationMethod": "Static",
                    "publicIPAddressVersion": family.as_str(),
                    "ipTags": ip_tags,
                    "publicIPPrefix": prefix,
                },
            }),
        );
        fresh
    }
}

impl AddressEdit {
    fn use_it(&self, env: &Env, address: &mut Value, settings: &PublicIp, is_users: bool, binds: bool) {
        let mut services = tags::services(tags::get(address, &tags::SERVICE));
        if binds && !services.iter().any(|service| same(service, &self.key)) {
            services.push(self.key.clone());
            set_tag(address, &tags::SERVICE, &services.join(","));
        }
        if let Some(label) = &settings.dns_label {
            self.set_label(address, label, is_users);
        }
        if is_users {
            return;
        }
        // Standard load balancers need it. A zone cannot be added.
        if same(json::text(address, &["sku", "name"]), "Basic") {
            let standard = json!({"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
            json::overlay(address, &standard);
        }
        if let (true, Some(wanted)) = (env.changes_ip_tags, &settings.ip_tags)
            && tags::differ_of_ip(address, wanted)
        {
            json::object_mut(address, "properties").insert("ipTags".to_owned(), tags::of_ip(wanted));
        }
        let own = [tags::SERVICE, tags::CLUSTER, tags::DNS_SERVICE].into_iter();
        let own: Tags = own.map(|names| (names[0].to_owned(), tags::get(address, &names).to_owned())).collect();
        let mut wanted = tags::with(env.tags.clone(), settings.tags.clone());
        wanted.extend(own.into_iter().filter(|(_, value)| !value.is_empty()));
        tags::set(address, &wanted, &env.system_tags);
    }

    fn set_label(&self, address: &mut Value, label: &str, is_users: bool) {
        let present = label_of(address).to_owned();
        let properties = json::object_mut(address, "properties");
        if label.is_empty() {
            properties.remove("dnsSettings");
            if same(tags::get(address, &tags::DNS_SERVICE), &self.key) {
                remove_tag(address, &tags::DNS_SERVICE);
            }
            return;
        }
        if !same(&present, label) {
            json::overlay(address, &json!({"properties": {"dnsSettings": {"domainNameLabel": label}}}));
        }
        if !is_users && !same(tags::get(address, &tags::DNS_SERVICE), &self.key) {
            set_tag(address, &tags::DNS_SERVICE, &self.key);
        }
    }

    fn release(&self, address: &mut Value) {
        if same(tags::get(address, &tags::DNS_SERVICE), &self.key) {
            remove_tag(address, &tags::DNS_SERVICE);
        }
        let mut services = tags::services(tags::get(address, &tags::SERVICE));
        services.retain(|service| !same(service, &self.key));
        set_tag(address, &tags::SERVICE, &services.join(","));
    }
}

/// The DNS label of an address; empty if it has none.
pub(super) fn label_of(ip: &Value) -> &str {
    json::text(ip, &["properties", "dnsSettings", "domainNameLabel"])
}

/// Why a Service cannot have its DNS label on an address, which is null if it does not exist.
pub(super) fn label_problem(address: &Value, key: &str, label: &str) -> Option<String> {
    let present = label_of(address);
    // One that Azure has accepted is valid.
    if !label.is_empty() && !same(present, label) && !is_label(label) {
        let text = "a label has 3 to 63 lower-case letters, digits and hyphens, begins with a letter and does not end with a hyphen";
        return Some(format!("{text}; correct it"));
    }
    let name = json::name(address);
    let other = tags::get(address, &tags::DNS_SERVICE);
    (!other.is_empty() && !same(other, key)).then(|| {
        format!(
            "the DNS label of the public IP address {name} is that of the Service {other}; remove the annotation from one of them"
        )
    })
}

fn is_label(label: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (3..=63).contains(&label.len())
        && label.chars().all(is_plain)
        && label.starts_with(|c: char| c.is_ascii_lowercase())
        && !label.ends_with('-')
}

/// Sets a tag under the name that it has.
fn set_tag(object: &mut Value, names: &[&str; 2], value: &str) {
    let tags = json::object_mut(object, "tags");
    let has = |name: &&&str| tags.get(**name).is_some_and(Value::is_string);
    let name = names.iter().find(has).unwrap_or(&names[0]);
    tags.insert((*name).to_owned(), json!(value));
}

fn remove_tag(object: &mut Value, names: &[&str; 2]) {
    let tags = json::object_mut(object, "tags");
    names.iter().for_each(|name| drop(tags.remove(*name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "default/web";

    fn env() -> Env {
        Env { subscription: "s".into(), group: "g".into(), location: "westus".into(), ..Env::default() }
    }

    fn uses(settings: PublicIp, is_users: bool) -> AddressEdit {
        let kind = EditKind::Use { settings, is_users, binds: !is_users };
        AddressEdit { place: 0, key: KEY.into(), family: Family::V4, kind }
    }

    fn release(key: &str, stays: bool) -> AddressEdit {
        AddressEdit { place: 0, key: key.into(), family: Family::V4, kind: EditKind::Release { stays } }
    }

    fn after(env: &Env, before: &Value, edits: Vec<AddressEdit>) -> Outcome {
        let id = env.public_ip_id("g", "ip");
        let zones = vec!["1".to_owned(), "2".to_owned()];
        let change =
            AddressChange { id, cluster: "kubernetes".into(), zones, before: before.clone(), edits, replaced_by: None };
        change.after(env, before)
    }

    #[test]
    fn a_new_address_is_static_zonal_and_tagged_and_then_stays() {
        let settings = PublicIp { dns_label: Some("web".into()), ..PublicIp::default() };
        let expected = json!({
            "name": "ip", "location": "westus", "sku": {"name": "Standard"}, "zones": ["1", "2"],
            "tags": {
                "k8s-azure-service": "default/web",
                "k8s-azure-cluster-name": "kubernetes",
                "k8s-azure-dns-label-service": "default/web",
            },
            "properties": {
                "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4",
                "dnsSettings": {"domainNameLabel": "web"},
            },
        });
        assert_eq!(after(&env(), &Value::Null, vec![uses(settings.clone(), false)]), Outcome::Put(expected.clone()));
        assert_eq!(after(&env(), &expected, vec![uses(settings, false)]), Outcome::Same);
    }

    #[test]
    fn one_of_users_gets_no_tags() {
        let before = json!({"name": "ip", "tags": {"team": "a"}, "properties": {"ipAddress": "192.0.2.1"}});
        let env = Env { tags: tags::parse("a=b").0, ..env() };
        assert_eq!(after(&env, &before, vec![uses(PublicIp::default(), true)]), Outcome::Same);
    }

    #[test]
    fn a_shared_one_keeps_the_other_service_and_the_last_deletes_it() {
        let before = json!({"name": "ip", "unknown": 1, "tags": {"service": "default/web, default/api"}});
        let Outcome::Put(one) = after(&env(), &before, vec![release(KEY, false)]) else { panic!("it is used") };
        assert_eq!(one, json!({"name": "ip", "unknown": 1, "tags": {"service": "default/api"}}));
        assert_eq!(after(&env(), &one, vec![release("default/api", false)]), Outcome::Delete);
        assert_eq!(after(&env(), &before, vec![release(KEY, false), release("default/api", false)]), Outcome::Delete);
        assert!(matches!(after(&env(), &one, vec![release("default/api", true)]), Outcome::Put(_)), "it is in use");
    }

    #[test]
    fn one_with_the_old_and_the_new_tag_goes_with_the_last_service_of_the_new_one() {
        let before = json!({"name": "ip", "tags": {"service": "default/web,default/api", "k8s-azure-service": "default/web,default/api"}});
        let Outcome::Put(one) = after(&env(), &before, vec![release(KEY, false)]) else { panic!("it is used") };
        assert_eq!(one["tags"]["k8s-azure-service"], "default/api");
        assert_eq!(after(&env(), &one, vec![release("default/api", false)]), Outcome::Delete);
        let Outcome::Put(none) = after(&env(), &one, vec![release("default/api", true)]) else {
            panic!("it is in use")
        };
        assert_eq!(tags::get(&none, &tags::SERVICE), "", "an empty new tag wins, as in the Go program");
        let Outcome::Put(again) = after(&env(), &none, vec![uses(PublicIp::default(), false)]) else { panic!() };
        assert_eq!(again["tags"]["k8s-azure-service"], KEY);
    }

    #[test]
    fn an_empty_label_removes_it_and_a_foreign_one_is_a_problem() {
        let labeled = json!({
            "name": "ip",
            "tags": {"k8s-azure-service": KEY, "k8s-azure-dns-label-service": KEY},
            "properties": {"dnsSettings": {"domainNameLabel": "web"}},
        });
        let settings = PublicIp { dns_label: Some(String::new()), ..PublicIp::default() };
        let expected = json!({"name": "ip", "tags": {"k8s-azure-service": KEY}, "properties": {}});
        assert_eq!(after(&env(), &labeled, vec![uses(settings, false)]), Outcome::Put(expected));
        assert_eq!(label_problem(&labeled, KEY, "web1"), None);
        assert!(label_problem(&labeled, "default/api", "web1").unwrap().contains("default/web"));
        for (label, is_valid) in [
            ("dl", false),
            ("1ab", false),
            ("a-1", true),
            ("ab-", false),
            ("Web", false),
            (&*"a".repeat(64), false),
            ("", true),
        ] {
            assert_eq!(label_problem(&Value::Null, KEY, label).is_none(), is_valid, "{label}");
        }
        let accepted = json!({"properties": {"dnsSettings": {"domainNameLabel": "Web"}}});
        assert_eq!(label_problem(&accepted, KEY, "Web"), None, "Azure has accepted it");
    }
}
