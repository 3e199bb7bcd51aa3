//! Leader migration: the controllers that run under a second lease, shared with another controller manager.
//!
//! The document is `LeaderMigrationConfiguration` of the group `controllermanager.config.k8s.io`, as in
//! `k8s.io/controller-manager` `pkg/leadermigration`. Unlike there, every name of a controller is accepted: the Go
//! program compares texts, so the `service-controller` of its own default matches nothing.

use ccm_kit::document::{self, Fields, Problems, Value};

/// The name of this program in the field `component`.
const COMPONENT: &str = "cloud-controller-manager";
const GROUP: &str = "controllermanager.config.k8s.io";
const KIND: &str = "LeaderMigrationConfiguration";

/// Names in Go's configurations for a controller besides its name and its aliases.
const OLD_NAMES: [(&str, &str); 2] =
    [("service-controller", "service-lb-controller"), ("route-controller", "node-route-controller")];

/// The lease of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The lease of the process.
    Main,
    /// The lease of the migration.
    Migration,
    /// None: another component runs the controller.
    NotOurs,
}

/// A validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Name of the second lease; namespace and times are those of the main lease.
    pub lease_name: String,
    /// The listed controllers; the later of two entries for the same controller applies.
    pub entries: Vec<Entry>,
}

/// One of `controllerLeaders`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A controller, by any of its names.
    pub name: String,
    /// The component that runs it; `*` means any.
    pub component: String,
}

impl Default for Migration {
    /// The default without a file.
    fn default() -> Self {
        let any = |name: &str| Entry { name: name.into(), component: "*".into() };
        Self {
            lease_name: "cloud-provider-extraction-migration".into(),
            entries: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"].map(any).into(),
        }
    }
}

impl Migration {
    /// The configuration in this file, or the default for an empty path.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not such a document, or is invalid; the error contains the path.
    pub fn read(path: &str) -> Result<Self, String> {
        if path.is_empty() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("unable to read leader migration configuration from {path:?}: {error}"))?;
        Self::parse(&text).map_err(|error| format!("leader migration configuration {path:?}: {error}"))
    }

    /// A document in YAML or JSON.
    ///
    /// # Errors
    ///
    /// All errors in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tree = document::parse(text).map_err(|error| error.to_string())?;
        let problems = Problems::default();
        let found = Value::root(&tree, &problems).fields().map(|fields| from_fields(fields, &problems));
        problems.into_result().map_err(|error| error.to_string())?;
        found.ok_or_else(|| format!("expected a {KIND}"))
    }

    /// The lease of the controller with this name and these aliases.
    pub fn lease_of(&self, name: &str, aliases: &[&str]) -> Lease {
        match self.entries.iter().rfind(|entry| entry.means(name, aliases)) {
            None => Lease::Main,
            Some(entry) if [COMPONENT, "*"].contains(&&*entry.component) => Lease::Migration,
            Some(_) => Lease::NotOurs,
        }
    }

    /// The names of entries that match none of these controllers. Entries of other components do not count: those may
    /// have controllers that are unknown here.
    pub fn unmatched<'a>(&'a self, known: &[(&str, &[&str])]) -> Vec<&'a str> {
        let ours = self.entries.iter().filter(|entry| [COMPONENT, "*"].contains(&&*entry.component));
        let unknown = ours.filter(|entry| !known.iter().any(|(name, aliases)| entry.means(name, aliases)));
        unknown.map(|entry| &*entry.name).collect()
    }
}

impl Entry {
    fn means(&self, name: &str, aliases: &[&str]) -> bool {
        self.name == name || aliases.contains(&&*self.name) || OLD_NAMES.contains(&(&*self.name, name))
    }
}

fn from_fields(mut fields: Fields<'_>, problems: &Problems) -> Migration {
    let version = api_version(&mut fields);
    if let Some(value) = fields.value("kind") {
        if value.text().is_some_and(|kind| kind != KIND) {
            value.problem(format_args!("expected {KIND}"));
        }
    } else {
        fields.problem("kind", format_args!("Required value: expected {KIND}"));
    }
    let lease_name = fields.text("leaderName").unwrap_or_default();
    if lease_name.is_empty() {
        fields.problem("leaderName", format_args!("Required value: leaderName must be set for {KIND}"));
    }
    // Version v1 has no such key: there it is an unknown field.
    if version.is_none_or(|version| version != "v1") {
        resource_lock(&mut fields);
    }
    let entries = fields.list("controllerLeaders").iter().filter_map(|value| entry(value, problems)).collect();
    Migration { lease_name, entries }
}

fn api_version(fields: &mut Fields<'_>) -> Option<&'static str> {
    let versions = ["v1", "v1beta1", "v1alpha1"];
    let want = || versions.map(|version| format!("{GROUP}/{version}")).join(", ");
    let Some(value) = fields.value("apiVersion") else {
        fields.problem("apiVersion", format_args!("Required value: expected one of {}", want()));
        return None;
    };
    let text = value.text()?;
    let version = text.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    let found = versions.into_iter().find(|known| Some(*known) == version);
    if found.is_none() {
        value.problem(format_args!("no kind {KIND:?} in version {text:?}; expected one of {}", want()));
    }
    found
}

fn resource_lock(fields: &mut Fields<'_>) {
    let text = fields.text("resourceLock").unwrap_or_default();
    if text == "endpoints" {
        fields.problem("resourceLock", "endpoints lock is removed, migrate to leases");
    } else if text != "leases" {
        fields.problem("resourceLock", format_args!("Invalid value: {text:?}: resource Lock must be 'leases'"));
    }
}

fn entry(value: &Value<'_>, problems: &Problems) -> Option<Entry> {
    let mut fields = value.fields()?;
    let mut needed = |key| {
        let text = fields.text(key).unwrap_or_default();
        if text.is_empty() {
            problems.add(&format!("{}.{key}", value.path()), "Required value");
        }
        text
    };
    let (component, name) = (needed("component"), needed("name"));
    Some(Entry { name, component })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERVICE: (&str, &[&str]) = ("service-lb-controller", &["service"]);
    const ROUTE: (&str, &[&str]) = ("node-route-controller", &["route"]);
    const LIFECYCLE: (&str, &[&str]) = ("cloud-node-lifecycle-controller", &["cloud-node-lifecycle"]);
    const NODE: (&str, &[&str]) = ("cloud-node-controller", &["cloud-node"]);

    fn text(version: &str, rest: &str) -> String {
        format!("apiVersion: {GROUP}/{version}\nkind: {KIND}\n{rest}")
    }

    fn error(text: &str) -> String {
        Migration::parse(text).unwrap_err()
    }

    #[test]
    fn without_a_file_three_controllers_move_whatever_their_names_are_today() {
        let migration = Migration::default();
        for (name, aliases) in [SERVICE, ROUTE, LIFECYCLE] {
            assert_eq!(migration.lease_of(name, aliases), Lease::Migration, "{name}");
        }
        assert_eq!(migration.lease_of(NODE.0, NODE.1), Lease::Main);
        assert_eq!(migration.unmatched(&[SERVICE, ROUTE, LIFECYCLE, NODE]), Vec::<&str>::new());
    }

    #[test]
    fn every_usual_name_means_the_controller() {
        let spellings = [
            ("service-lb-controller", SERVICE),
            ("service", SERVICE),
            ("service-controller", SERVICE),
            ("node-route-controller", ROUTE),
            ("route", ROUTE),
            ("route-controller", ROUTE),
            ("cloud-node-lifecycle-controller", LIFECYCLE),
            ("cloud-node-lifecycle", LIFECYCLE),
            ("cloud-node-controller", NODE),
            ("cloud-node", NODE),
        ];
        for (spelling, (name, aliases)) in spellings {
            for (component, expected) in [
                ("*", Lease::Migration),
                ("cloud-controller-manager", Lease::Migration),
                ("kube-controller-manager", Lease::NotOurs),
                ("anything else", Lease::NotOurs),
            ] {
                let rest =
                    format!("leaderName: m\ncontrollerLeaders:\n- {{name: {spelling}, component: '{component}'}}\n");
                let migration = Migration::parse(&text("v1", &rest)).unwrap();
                assert_eq!(migration.lease_of(name, aliases), expected, "{spelling} {component}");
                assert_eq!(migration.lease_name, "m");
            }
        }
    }

    #[test]
    fn the_later_of_two_entries_for_a_controller_counts() {
        let rest = "leaderName: m\ncontrollerLeaders: [{name: service, component: kube-controller-manager}, \
                    {name: service-controller, component: '*'}]\n";
        assert_eq!(Migration::parse(&text("v1", rest)).unwrap().lease_of(SERVICE.0, SERVICE.1), Lease::Migration);
    }

    #[test]
    fn entries_that_mean_no_controller_are_named_unless_another_component_runs_them() {
        let rest = "leaderName: m\ncontrollerLeaders: [{name: nodeipam, component: kube-controller-manager}, \
                    {name: servise, component: '*'}]\n";
        let migration = Migration::parse(&text("v1", rest)).unwrap();
        assert_eq!(migration.unmatched(&[SERVICE, ROUTE, LIFECYCLE, NODE]), ["servise"]);
    }

    #[test]
    fn json_is_fine_and_the_older_versions_name_the_lock() {
        let json = format!(r#"{{"apiVersion":"{GROUP}/v1","kind":"{KIND}","leaderName":"m"}}"#);
        assert!(Migration::parse(&json).is_ok());
        for version in ["v1beta1", "v1alpha1"] {
            assert!(Migration::parse(&text(version, "leaderName: m\nresourceLock: leases\n")).is_ok());
            let missing = error(&text(version, "leaderName: m\n"));
            assert_eq!(missing, "resourceLock: Invalid value: \"\": resource Lock must be 'leases'");
            let endpoints = error(&text(version, "leaderName: m\nresourceLock: endpoints\n"));
            assert_eq!(endpoints, "resourceLock: endpoints lock is removed, migrate to leases");
        }
        assert!(error(&text("v1", "leaderName: m\nresourceLock: leases\n")).contains("resourceLock: unknown key"));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        assert_eq!(
            error(&text("v1", "controllerLeaders: [{}, {name: a}]\n")),
            "leaderName: Required value: leaderName must be set for LeaderMigrationConfiguration; \
             controllerLeaders[0].component: Required value; controllerLeaders[0].name: Required value; \
             controllerLeaders[1].component: Required value"
        );
        let unknown = error(&text("v1", "leaderName: m\ncontrollerLeaders: [{name: a, component: b, c: d}]\n"));
        assert!(unknown.starts_with("controllerLeaders[0].c: unknown key"), "{unknown}");
        assert!(error(&text("v1", "leaderName: m\nleaderName: n\n")).contains("leaderName"));
        assert!(error(&text("v2", "leaderName: m\n")).contains(&format!("expected one of {GROUP}/v1, ")));
        assert!(error("").contains("expected a map"));
        assert!(error("kind: Pod\nleaderName: m\n").contains("kind: expected LeaderMigrationConfiguration"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = Migration::read("/nonexistent.yaml").unwrap_err();
        assert!(
            error.starts_with("unable to read leader migration configuration from \"/nonexistent.yaml\": "),
            "{error}"
        );
        assert_eq!(Migration::read(""), Ok(Migration::default()));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(
            head in prop_oneof![Just(text("v1", "")), Just(text("v1beta1", "resourceLock: leases\n")), Just(String::new())],
            tail in "[ -~\n]{0,200}",
        ) {
            // Any result except a panic.
            let _ = Migration::parse(&(head + &tail));
        }
    }
}
