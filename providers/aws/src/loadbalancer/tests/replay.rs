//! An observation gives the same plan in another process: for states of both kinds, with refusals and findings.

use ccm_kit::balancer::Engine;
use ccm_provider::{LoadBalancerExt as _, Plan as Printed, ServiceAction};

use super::super::wanted;
use super::scene::{Asked, Scene, clb, nlb};
use super::*;
use crate::annotations::INTERNAL;
use crate::client::Tags;
use crate::inspect::replay;
use crate::loadbalancer::claim::Marks;
use crate::start::config::SharedProbe;

/// The changes of a state, in addition to those of its Service.
#[derive(Debug, Clone, Copy)]
struct Odd {
    /// No route table has a route to the internet.
    unrouted: bool,
    /// Balancers and target groups have lost their tags.
    unmarked: bool,
    /// AWS may not show all writes yet.
    unsettled: bool,
    /// The instances of the nodes are not found.
    lost: bool,
}

/// One observation.
struct Seen {
    balancers: Balancers,
    observed: Observed,
    odd: Odd,
}

impl BalancerCloud for Seen {
    type Wanted = Vec<Wanted>;
    type Observed = Vec<Observation>;
    type Write = Step;
    type Made = Mutex<Outputs>;

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Vec<Wanted>, Vec<Result<(), ProviderError>>) {
        self.balancers.wanted(cluster, work)
    }

    async fn observe(
        &self,
        _: &str,
        _: &[ServiceWork],
        wanted: &Vec<Wanted>,
    ) -> Result<Vec<Observation>, ProviderError> {
        let seen = |desired: &Wanted| {
            let unsettled =
                (self.odd.unsettled && matches!(desired.goal, Goal::Absent)).then_some(Duration::from_secs(7));
            Observation {
                observed: written_on(odd(self.observed.clone(), self.odd)),
                unsettled,
                instance_recheck: None,
            }
        };
        Ok(wanted.iter().map(seen).collect())
    }

    fn strip(&self, observed: &mut Vec<Observation>, wanted: &Vec<Wanted>) {
        self.balancers.strip(observed, wanted);
    }

    fn plan(&self, observed: &Vec<Observation>, wanted: &Vec<Wanted>) -> Result<Plan<Step>, ProviderError> {
        self.balancers.plan(observed, wanted)
    }

    fn guard(
        &self,
        observed: &Vec<Observation>,
        wanted: &Vec<Wanted>,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        self.balancers.guard(observed, wanted, steps)
    }

    async fn write(
        &self,
        step: &balancer::Step<Step>,
        _: &Mutex<Outputs>,
        _: &Scope,
    ) -> Result<Written, ProviderError> {
        unreachable!("{step:?}")
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let Reached { observed, made, wanted, service, place, left } = *reached;
        self.balancers.status(&Reached { observed, made, wanted, service, place, left })
    }
}

fn odd(mut observed: Observed, odd: Odd) -> Observed {
    if odd.unrouted {
        observed.route_tables.clear();
    }
    if odd.lost {
        observed.instances.clear();
    }
    if odd.unmarked {
        if let Some(classic) = &mut observed.classic {
            classic.tags = Marks::Read(Tags::new());
        }
        if let Some(network) = &mut observed.network {
            network.tags = Marks::Read(Tags::new());
            network.target_groups.iter_mut().for_each(|group| group.tags = Marks::Read(Tags::new()));
        }
        observed.unattached_target_groups.iter_mut().for_each(|group| group.tags = Marks::Read(Tags::new()));
    }
    observed
}

/// A user's text on every object.
const CANARY: &str = "canary";

fn written_on(mut observed: Observed) -> Observed {
    let mark = |tags: &mut Tags| {
        tags.insert(CANARY.to_owned(), CANARY.to_owned());
        tags.insert("password".to_owned(), CANARY.to_owned());
        tags.entry("Name".to_owned()).or_insert_with(|| CANARY.to_owned());
    };
    let Observed { classic, network, unattached_target_groups, groups, subnets, route_tables, .. } = &mut observed;
    let mark_read = |marks: &mut Marks| {
        if let Marks::Read(tags) = marks {
            mark(tags);
        }
    };
    classic.iter_mut().for_each(|classic| mark_read(&mut classic.tags));
    if let Some(network) = network {
        mark_read(&mut network.tags);
        network.target_groups.iter_mut().for_each(|group| mark_read(&mut group.tags));
    }
    unattached_target_groups.iter_mut().for_each(|group| mark_read(&mut group.tags));
    for group in groups.values_mut() {
        mark(&mut group.tags);
        if group.description.is_empty() {
            group.description = CANARY.to_owned();
        }
        for source in group.ingress.iter_mut().flat_map(|permission| &mut permission.sources) {
            if source.description.is_empty() {
                source.description = CANARY.to_owned();
            }
        }
    }
    subnets.values_mut().for_each(|subnet| mark(&mut subnet.tags));
    route_tables.iter_mut().for_each(|table| mark(&mut table.tags));
    observed
}

const ACTIONS: [ServiceAction; 3] = [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete];

/// The distinct results of the plans for a Service in all such states, so that the comparisons are not trivial.
async fn outcomes(before: &Asked, after: &Asked) -> BTreeSet<&'static str> {
    let mut outcomes = BTreeSet::new();
    for (scene, action) in
        [Scene::with_nodes(3), Scene::made(before).await].iter().flat_map(|scene| ACTIONS.map(|action| (scene, action)))
    {
        let asked = after.clone().to(action);
        let observed = scene.observe(&asked).await;
        for bits in 0..16 {
            let bit = |place: u32| bits >> place & 1 == 1;
            let odd = Odd { unrouted: bit(0), unmarked: bit(1), unsettled: bit(2), lost: bit(3) };
            let here = Engine::new(Seen { balancers: scene.balancers(&asked), observed: observed.clone(), odd });
            outcomes.insert(match same(&here, &asked).await {
                Err(_) => "refusal",
                Ok(plan) if plan.findings.iter().any(|finding| finding.key == "guard") => "refusal of the guard",
                Ok(plan) if plan.is_silent() => "nothing",
                Ok(plan) if plan.is_empty() => "only findings",
                Ok(plan) if plan.findings.is_empty() => "steps",
                Ok(_) => "steps and findings",
            });
        }
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn a_plan_from_a_snapshot_is_the_plan() {
    let all = ["nothing", "refusal", "refusal of the guard", "steps", "steps and findings"];
    let classic = outcomes(&clb(&[]), &clb(&[("internal", "true"), ("ssl-ports", "443")])).await;
    assert!(all.iter().all(|kind| classic.contains(kind)), "{classic:?}");
    // Settings that an existing balancer cannot get.
    let internal = nlb(&[(80, 31080), (443, 31443)]).with(&INTERNAL, "true");
    let network = outcomes(&nlb(&[(80, 31080)]), &internal).await;
    assert!(all.iter().all(|kind| network.contains(kind)), "{network:?}");
    outcomes(&nlb(&[(80, 31080)]).managed(), &nlb(&[(443, 31443)]).managed().shared().local()).await;
}

/// The plan of these balancers, which equals the plan from their observation: as JSON, byte for byte.
async fn same(here: &dyn LoadBalancer, asked: &Asked) -> Result<Printed, String> {
    let item = &asked.work();
    let planned = here.plan("kubernetes", item).await;
    let kept = here.observe("kubernetes", item).await;
    // Only text is passed to the other process. A failed observation is null.
    let kept = kept.map_or_else(|_| "null".to_owned(), |kept| kept.to_string());
    assert!(!kept.contains(CANARY), "{kept}");
    let facts = replay::facts(&asked.env).to_string();
    let there = replay::balancers(&serde_json::from_str(&facts).unwrap()).unwrap();
    let replayed = there.plan_observed("kubernetes", item, &serde_json::from_str(&kept).unwrap());
    let text = |answer: &Result<Printed, ProviderError>| match answer {
        Ok(plan) => serde_json::to_string(plan).unwrap(),
        Err(error) => format!("{:?} {error}", error.class()),
    };
    assert_eq!(text(&planned), text(&replayed), "{:?} from {kept}", item.action);
    assert_eq!(here.name("kubernetes", &item.service), there.name("kubernetes", &item.service));
    assert_eq!(here.groups(&item.service), there.groups(&item.service));
    planned.map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_refused_elsewhere_without_any_observation() {
    let scene = Scene::with_nodes(1);
    let mut asked = nlb(&[(80, 31080)]);
    asked.service.spec.session_affinity = "ClientIP".to_owned();
    let here = Engine::new(scene.balancers(&asked));
    let refusal = same(&here, &asked).await.unwrap_err();
    assert!(refusal.contains("unsupported load balancer affinity"), "{refusal}");
    assert_eq!(scene.world.calls(), [""; 0]);
}

#[test]
fn desired_states_are_the_same_from_the_facts() {
    // Both processes have the Service; the desired state must depend on nothing else.
    let shared_probe = Some(SharedProbe { port: 8080, path: "/x".to_owned() });
    for env in [env(), Env { managed_network_groups: true, shared_probe, ..env() }] {
        let there = replay::balancers(&replay::facts(&env)).unwrap();
        let [item] = work(&service(1, "nlb"), ServiceAction::Ensure);
        let here = wanted::of_service("kubernetes", &item, &env).unwrap();
        let read = there.cloud().wanted("kubernetes", std::slice::from_ref(&item)).0.remove(0);
        assert_eq!(format!("{here:?}"), format!("{read:?}"));
    }
}
