mod bed;
mod explain_node;
mod explain_service;
mod migration;
mod orphans;

use ccm_provider::{Fact, FactState};

/// State, subject, text and hint, one line each.
fn lines(facts: &[Fact]) -> String {
    let line = |fact: &Fact| {
        let state = match fact.state {
            FactState::Good => "good",
            FactState::Waiting => "waiting",
            FactState::Bad => "BAD",
        };
        let hint = fact.hint.as_ref().map(|hint| format!(" => {hint}")).unwrap_or_default();
        format!("{state} [{}] {}{hint}\n", fact.about, fact.text)
    };
    facts.iter().map(line).collect()
}

/// Asserts that the text contains each of these.
#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
