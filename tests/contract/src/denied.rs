//! What tests with the roles of the field note: which work a cloud denies. Each test keeps its result in a file, a line
//! for each policy; `cargo xtask manifests` makes a page of all.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{ErrorClass, ProviderError};

/// The work that was denied, with the missing permission.
#[derive(Debug, Default)]
pub struct Denied(pub BTreeMap<String, String>);

impl Denied {
    /// Notes an error.
    ///
    /// # Panics
    ///
    /// For an error of another kind, or one that does not name the permission.
    pub fn note<T>(&mut self, work: &str, result: Result<T, ProviderError>) {
        let Err(error) = result else { return };
        let action = if let ErrorClass::Denied { action } = error.class() { action } else { String::new() };
        assert!(!action.is_empty() && error.to_string().contains(&action), "{work}: {error:?}");
        self.0.insert(work.to_owned(), action);
    }

    /// The line of a policy: its name, the roles in Kubernetes that it is used with, and what happened to nodes, Services,
    /// routes and volumes. `warned` are the permissions that a Warning named, while the work went on.
    pub fn line(&self, policy: &str, roles: &[&str], warned: &BTreeSet<String>) -> String {
        let [nodes, mut services, routes, volumes] =
            [Self::of_nodes, Self::of_services, Self::of_routes, Self::of_volumes].map(|is_of| self.result(is_of));
        for permission in warned {
            services += &format!("; one Warning: `{permission}`");
        }
        format!("{policy} | {} | {nodes} | {services} | {routes} | {volumes}", roles.join("; "))
    }

    fn of_nodes(work: &str) -> bool {
        work == "nodes"
    }

    fn of_services(work: &str) -> bool {
        !Self::of_nodes(work) && !Self::of_routes(work) && !Self::of_volumes(work)
    }

    fn of_routes(work: &str) -> bool {
        work.contains("route")
    }

    fn of_volumes(work: &str) -> bool {
        work == "volume"
    }

    /// `works`, or `refused: delete external/internal, new external (PERMISSION), …`
    fn result(&self, is_of: fn(&str) -> bool) -> String {
        let mut by_permission = BTreeMap::<&str, BTreeMap<&str, Vec<&str>>>::new();
        for (work, permission) in self.0.iter().filter(|(work, _)| is_of(work)) {
            let (what, kind) = work.rsplit_once(' ').unwrap_or((work, ""));
            by_permission.entry(permission).or_default().entry(what).or_default().push(kind);
        }
        let of_permission = |(permission, works): (&str, BTreeMap<&str, Vec<&str>>)| {
            let works = works.into_iter().map(|(what, kinds)| format!("{what} {}", kinds.join("/")).trim().to_owned());
            format!("{} (`{permission}`)", works.collect::<Vec<_>>().join(", "))
        };
        let all: Vec<String> = by_permission.into_iter().map(of_permission).collect();
        if all.is_empty() { "works".to_owned() } else { format!("refused: {}", all.join(", ")) }
    }
}

/// The permissions that the Warnings among these events name.
///
/// # Panics
///
/// If two of them name the same one.
pub fn warned(events: &[String]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for event in events {
        let Some(permission) = event.split_once("ccm lacks ").and_then(|(_, rest)| rest.split_whitespace().next())
        else {
            continue;
        };
        assert!(all.insert(permission.trim_end_matches([':', ',']).to_owned()), "twice: {events:?}");
    }
    all
}

/// Compares the lines of all policies with the file; `UPDATE=1` writes it.
///
/// # Panics
///
/// If they differ, or the file cannot be read or written.
#[allow(clippy::panic)]
pub fn listed(file: &str, lines: &[String]) {
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let before = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(before.lines().collect::<Vec<_>>(), lines, "{file}: if the change is right, UPDATE=1 writes it");
}
