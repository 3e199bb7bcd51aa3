//! The flags of the tagging controller, equal to upstream's.

use std::collections::BTreeMap;

use ccm_provider::flag::{Flag, FlagValues, Kind};

use crate::client::Tags;

const SECTION: &str = "Tagging controller";

#[rustfmt::skip]
pub(crate) const FLAGS: [Flag; 6] = [
    Flag::new(SECTION, "tags", Kind::Pairs, "",
        "Tags to apply to AWS resources in the tagging controller, in the form of key=value."),
    Flag::new(SECTION, "resources", Kind::Repeated, "",
        "AWS resources name to add/remove tags in the tagging controller. Only \"instance\" is known."),
    Flag::new(SECTION, "tagging-controller-rate-limit", Kind::Float, "0",
        "Steady-state rate limit (per sec) at which the controller processes items in its queue. A value of zero (default) disables rate limiting."),
    Flag::new(SECTION, "tagging-controller-burst-limit", Kind::Int, "0",
        "Burst limit at which the controller processes items in its queue. A value of zero (default) disables rate limiting."),
    Flag::new(SECTION, "tagging-controller-concurrent-node-syncs", Kind::Int, "1",
        "Number of batches of nodes that are tagged at once."),
    Flag::new(SECTION, "tagging-controller-enable-batching", Kind::Bool, "false",
        "Has no effect: many instances are always tagged with one call."),
];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) tags: Tags,
    pub(crate) workers: usize,
    /// Nodes per second and burst.
    pub(crate) rate: Option<(f64, u32)>,
}

pub(crate) fn check(values: &FlagValues) -> Vec<String> {
    Settings::read(values).err().unwrap_or_default()
}

impl Settings {
    /// Parses the flags, or returns all their errors.
    pub(crate) fn read(values: &FlagValues) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let tags = tags(&values.list("tags"), &mut errors);
        if tags.is_empty() && errors.is_empty() {
            errors.push("--tags must not be empty and must be a form of key=value".to_owned());
        }
        let resources = values.list("resources");
        if resources.is_empty() {
            errors.push("--resources must not be empty; say --resources=instance".to_owned());
        }
        for resource in resources.iter().filter(|resource| *resource != "instance") {
            errors.push(format!("--resources={resource}: the only resource that can be tagged is \"instance\""));
        }
        let rate = number(values, "tagging-controller-rate-limit", &mut errors);
        let burst = whole(values, "tagging-controller-burst-limit", 0, &mut errors);
        let workers = whole(values, "tagging-controller-concurrent-node-syncs", 1, &mut errors);
        let rate = (rate > 0.0 && burst > 0).then_some((rate, burst));
        match errors.is_empty() {
            true => Ok(Self { tags, workers: usize::try_from(workers).unwrap_or(1), rate }),
            false => Err(errors),
        }
    }
}

fn tags(words: &[String], errors: &mut Vec<String>) -> Tags {
    let mut tags = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                tags.insert(key.trim().to_owned(), value.to_owned());
            }
            _ => errors.push(format!("--tags: {word:?} must be formatted as key=value")),
        }
    }
    tags
}

fn number(values: &FlagValues, name: &str, errors: &mut Vec<String>) -> f64 {
    let text = values.text(name);
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.unwrap_or_else(|| {
        errors.push(format!("--{name}={text} must be a number of 0 or more"));
        0.0
    })
}

fn whole(values: &FlagValues, name: &str, least: u32, errors: &mut Vec<String>) -> u32 {
    let text = values.text(name);
    text.parse().ok().filter(|number| *number >= least).unwrap_or_else(|| {
        errors.push(format!("--{name}={text} must be a whole number of {least} or more"));
        least
    })
}
