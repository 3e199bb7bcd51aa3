//! A simulated AWS in this process. The real provider calls it over HTTP, with the real SDK.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::Target;
use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, Network, NetworkSeed};
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::options::{Delays, Latency};
use ccm_cloudsim::aws::{ApiError, Aws, Options, Service, World as Account};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::ledger::Entry;
use ccm_provider::ProviderFactory;
use tokio::task::JoinSet;

use super::simulated::{Seen, Simulated, follow};
use super::{Cloud, Machine, Profile};
use crate::act::Act;
use crate::feed::Feed;
use crate::world::World;
use crate::world::calls::Balancer;

static PROFILE: Profile = Profile {
    name: "aws",
    acts: &[Act::LookFirst, Act::ForReal, Act::Changed, Act::Terminated, Act::CannotTell, Act::Restarted, Act::Deleted],
    annotations: &[("api", "service.beta.kubernetes.io/aws-load-balancer-type", "nlb")],
    leaving: &["api", "web"],
    parts: "load balancer, target group, security group or rule",
    doubt: "AWS throttles",
    cause: "AWS throttles the account: EC2 refuses every read",
    known_after: &[
        "ec2:DescribeInstances",
        "ec2:DescribeRouteTables",
        "elb:DescribeLoadBalancers",
        "elbv2:DescribeLoadBalancers",
    ],
    // Routes are created at the rate that AWS allows.
    per_node: Duration::from_millis(500),
    settles: Duration::ZERO,
    age: Duration::ZERO,
    read_next: ("providers/aws/README.md", "AWS: configuration, annotations, permissions, moving from the Go program"),
};

const CLUSTER: &str = "demo";
const NAME: &str = "Name";
const CONTROL_PLANE: &str = "control-plane";
/// Tag of the load balancers of Services: namespace and name.
const SERVICE: &str = "kubernetes.io/service-name";

/// The account, and the metadata service of the manager's instance.
#[derive(Debug)]
pub(super) struct SimulatedAws {
    aws: Aws,
    // The source of credentials and region.
    _metadata: Imds,
    network: Network,
    names: Vec<String>,
    config: PathBuf,
}

impl SimulatedAws {
    /// Starts it with a network and this many machines, and writes the cloud config into the folder.
    pub(super) fn start(folder: &Path, nodes: usize) -> Result<Self> {
        let ms = Duration::from_millis;
        let options = Options {
            latency: Latency { read: ms(20), write: ms(60), actions: BTreeMap::new() },
            // Skips the delays of AWS, which can be minutes.
            delays: Delays::none(),
            // The check is for tests of the provider; the demo does not need it.
            validate: false,
            ledger_entries: 20_000,
            ..Options::default()
        };
        let aws = Aws::start(options).context("cannot listen on 127.0.0.1")?;
        let names: Vec<String> = super::names(nodes).collect();
        let (network, control_plane) = aws.world(|account| seed(account, &names)).map_err(refused)?;
        let metadata = aws.imds(&control_plane, ImdsOptions::default()).context("cannot listen on 127.0.0.1")?;
        let config = folder.join("cloud.conf");
        std::fs::write(&config, cloud_config(&aws.url(), &metadata.url()))?;
        Ok(Self { aws, _metadata: metadata, network, names, config })
    }
}

/// Creates a network in three zones, the machines, and the control plane's machine, whose ID it returns.
fn seed(account: &mut Account, names: &[String]) -> Result<(Network, String), ApiError> {
    let network = NetworkSeed { cluster: Some(CLUSTER.to_owned()), ..NetworkSeed::default() };
    let network = seed::network(account, &network)?;
    let tag = (format!("kubernetes.io/cluster/{CLUSTER}"), "owned".to_owned());
    let machines = InstanceSeed {
        count: names.len() + 1,
        subnets: network.public.clone(),
        groups: vec![network.node_group.clone()],
        tags: BTreeMap::from([tag]),
        ..InstanceSeed::default()
    };
    let ids = seed::instances(account, &machines)?;
    let named = names.iter().map(String::as_str).chain([CONTROL_PLANE]);
    for (id, name) in ids.iter().zip(named) {
        if let Some(instance) = account.ec2.instances.get_mut(id) {
            instance.tags.insert(NAME.to_owned(), name.to_owned());
        }
    }
    let control_plane = ids.last().cloned().unwrap_or_default();
    Ok((network, control_plane))
}

fn cloud_config(endpoint: &str, metadata: &str) -> String {
    let mut text = "\
# Where the simulated AWS is. On EC2 this file can be empty: region, VPC and cluster ID come from the metadata service and the
# tags of the instance, as they do here.
"
    .to_owned();
    let services = ["EC2", "Elastic Load Balancing", "Elastic Load Balancing v2"].map(|name| (name, endpoint));
    for (service, url) in services.into_iter().chain([("ec2imds", metadata)]) {
        text.push_str(&format!(
            "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = us-west-2\nURL = {url}\nSigningRegion = us-west-2\n"
        ));
    }
    text
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn refused(error: ApiError) -> anyhow::Error {
    anyhow!("the simulated AWS says: {error:?}")
}

/// The node on an instance: the instance's name, or its ID if the user created it without a name.
fn node_name(account: &Account, id: &str) -> Option<String> {
    let tags = &account.ec2.instances.get(id)?.tags;
    Some(tags.get(NAME).cloned().unwrap_or_else(|| id.to_owned()))
}

fn balancers(account: &Account) -> BTreeMap<String, Balancer> {
    let name = |id: &String| node_name(account, id).unwrap_or_else(|| id.clone());
    // A classic load balancer no longer shows terminated instances.
    let is_there = |id: &&String| {
        account.ec2.instances.get(*id).is_some_and(|instance| instance.state != InstanceState::Terminated)
    };
    let classic = account.elb.balancers.values().filter_map(|balancer| {
        let found = Balancer {
            kind: "classic load balancer",
            hosts: balancer.instances.iter().filter(is_there).map(name).collect(),
            ports: balancer.listeners.keys().copied().collect(),
        };
        Some((balancer.tags.get(SERVICE)?.clone(), found))
    });
    let network = account.elbv2.balancers.values().filter_map(|balancer| {
        let listeners = || account.elbv2.listeners.values().filter(|listener| listener.balancer == balancer.arn);
        let groups = listeners().filter_map(|listener| account.elbv2.groups.get(&listener.group));
        let targets = groups.flat_map(|group| group.targets.values());
        let found = Balancer {
            kind: "network load balancer",
            hosts: targets.filter(|target| target.draining_until.is_none()).map(|target| name(&target.id)).collect(),
            ports: listeners().map(|listener| listener.port).collect(),
        };
        Some((balancer.tags.get(SERVICE)?.clone(), found))
    });
    classic.chain(network).collect()
}

fn routes(account: &Account) -> BTreeMap<String, String> {
    let routes = account.ec2.route_tables.values().flat_map(|table| &table.routes);
    let to_nodes = routes.filter_map(|route| match &route.target {
        Target::Interface { instance: Some(id), .. } => Some((route.destination.clone(), node_name(account, id)?)),
        Target::Interface { .. } | Target::Local | Target::Gateway(_) => None,
    });
    to_nodes.collect()
}

impl Simulated for SimulatedAws {
    fn calls(&self, mark: u64) -> Vec<Entry> {
        self.aws.ledger(|ledger| ledger.since(mark).cloned().collect())
    }

    fn look(&self) -> Seen {
        self.aws.world(|account| Seen { balancers: balancers(account), routes: routes(account) })
    }

    fn about_instances(&self) -> &'static [&'static str] {
        &["ec2:DescribeInstances"]
    }
}

impl Cloud for SimulatedAws {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn config(&self) -> &Path {
        &self.config
    }

    fn factory(&self) -> Box<dyn ProviderFactory> {
        Box::new(ccm_provider_aws::Factory)
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<Machine> = self.aws.world(|account| {
            let all = account.ec2.instances.iter().filter_map(|(id, instance)| {
                let name = node_name(account, id).filter(|name| name != CONTROL_PLANE)?;
                let provider_id = Some(format!("aws:///{}/{id}", instance.zone));
                Some(Machine { name, on: instance.state == InstanceState::Running, provider_id, node_ip: None })
            });
            all.collect()
        });
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        machines
    }

    fn terminate(&self, name: &str) -> Result<String> {
        let id = self.aws.world(|account| {
            let is = |id: &&String| node_name(account, id).as_deref() == Some(name);
            account.ec2.instances.keys().find(is).cloned()
        });
        let id = id.with_context(|| format!("there is no instance {name}"))?;
        self.aws.by_hand(Service::Ec2, "TerminateInstances", &format!("InstanceId.1={id}")).map_err(refused)?;
        Ok(format!("terminates {name}: aws ec2 terminate-instances --instance-ids {id}"))
    }

    fn fail(&self, _name: &str) -> Result<String> {
        self.aws.fault(Rule::every(Fault::Throttle).on("ec2", "Describe*"));
        Ok("has EC2 answer every read with RequestLimitExceeded".to_owned())
    }

    fn recover(&self) -> Result<String> {
        self.aws.faults(Faults::clear);
        Ok("ends the throttling".to_owned())
    }

    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>) {
        tasks.spawn(follow(self, world, feed));
    }

    fn left_of_balancers(&self) -> Vec<String> {
        self.aws.world(|account| {
            let (classic, network) = (&account.elb, &account.elbv2);
            let own = [&self.network.default_group, &self.network.node_group];
            let groups = account.ec2.groups.iter().filter(|(id, _)| !own.contains(id));
            let rules = account.ec2.groups.get(&self.network.node_group).map_or(0, |group| group.ingress.len());
            let names = classic.balancers.values().map(|one| one.name.clone());
            let names = names.chain(network.balancers.values().map(|one| one.name.clone()));
            let names = names.chain(network.groups.values().map(|one| format!("target group {}", one.name)));
            let names = names.chain(groups.map(|(id, one)| format!("security group {id} ({})", one.name)));
            names.chain((rules > 0).then(|| format!("{rules} rules in the group of the nodes"))).collect()
        })
    }

    fn windows(&self) -> Vec<String> {
        vec![
            format!("  AWS: --endpoint-url {} --region us-west-2, any credentials", self.aws.url()),
            format!("  its log of calls: curl {}/ledger", self.aws.admin_url()),
        ]
    }

    fn try_next(&self) -> String {
        let (url, admin) = (self.aws.url(), self.aws.admin_url());
        format!(
            "Or change the account: aws --region us-west-2 --endpoint-url {url} ec2 terminate-instances --instance-ids … \
             (any credentials). curl {admin}/ledger/counts counts the calls, curl {admin} lists what else there is."
        )
    }
}
