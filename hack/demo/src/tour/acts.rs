//! The acts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ccm_test_apiserver::Patch;
use serde_json::json;

use super::Tour;
use crate::text::count;
use crate::world::{Ready, State};

const WEB: &str = "default/web";
const API: &str = "default/api";
/// The number of shown steps of a plan.
const SERVICE_STEPS: usize = 8;
const ROUTE_STEPS: usize = 2;
const EXTRA: u16 = 8080;

impl Tour {
    fn names(&self) -> Result<(String, String)> {
        let names = self.scene.cloud.names();
        let pick = |index: usize| names.get(index.min(names.len() - 1)).cloned();
        pick(1).zip(pick(6)).context("the cloud has no machines")
    }

    pub(super) async fn look_first(&mut self, number: usize) -> Result<()> {
        let nodes = self.args.nodes;
        self.act(
            number,
            "A look first, with --dry-run",
            format!(
                "{} are started in the cloud. Their kubelets (played by the demo) register Nodes with the taint \
                 \"uninitialized\": no pod may run there before a cloud-controller-manager has initialized them. Two \
                 Services ask for load balancers. First the manager runs with --dry-run: it plans everything and writes nothing.",
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
        for key in [WEB, API] {
            self.block(format!("plan for Service {key}:"), cut(SERVICE_STEPS, plan(&format!("service {key}"))));
        }
        let routes = plan("routes");
        let made = routes.iter().filter(|step| step.contains("create Route")).count();
        self.block("plan for the routes:", cut(ROUTE_STEPS, routes));
        let writes = self.writes();
        let written = writes.objects + writes.conflicts + writes.notes;
        let changes = self.scene.world.look(|state| state.calls.changes);
        if written > 0 || changes > 0 {
            bail!(
                "a dry run must write nothing, but there were {written} writes to the cluster and {changes} to the cloud"
            );
        }
        self.result(format!(
            "Planned: {}, 2 Services, {}. Written to the cluster or the cloud: nothing, not even a lease or an event.",
            count(nodes, "node"),
            count(made, "route")
        ));
        self.pause(1.5).await;
        self.stop_manager().await
    }

    pub(super) async fn for_real(&mut self, number: usize) -> Result<()> {
        let nodes = self.args.nodes;
        self.act(
            number,
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
        self.findings.initialized_after = began.elapsed();
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
        self.settled().await?;
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
        self.findings.services = 2;
        let [web, api] = addresses;
        self.result(format!(
            "{} initialized, routed and Ready after {:.1}s; {WEB} has {web}, {API} has {api}.",
            count(nodes, "node"),
            took.as_secs_f64()
        ));
        self.pause(1.5).await;
        Ok(())
    }

    pub(super) async fn terminated(&mut self, number: usize) -> Result<()> {
        let (victim, _) = self.names()?;
        let left = self.args.nodes - 1;
        self.act(
            number,
            "A machine is terminated",
            format!(
                "{victim} is terminated in the cloud. Its kubelet stops sending heartbeats, and the Node becomes \
                 Unknown. That alone is not a reason to delete it. The manager looks the machine up, and the cloud \
                 answers that it does not exist: only now the Node is deleted, with its route and its place behind \
                 the load balancers."
            ),
        );
        self.does(self.scene.cloud.terminate(&victim)?);
        self.until(&format!("Node {victim} is deleted"), |state| (!state.nodes.contains_key(&victim)).then_some(()))
            .await?;
        let gone = |state: &State| {
            let hosts = [WEB, API].iter().all(|key| state.hosts(key) == Some(left));
            (hosts && state.routes.len() == left && !state.routes.values().any(|node| *node == victim)).then_some(())
        };
        self.until(&format!("{victim} leaves the load balancers and the routes"), gone).await?;
        self.settled().await?;
        self.findings.deleted.push(victim.clone());
        self.result(format!(
            "{victim} was deleted on evidence. The load balancers have {}, the cloud has {}.",
            count(left, "host"),
            count(left, "route")
        ));
        self.pause(1.0).await;
        Ok(())
    }

    pub(super) async fn cannot_tell(&mut self, number: usize) -> Result<()> {
        let (_, silent) = self.names()?;
        self.act(
            number,
            self.scene.cloud.profile().doubt,
            format!(
                "Now {silent} loses its network, and at the same time {}. The symptoms are the same as before: \
                 Ready=Unknown, and the lookup finds no machine. But an error is not the answer \"gone\". A manager \
                 that confuses the two deletes healthy nodes during each outage of the cloud's API. This one keeps \
                 the Node.",
                self.scene.cloud.profile().cause
            ),
        );
        self.does(self.scene.cloud.fail(&silent)?);
        self.scene.world.change(|state| state.cut_off = Some(silent.clone()));
        self.does(format!("cuts {silent} off the network"));
        let unknown = |state: &State| state.nodes.get(&silent).is_some_and(|node| node.ready == Ready::Unknown);
        self.until(&format!("{silent} turns Unknown"), |state| unknown(state).then_some(())).await?;
        let asked = |state: &State| state.calls.doubts(&silent);
        let (before, doubts) = (self.scene.world.look(asked), self.pace.doubts);
        let again = |state: &State| (asked(state) >= before + doubts).then_some(());
        self.until(&format!("the manager asks the cloud {doubts} times about {silent}"), again).await?;
        let hosts = self.args.nodes - 1;
        let (kept, behind) =
            self.scene.world.look(|state| (state.nodes.contains_key(&silent), state.hosts(WEB) == Some(hosts)));
        if !kept || !behind {
            bail!(
                "{silent} must not be deleted while the cloud gives no answer, but it left the cluster or the \
                   load balancers"
            );
        }
        let asked = self.scene.world.look(asked) - before;
        self.result(format!(
            "{silent} is kept: {asked} lookups without an answer are not evidence. It also stays behind the load \
             balancers, whose health \
             checks decide about traffic."
        ));
        self.findings.kept.push((silent.clone(), asked));
        self.pause(0.7).await;
        self.does(format!("{} and connects {silent} again", self.scene.cloud.recover()?));
        self.scene.world.change(|state| state.cut_off = None);
        let ready = |state: &State| state.nodes.get(&silent).is_some_and(|node| node.ready == Ready::True);
        self.until(&format!("{silent} is Ready again"), |state| ready(state).then_some(())).await?;
        self.result(format!("{silent} is Ready again, and nothing was lost."));
        self.pause(0.7).await;
        Ok(())
    }

    pub(super) async fn changed(&mut self, number: usize) -> Result<()> {
        self.act(
            number,
            "The Services change",
            "Both Services get a second port. The manager compares the desired state with the observed one, and \
             changes only the difference: a listener and its parts."
                .to_owned(),
        );
        self.does(format!("adds port {EXTRA} to {WEB} and {API}"));
        for name in ["web", "api"] {
            let added = json!({"spec": {"ports": [super::port_of("extra", EXTRA)]}});
            let changed = self.scene.store().patch("services", "default", name, &Patch::Strategic(added));
            changed.map_err(|error| anyhow!("cannot change {name}: {}", error.message))?;
        }
        let listens = |state: &State| {
            let is = |key: &&str| state.balancers.get(*key).is_some_and(|one| one.ports.contains(&EXTRA));
            let full = |key: &&str| state.hosts(key) == Some(state.nodes.len());
            ([WEB, API].iter().all(is) && [WEB, API].iter().all(full)).then_some(())
        };
        self.until("both load balancers listen on the new port", listens).await?;
        self.settled().await?;
        self.result(format!(
            "Both listen on {EXTRA} too. Their addresses are the same, and no other listener was touched."
        ));
        self.pause(1.0).await;
        Ok(())
    }

    pub(super) async fn restarted(&mut self, number: usize) -> Result<()> {
        self.act(
            number,
            "A restart",
            "The manager is stopped, and a new one is started. It reads the current state, finds it as desired, and \
             writes nothing: neither to the cloud nor to the cluster. The same holds for objects that the Go program \
             created."
                .to_owned(),
        );
        self.stop_manager().await?;
        // Its last calls are not counted yet.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let (calls, writes) = (self.calls(), self.writes());
        self.start_manager(false).await?;
        let names = self.scene.cloud.profile().known_after;
        let asked = |state: &State| names.iter().all(|name| state.calls.reads(name) > calls.reads(name)).then_some(());
        self.until("the new manager has read everything", asked).await?;
        tokio::time::sleep(self.pace.quiet).await;
        let (now, written) = (self.calls(), self.writes().objects - writes.objects);
        let changes = now.changes - calls.changes;
        if changes > 0 || written > 0 {
            let made = now.since(&calls).join("; ");
            bail!(
                "a restart must write nothing, but there were {written} writes to the cluster, and to the cloud: {made}"
            );
        }
        self.result(format!(
            "Written to the cloud, to Nodes and to Services: nothing. It needed only {}.",
            count(usize::try_from(now.all - calls.all).unwrap_or(usize::MAX), "read")
        ));
        self.pause(1.0).await;
        Ok(())
    }

    pub(super) async fn deleted(&mut self, number: usize) -> Result<()> {
        let leaving = self.scene.cloud.profile().leaving;
        let keys: Vec<String> = leaving.iter().map(|name| format!("default/{name}")).collect();
        let (names, all) = (keys.join(" and "), keys.len() > 1);
        self.act(
            number,
            if all { "The Services are deleted" } else { "A Service is deleted" },
            format!(
                "The demo deletes {names}, as kubectl delete would. The finalizer holds a Service until the manager has removed its \
                 load balancer, so that no load balancer leaks."
            ),
        );
        self.does(format!("deletes Service {names}"));
        for name in leaving {
            let deleted = self.scene.store().delete("services", "default", name);
            deleted.map_err(|error| anyhow!("cannot delete {name}: {}", error.message))?;
        }
        let is_gone =
            |state: &State, key: &String| !state.services.contains_key(key) && !state.balancers.contains_key(key);
        let gone = |state: &State| keys.iter().all(|key| is_gone(state, key)).then_some(());
        self.until(&format!("{names} and what was made for them is gone"), gone).await?;
        self.findings.services_deleted = leaving.len();
        if all {
            let left = self.scene.cloud.left_of_balancers();
            if !left.is_empty() {
                bail!("all parts of the load balancers must be deleted, but these remain: {}", left.join(", "));
            }
            self.result(format!(
                "The load balancers went first, then {names}. No {} of theirs is left.",
                self.scene.cloud.profile().parts
            ));
        } else {
            self.result(format!("The load balancer went first, then {names}. {WEB} keeps its address."));
        }
        self.pause(1.0).await;
        Ok(())
    }
}

/// The first steps of a plan, and the number of the others.
fn cut(most: usize, mut steps: Vec<String>) -> Vec<String> {
    let more = steps.len().saturating_sub(most);
    steps.truncate(most);
    steps.extend((more > 0).then(|| format!("… and {more} more")));
    steps
}
