//! The acts.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::Tour;
use crate::view::text::count;
use crate::world::{Ready, State};

/// Services of the tour.
const WEB: &str = "default/web";
const API: &str = "default/api";
/// Steps of the plan for routes that are shown.
const STEPS: usize = 2;

impl Tour {
    fn names(&self) -> Result<(String, String)> {
        let names = self.scene.cloud.names();
        let pick = |index: usize| names.get(index.min(names.len() - 1)).cloned();
        pick(1).zip(pick(6)).context("the cloud has no machines")
    }

    /// Nodes join; the manager only plans.
    pub(super) async fn look_first(&mut self) -> Result<()> {
        let nodes = self.args.nodes;
        self.act(
            1,
            "A look first, with --dry-run",
            format!(
                "{} are switched on in the cloud. Their kubelets (played by the demo) register Nodes with the taint \
                 \"uninitialized\": no pod may run there before a cloud-controller-manager has asked the cloud about them. Two \
                 Services want load balancers. First the manager runs with --dry-run: it plans everything and writes nothing.",
                count(nodes, "machine")
            ),
        );
        let pace = self.pace;
        let feed = self.feed.clone();
        self.scene.start_kubelets(&feed, pace);
        self.until("all machines register a Node", |state| (state.nodes.len() == nodes).then_some(())).await?;
        self.pause(0.3).await;
        self.does(format!("creates two Services of type LoadBalancer, {WEB} and {API}"));
        self.create_service("web", 80)?;
        self.create_service("api", 443)?;
        self.start_manager(true).await?;
        let planned = |state: &State| {
            let whole = state.plans.keys().filter(|subject| subject.starts_with("node ")).count() >= nodes;
            let services = [WEB, API].iter().all(|key| state.plans.contains_key(&format!("service {key}")));
            let first = state.nodes.keys().next().cloned().unwrap_or_default();
            (whole && services && state.plans.contains_key("routes")).then(|| (state.plans.clone(), first))
        };
        let (plans, first) = self.until("a plan for each node, each Service and the routes", planned).await?;
        let plan = |subject: &str| plans.get(subject).cloned().unwrap_or_default();
        self.block(format!("plan for node {first} (and alike for the others):"), plan(&format!("node {first}")));
        self.block(format!("plan for Service {WEB}:"), plan(&format!("service {WEB}")));
        let mut routes = plan("routes");
        let more = routes.len().saturating_sub(STEPS);
        routes.truncate(STEPS);
        routes.push(format!("… and {more} more"));
        self.block("plan for the routes:", routes);
        let written = self.writes().objects;
        let changes = self.scene.world.look(|state| state.calls.changes);
        if written > 0 || changes > 0 {
            bail!(
                "a dry run must write nothing, but there were {written} writes to the cluster and {changes} to the cloud"
            );
        }
        self.result(format!(
            "Planned: {}, 2 Services, {}. Written to Nodes, Services or the cloud: nothing. (The plans are also events: kubectl \
             describe shows them.)",
            count(nodes, "node"),
            count(more + STEPS.min(nodes), "route")
        ));
        self.pause(1.5).await;
        self.stop_manager().await
    }

    /// The same without `--dry-run`.
    pub(super) async fn for_real(&mut self) -> Result<()> {
        let nodes = self.args.nodes;
        self.act(
            2,
            "For real",
            "The same manager without --dry-run. It asks the cloud about all nodes at once, removes their taints, sets provider \
             IDs, labels and addresses, makes a route to the pods of each node and a load balancer for each Service. (The periods \
             are shorter than the defaults of 5s and 10s, so that you need not wait.)"
                .to_owned(),
        );
        let began = Instant::now();
        self.start_manager(false).await?;
        let initialized = |state: &State| {
            (state.count(|node| !node.uninitialized && !node.provider_id.is_empty()) == nodes).then_some(())
        };
        self.until("every node is initialized", initialized).await?;
        self.told.initialized_after = began.elapsed();
        let addressed = |state: &State| {
            let is = |key: &&str| state.services.get(*key).is_some_and(|service| !service.address.is_empty());
            ([WEB, API].iter().all(is) && state.hosts(WEB) == Some(nodes)).then_some(())
        };
        self.until("both Services have an address and all nodes as hosts", addressed).await?;
        let routed =
            |state: &State| (state.count(|node| node.routed) == nodes && state.routes.len() == nodes).then_some(());
        self.until("every node has a route", routed).await?;
        self.until("every node is Ready", |state| (state.count(|n| n.ready == Ready::True) == nodes).then_some(()))
            .await?;
        let took = began.elapsed();
        let (example, addresses) = self.scene.world.look(|state| {
            let address = |key: &str| state.services.get(key).map(|s| s.address.clone()).unwrap_or_default();
            (state.nodes.values().next().cloned(), [address(WEB), address(API)])
        });
        if let Some(node) = example {
            let lines = vec![
                format!("spec.providerID: {}   spec.podCIDR: {}", node.provider_id, node.pod_cidr),
                format!("labels: instance-type={} zone={}", node.instance_type, node.zone),
                format!("status.addresses: {}", node.addresses.join(" ")),
            ];
            self.block(format!("node {} now:", node.name), lines);
        }
        self.told.services = 2;
        let [web, api] = addresses;
        self.result(format!(
            "{} initialized, routed and Ready after {:.1}s; {WEB} has {web}, {API} has {api}.",
            count(nodes, "node"),
            took.as_secs_f64()
        ));
        self.pause(1.5).await;
        Ok(())
    }

    /// A machine goes; its Node follows.
    pub(super) async fn terminated(&mut self) -> Result<()> {
        let (victim, _) = self.names()?;
        let left = self.args.nodes - 1;
        self.act(
            3,
            "A machine is terminated",
            format!(
                "Somebody terminates {victim} in the cloud. Its kubelet falls silent and the Node turns Unknown. That alone is no \
                 reason to delete it. The manager asks the cloud, and the cloud says clearly that the machine does not exist: now \
                 the Node goes, and with it the route and the place behind the load balancers."
            ),
        );
        let edit = self.scene.cloud.terminate(&victim)?;
        self.does(format!("edits cloud.yaml: {victim} gets \"{edit}\""));
        self.until(&format!("Node {victim} is deleted"), |state| (!state.nodes.contains_key(&victim)).then_some(()))
            .await?;
        let gone = |state: &State| {
            let hosts = [WEB, API].iter().all(|key| state.hosts(key) == Some(left));
            (hosts && state.routes.len() == left && !state.routes.values().any(|node| *node == victim)).then_some(())
        };
        self.until(&format!("{victim} leaves the load balancers and the routes"), gone).await?;
        self.told.deleted.push(victim.clone());
        self.result(format!(
            "{victim} was deleted on evidence. The balancers have {}, the cloud has {}.",
            count(left, "host"),
            count(left, "route")
        ));
        self.pause(1.0).await;
        Ok(())
    }

    /// The cloud cannot tell; the Node stays.
    pub(super) async fn cannot_tell(&mut self) -> Result<()> {
        let (_, silent) = self.names()?;
        self.act(
            4,
            "The cloud cannot tell",
            format!(
                "Now {silent} is cut off the network, and at the same time the cloud fails to answer for it. It looks just as bad \
                 as before: Ready=Unknown, and the look-up brings no machine. But \"could not tell\" is not \"gone\". A manager that \
                 mixes the two deletes healthy nodes whenever the cloud's API has a bad day. This one keeps the Node."
            ),
        );
        let fault = self.scene.cloud.fail(&silent, "503 Service Unavailable")?;
        self.does(format!("adds a fault to cloud.yaml: {fault}"));
        self.scene.cut_off.set(&silent, true);
        self.does(format!("cuts {silent} off the network"));
        let unknown = |state: &State| state.nodes.get(&silent).is_some_and(|node| node.ready == Ready::Unknown);
        self.until(&format!("{silent} turns Unknown"), |state| unknown(state).then_some(())).await?;
        let asked = |state: &State| state.calls.unknown.get(&silent).copied().unwrap_or_default();
        let (before, doubts) = (self.scene.world.look(asked), self.pace.doubts);
        let again = |state: &State| (asked(state) >= before + doubts).then_some(());
        self.until(&format!("the manager asks the cloud {doubts} times about {silent}"), again).await?;
        let hosts = self.args.nodes - 1;
        let (kept, behind) =
            self.scene.world.look(|state| (state.nodes.contains_key(&silent), state.hosts(WEB) == Some(hosts)));
        if !kept || !behind {
            bail!("{silent} must not be deleted while the cloud cannot tell, but it left the cluster or the balancers");
        }
        let asked = self.scene.world.look(asked);
        self.result(format!(
            "{silent} is kept: asked {asked} times, no answer is no evidence. It also stays behind the load balancers, whose health \
             checks decide about traffic."
        ));
        self.told.kept.push((silent.clone(), asked));
        self.pause(0.7).await;
        self.scene.cloud.recover()?;
        self.scene.cut_off.set(&silent, false);
        self.does(format!("removes the fault and connects {silent} again"));
        let ready = |state: &State| state.nodes.get(&silent).is_some_and(|node| node.ready == Ready::True);
        self.until(&format!("{silent} is Ready again"), |state| ready(state).then_some(())).await?;
        self.result(format!("{silent} is Ready again, and nothing was lost."));
        self.pause(0.7).await;
        Ok(())
    }

    /// A Service goes, but not before its balancer.
    pub(super) async fn service_deleted(&mut self) -> Result<()> {
        self.act(
            5,
            "A Service is deleted",
            format!(
                "The demo deletes {API}, as kubectl delete would. The finalizer holds the Service until the manager has removed its \
                 load balancer, so that nobody pays for a balancer that nobody knows of."
            ),
        );
        self.does(format!("deletes Service {API}"));
        let deleted = self.scene.store().delete("services", "default", "api");
        deleted.map_err(|error| anyhow!("cannot delete {API}: {}", error.message))?;
        let gone =
            |state: &State| (!state.services.contains_key(API) && !state.balancers.contains_key(API)).then_some(());
        self.until(&format!("{API} and its load balancer are gone"), gone).await?;
        self.told.services_deleted = 1;
        self.result(format!("The load balancer went first, then {API}. {WEB} keeps its address."));
        self.pause(1.0).await;
        Ok(())
    }
}
