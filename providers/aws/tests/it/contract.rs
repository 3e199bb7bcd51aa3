//! The contract that every provider keeps, with balancers of each kind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::{Peer, Route, Target};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::{
    AddressType, CloudConfig, CloudProvider, NodeAddress, PersistentVolume, ProviderError, ProviderFactory, Service,
};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Simulation};
use serde_json::json;

use crate::bed::{Bed, PREFIX, shape};
use crate::network;

mod classic_balancers {
    ccm_provider_contract::contract!(super::classic);
}

mod network_balancers {
    ccm_provider_contract::contract!(super::network);
}

async fn classic() -> Arc<dyn Harness> {
    Arc::new(Cloud::new("clb", ""))
}

async fn network() -> Arc<dyn Harness> {
    Arc::new(Cloud::new("nlb", ""))
}

pub(crate) struct Cloud {
    pub(crate) bed: Bed,
    pub(crate) kind: &'static str,
}

/// Adds the endpoints of the simulated services to configurations: without them, requests would go to AWS.
struct Local(String);

#[async_trait]
impl ProviderFactory for Local {
    fn name(&self) -> &'static str {
        ccm_provider_aws::Factory.name()
    }

    fn flags(&self) -> &'static [Flag] {
        ccm_provider_aws::Factory.flags()
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let (path, text) = config.map_or(("cloud.conf".into(), String::new()), |config| (config.path, config.text));
        let config = CloudConfig { path, text: format!("{text}\n{}", self.0) };
        ccm_provider_aws::Factory.build(Some(config), flags).await
    }
}

impl Cloud {
    /// `more` are keys of `[Global]`.
    pub(crate) fn new(kind: &'static str, more: &str) -> Self {
        let bed = Bed::start(more);
        // The network is older than the suite, and none of its instances is a node of the suite.
        bed.aws.clock().step(Duration::from_secs(60));
        // The other tests validate; validation costs more than the calls.
        bed.aws.change(|options| options.validate = false);
        Self { bed, kind }
    }

    /// The instance of a node.
    fn instance(&self, name: &str) -> String {
        let found = |world: &mut ccm_cloudsim::aws::World| {
            world.ec2.instances.iter().find(|(_, instance)| instance.private_dns == name).map(|(id, _)| id.clone())
        };
        self.bed.aws.world(found).unwrap()
    }
}

#[async_trait]
impl Harness for Cloud {
    /// More than by default: writes are paced, and hostile Services have many parts that are independent of each other.
    fn haste(&self) -> u32 {
        40
    }

    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(Local(self.bed.config().1.to_owned()))
    }

    fn config(&self) -> Option<CloudConfig> {
        Some(CloudConfig { path: "cloud.conf".into(), text: self.bed.config().0.to_owned() })
    }

    fn simulation(&self) -> Option<&dyn Simulation> {
        Some(&self.bed.aws)
    }

    async fn add_instance(&self, name: &str) -> Made {
        let id = self.bed.add_instances(1).remove(0);
        self.bed.aws.world(|world| {
            let instance = world.ec2.instances.get_mut(&id).unwrap();
            instance.private_dns = name.to_owned();
            let zone = instance.zone.clone();
            world.ec2.reindex();
            let (_, interface) = world.ec2.primary_interface(&world.ec2.instances[&id]).unwrap();
            let address = |kind, address: &str| NodeAddress { kind, address: address.into() };
            let ip = interface.private_ips[0].to_string();
            let addresses = vec![
                address(AddressType::InternalIp, &ip),
                address(AddressType::InternalDns, name),
                address(AddressType::Hostname, name),
            ];
            Made { provider_id: format!("aws:///{zone}/{id}"), addresses }
        })
    }

    async fn stop_instance(&self, name: &str) -> bool {
        let id = self.instance(name);
        self.bed.aws.world(|world| world.ec2.instances.get_mut(&id).unwrap().state = InstanceState::Stopped);
        true
    }

    async fn remove_instance(&self, name: &str) {
        self.bed.terminate(&self.instance(name));
        self.bed.aws.clock().step(Duration::from_secs(60));
    }

    async fn contents(&self) -> BTreeSet<String> {
        self.bed.aws.world(|world| {
            let tables = world.ec2.route_tables.iter();
            let routes = tables.flat_map(|(id, table)| {
                table.routes.iter().map(move |route| format!("route {id} {} {:?}", route.destination, route.target))
            });
            let balancers = shape(world).into_iter().filter(|line| !line.starts_with("security group"));
            // Groups of nodes contain rules of several owners: one line per rule.
            let name = |id: &String| world.ec2.groups.get(id).map_or_else(|| id.clone(), |group| group.name.clone());
            let groups = world.ec2.groups.values().flat_map(|group| {
                let rules = group.ingress.iter().map(|rule| {
                    let (ports, text) = ((rule.from, rule.to), rule.description.as_deref());
                    let peer = if let Peer::Group(id) = &rule.peer { name(id) } else { format!("{:?}", rule.peer) };
                    format!("rule of {} {} {ports:?} {peer} {text:?}", group.name, rule.protocol)
                });
                rules.chain([format!("security group {} {} {:?}", group.name, group.description, group.tags)])
            });
            balancers.chain(groups).chain(routes).collect()
        })
    }

    async fn pass(&self, time: Duration) {
        self.bed.aws.clock().step(time);
    }

    fn dress(&self, service: &mut Service) {
        if self.kind == "nlb" {
            service.metadata.annotations.insert(network::TYPE.into(), self.kind.into());
        }
    }

    /// Adds objects of another cluster on the same nodes: routes, and a balancer; a classic one has the name of ours.
    async fn add_objects_of_others(&self, like: Option<&Service>) -> bool {
        if let Some(mut service) = like.cloned() {
            if self.kind == "nlb" {
                // Its rules in the group of the nodes are identified by its name.
                service.metadata.uid = "5eb5a7f2-aaaa-bbbb-cccc-0123456789ab".into();
            }
            service.spec.ports[0].node_port = 31999;
            service.spec.load_balancer_source_ranges = Some(vec!["172.16.0.0/12".to_owned()]);
            let subnets = (format!("{PREFIX}subnets"), self.bed.network.public.join(","));
            service.metadata.annotations.extend([subnets]);
            self.bed.ensure(&*self.bed.process_of("c2").await, &service).await;
        }
        let target = Target::Interface {
            interface: self.interface_of(self.bed.nodes[0].provider_id_or_empty()),
            instance: None,
        };
        self.add_route("10.244.99.0/24", target);
        self.add_route("10.244.98.0/24", Target::Gateway(self.bed.network.gateway.clone()));
        true
    }

    /// The route's instance is gone, and another instance belongs to the node now.
    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let id = self.bed.add_instances(1).remove(0);
        let interface = self.interface_of(&id);
        self.bed.aws.world(|world| {
            let table = world.ec2.route_tables.get_mut(&self.bed.network.main_table).unwrap();
            let route = table.routes.iter_mut().find(|route| route.destination == destination_cidr).unwrap();
            route.target = Target::Interface { interface, instance: Some(id.clone()) };
        });
        self.bed.terminate(&id);
        self.bed.aws.clock().step(Duration::from_secs(60));
        true
    }

    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let id = "vol-0123456789abcdef0";
        let mut dump: serde_json::Value = serde_json::from_str(&self.bed.aws.dump().unwrap()).unwrap();
        dump["ec2"]["volumes"][id] = json!({
            "zone": "us-west-2b", "size": 1, "kind": "gp3", "state": "available", "tags": {}, "created": dump["now"],
        });
        self.bed.aws.load(&dump.to_string()).unwrap();
        let volume = json!({"metadata": {"name": name}, "spec": {"awsElasticBlockStore": {"volumeID": id}}});
        Some(serde_json::from_value(volume).unwrap())
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let cases = [
            ("[Global]\nZone = nowhere", "Zone"),
            ("[Global]\nSupportedTopologyInstanceTypePattern = \"[\"", "SupportedTopologyInstanceTypePattern"),
            ("[Global]\nNodeIPFamilies = ipv5", "NodeIPFamilies"),
            ("[ServiceOverride \"one\"]\nService = EC2", "ServiceOverride \"one\""),
        ];
        cases.map(|(text, names)| BrokenConfig::new("cloud.conf", text, names)).into()
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        ["aws://", "aws:///", "aws:///us-west-2a/x-1", "aws:///us-west-2a/i-123"].map(str::to_owned).into()
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    fn deviations(&self) -> &'static [Deviation] {
        const ROUTES: Deviation = Deviation {
            clause: "other_clusters_and_owners_are_not_listed",
            why: "the routes of a cluster are those of its route table, whatever --cluster-name says",
        };
        const BY_NAME: Deviation = Deviation {
            clause: "objects_of_others_stay_untouched",
            why: "as upstream, get finds a classic balancer by its name alone; what is not ours is never written",
        };
        if self.kind == "nlb" { &[ROUTES] } else { &[ROUTES, BY_NAME] }
    }
}

impl Cloud {
    /// The primary interface of an instance.
    fn interface_of(&self, id: &str) -> String {
        let id = id.rsplit('/').next().unwrap();
        self.bed.aws.world(|world| world.ec2.instances[id].interfaces[0].clone())
    }

    fn add_route(&self, destination: &str, target: Target) {
        self.bed.aws.world(|world| {
            let created = world.now();
            let table = world.ec2.route_tables.get_mut(&self.bed.network.main_table).unwrap();
            table.routes.push(Route { destination: destination.to_owned(), target, created });
        });
    }
}
