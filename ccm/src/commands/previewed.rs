//! The result of a pass of the controllers, and its output, which is the same in every command.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ccm_controllers::preview::{Scope, Unplanned};
use ccm_controllers::service::SERVICES;
use ccm_provider::flag::FlagValues;
use ccm_provider::{Plan, Risk, Step, Verb};
use serde_json::{Value, json};

use super::kubeconfig;
use super::output::{Color, Output, counted, flat};

#[derive(Debug, Default)]
pub(crate) struct Previewed {
    pub(crate) plans: Vec<Plan>,
    pub(crate) unplanned: Vec<Unplanned>,
    /// Warning events that the controllers would have emitted.
    pub(crate) warnings: Vec<Warning>,
    pub(crate) skipped: Vec<(&'static str, String)>,
}

/// A warning event that was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    /// `node worker-1`, `service default/web`
    pub(crate) subject: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Whether this subject is within the scope.
pub(crate) fn concerns(scope: &Scope, subject: &str) -> bool {
    let asked = match scope {
        Scope::All => return true,
        Scope::Node(name) => format!("node {name}"),
        // What stops the whole controller stops each Service.
        Scope::Service(_) if subject == SERVICES => return true,
        Scope::Service(key) => format!("service {key}"),
        Scope::Routes => "routes".to_owned(),
    };
    // `node a addresses` concerns `node a`; `node a.b` does not.
    subject.strip_prefix(&*asked).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl Previewed {
    /// Whether an object whose subject begins like this could not be planned.
    pub(super) fn lacks(&self, kind: &str) -> bool {
        self.unplanned.iter().any(|unplanned| unplanned.subject.starts_with(kind))
    }

    /// Keeps only the results within the scope: a controller may have planned more.
    pub(super) fn within(mut self, scope: &Scope) -> Self {
        let concerns = |subject: &str| concerns(scope, subject);
        self.plans.retain(|plan| concerns(&plan.subject));
        self.unplanned.retain(|unplanned| concerns(&unplanned.subject));
        self.warnings.retain(|warning| concerns(&warning.subject));
        self.sorted()
    }

    /// Keeps only the Services of `--namespace`, if it is given and no object is.
    pub(super) fn in_namespace(mut self, scope: &Scope, values: &FlagValues) -> Self {
        let namespace = kubeconfig::namespace_asked(values).filter(|_| *scope == Scope::All);
        let Some(namespace) = namespace else { return self };
        let start = format!("service {namespace}/");
        let concerns = |subject: &str| subject == SERVICES || subject.starts_with(&start);
        self.plans.retain(|plan| concerns(&plan.subject));
        self.unplanned.retain(|unplanned| concerns(&unplanned.subject));
        self.warnings.retain(|warning| concerns(&warning.subject));
        self
    }

    fn sorted(mut self) -> Self {
        self.plans.sort_by(|a, b| a.subject.cmp(&b.subject));
        self.unplanned.sort_by_cached_key(|unplanned| (unplanned.subject.clone(), unplanned.error.to_string()));
        // The entry in `unplanned` already contains the reason.
        let says = |unplanned: &Unplanned, warning: &Warning| {
            unplanned.subject == warning.subject && warning.message.contains(&unplanned.error.to_string())
        };
        let unplanned = &self.unplanned;
        self.warnings.retain(|warning| !unplanned.iter().any(|unplanned| says(unplanned, warning)));
        // A node that would be deleted needs no other plan.
        let goes = |plan: &Plan| plan.steps.iter().any(|step| step.verb == Verb::Delete && step.kind == "Node");
        let gone: BTreeSet<&str> =
            self.plans.iter().filter(|plan| goes(plan)).map(|plan| plan.subject.as_str()).collect();
        self.unplanned.retain(|unplanned| !gone.contains(&*unplanned.subject));
        // The order must not depend on the order of the answers.
        self.warnings.sort_by(|a, b| (&a.subject, &a.reason, &a.message).cmp(&(&b.subject, &b.reason, &b.message)));
        self
    }

    /// The number of writes in all plans.
    pub(crate) fn changes(&self) -> usize {
        self.plans.iter().map(|plan| plan.steps.len()).sum()
    }
}

/// The objects with writes, each once: `node/worker-1`.
pub(super) fn names(previewed: &Previewed) -> String {
    let mut names: Vec<String> = Vec::new();
    for plan in previewed.plans.iter().filter(|plan| !plan.steps.is_empty()) {
        // `node a addresses`
        let words: Vec<&str> = plan.subject.split(' ').take(2).collect();
        let name = flat(&words.join("/"));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.iter().map(|name| format!("{name}\n")).collect()
}

pub(super) fn text(previewed: &Previewed, output: Output) -> String {
    let mut text = String::new();
    for plan in &previewed.plans {
        plan_text(&mut text, plan, output);
    }
    for warning in &previewed.warnings {
        let _ = writeln!(
            text,
            "{}\n  {}: {} ({})",
            output.paint(Color::Bold, &flat(&warning.subject)),
            output.paint(Color::Yellow, "warning"),
            flat(&warning.message),
            warning.reason
        );
    }
    for unplanned in &previewed.unplanned {
        let _ = writeln!(
            text,
            "{}\n  {}: {}",
            output.paint(Color::Bold, &flat(&unplanned.subject)),
            output.paint(Color::Red, "not planned"),
            flat(&unplanned.error.to_string())
        );
    }
    for (controller, reason) in &previewed.skipped {
        let _ = writeln!(text, "{}", output.paint(Color::Dim, &format!("{controller} does not run: {reason}")));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&summary(previewed));
    text
}

fn plan_text(text: &mut String, plan: &Plan, output: Output) {
    let _ = writeln!(text, "{}", output.paint(Color::Bold, &flat(&plan.subject)));
    for step in &plan.steps {
        let _ = writeln!(text, "  {}", step_text(step, output));
        for change in &step.changes {
            let _ = writeln!(text, "      {}", flat(&change.to_string()));
        }
        let _ = writeln!(text, "      {}", output.paint(Color::Dim, &format!("because {}", flat(&step.reason))));
    }
    for finding in &plan.findings {
        let _ = writeln!(text, "  {}: {}", output.severity(finding.severity), flat(&finding.to_string()));
    }
}

/// `+ create LoadBalancer a [brief interruption]`
pub(super) fn step_text(step: &Step, output: Output) -> String {
    let (sign, color) = match step.verb {
        Verb::Create | Verb::Attach => ('+', Color::Green),
        Verb::Update => ('~', Color::Yellow),
        Verb::Delete | Verb::Detach => ('-', Color::Red),
    };
    let risk = match step.risk {
        Risk::None => "",
        Risk::Brief => " [brief interruption]",
        Risk::Disruptive => " [disruptive]",
    };
    output.paint(color, &format!("{sign} {} {} {}{risk}", step.verb.as_str(), step.kind, flat(&step.id)))
}

/// `3 writes (1 create, 2 update), 1 of them disruptive; 1 could not be planned.`
fn summary(previewed: &Previewed) -> String {
    let steps = || previewed.plans.iter().flat_map(|plan| &plan.steps);
    let verbs = [Verb::Create, Verb::Update, Verb::Delete, Verb::Attach, Verb::Detach];
    let count = |verb: Verb| steps().filter(|step| step.verb == verb).count();
    let counts: Vec<String> = verbs
        .into_iter()
        .filter(|verb| count(*verb) > 0)
        .map(|verb| format!("{} {}", count(verb), verb.as_str()))
        .collect();
    let mut text = match previewed.changes() {
        0 => "Nothing would be written".to_owned(),
        writes => format!("{} ({})", counted(writes, "write"), counts.join(", ")),
    };
    let disruptive = steps().filter(|step| step.risk == Risk::Disruptive).count();
    if disruptive > 0 {
        let _ = write!(text, ", {disruptive} of them disruptive");
    }
    if !previewed.unplanned.is_empty() {
        let _ = write!(text, "; {} could not be planned", previewed.unplanned.len());
    }
    text.push_str(".\n");
    text
}

pub(super) fn json(previewed: &Previewed) -> Value {
    let warnings = previewed.warnings.iter();
    json!({
        "changes": previewed.changes(),
        "plans": previewed.plans,
        "warnings": warnings
            .map(|w| json!({"subject": w.subject, "reason": w.reason, "message": w.message}))
            .collect::<Vec<_>>(),
        "unplanned": previewed.unplanned
            .iter()
            .map(|u| json!({"subject": u.subject, "error": u.error.to_string()}))
            .collect::<Vec<_>>(),
        "skipped": previewed.skipped
            .iter()
            .map(|(controller, reason)| json!({"controller": controller, "reason": reason}))
            .collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use ccm_runtime::SyncError;

    use super::*;

    #[test]
    fn what_stops_the_controller_stops_each_service() {
        let of = |subject: &str| {
            let error = SyncError::Terminal("cannot list endpointslices".into());
            Previewed { unplanned: vec![Unplanned { subject: subject.into(), error }], ..Previewed::default() }
        };
        let web = Scope::Service(ccm_provider::ServiceKey { namespace: "shop".into(), name: "web".into() });
        assert_eq!(of(SERVICES).within(&web).unplanned.len(), 1);
        assert_eq!(of("service shop/api").within(&web).unplanned.len(), 0);
        assert_eq!(of(SERVICES).within(&Scope::Node("a".into())).unplanned.len(), 0);
        let mut values = FlagValues::default();
        values.insert("namespace", vec!["shop".to_owned()], true);
        let kept = |scope: &Scope, subject: &str| of(subject).in_namespace(scope, &values).unplanned.len();
        assert_eq!((kept(&Scope::All, SERVICES), kept(&Scope::All, "node a")), (1, 0));
        assert_eq!(kept(&Scope::Node("a".into()), "node a"), 1, "the namespace is that of Services");
    }
}
