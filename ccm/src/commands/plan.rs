//! `ccm plan`: the writes that the controllers would make now, with reasons.

use ccm_provider::flag::{Flag, Kind};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::output::{Format, Output, flat};
use super::previewed::{self, Previewed};
use super::progress::Progress;
use super::world::World;
use super::{Call, Command, SECTION, kubeconfig, snapshot, target};
use crate::exit::{Failure, Verdict};

pub(super) const COMMAND: Command = Command {
    name: "plan",
    words: "[node/NAME | service/NAMESPACE/NAME | routes]",
    about: "Prints what the controllers would write now, and why. Covers the cluster and the cloud; writes nothing.",
    details: "\
Without an argument, plans for all objects of the enabled controllers. Changes made in the cloud by others (drift) are
included.

Exit codes: 0 nothing would be written, 2 something would be, 1 something could not be planned, 255 no provider.

  ccm plan --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm plan service/default/web -o json …
  ccm plan --from-snapshot ccm.json",
    flags: &[FROM_SNAPSHOT],
    namespace: &NAMESPACE,
    formats: &[Format::Name],
    like_running: true,
    run,
};

const NAMESPACE: Flag = kubeconfig::namespace_flag(
    "The namespace of a Service without one, by default that of the context. Without an argument: only the Services of this namespace.",
);

const FROM_SNAPSHOT: Flag = Flag::new(
    SECTION,
    "from-snapshot",
    Kind::Text,
    "",
    "Make the plan of this file, which `ccm snapshot` wrote, and not of a cluster: no connection, no cloud, no credentials. The flags are those of the snapshot. - is stdin.",
);

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let scope = target::scope(&call.words, &call.values)?;
        let path = call.values.text(FROM_SNAPSHOT.name);
        if call.values.given(FROM_SNAPSHOT.name) {
            let previewed = snapshot::replay(&call, &path, &scope).await?;
            return report(&previewed.in_namespace(&scope, &call.values), call.output);
        }
        let previewed = {
            let progress = Progress::at("reading the flags");
            let world = World::open(&call, &progress).await?;
            world.check(&scope)?;
            kubeconfig::check_namespace(&world.client, &call.values).await?;
            world.plan(&scope, &progress).await?
        };
        report(&previewed.in_namespace(&scope, &call.values), call.output)
    }
    .boxed()
}

fn report(previewed: &Previewed, output: Output) -> Result<Verdict, Failure> {
    super::deliver(&match output.format {
        Format::Json | Format::Yaml => output.document("Plan", previewed::json(previewed)),
        Format::Name => previewed::names(previewed),
        _ => previewed::text(previewed, output),
    })?;
    if output.format == Format::Name {
        for unplanned in &previewed.unplanned {
            super::eprint(&format!(
                "{}: not planned: {}",
                flat(&unplanned.subject),
                flat(&unplanned.error.to_string())
            ));
        }
    }
    match (previewed.unplanned.len(), previewed.changes()) {
        (0, 0) => Ok(Verdict::Clean),
        (0, _) => Ok(Verdict::Findings),
        (failed, _) => Err(Failure::error(format!("{failed} of the objects could not be planned"))),
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::{Change, Plan, Risk, Step, Verb};

    use super::*;

    /// The picture of the pages is made of this file.
    #[test]
    fn drift_on_a_terminal_looks_as_in_the_picture() {
        let step = |verb, id: &str, changes, reason: &str, risk| Step {
            verb,
            kind: "Listener".into(),
            id: id.into(),
            changes,
            reason: reason.into(),
            risk,
        };
        let port = Change { field: "port".into(), before: Some("8443".to_owned()), after: Some("443".to_owned()) };
        let plan = Plan::new("service shop/web")
            .with(step(Verb::Update, "web-tls", vec![port], "another client changed it", Risk::Brief))
            .with(step(
                Verb::Create,
                "web-http",
                Vec::new(),
                "the Service has port 80, and the listener is gone",
                Risk::None,
            ));
        let previewed = Previewed { plans: vec![plan], ..Previewed::default() };
        assert_eq!(previewed::text(&previewed, Output::picture()), include_str!("plan/drift.ansi"));
    }
}
