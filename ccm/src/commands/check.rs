//! `ccm check`: whether the installation works, in one word; `ccm check --pre`: whether it would.

use std::sync::Arc;

use ccm_controllers::persistent_volume::REFUSED;
use ccm_controllers::preview::Scope;
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Check, Clock, ErrorClass, Fact, FactState, Node, NodeRef, Service, Severity};
use ccm_runtime::clock::timestamp;
use ccm_runtime::store::FieldFilter;
use ccm_runtime::{Client, SystemClock, election};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::migrate_check::Granted;
use super::output::counted;
use super::previewed::Previewed;
use super::progress::Progress;
use super::world::{World, list};
use super::{Call, Command, SECTION, explain, migrate_check};
use crate::exit::{Exit, Failure, Verdict};
use crate::options::Options;

const PRE: Flag = Flag::new(
    SECTION,
    "pre",
    Kind::Bool,
    "false",
    "Before the installation: what would break or change, as migrate-check reports it.",
);

const EXPLAIN: &str = "see ccm explain";

pub(super) const COMMAND: Command = Command {
    name: "check",
    words: "",
    about: "Checks whether the installation works: leader, nodes, Services, permissions. Writes nothing.",
    details: "\
Exit codes: 0 no error and no warning, 2 some, 1 could not check, 255 no such provider.

  ccm check --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm check --pre …               before the installation
  kubectl ccm check               with the flags of the installation",
    flags: &[PRE, migrate_check::ACCOUNT, migrate_check::RBAC, migrate_check::SUPPRESS],
    namespace: &migrate_check::NAMESPACE,
    formats: &[],
    like_running: true,
    run,
};

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        if !call.words.is_empty() {
            return Err(Failure::error(format!("check takes no arguments, got {:?}", call.words.join(" "))));
        }
        if call.values.bool(PRE.name) {
            return (migrate_check::COMMAND.run)(call).await;
        }
        let granted = Granted::read(&call.values)?;
        let checks = {
            let progress = Progress::at("reading the flags");
            match World::open(&call, &progress).await {
                Ok(world) => look(&call, &world, &granted, &progress).await?,
                Err(failure) if failure.exit == Exit::Fatal => without_provider(&call, failure, &progress).await?,
                Err(failure) => return Err(failure),
            }
        };
        migrate_check::report("Check", migrate_check::sorted(checks), &call)
    }
    .boxed()
}

/// What the cluster shows where the provider does not start, for example because the cloud refuses the login.
async fn without_provider(call: &Call, failure: Failure, progress: &Progress) -> Result<Vec<Check>, Failure> {
    let (options, client) = World::reach(call, progress).await?;
    let provider = migrate_check::provider_fails(call, &options, &client, failure)?;
    progress.go_on("listing nodes and Services");
    let listed = list::<Node>(&client, FieldFilter::default()).await?.list();
    let all = list::<Service>(&client, FieldFilter::default()).await?.list();
    Ok(vec![provider, lease(&options, &client, &SystemClock).await, nodes(&listed), services(&all)])
}

async fn look(call: &Call, world: &World, granted: &Granted, progress: &Progress) -> Result<Vec<Check>, Failure> {
    progress.go_on("reading the lease");
    let mut checks = vec![lease(&world.options, &world.client, &*world.shared.clock).await];
    checks.push(nodes(&world.shared.nodes.list()));
    progress.go_on("planning");
    let previewed = world.plan(&Scope::All, progress).await?;
    checks.push(services(&world.shared.services.list()));
    checks.extend(plans(&previewed));
    progress.go_on("checking permissions");
    checks.extend(migrate_check::permissions(call, world, &previewed, granted).await);
    Ok(checks)
}

/// Whether a replica leads.
async fn lease(options: &Options, client: &Client, clock: &dyn Clock) -> Check {
    let Some(own) = &options.election else {
        return Check::good("leader", "", "--leader-elect=false: there is no lease that shows a leader");
    };
    let label = format!("{}/{}", own.namespace, own.name);
    let seen = election::look(client, &own.namespace, &own.name).await;
    let now = timestamp(clock.wall());
    match explain::lease(&label, seen, own.lease_duration, now) {
        Ok(fact) => of_fact("leader", &fact),
        Err(text) => Check::warning("leader", "", text, "grant it, then check again"),
    }
}

fn of_fact(code: &str, fact: &Fact) -> Check {
    let fix = fact.hint.clone().unwrap_or_default();
    match fact.state {
        FactState::Good => Check::good(code, &*fact.about, fact.text.clone()),
        FactState::Waiting => Check::warning(code, &*fact.about, fact.text.clone(), fix),
        FactState::Bad => Check::error(code, &*fact.about, fact.text.clone(), fix),
    }
}

/// Whether all nodes are initialized.
fn nodes(nodes: &[NodeRef]) -> Check {
    let waiting: Vec<&str> =
        nodes.iter().filter(|node| node.has_taint(TAINT_UNINITIALIZED)).map(|node| node.name.as_str()).collect();
    match waiting.first() {
        None => Check::good("nodes", "", format!("none of {} waits for its initialization", nodes.len())),
        Some(first) => Check::warning(
            "nodes",
            migrate_check::joined(&waiting),
            format!("{} of {} wait for their initialization", waiting.len(), nodes.len()),
            format!("ccm explain node/{first}"),
        ),
    }
}

/// Whether all load balancers have an address. Services of other controllers are not counted.
fn services(services: &[Arc<Service>]) -> Check {
    let ours =
        services.iter().filter(|service| service.is_load_balancer() && service.spec.load_balancer_class.is_none());
    let (mut all, mut waiting) = (0, Vec::new());
    for service in ours {
        all += 1;
        if service.status.load_balancer.ingress.is_empty() {
            waiting.push(service.key().to_string());
        }
    }
    match waiting.first() {
        None => Check::good("services", "", format!("none of {all} waits for an address")),
        Some(first) => Check::warning(
            "services",
            migrate_check::joined(&waiting),
            format!("{} of {all} without an address yet", waiting.len()),
            format!("ccm explain service/{first}"),
        ),
    }
}

/// What the controllers cannot plan, or would still write.
fn plans(previewed: &Previewed) -> Vec<Check> {
    let failed = previewed.unplanned.iter().map(|unplanned| {
        let fix = unplanned.error.class().map_or_else(|| EXPLAIN.to_owned(), ErrorClass::remediation);
        Check::error("plan", &*unplanned.subject, unplanned.error.to_string(), fix)
    });
    let warned = previewed.warnings.iter().map(|w| Check::warning("plan", &*w.subject, w.message.clone(), EXPLAIN));
    let in_plans = previewed.plans.iter().flat_map(|plan| plan.findings.iter().map(move |finding| (plan, finding)));
    let found = in_plans.filter(|(_, finding)| finding.severity > Severity::Info).map(|(plan, finding)| Check {
        severity: finding.severity,
        ..Check::warning("plan", &*plan.subject, finding.to_string(), EXPLAIN)
    });
    let refused = previewed.skipped.iter().filter(|(_, reason)| reason.starts_with(REFUSED));
    let unseen = refused.map(|(controller, reason)| Check::good("plan", *controller, format!("not planned: {reason}")));
    let mut checks: Vec<Check> = failed.chain(warned).chain(found).chain(unseen).collect();
    match previewed.changes() {
        0 => checks.push(Check::good("drift", "", "nothing would be written")),
        writes => checks.push(Check::warning(
            "drift",
            "",
            format!("{} due: the leader has not made them yet, or others changed the cloud", counted(writes, "write")),
            "ccm plan shows them",
        )),
    }
    checks
}

#[cfg(test)]
mod tests {
    use ccm_provider::Taint;

    use super::*;

    #[test]
    fn a_node_or_service_that_waits_is_named_with_the_command_that_explains_it() {
        let mut node = Node { name: "a".into(), ..Node::default() };
        assert_eq!(nodes(&[Arc::new(node.clone())]).severity, Severity::Info);
        let key = TAINT_UNINITIALIZED.into();
        let taint = Taint { key, value: "".into(), effect: "NoSchedule".into(), time_added: None };
        node.taints = std::iter::once(taint).collect();
        let found = nodes(&[Arc::new(node)]);
        assert_eq!((found.severity, &*found.fix), (Severity::Warning, "ccm explain node/a"));
        assert_eq!(services(&[]).message, "none of 0 waits for an address");
    }

    #[test]
    fn writes_that_are_due_are_drift() {
        let checks = plans(&Previewed::default());
        assert_eq!((checks.len(), &*checks[0].check, checks[0].severity), (1, "drift", Severity::Info));
    }
}
