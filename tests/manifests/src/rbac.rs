//! Converts declared permissions to RBAC rules. Pure.

use std::collections::BTreeMap;

use ccm::Controller;
use ccm_provider::{ConfigMapSpec, Related, SecretSpec, ServiceControllerSpec};
use ccm_runtime::Permission;
use ccm_runtime::permission::{ACCOUNTS, DELEGATED, ELECTION, EVENTS, LEADER_MIGRATION, STORES, account};

/// The order of verbs in the output.
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// One rule: the combined permissions for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource with its subresource.
    pub resource: &'static str,
    /// Names; empty for all.
    pub names: &'static [&'static str],
    /// Verbs in a fixed order.
    pub verbs: Vec<&'static str>,
    /// The purpose of each group of verbs.
    pub why: Vec<(Vec<&'static str>, &'static str)>,
}

/// The permissions of one identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the whole cluster.
    pub cluster: Vec<Rule>,
    /// In single namespaces.
    pub namespaced: BTreeMap<&'static str, Vec<Rule>>,
}

impl Rules {
    /// Combines permissions.
    pub fn of(permissions: impl IntoIterator<Item = Permission>) -> Self {
        let mut rules = Self::default();
        for permission in permissions {
            let place = match permission.namespace {
                None => &mut rules.cluster,
                Some(namespace) => rules.namespaced.entry(namespace).or_default(),
            };
            add(place, &permission);
        }
        let all = rules.namespaced.values_mut().chain([&mut rules.cluster]);
        all.for_each(|rules| rules.sort_by_key(|rule| (rule.group, rule.resource, rule.names.len())));
        rules
    }
}

fn add(rules: &mut Vec<Rule>, permission: &Permission) {
    let Permission { group, resource, verbs, names, why, .. } = *permission;
    let same = |rule: &&mut Rule| (rule.group, rule.resource, rule.names) == (group, resource, names);
    let rule = match rules.iter_mut().find(same) {
        Some(rule) => rule,
        None => {
            rules.push(Rule { group, resource, names, verbs: Vec::new(), why: Vec::new() });
            let Some(rule) = rules.last_mut() else { return };
            rule
        }
    };
    rule.verbs.extend_from_slice(verbs);
    rule.verbs = ordered(&rule.verbs);
    if !rule.why.iter().any(|(_, known)| *known == why) {
        rule.why.push((ordered(verbs), why));
    }
}

/// In the fixed order without duplicates; unknown verbs are last.
fn ordered(verbs: &[&'static str]) -> Vec<&'static str> {
    let mut verbs = verbs.to_vec();
    verbs.sort_by_key(|verb| (VERBS.iter().position(|known| known == verb).unwrap_or(VERBS.len()), *verb));
    verbs.dedup();
    verbs
}

/// What a dry run needs of these rules.
pub fn reads(rules: &[Rule]) -> Vec<Rule> {
    let is_read = |verb: &&str| ["get", "list", "watch"].contains(verb);
    let read = |rule: &Rule| {
        let mut rule = rule.clone();
        rule.verbs.retain(is_read);
        rule.why.iter_mut().for_each(|(verbs, _)| verbs.retain(is_read));
        rule.why.retain(|(verbs, _)| !verbs.is_empty());
        (!rule.verbs.is_empty()).then_some(rule)
    };
    rules.iter().filter_map(read).collect()
}

fn runtime() -> impl Iterator<Item = Permission> {
    [ELECTION, EVENTS, STORES, DELEGATED].into_iter().flatten().copied()
}

/// The single identity of `--use-service-account-credentials=false`.
pub fn single(controllers: &[Controller]) -> Rules {
    Rules::of(runtime().chain(controllers.iter().flat_map(|controller| controller.permissions).copied()))
}

/// The identity of the process itself if each controller has its own.
pub fn base() -> Rules {
    Rules::of(runtime().chain(ACCOUNTS.iter().copied()))
}

/// The identities of the controllers, by client name.
pub fn per_controller(controllers: &[Controller]) -> BTreeMap<&'static str, Rules> {
    let mut names: BTreeMap<&'static str, Vec<Permission>> = BTreeMap::new();
    for controller in controllers {
        names.entry(controller.client_name).or_default().extend(controller.permissions);
    }
    let with_events = |permissions: Vec<Permission>| Rules::of(permissions.into_iter().chain(EVENTS.iter().copied()));
    names.into_iter().map(|(name, permissions)| (name, with_events(permissions))).collect()
}

/// The permissions of a provider for its ConfigMaps.
pub fn config_maps(specs: &'static [ConfigMapSpec]) -> Rules {
    let map = |verb, spec: &ConfigMapSpec| Permission::new("", "configmaps", verb, spec.why).within(spec.namespace);
    Rules::of(specs.iter().flat_map(|spec| {
        // RBAC cannot limit a creation by name.
        [map(&["get"], spec).named(std::slice::from_ref(&spec.name)), map(&["create"], spec)]
    }))
}

/// With one account per controller: the permissions of the process for the accounts of a provider's service
/// controllers.
pub fn provided_accounts(specs: &'static [ServiceControllerSpec]) -> Rules {
    Rules::of(specs.iter().flat_map(|spec| account(std::slice::from_ref(&spec.client_name))))
}

/// The identities of a provider's service controllers, which work like the standard one, by client name.
pub fn per_provided(controllers: &[Controller], specs: &[ServiceControllerSpec]) -> BTreeMap<&'static str, Rules> {
    let mut all = per_controller(controllers);
    let standard = all.remove("service-controller").unwrap_or_default();
    specs.iter().map(|spec| (spec.client_name, standard.clone())).collect()
}

/// The permissions for the objects beside nodes and Services on which load balancers of a provider depend.
pub fn related(related: Related) -> Rules {
    Rules::of(ccm_controllers::service::related::permissions(related))
}

/// The permissions of a provider for the Secrets of its configuration: `get`, by name.
pub fn secrets(specs: &'static [SecretSpec]) -> Rules {
    Rules::of(specs.iter().map(|spec| {
        let get = Permission::new("", "secrets", &["get"], spec.why).within(spec.namespace);
        get.named(std::slice::from_ref(&spec.name))
    }))
}

/// Additional permissions of the process for leader migration.
pub fn leader_migration() -> Rules {
    Rules::of(LEADER_MIGRATION.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_on_one_resource_become_one_rule_with_all_reasons() {
        let permissions = [
            Permission::new("", "nodes", &["patch"], "a"),
            Permission::new("", "nodes", &["watch", "list"], "b"),
            Permission::new("", "nodes", &["patch"], "a"),
            Permission::new("", "nodes", &["get"], "c").named(&["x"]),
            Permission::new("", "nodes", &["get"], "d").within("y"),
        ];
        let rules = Rules::of(permissions);
        let [all, named] = &*rules.cluster else { panic!("{rules:?}") };
        assert_eq!(all.verbs, ["list", "watch", "patch"]);
        assert_eq!(all.why, [(vec!["patch"], "a"), (vec!["list", "watch"], "b")]);
        assert_eq!((named.names, &*named.verbs), (&["x"][..], &["get"][..]));
        assert_eq!(rules.namespaced["y"].len(), 1);
    }

    #[test]
    fn with_credentials_per_controller_the_process_itself_writes_no_node_and_no_service() {
        let rules = base();
        let written = rules
            .cluster
            .iter()
            .filter(|rule| rule.resource.starts_with("nodes") || rule.resource.starts_with("services"));
        for rule in written {
            assert_eq!(rule.verbs, ["list", "watch"], "{rule:?}");
        }
    }

    #[test]
    fn a_secret_is_read_by_its_name_alone() {
        const SECRETS: [SecretSpec; 1] = [SecretSpec { namespace: "kube-system", name: "cloud", why: "settings" }];
        let rules = secrets(&SECRETS);
        assert!(rules.cluster.is_empty());
        let [rule] = &*rules.namespaced["kube-system"] else { panic!("{rules:?}") };
        assert_eq!((rule.resource, rule.names, &*rule.verbs), ("secrets", &["cloud"][..], &["get"][..]));
    }

    #[test]
    fn every_client_name_has_an_account_that_may_be_used() {
        let controllers = ccm::controllers::builtin();
        let names: Vec<&str> = per_controller(&controllers).into_keys().collect();
        assert_eq!(names, ccm_runtime::permission::CLIENT_NAMES);
    }
}
