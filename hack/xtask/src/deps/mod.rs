//! `cargo xtask check-deps`: the layers of the workspace, enforced by a table.
//!
//! ```text
//! ccm ──> controllers ──> runtime ──> provider (api)
//!  └────> providers/* ──> kit ──────> provider (api)        tests and hack ──> everything
//! ```
//!
//! Only direct dependencies in `Cargo.toml` are checked. Development dependencies are exempt: a unit test may use any
//! crate. Within each crate except those of tests, the modules of a folder have no import cycles.

mod circles;
mod rules;

use std::fs;

use anyhow::{Context as _, bail};

use crate::metadata::{Dependency, Metadata, Package};
use rules::{Externals, RULES, Rule, Workspace};

pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    crate::no_arguments(arguments)?;
    let metadata = Metadata::read()?;
    let mut findings = check(&metadata);
    for package in &metadata.packages {
        let manifest = fs::read_to_string(&package.manifest_path)
            .with_context(|| format!("reading {}", package.manifest_path.display()))?;
        if !inherits_lints(&manifest) {
            findings
                .push(format!("{}: no `[lints] workspace = true`, so unsafe code and panics would pass", package.name));
        }
        let rule = RULES.iter().find(|rule| rule.name == package.name);
        if let (Some(folder), false) = (package.manifest_path.parent(), rule.is_some_and(Rule::may_circle)) {
            let circles = circles::check(&folder.join("src"))?;
            findings.extend(circles.into_iter().map(|circle| format!("{}: {circle}", package.name)));
        }
    }
    if !findings.is_empty() {
        bail!("{} broken rule(s), see hack/xtask/src/deps/rules.rs:\n  {}", findings.len(), findings.join("\n  "));
    }
    println!("check-deps: {} crates keep the rules", metadata.packages.len());
    Ok(())
}

/// One line per violated rule, in a stable order.
fn check(metadata: &Metadata) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let Some(rule) = RULES.iter().find(|rule| rule.name == package.name) else {
            findings.push(format!("{}: not in the table; every crate needs a rule", package.name));
            continue;
        };
        let folder = metadata.folder(package);
        if folder != std::path::Path::new(rule.folder) {
            findings.push(format!("{}: lies in {}, belongs in {}", package.name, folder.display(), rule.folder));
        }
        for dependency in package.dependencies.iter().filter(|dependency| dependency.ships()) {
            findings.extend(edge(metadata, rule, package, dependency));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

fn edge(metadata: &Metadata, rule: &Rule, from: &Package, to: &Dependency) -> Option<String> {
    let finding = |reason: &str| Some(format!("{} -> {}: {reason}", from.name, to.name));
    if metadata.has(&to.name) {
        return match rule.workspace {
            Workspace::Anything => None,
            Workspace::Only(always) | Workspace::OnlyWithOptional { always, .. } if always.contains(&&*to.name) => None,
            Workspace::OnlyWithOptional { optional, .. } if optional.contains(&&*to.name) && to.optional => None,
            // A provider that is always linked would add its dependencies to every program.
            Workspace::OnlyWithOptional { optional, .. } if optional.contains(&&*to.name) => {
                finding("must be optional, behind its feature")
            }
            _ => finding("this layer may not use that crate of the workspace"),
        };
    }
    match rule.externals {
        Externals::Anything => {}
        Externals::Only(allowed) if !allowed.contains(&to.name.as_str()) => {
            return finding("not among the few external crates that this crate may use");
        }
        Externals::Except(banned) if banned.iter().any(|group| group.contains(&to.name.as_str())) => {
            return finding("this layer may not use that external crate");
        }
        Externals::Only(_) | Externals::Except(_) => {}
    }
    let banned = rule.features.iter().find(|(name, _)| *name == to.name)?.1;
    let found: Vec<&str> = banned.iter().copied().filter(|name| to.features.iter().any(|have| have == name)).collect();
    if found.is_empty() { None } else { finding(&format!("with forbidden feature(s) {}", found.join(", "))) }
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines.find(|line| !line.is_empty() && !line.starts_with('#')).is_some_and(|line| line == "workspace = true")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// `manifest` is `crate: dependency dependency…`; a trailing `?` means optional, a leading `dev:` a development
    /// dependency, `+feature` enables a feature.
    fn workspace(manifests: &[&str]) -> Metadata {
        let packages = manifests.iter().map(|manifest| {
            let (name, dependencies) = manifest.split_once(':').unwrap();
            let folder = RULES.iter().find(|rule| rule.name == name).map_or("somewhere", |rule| rule.folder);
            Package {
                name: name.into(),
                manifest_path: PathBuf::from("/w").join(folder).join("Cargo.toml"),
                dependencies: dependencies.split_whitespace().map(dependency).collect(),
                features: Default::default(),
            }
        });
        Metadata { packages: packages.collect(), workspace_root: "/w".into() }
    }

    fn dependency(text: &str) -> Dependency {
        let (text, kind) = match text.strip_prefix("dev:") {
            Some(rest) => (rest, Some("dev".to_owned())),
            None => (text, None),
        };
        let optional = text.ends_with('?');
        let mut parts = text.trim_end_matches('?').split('+');
        let name = parts.next().unwrap().to_owned();
        Dependency { name, kind, optional, features: parts.map(str::to_owned).collect() }
    }

    #[track_caller]
    fn finds(manifests: &[&str], expected: &[&str]) {
        let findings = check(&workspace(manifests));
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, start) in findings.iter().zip(expected) {
            assert!(finding.starts_with(start), "{finding} does not start with {start}");
        }
    }

    #[test]
    fn layers_point_downwards() {
        let good = [
            "ccm: clap kube ccm-controllers ccm-runtime ccm-provider ccm-provider-fake?",
            "ccm-controllers: tokio ccm-runtime ccm-provider",
            "ccm-runtime: kube ccm-provider",
            "ccm-provider: serde tokio+time",
            "ccm-kit: ccm-provider",
            "ccm-provider-fake: ccm-kit ccm-provider",
        ];
        finds(&good, &[]);
    }

    #[test]
    fn a_forbidden_edge_is_reported_with_both_names() {
        let api = "ccm-provider:";
        finds(
            &["ccm-controllers: ccm-provider-fake", "ccm-provider-fake:"],
            &["ccm-controllers -> ccm-provider-fake:"],
        );
        finds(&["ccm-provider: ccm-kit", "ccm-kit:"], &["ccm-provider -> ccm-kit:"]);
        finds(&["ccm-provider-fake: ccm-runtime", "ccm-runtime:"], &["ccm-provider-fake -> ccm-runtime:"]);
        finds(&["ccm-provider-fake: kube", api], &["ccm-provider-fake -> kube:"]);
        finds(&["ccm-controllers: hyper", api], &["ccm-controllers -> hyper:"]);
        finds(&["ccm-runtime: clap", api], &["ccm-runtime -> clap:"]);
        finds(&["ccm-provider: reqwest"], &["ccm-provider -> reqwest:"]);
    }

    #[test]
    fn the_contract_crate_has_no_runtime() {
        finds(&["ccm-provider: tokio+time+rt"], &["ccm-provider -> tokio: with forbidden feature(s) rt"]);
    }

    #[test]
    fn production_uses_test_crates_only_for_its_own_tests() {
        let bed = "ccm-test-bed:";
        finds(&["ccm: ccm-test-bed", bed], &["ccm -> ccm-test-bed:"]);
        finds(&["ccm: dev:ccm-test-bed dev:tempfile", bed], &[]);
        finds(&["ccm-test-suite: ccm-test-bed", bed], &[]);
    }

    #[test]
    fn a_provider_in_the_program_is_optional() {
        finds(&["ccm: ccm-provider-fake", "ccm-provider-fake:"], &["ccm -> ccm-provider-fake: must be optional"]);
    }

    #[test]
    fn a_crate_without_a_rule_is_reported() {
        finds(&["ccm-common: serde"], &["ccm-common: not in the table"]);
    }

    #[test]
    fn a_crate_in_the_wrong_folder_is_reported() {
        let mut metadata = workspace(&["ccm-kit:"]);
        metadata.packages[0].manifest_path = "/w/kit/Cargo.toml".into();
        assert_eq!(check(&metadata), ["ccm-kit: lies in kit, belongs in providers/kit"]);
    }

    #[test]
    fn a_manifest_inherits_the_lints_or_is_reported() {
        assert!(inherits_lints("[package]\n\n[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[package]\n\n[lints.rust]\nunsafe_code = \"allow\"\n"));
        assert!(!inherits_lints("[package]\n"));
    }
}
