//! The flags in a snapshot: those that plans depend on.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::Registry;
use ccm_provider::flag::{Flag, FlagValues};

use crate::controllers;
use crate::exit::Failure;
use crate::options::parse;
use crate::program::Program;

/// Flags of the program. Plans do not depend on the address of the cluster, on credentials or on paths.
const OWN: [&str; 17] = [
    "allocate-node-cidrs",
    "allow-emptying-load-balancers",
    "cidr-allocator-type",
    "cloud-provider",
    "cloud-provider-platforms",
    "cluster-cidr",
    "cluster-name",
    "configure-cloud-routes",
    CONTROLLERS,
    "feature-gates",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
    "node-deletion-budget",
    "node-deletion-budget-percent",
    "node-lifecycle-wait-timeout",
    "service-cluster-ip-range",
];
const CONTROLLERS: &str = "controllers";

/// Words in the names of flags for secrets or paths: such flags of providers and added controllers are omitted.
const NEVER: [&str; 16] = [
    "auth",
    "cert",
    "certificate",
    "config",
    "credential",
    "credentials",
    "dir",
    "file",
    "key",
    "kubeconfig",
    "password",
    "path",
    "secret",
    "token",
    "url",
    "user",
];

/// Flags of the selected provider and of added controllers; the program knows only their names.
fn of_others(name: &str, registry: &Registry, program: &Program, provider: &str) -> bool {
    let of_provider = registry.get(provider).is_some_and(|factory| has(factory.flags(), name));
    let builtin: BTreeSet<&str> = controllers::builtin().iter().map(|known| known.name).collect();
    let mut added = program.controllers.iter().filter(|known| !builtin.contains(known.name));
    let safe = name.split('-').all(|word| !NEVER.contains(&word));
    safe && (of_provider || added.any(|known| has(known.flags, name)))
}

fn has(flags: &[Flag], name: &str) -> bool {
    flags.iter().any(|flag| flag.name == name)
}

/// The given flags that a snapshot contains.
pub(crate) fn kept(values: &FlagValues, registry: &Registry, program: &Program) -> BTreeMap<String, Vec<String>> {
    let provider = values.text("cloud-provider");
    values
        .iter()
        .filter(|(name, _)| values.given(name))
        .filter(|(name, _)| OWN.contains(name) || of_others(name, registry, program, &provider))
        .map(|(name, given)| (name.to_owned(), given.to_vec()))
        .collect()
}

/// The values of all flags of this program, from a snapshot. Flags and controllers of a provider that is not compiled
/// in are omitted: the plan lacks only their part.
pub(crate) fn read(
    kept: &BTreeMap<String, Vec<String>>,
    registry: &Registry,
    program: &Program,
) -> Result<FlagValues, Failure> {
    let compiled_in =
        kept.get("cloud-provider").and_then(|names| names.last()).is_some_and(|n| registry.is_registered(n));
    let known_controller = |word: &str| {
        let word = word.trim_start_matches('-');
        word == "*" || program.controllers.iter().any(|known| known.name == word || known.aliases.contains(&word))
    };
    let mut args = Vec::new();
    for (name, values) in kept {
        if !has(&program.flags, name) && (!compiled_in || !OWN.contains(&name.as_str())) {
            continue;
        }
        let values = values.iter().filter(|value| compiled_in || name != CONTROLLERS || known_controller(value));
        let uses: Vec<_> = values.map(|value| format!("--{name}={value}").into()).collect();
        // An empty list counts as given.
        args.extend(if uses.is_empty() { vec![format!("--{name}=").into()] } else { uses });
    }
    let (values, _) = parse::read(&program.flags, args)
        .map_err(|error| Failure::error(format!("the flags of the snapshot do not fit this program: {error}")))?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::sync::Arc;

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry.register(Arc::new(ccm_provider_fake::Factory)).unwrap();
        registry
    }

    fn values(args: &[&str]) -> FlagValues {
        parse::read(&Program::default().flags, args.iter().map(OsString::from)).unwrap().0
    }

    #[test]
    fn only_flags_that_plans_depend_on_are_kept_and_come_back_as_they_were() {
        let given = values(&[
            "--cloud-provider=fake",
            "--cluster-name=c",
            "--controllers=*,-route",
            "--controllers=-service",
            "--cluster-cidr=",
            "--feature-gates=AllAlpha=false",
            "--node-deletion-budget=3",
            "--kubeconfig=/home/me/canary",
            "--master=https://canary",
            "--cloud-config=/etc/canary",
            "--tls-private-key-file=/canary",
            "--v=4",
        ]);
        let kept = kept(&given, &registry(), &Program::default());
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        let expected =
            ["cloud-provider", "cluster-cidr", "cluster-name", "controllers", "feature-gates", "node-deletion-budget"];
        assert_eq!(names, expected);
        let back = read(&kept, &registry(), &Program::default()).unwrap();
        for name in expected {
            assert_eq!((back.list(name), back.given(name)), (given.list(name), true), "{name}");
        }
        assert_eq!((back.text("kubeconfig"), back.text("cloud-config")), (String::new(), String::new()));
    }

    #[test]
    fn every_name_is_one_of_a_flag() {
        let flags = Program::default().flags;
        assert!(OWN.iter().all(|name| has(&flags, name)));
    }

    #[test]
    fn parts_of_a_missing_provider_are_left_out() {
        let kept: BTreeMap<String, Vec<String>> = BTreeMap::from([
            ("cloud-provider".into(), vec!["moon".into()]),
            ("moon-phase".into(), vec!["full".into()]),
            (CONTROLLERS.into(), vec!["*".into(), "tides".into(), "-route".into()]),
        ]);
        let back = read(&kept, &registry(), &Program::default()).unwrap();
        assert_eq!(back.list(CONTROLLERS), ["*", "-route"]);
        assert_eq!(back.text("cloud-provider"), "moon");
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_the_flag() {
        let kept = BTreeMap::from([("node-deletion-budget".to_owned(), vec!["many".to_owned()])]);
        let error = read(&kept, &registry(), &Program::default()).unwrap_err().message;
        assert!(error.contains("the flags of the snapshot") && error.contains("--node-deletion-budget"), "{error}");
    }
}
