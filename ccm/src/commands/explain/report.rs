//! The output: facts with their states, a conclusion, the JSON document.

use std::fmt::Write as _;

use ccm_provider::{ErrorClass, Fact, FactState, Finding, Severity, Step};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::output::{Color, Format, Mark, Output, flat};
use super::super::previewed;
use super::Previewed;
use super::events::{self, Event};
use crate::exit::Verdict;

/// The number of events to print; the document contains all.
const EVENTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Story {
    /// `service default/web`
    pub(super) title: String,
    /// Kind, namespace, name and UID.
    pub(super) object: Value,
    /// The state of the object itself, which may be a symptom of a later link.
    pub(super) symptoms: Vec<Fact>,
    /// The links from the object to the cloud, nearest first.
    pub(super) facts: Vec<Fact>,
    /// Failures that say little about their cause: any other link is a better explanation.
    pub(super) effects: Vec<Fact>,
    /// The reason why this program does not manage the object.
    pub(super) not_ours: Option<String>,
    /// The number of warnings: informative, but without effect.
    pub(super) warnings: usize,
    pub(super) unseen: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) now: Timestamp,
    pub(super) leader: Option<Value>,
    pub(super) plan: Option<Previewed>,
}

/// Whether an error of this class is temporary or needs action.
fn state_of(class: &ErrorClass) -> FactState {
    match class {
        ErrorClass::Throttled { .. }
        | ErrorClass::Transient { .. }
        | ErrorClass::InProgress { .. }
        | ErrorClass::Conflict => FactState::Waiting,
        _ => FactState::Bad,
    }
}

impl Story {
    /// Adds a failure with its class and the fix.
    pub(super) fn failed(&mut self, about: &str, message: &str, class: Option<&ErrorClass>) {
        let (state, text, hint) = match class {
            Some(class) => (state_of(class), format!("{message} ({})", class.as_str()), class.remediation()),
            None => {
                (FactState::Bad, message.to_owned(), "the message says why; it is retried automatically".to_owned())
            }
        };
        let fact = Fact { about: about.to_owned(), state, text, hint: Some(hint) };
        match class {
            // A later link explains better what is missing and why it should exist.
            None | Some(ErrorClass::Unknown | ErrorClass::NotFound) => self.effects.push(fact),
            Some(_) => self.facts.push(fact),
        }
    }

    /// Whether a failure with this message is already reported.
    pub(super) fn reports(&self, message: &str) -> bool {
        self.all().any(|fact| fact.text.contains(message))
    }

    /// Adds the findings about the annotations.
    pub(super) fn lint(&mut self, findings: &[Finding]) {
        for finding in findings {
            let value = finding.value.as_ref().map(|value| format!(" {value:?}")).unwrap_or_default();
            let about = format!("{}{value}", finding.key);
            if self.facts.iter().any(|fact| fact.about == about && fact.text.ends_with(&finding.message)) {
                continue;
            }
            let (state, mark) = match finding.severity {
                Severity::Error => (FactState::Bad, ""),
                Severity::Warning => (FactState::Good, "warning: "),
                Severity::Info => (FactState::Good, "note: "),
            };
            self.warnings += usize::from(finding.severity == Severity::Warning);
            self.facts.push(Fact { about, state, text: format!("{mark}{}", finding.message), hint: None });
        }
    }

    /// Adds the planned changes and failures of the controllers' pass.
    pub(super) fn previewed(&mut self, previewed: &Previewed, dry_run: bool, nobody: bool) {
        for unplanned in &previewed.unplanned {
            self.failed("the controllers", &unplanned.error.to_string(), unplanned.error.class());
        }
        for warning in &previewed.warnings {
            let text = format!("{} ({})", warning.message, warning.reason);
            self.facts.push(Fact::waiting("the controllers", text));
        }
        let steps: Vec<&Step> = previewed.plans.iter().flat_map(|plan| &plan.steps).collect();
        if dry_run && !steps.is_empty() {
            let text = "among the flags: a controller manager with it writes nothing";
            self.facts.push(Fact::bad("--dry-run", text, "take it away to let the controllers write"));
        }
        let who = if nobody { "the next leader's write" } else { "the leader's write" };
        self.facts.extend(steps.into_iter().map(|step| Fact::waiting(who, step.to_string())));
        for plan in &previewed.plans {
            self.lint(&plan.findings);
        }
        if previewed.unplanned.is_empty() && previewed.changes() == 0 && self.not_ours.is_none() {
            self.facts.push(Fact::good("the controllers", "have nothing to change for it"));
        }
    }

    /// Adds the events. The last error counts as long as work is pending and no sync has succeeded since.
    pub(super) fn events(&mut self, events: Vec<Event>, now: Timestamp) {
        if let Some(error) = events::last_error(&events) {
            // A kubelet without heartbeats alone does not make an old error relevant.
            let pending = self.facts.iter().chain(&self.effects).any(|fact| fact.state != FactState::Good);
            let class = error.class.as_ref().map_or_else(String::new, |class| format!(" ({})", class.as_str()));
            let text_of = format!("{} {}: {}{class}", error.reason, events::when(error, now), error.message);
            let said = || "the message says why; the next try may have gone well already".to_owned();
            let fix = error.class.as_ref().map_or_else(said, ErrorClass::remediation);
            self.effects.push(match pending {
                true => Fact {
                    // A temporary error is not worse because it was emitted as an event.
                    state: error.class.as_ref().map_or(FactState::Bad, state_of),
                    ..Fact::bad("last error", text_of, fix)
                },
                false => Fact::good("last error", format!("{text_of}. Nothing is pending now")),
            });
        }
        (self.events, self.now) = (events, now);
    }

    fn all(&self) -> impl Iterator<Item = &Fact> {
        self.symptoms.iter().chain(&self.facts).chain(&self.effects)
    }

    pub(super) fn state(&self) -> FactState {
        self.all().map(|fact| fact.state).max().unwrap_or(FactState::Good)
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.state() == FactState::Good { Verdict::Clean } else { Verdict::Findings }
    }

    /// One line. A later link explains more than the state of the object itself.
    pub(super) fn conclusion(&self) -> String {
        let state = self.state();
        let of_state = |facts: &[Fact]| facts.iter().filter(|fact| fact.state == state).cloned().collect::<Vec<_>>();
        let causes = [&self.facts, &self.effects, &self.symptoms].map(|facts| of_state(facts));
        let first = causes.iter().flatten().next();
        let mut text = match (state, first) {
            (FactState::Good, _) | (_, None) => self.fine(),
            (FactState::Waiting, Some(fact)) => format!("waiting for {}: {}", fact.about, fact.text),
            (FactState::Bad, Some(fact)) => format!("broken: {}: {}", fact.about, fact.text),
        };
        if let Some(hint) = first.and_then(|fact| fact.hint.as_ref()).filter(|_| state != FactState::Good) {
            let _ = write!(text, " → {hint}");
        }
        let others = causes.iter().map(Vec::len).sum::<usize>().saturating_sub(1);
        if state == FactState::Bad && others > 0 {
            let _ = write!(text, " (and {others} more above)");
        }
        text
    }

    fn fine(&self) -> String {
        let mut text = match &self.not_ours {
            Some(why) => format!("OK: {why}"),
            None => "OK".to_owned(),
        };
        match self.warnings {
            0 => {}
            1 => text.push_str(", with 1 warning above"),
            warnings => {
                let _ = write!(text, ", with {warnings} warnings above");
            }
        }
        if !self.unseen.is_empty() {
            text.push_str(", as far as it could be seen");
        }
        text
    }
}

pub(super) fn print(story: &Story, output: Output) -> String {
    match output.format {
        Format::Json | Format::Yaml => output.document("Explanation", json(story)),
        _ => text(story, output),
    }
}

fn mark(state: FactState) -> (&'static str, Color, Mark) {
    match state {
        FactState::Good => ("done", Color::Green, Mark::Good),
        FactState::Waiting => ("waiting", Color::Yellow, Mark::Warning),
        FactState::Bad => ("broken", Color::Red, Mark::Bad),
    }
}

fn text(story: &Story, output: Output) -> String {
    let mut text = format!("{}\n", output.paint(Color::Bold, &story.title));
    for fact in story.all() {
        let (word, color, mark) = mark(fact.state);
        let mark = if fact.state == FactState::Good { Mark::good(&fact.text) } else { mark };
        let text_of = flat(&format!("{}: {}", fact.about, fact.text));
        if let Some(item) = output.item(mark, &text_of, fact.hint.as_deref()) {
            text.push_str(&item);
            continue;
        }
        let hint = fact.hint.as_ref().map_or_else(String::new, |hint| format!(" → {}", flat(hint)));
        let _ = writeln!(text, "  {} {text_of}{hint}", output.paint(color, &format!("{word:7}")));
    }
    for unseen in &story.unseen {
        let _ = writeln!(text, "  {} {}", output.paint(Color::Dim, "unseen "), flat(unseen));
    }
    if !story.events.is_empty() {
        text.push_str("Events, newest first\n");
    }
    for event in story.events.iter().take(EVENTS) {
        let kind = match event.is_warning() {
            true => output.paint(Color::Yellow, &event.kind),
            false => flat(&event.kind),
        };
        let text_of = format!("{} {}: {}", event.reason, events::when(event, story.now), event.message);
        let _ = writeln!(text, "  {kind} {}", flat(&text_of));
    }
    if let Some(more) = story.events.len().checked_sub(EVENTS).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} older {}", if more == 1 { "one" } else { "ones" });
    }
    let (_, color, _) = mark(story.state());
    let _ = writeln!(text, "{}", output.paint(color, &output.wrap(&flat(&story.conclusion()))));
    text
}

fn json(story: &Story) -> Value {
    let state = match story.state() {
        FactState::Good => "ok",
        FactState::Waiting => "waiting",
        FactState::Bad => "broken",
    };
    json!({
        "object": story.object,
        "state": state,
        "conclusion": story.conclusion(),
        "facts": story.all().collect::<Vec<_>>(),
        "unseen": story.unseen,
        "events": story.events.iter().map(|event| event.json(story.now)).collect::<Vec<_>>(),
        "plan": story.plan.as_ref().map(previewed::json),
        "leader": story.leader,
    })
}
