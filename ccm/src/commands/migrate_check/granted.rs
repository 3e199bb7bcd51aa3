//! The permissions that roles in files would grant once they are applied, and to which account. Pure, but for the reading of
//! the files.

use std::collections::BTreeMap;

use ccm_provider::flag::FlagValues;
use ccm_runtime::permission::SYSTEM_NAMESPACE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::RBAC;
use super::pods;
use super::rbac::{AUTHENTICATION, Question, groups, service_account};
use super::running::Found;
use crate::commands::{kubeconfig, lint};
use crate::exit::Failure;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles and their bindings.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    /// That of objects without one.
    namespace: String,
    /// By namespace, empty for a ClusterRole, and name.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    bindings: Vec<Binding>,
    workloads: Found,
    /// The account of the cloud-controller-manager among the objects; `None` if there is none, or several.
    pub(super) account: Option<String>,
}

/// A RoleBinding, or a ClusterRoleBinding without a namespace.
#[derive(Debug)]
struct Binding {
    namespace: String,
    role: (String, String),
    subjects: Vec<Subject>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
    rules: Vec<Rule>,
    subjects: Vec<Subject>,
    role_ref: RoleRef,
    items: Vec<Value>,
    spec: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: String,
    name: String,
}

impl Granted {
    /// Reads the files, folders, and `-` for stdin, of `--rbac`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is no YAML or JSON.
    pub(crate) fn read(values: &FlagValues) -> Result<Self, Failure> {
        let words: Vec<String> = values.list(RBAC.name).into_iter().filter(|word| !word.is_empty()).collect();
        let documents = lint::documents(&words).map_err(|error| Failure::error(format!("--rbac: {error}")))?;
        Ok(Self::of(documents, kubeconfig::namespace(values)))
    }

    /// The roles and bindings among objects; other objects, and objects with fields of a wrong type, grant nothing.
    pub(super) fn of(documents: impl IntoIterator<Item = Value>, namespace: String) -> Self {
        // Every cluster has this role.
        let reader = Rule {
            api_groups: vec![String::new()],
            resources: vec!["configmaps".to_owned()],
            resource_names: vec![AUTHENTICATION.to_owned()],
            verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
        };
        let key = (SYSTEM_NAMESPACE.to_owned(), "extension-apiserver-authentication-reader".to_owned());
        let mut all = Self { namespace, roles: BTreeMap::from([(key, vec![reader])]), ..Self::default() };
        documents.into_iter().for_each(|document| all.add(document));
        all.account = pods::account(&std::mem::take(&mut all.workloads).finish());
        all
    }

    fn add(&mut self, document: Value) {
        let Ok(object) = serde_json::from_value::<Object>(document) else { return };
        let Object { api_version, kind, metadata, rules, subjects, role_ref, items, spec } = object;
        match (&*kind, api_version.split('/').next() == Some(GROUP)) {
            ("List", _) => items.into_iter().for_each(|item| self.add(item)),
            ("ClusterRole", true) => drop(self.roles.insert((String::new(), metadata.name), rules)),
            ("Role", true) => drop(self.roles.insert((self.place(metadata.namespace), metadata.name), rules)),
            // The API server refuses a Role in a ClusterRoleBinding.
            ("ClusterRoleBinding", true) if role_ref.kind != "ClusterRole" => {}
            ("ClusterRoleBinding" | "RoleBinding", true) => {
                let namespace = if kind == "RoleBinding" { self.place(metadata.namespace) } else { String::new() };
                let of_role = if role_ref.kind == "Role" { namespace.clone() } else { String::new() };
                self.bindings.push(Binding { namespace, role: (of_role, role_ref.name), subjects });
            }
            // Without a namespace it gets that of kubectl or helm: another account may be the one of the program.
            ("DaemonSet" | "Deployment", _) if !metadata.namespace.is_empty() => {
                let Metadata { name, namespace } = metadata;
                let pod =
                    json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec.pointer("/template/spec")});
                if let Ok(pod) = serde_json::from_value(pod) {
                    self.workloads.add(&pod);
                }
            }
            _ => {}
        }
    }

    /// The namespace that kubectl gives to an object of a namespace.
    fn place(&self, namespace: String) -> String {
        if namespace.is_empty() { self.namespace.clone() } else { namespace }
    }

    /// Whether these roles grant it.
    pub(super) fn allows(&self, question: &Question) -> bool {
        let within = |namespace: &str| namespace.is_empty() || question.right.namespace.as_deref() == Some(namespace);
        let bound = self.bindings.iter().filter(|binding| {
            within(&binding.namespace) && binding.subjects.iter().any(|subject| subject.is(&question.right.account))
        });
        bound.filter_map(|binding| self.roles.get(&binding.role)).flatten().any(|rule| rule.allows(question))
    }
}

impl Subject {
    fn is(&self, account: &str) -> bool {
        match (&*self.kind, service_account(account)) {
            ("ServiceAccount", Some((namespace, name))) => self.name == name && self.namespace == namespace,
            ("Group", _) => groups(account).contains(&self.name),
            ("User", _) => self.name == account,
            _ => false,
        }
    }
}

impl Rule {
    fn allows(&self, Question { right, verb, name }: &Question) -> bool {
        let has = |all: &[String], one: &str| all.iter().any(|entry| entry == "*" || entry == one);
        let sub = right.resource.split_once('/').is_some_and(|(_, sub)| has_text(&self.resources, &format!("*/{sub}")));
        has(&self.api_groups, right.group)
            && (has(&self.resources, right.resource) || sub)
            && has(&self.verbs, verb)
            && (self.resource_names.is_empty() || has_text(&self.resource_names, name))
    }
}

fn has_text(all: &[String], one: &str) -> bool {
    all.iter().any(|entry| entry == one)
}
