//! `ccm plan`: what the controllers would write now, and why.

use std::fmt::Write as _;

use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{Plan, Risk, Step, Verb};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::output::{self, Colour, Format, Output, flat};
use super::progress::Progress;
use super::world::{Surveyed, World};
use super::{Call, Command, SECTION, snapshot, target};
use crate::exit::{Failure, Verdict};

pub(super) const COMMAND: Command = Command {
    name: "plan",
    words: "[node/NAME | service/NAMESPACE/NAME | routes]",
    about: "Prints what the controllers would write now, to the cluster and to the cloud, and why. Writes nothing.",
    details: "\
Without a word, everything that the switched-on controllers look after. What the cloud has that no object asked for
to change is drift, and shows here too.

Exit codes: 0 nothing would be written, 2 something would be, 1 something could not be planned, 255 no provider.

  ccm plan --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf --kubeconfig=$HOME/.kube/config
  ccm plan service/default/web -o json …
  ccm plan --from-snapshot ccm.json",
    flags: &[FROM_SNAPSHOT],
    formats: &[],
    run,
};

const FROM_SNAPSHOT: Flag = Flag::new(
    SECTION,
    "from-snapshot",
    Kind::Text,
    "",
    "Make the plan of this file, which `ccm snapshot` wrote, and not of a cluster: no connection, no cloud, no credentials. The flags are those of the snapshot. - is stdin.",
);

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let scope = target::scope(&call.words)?;
        let path = call.values.text(FROM_SNAPSHOT.name);
        if call.values.given(FROM_SNAPSHOT.name) {
            let surveyed = snapshot::replay(&call, &path, &scope).await?;
            return report(&surveyed, call.output);
        }
        let surveyed = {
            let progress = Progress::at("reading the flags");
            let world = World::open(&call, &progress).await?;
            world.check(&scope)?;
            world.plan(&scope, &progress).await?
        };
        report(&surveyed, call.output)
    }
    .boxed()
}

/// Prints the result and decides how the command ends.
pub(super) fn report(surveyed: &Surveyed, output: Output) -> Result<Verdict, Failure> {
    super::deliver(&match output.format {
        Format::Json => output::document("Plan", json(surveyed)),
        Format::Text | Format::Github => text(surveyed, output),
    })?;
    match (surveyed.unplanned.len(), surveyed.changes()) {
        (0, 0) => Ok(Verdict::Clean),
        (0, _) => Ok(Verdict::Findings),
        (failed, _) => Err(Failure::error(format!("{failed} of the objects could not be planned"))),
    }
}

fn text(surveyed: &Surveyed, output: Output) -> String {
    let mut text = String::new();
    for plan in &surveyed.plans {
        plan_text(&mut text, plan, output);
    }
    for warning in &surveyed.warnings {
        let _ = writeln!(
            text,
            "{}\n  {}: {} ({})",
            output.paint(Colour::Bold, &flat(&warning.subject)),
            output.paint(Colour::Yellow, "warning"),
            flat(&warning.message),
            warning.reason
        );
    }
    for unplanned in &surveyed.unplanned {
        let _ = writeln!(
            text,
            "{}\n  {}: {}",
            output.paint(Colour::Bold, &flat(&unplanned.subject)),
            output.paint(Colour::Red, "not planned"),
            flat(&unplanned.error.to_string())
        );
    }
    for (controller, reason) in &surveyed.skipped {
        let _ = writeln!(text, "{}", output.paint(Colour::Dim, &format!("{controller} does not run: {reason}")));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&summary(surveyed));
    text
}

fn plan_text(text: &mut String, plan: &Plan, output: Output) {
    let _ = writeln!(text, "{}", output.paint(Colour::Bold, &flat(&plan.subject)));
    for step in &plan.steps {
        let _ = writeln!(text, "  {}", step_text(step, output));
        for change in &step.changes {
            let _ = writeln!(text, "      {}", flat(&change.to_string()));
        }
        let _ = writeln!(text, "      {}", output.paint(Colour::Dim, &format!("because {}", flat(&step.reason))));
    }
    for finding in &plan.findings {
        let _ = writeln!(text, "  {}: {}", output.severity(finding.severity), flat(&finding.to_string()));
    }
}

/// `+ create LoadBalancer a [brief interruption]`
pub(super) fn step_text(step: &Step, output: Output) -> String {
    let (sign, colour) = match step.verb {
        Verb::Create | Verb::Attach => ('+', Colour::Green),
        Verb::Update => ('~', Colour::Yellow),
        Verb::Delete | Verb::Detach => ('-', Colour::Red),
    };
    let risk = match step.risk {
        Risk::None => "",
        Risk::Brief => " [brief interruption]",
        Risk::Disruptive => " [disruptive]",
    };
    output.paint(colour, &format!("{sign} {} {} {}{risk}", step.verb.as_str(), step.kind, flat(&step.id)))
}

/// `3 writes (1 create, 2 update) in 2 plans`
fn summary(surveyed: &Surveyed) -> String {
    let steps = || surveyed.plans.iter().flat_map(|plan| &plan.steps);
    let verbs = [Verb::Create, Verb::Update, Verb::Delete, Verb::Attach, Verb::Detach];
    let count = |verb: Verb| steps().filter(|step| step.verb == verb).count();
    let counts: Vec<String> = verbs
        .into_iter()
        .filter(|verb| count(*verb) > 0)
        .map(|verb| format!("{} {}", count(verb), verb.as_str()))
        .collect();
    let mut text = match surveyed.changes() {
        0 => "Nothing would be written".to_owned(),
        1 => format!("1 write ({})", counts.join(", ")),
        writes => format!("{writes} writes ({})", counts.join(", ")),
    };
    let disruptive = steps().filter(|step| step.risk == Risk::Disruptive).count();
    if disruptive > 0 {
        let _ = write!(text, ", {disruptive} of them disruptive");
    }
    if !surveyed.unplanned.is_empty() {
        let _ = write!(text, "; {} could not be planned", surveyed.unplanned.len());
    }
    text.push_str(".\n");
    text
}

pub(super) fn json(surveyed: &Surveyed) -> Value {
    let warnings = surveyed.warnings.iter();
    json!({
        "changes": surveyed.changes(),
        "plans": surveyed.plans,
        "warnings": warnings
            .map(|w| json!({"subject": w.subject, "reason": w.reason, "message": w.message}))
            .collect::<Vec<_>>(),
        "unplanned": surveyed.unplanned
            .iter()
            .map(|u| json!({"subject": u.subject, "error": u.error.to_string()}))
            .collect::<Vec<_>>(),
        "skipped": surveyed.skipped
            .iter()
            .map(|(controller, reason)| json!({"controller": controller, "reason": reason}))
            .collect::<Vec<_>>(),
    })
}
