//! The health of the members behind a load balancer.

use std::collections::BTreeMap;

use ccm_provider::{Fact, FactState};

/// The maximum number of listed names.
const FEW: usize = 5;

/// What the state of a member means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It gets traffic.
    Serving,
    /// It fails its health check; the remedy. Expected of a node without a pod of the Service if traffic is local.
    Failing(&'static str),
    /// Anything else that is in order.
    Good,
    /// Needs time only.
    Waiting,
    /// Needs this remedy.
    Bad(&'static str),
}

/// A member.
#[derive(Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its state in the words of the cloud, the same meaning for the same words.
    pub state: String,
    /// The meaning of the state.
    pub health: Health,
    /// The meaning in words; or empty.
    pub meaning: &'static str,
}

/// All members, by state. `before`: words before the states; `local`: traffic is local.
pub fn members<'a>(about: String, before: &str, local: bool, members: impl IntoIterator<Item = Member<'a>>) -> Fact {
    let mut states: BTreeMap<String, (Health, &str, Vec<&str>)> = BTreeMap::new();
    for Member { name, state, health, meaning } in members {
        states.entry(state).or_insert((health, meaning, Vec::new())).2.push(name);
    }
    if states.is_empty() {
        return Fact::bad(about, "no node is registered", "check that the Service has nodes: `ccm plan` shows them");
    }
    let is_serving = states.values().any(|(health, ..)| *health == Health::Serving);
    let (mut worst, mut texts, mut hints) = (FactState::Good, Vec::new(), Vec::new());
    for (words, (health, meaning, names)) in states {
        let is_expected = local && is_serving && matches!(health, Health::Failing(_));
        let (state, hint) = match health {
            _ if is_expected => (FactState::Good, None),
            Health::Serving | Health::Good => (FactState::Good, None),
            Health::Waiting => (FactState::Waiting, None),
            Health::Failing(hint) | Health::Bad(hint) => (FactState::Bad, Some(hint)),
        };
        let meaning = match (is_expected, meaning) {
            (true, _) => ": expected with externalTrafficPolicy Local where the node has no ready pod".to_owned(),
            (false, "") => String::new(),
            (false, meaning) => format!(": {meaning}"),
        };
        let is_named = state != FactState::Good || is_expected;
        let which = if is_named { format!(" {}", first_few(&names)) } else { String::new() };
        texts.push(format!("{} {words}{which}{meaning}", names.len()));
        hints.extend(hint);
        worst = worst.max(state);
    }
    hints.dedup();
    let hint = (!hints.is_empty()).then(|| hints.join("; "));
    Fact { about, state: worst, text: format!("{before}{}", texts.join("; ")), hint }
}

/// Up to five names, and how many more there are: `a, b and 3 more`.
pub fn first_few(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    match names.split_at_checked(FEW) {
        Some((few, rest)) if !rest.is_empty() => format!("{} and {} more", few.join(", "), rest.len()),
        _ => names.join(", "),
    }
}
