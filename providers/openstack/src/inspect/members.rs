//! Health of members, and its usual meaning. Pure.
//!
//! States: `operating_status` in the API reference of Octavia.

use std::collections::BTreeMap;

use ccm_provider::{Fact, FactState};

use crate::client::octavia::{Member, Pool};

const NO_ANSWER: &str = "check that the node port answers on the node, and that the security groups of its port allow it: \
                         manage-security-groups lets this program do that";
/// Maximum number of listed names.
const FEW: usize = 5;

/// The members of a pool. `local`: nodes without a pod of the Service fail their health check by design.
pub(super) fn of_pool(pool: &Pool, members: &[Member], local: bool) -> Fact {
    let about = format!("pool {}", pool.name);
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in members {
        let name = if member.name.is_empty() { &member.address } else { &member.name };
        kinds.entry(&member.operating_status).or_default().push(name);
    }
    if kinds.is_empty() {
        return Fact::bad(about, "has no member", "check that the Service has nodes: `ccm plan` shows them");
    }
    let is_serving = kinds.contains_key("ONLINE");
    let (mut worst, mut texts) = (FactState::Good, Vec::new());
    for (status, names) in &kinds {
        let expected = local && is_serving && *status == "ERROR";
        let (state, meaning) = match *status {
            "ERROR" if expected => {
                (FactState::Good, ": expected with externalTrafficPolicy Local where the node has no ready pod")
            }
            "ERROR" => (FactState::Bad, ": the health check fails"),
            "ONLINE" => (FactState::Good, ""),
            "NO_MONITOR" => (FactState::Good, ": not checked, enable-health-monitor is off"),
            "DRAINING" => (FactState::Waiting, ": no new connections"),
            "OFFLINE" => (FactState::Waiting, ": not checked yet, or switched off by hand"),
            _ => (FactState::Waiting, ""),
        };
        let which =
            if state == FactState::Good && !expected { String::new() } else { format!(" {}", first_few(names)) };
        texts.push(format!("{} {status}{which}{meaning}", names.len()));
        worst = worst.max(state);
    }
    let hint = (worst == FactState::Bad).then(|| NO_ANSWER.to_owned());
    Fact { about, state: worst, text: format!("{}, members: {}", pool.lb_algorithm, texts.join("; ")), hint }
}

/// `a, b and 3 more`
pub(super) fn first_few(names: &[&str]) -> String {
    match names.split_at_checked(FEW) {
        Some((few, rest)) if !rest.is_empty() => format!("{} and {} more", few.join(", "), rest.len()),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(states: &[&str], local: bool) -> Fact {
        let pool = Pool { name: "p".to_owned(), lb_algorithm: "ROUND_ROBIN".to_owned(), ..Pool::default() };
        let member = |(place, state): (usize, &&str)| Member {
            name: format!("n{place}"),
            operating_status: (*state).to_owned(),
            ..Member::default()
        };
        of_pool(&pool, &states.iter().enumerate().map(member).collect::<Vec<_>>(), local)
    }

    #[test]
    fn failed_health_checks_are_bad_unless_the_traffic_is_local() {
        assert_eq!(pool(&["ONLINE", "ERROR"], true).state, FactState::Good);
        let fact = pool(&["ONLINE", "ERROR", "ERROR"], false);
        assert_eq!((fact.state, fact.hint.is_some()), (FactState::Bad, true));
        assert!(fact.text.contains("2 ERROR n1, n2: the health check fails; 1 ONLINE"), "{}", fact.text);
        assert_eq!(pool(&["ERROR", "ERROR"], true).state, FactState::Bad, "no node serves");
    }

    #[test]
    fn unchecked_members_are_in_order_and_none_at_all_is_not() {
        assert_eq!(pool(&["NO_MONITOR"; 3], false).state, FactState::Good);
        assert_eq!(pool(&["OFFLINE"], false).state, FactState::Waiting);
        assert_eq!(pool(&[], false).state, FactState::Bad);
        assert!(pool(&["OFFLINE"; 8], false).text.contains("n4 and 3 more"));
    }
}
