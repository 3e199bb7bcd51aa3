//! The factory: configuration, flags, interfaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_provider::flag::{Kind, go_bool};
use ccm_provider::{CloudConfig, CloudProvider, duration};

use super::HOSTILE;
use crate::bed::{Bed, holds};
use crate::{Harness, Outcome, Result};

pub(super) async fn a_missing_configuration_is_an_answer(harness: Arc<dyn Harness>) -> Result {
    if let Err(error) = harness.factory().build(None, &harness.flags()).await {
        let text = error.to_string();
        holds!(
            text.to_lowercase().contains("config"),
            "the error does not say that a configuration is missing: {text}"
        );
    }
    Ok(())
}

pub(super) async fn a_broken_configuration_is_refused_and_the_key_named(harness: Arc<dyn Harness>) -> Result {
    let broken = harness.broken_configs();
    if broken.is_empty() {
        return Err(Outcome::NotApplicable("the harness has no broken configuration"));
    }
    for case in broken {
        let names = case.names;
        match harness.factory().build(Some(case.config), &harness.flags()).await {
            Ok(_) => return Err(Outcome::Broken(format!("the broken configuration about {names:?} was taken"))),
            Err(error) => {
                let text = format!("{error} {error:?}");
                holds!(text.contains(names), "the error does not name {names:?}: {text}");
                let secret = case.secret.filter(|secret| text.contains(secret));
                holds!(secret.is_none(), "the error about {names:?} holds a secret");
            }
        }
    }
    Ok(())
}

pub(super) async fn hostile_configurations_are_refused_or_taken_without_panic(harness: Arc<dyn Harness>) -> Result {
    let Some(good) = harness.config() else { return Err(Outcome::NotApplicable("there is no configuration")) };
    let deep = "[".repeat(5_000);
    let cut = good.text.char_indices().map(|(at, _)| good.text.get(..at).unwrap_or_default().to_owned());
    let each = good.text.chars().count().div_ceil(50).max(1);
    let hostile = HOSTILE.iter().map(|text| (*text).to_owned());
    for text in hostile.chain([deep]).chain(cut.step_by(each)) {
        let config = CloudConfig { path: good.path.clone(), text };
        // Both answers are allowed; a panic is caught above.
        drop(harness.factory().build(Some(config), &harness.flags()).await);
    }
    Ok(())
}

pub(super) async fn flags_have_plain_names_and_defaults_that_parse(harness: Arc<dyn Harness>) -> Result {
    let mut seen = BTreeSet::new();
    for flag in harness.factory().flags() {
        let (name, default) = (flag.name, flag.default);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        holds!(!name.is_empty() && name.chars().all(plain), "--{name}: only a-z, 0-9 and - can be typed everywhere");
        holds!(seen.insert(name), "--{name} is defined twice");
        holds!(!flag.help.is_empty() && !flag.section.is_empty(), "--{name} has no help text or no section");
        let parses = match flag.kind {
            _ if default.is_empty() => true,
            Kind::Bool => go_bool(default).is_ok(),
            Kind::Int => default.parse::<i64>().is_ok(),
            Kind::Float => default.parse::<f64>().is_ok(),
            Kind::Duration => duration::parse(default).is_ok(),
            _ => true,
        };
        holds!(parses, "--{name}: the default {default:?} is no {:?}", flag.kind);
    }
    Ok(())
}

pub(super) async fn the_interfaces_are_the_same_after_a_restart(harness: Arc<dyn Harness>) -> Result {
    let seen = |provider: &dyn CloudProvider| {
        let has = [
            ("instances", provider.instances().is_some()),
            ("legacy instances", provider.legacy_instances().is_some()),
            ("zones", provider.zones().is_some()),
            ("load balancer", provider.load_balancer().is_some()),
            ("routes", provider.routes().is_some()),
            ("volumes", provider.volumes().is_some()),
        ];
        (provider.name().to_owned(), provider.has_cluster_id(), has)
    };
    let bed = Bed::new(harness).await?;
    let (first, again) = (seen(&*bed.provider), seen(&*bed.provider));
    let other = seen(&*bed.restarted().await?.provider);
    holds!(!first.0.is_empty() && !first.0.contains(':'), "{:?} is no scheme of provider IDs", first.0);
    holds!(first == again && first == other, "the answers change: {first:?}, {again:?}, {other:?}");
    Ok(())
}
