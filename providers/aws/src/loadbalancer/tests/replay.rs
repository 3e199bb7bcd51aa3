//! What is observed here is planned the same elsewhere: over the model worlds of both kinds, with refusals and findings.

use ccm_provider::{LoadBalancerExt as _, Plan, ServiceAction};

use super::super::desired;
use super::*;
use crate::client::Tags;
use crate::client::ec2::{AvailabilityZone, Route, RouteTable};
use crate::inspect::replay;

/// What is different about a world, on top of what its Service made of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::loadbalancer) struct Odd {
    /// Subnets can be discovered: tables that lead to the internet, and zones.
    pub(in crate::loadbalancer) routed: bool,
    /// Balancers and target groups have lost their tags.
    pub(in crate::loadbalancer) unmarked: bool,
    /// AWS may still not show all that was written.
    pub(in crate::loadbalancer) unsettled: bool,
    /// The instances of the nodes are not found.
    pub(in crate::loadbalancer) lost: bool,
}

/// A world in memory that answers reads.
struct World<'a> {
    balancers: Balancers,
    see: &'a (dyn Fn(&Desired) -> Observed + Sync),
    odd: Odd,
}

impl Planned for World<'_> {
    type Desired = Vec<Desired>;
    type Observed = Vec<Observation>;
    type Step = Step;
    type Outputs = Mutex<Outputs>;

    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Vec<Desired>, Vec<Result<(), ProviderError>>) {
        self.balancers.desired(cluster, work)
    }

    async fn observe(
        &self,
        _: &str,
        _: &[ServiceWork],
        wanted: &Vec<Desired>,
    ) -> Result<Vec<Observation>, ProviderError> {
        let seen = |desired: &Desired| {
            let unsettled =
                (self.odd.unsettled && matches!(desired.goal, Goal::Absent)).then_some(Duration::from_secs(7));
            Observation { observed: written_on(odd(renamed(&(self.see)(desired)), self.odd)), unsettled, late: None }
        };
        Ok(wanted.iter().map(seen).collect())
    }

    fn strip(&self, observed: &mut Vec<Observation>, wanted: &Vec<Desired>) {
        self.balancers.strip(observed, wanted);
    }

    fn plan(&self, observed: &Vec<Observation>, wanted: &Vec<Desired>) -> Result<Steps<Step>, ProviderError> {
        self.balancers.plan(observed, wanted)
    }

    fn guard(&self, observed: &Vec<Observation>, wanted: &Vec<Desired>, steps: &[Step]) -> Result<(), ProviderError> {
        self.balancers.guard(observed, wanted, steps)
    }

    async fn apply(&self, step: &Step, _: &Mutex<Outputs>) -> Result<(), ProviderError> {
        unreachable!("{step:?}")
    }

    fn describe(&self, step: &Step) -> ccm_provider::Step {
        self.balancers.describe(step)
    }

    fn status(
        &self,
        observed: &Vec<Observation>,
        wanted: &Vec<Desired>,
        service: &Service,
    ) -> Option<LoadBalancerStatus> {
        self.balancers.status(observed, wanted, service)
    }
}

/// The models call instances `i-1`; a node's provider ID must look like one of AWS's.
fn renamed(observed: &Observed) -> Observed {
    let mut text = serde_json::to_string(observed).unwrap();
    for number in 1..=3 {
        text = text.replace(&format!("\"i-{number}\""), &format!("\"{}\"", instance(number)));
    }
    serde_json::from_str(&text).unwrap()
}

fn instance(number: usize) -> String {
    format!("i-{number:08x}")
}

fn odd(mut observed: Observed, odd: Odd) -> Observed {
    if odd.routed {
        let gateway = Route { destination: "0.0.0.0/0".to_owned(), gateway: "igw-1".to_owned(), ..Route::default() };
        observed.route_tables = vec![RouteTable { main: true, routes: vec![gateway], ..RouteTable::default() }];
        let zone = |name: &String| AvailabilityZone {
            name: name.clone(),
            kind: "availability-zone".to_owned(),
            id: String::new(),
        };
        observed.zones = observed.subnets.values().map(|subnet| (subnet.zone.clone(), zone(&subnet.zone))).collect();
    }
    if odd.lost {
        observed.instances.clear();
    }
    if odd.unmarked {
        if let Some(classic) = &mut observed.classic {
            classic.tags = Tags::new();
        }
        if let Some(network) = &mut observed.network {
            network.tags = Tags::new();
            network.target_groups.iter_mut().for_each(|group| group.tags = Tags::new());
        }
        observed.unattached_target_groups.iter_mut().for_each(|group| group.tags = Tags::new());
    }
    observed
}

/// What users write on everything in the world, for themselves.
const CANARY: &str = "canary";

fn written_on(mut observed: Observed) -> Observed {
    let mark = |tags: &mut Tags| {
        tags.insert(CANARY.to_owned(), CANARY.to_owned());
        tags.insert("password".to_owned(), CANARY.to_owned());
        tags.entry("Name".to_owned()).or_insert_with(|| CANARY.to_owned());
    };
    let Observed { classic, network, unattached_target_groups, groups, subnets, route_tables, .. } = &mut observed;
    classic.iter_mut().for_each(|classic| mark(&mut classic.tags));
    if let Some(network) = network {
        mark(&mut network.tags);
        network.target_groups.iter_mut().for_each(|group| mark(&mut group.tags));
    }
    unattached_target_groups.iter_mut().for_each(|group| mark(&mut group.tags));
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

/// A world as both processes know it.
pub(in crate::loadbalancer) struct Scene<'a> {
    pub(in crate::loadbalancer) env: &'a Env,
    pub(in crate::loadbalancer) probe: &'a HealthProbe,
    pub(in crate::loadbalancer) odd: Odd,
    pub(in crate::loadbalancer) see: &'a (dyn Fn(&Desired) -> Observed + Sync),
}

impl Scene<'_> {
    /// Plans each action here and elsewhere. The answers, which are the same; with the numbers of the nodes.
    pub(in crate::loadbalancer) fn plans(
        &self,
        service: &Service,
        nodes: impl IntoIterator<Item = usize>,
    ) -> Vec<Result<Plan, String>> {
        let node = |number: usize| {
            let provider_id = Some(format!("aws:///us-west-2a/{}", instance(number)).into());
            Arc::new(Node { name: format!("node-{number}").into(), provider_id, ..Node::default() })
        };
        let nodes: Arc<[NodeRef]> = nodes.into_iter().map(node).collect();
        let actions = [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete];
        let work = actions.map(|action| ServiceWork { service: service.clone().into(), nodes: nodes.clone(), action });
        work.iter().map(|item| self.plan(item)).collect()
    }

    fn plan(&self, item: &ServiceWork) -> Result<Plan, String> {
        let api: Arc<dyn Api> = Arc::new(Cloud::new());
        let (fleet, zones) = (Fleet::new(api.clone()), Arc::new(Zones::new(api.clone())));
        let (env, probe) = (self.env.clone(), self.probe.clone());
        let balancers = Balancers::new(api, fleet, zones, Cluster::default(), env, probe);
        same(&PlannedLoadBalancer(World { balancers, see: self.see, odd: self.odd }), self.env, self.probe, item)
    }
}

/// What comes out of the plans for a Service in all such worlds, each once: so that the equalities are about something.
pub(in crate::loadbalancer) fn outcomes(
    plans: impl Fn(bool, Odd) -> Vec<Result<Plan, String>>,
) -> BTreeSet<&'static str> {
    let mut outcomes = BTreeSet::new();
    for bits in 0..32 {
        let bit = |place: u32| bits >> place & 1 == 1;
        let odd = Odd { routed: bit(0), unmarked: bit(1), unsettled: bit(2), lost: bit(3) };
        for plan in plans(bit(4), odd) {
            outcomes.insert(match plan {
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

/// The plan of these balancers, which is the one from what they observed: as JSON, byte for byte.
fn same(here: &dyn LoadBalancer, env: &Env, probe: &HealthProbe, item: &ServiceWork) -> Result<Plan, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let planned = runtime.block_on(here.plan("kubernetes", item));
    let kept = runtime.block_on(here.observe("kubernetes", item));
    // Nothing but text goes to the other process. What cannot be observed is null there.
    let kept = kept.map_or_else(|_| "null".to_owned(), |kept| kept.to_string());
    assert!(!kept.contains(CANARY), "{kept}");
    let facts = replay::facts(env, probe).to_string();
    let there = replay::balancers(&serde_json::from_str(&facts).unwrap()).unwrap();
    let replayed = there.plan_observed("kubernetes", item, &serde_json::from_str(&kept).unwrap());
    let text = |answer: &Result<Plan, ProviderError>| match answer {
        Ok(plan) => serde_json::to_string(plan).unwrap(),
        Err(error) => format!("{:?} {error}", error.class()),
    };
    assert_eq!(text(&planned), text(&replayed), "{:?} from {kept}", item.action);
    assert_eq!(here.name("kubernetes", &item.service), there.name("kubernetes", &item.service));
    assert_eq!(here.groups(&item.service), there.groups(&item.service));
    planned.map_err(|error| error.to_string())
}

#[test]
fn what_the_reads_gather_is_planned_the_same_elsewhere() {
    for kind in ["nlb", "", "external"] {
        for current in [true, false] {
            let cloud = Arc::new(Cloud::new());
            let service = service(1, kind);
            match kind {
                "nlb" if current => cloud.network_of(&service),
                "" if current => cloud.classic_of(&service),
                _ => {}
            }
            let here = PlannedLoadBalancer(balancers(&cloud));
            for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete] {
                let [item] = work(&service, action);
                let plan = same(&here, &env(), &HealthProbe::NodePort, &item);
                let deletes = action == ServiceAction::Delete;
                match (kind, current) {
                    ("external", _) => assert!(plan.unwrap().is_silent()),
                    (_, true) => assert!(plan.is_err() || !plan.unwrap().is_silent(), "{kind} {action:?}"),
                    (_, false) if deletes => assert!(plan.unwrap().is_empty()),
                    // Nowhere to stand, or nothing to update.
                    (_, false) => assert!(plan.is_err() || !plan.unwrap().is_empty(), "{kind} {action:?}"),
                }
            }
        }
    }
}

#[test]
fn a_wish_that_is_refused_is_refused_elsewhere_without_any_observation() {
    let cloud = Arc::new(Cloud::new());
    let mut service = service(1, "nlb");
    service.spec.session_affinity = "ClientIP".to_owned();
    let [item] = work(&service, ServiceAction::Ensure);
    let here = PlannedLoadBalancer(balancers(&cloud));
    let refusal = same(&here, &env(), &HealthProbe::NodePort, &item).unwrap_err();
    assert!(refusal.contains("unsupported load balancer affinity"), "{refusal}");
    assert_eq!(cloud.calls(), [""; 0]);
}

#[test]
fn wishes_read_the_same_from_the_facts() {
    // Both processes have the Service; what they wish for it must not depend on anything else.
    let facts = [
        (env(), HealthProbe::NodePort),
        (Env { managed_network_groups: true, ..env() }, HealthProbe::Shared { port: 8080, path: "/x".to_owned() }),
    ];
    for (env, probe) in facts {
        let there = replay::balancers(&replay::facts(&env, &probe)).unwrap();
        let [item] = work(&service(1, "nlb"), ServiceAction::Ensure);
        let here = desired::of_service("kubernetes", &item, &env, &probe).unwrap().unwrap();
        let read = there.0.desired("kubernetes", std::slice::from_ref(&item)).0.remove(0);
        assert_eq!(format!("{here:?}"), format!("{read:?}"));
    }
}
