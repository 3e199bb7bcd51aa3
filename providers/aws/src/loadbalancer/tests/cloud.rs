//! A cloud that answers reads from a few objects and notes each call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use ccm_provider::Service;

use crate::client::ec2::{AvailabilityZone, Instance, NetworkInterface, RouteTable, SecurityGroup, Subnet, Volume};
use crate::client::elbv2::{BalancerZone, Listener, LoadBalancer, TargetGroup, TargetHealth, Which};
use crate::client::operation::{Operation, Service as Api_};
use crate::client::{Answer, Api, ApiError, Query, Tags, Write, elb, elbv2};

/// The group of the nodes.
pub(super) const NODE_GROUP: &str = "sg-nodes";

#[derive(Debug, Default)]
pub(super) struct Cloud(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    failing: Option<String>,
    groups: Vec<SecurityGroup>,
    classic: BTreeMap<String, elb::LoadBalancer>,
    network: BTreeMap<String, LoadBalancer>,
    target_groups: Vec<TargetGroup>,
    /// By name or ARN.
    tags: BTreeMap<String, Tags>,
}

fn marks(cluster: &str, service: Option<&Service>) -> Tags {
    let mut tags = Tags::from([(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned())]);
    tags.extend(service.map(|service| ("kubernetes.io/service-name".to_owned(), service.key().to_string())));
    tags
}

fn refused(operation: &'static str, code: &str) -> ApiError {
    ApiError::refused(Operation::new(Api_::ElbV2, operation), code, "as told")
}

fn not_found(message: &str) -> ApiError {
    ApiError::refused(Operation::new(Api_::ElbV2, "DescribeLoadBalancers"), "LoadBalancerNotFound", message)
}

impl Cloud {
    pub(super) fn new() -> Self {
        let cloud = Self::default();
        cloud.group("nodes", "c1");
        cloud
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The calls since last asked, sorted.
    pub(super) fn calls(&self) -> Vec<String> {
        let mut calls = std::mem::take(&mut self.state().calls);
        calls.sort();
        calls
    }

    pub(super) fn fail(&self, operation: &str) {
        self.state().failing = Some(operation.to_owned());
    }

    /// Takes all tags from the balancer of a Service.
    pub(super) fn unmark(&self, service: &Service) {
        self.state().tags.get_mut(&Self::tagged(service)).unwrap().clear();
    }

    /// Gives it the tags that it had.
    pub(super) fn mark(&self, service: &Service) {
        self.state().tags.insert(Self::tagged(service), marks("c1", Some(service)));
    }

    fn tagged(service: &Service) -> String {
        let name = service.default_load_balancer_name();
        let network = service.metadata.annotations.values().any(|kind| kind == "nlb");
        if network { format!("arn:balancer/{name}") } else { name }
    }

    /// The lists still show the target groups, though they are gone.
    pub(super) fn lists_lag(&self) {
        let mut state = self.state();
        let State { tags, target_groups, .. } = &mut *state;
        target_groups.iter().for_each(|group| drop(tags.remove(&group.arn)));
    }

    pub(super) fn impair(&self) {
        self.state().network.values_mut().for_each(|balancer| balancer.state = "active_impaired".to_owned());
    }

    pub(super) fn group(&self, name: &str, cluster: &str) {
        let (name, id) = (name.to_owned(), format!("sg-{name}"));
        let tags = marks(cluster, None);
        let group = SecurityGroup { id, name, vpc: "vpc-1".to_owned(), tags, ..SecurityGroup::default() };
        self.state().groups.push(group);
    }

    pub(super) fn network_of(&self, service: &Service) {
        let name = service.default_load_balancer_name();
        let arn = format!("arn:balancer/{name}");
        let zone =
            BalancerZone { zone: "us-west-2a".to_owned(), subnet: "subnet-1".to_owned(), ..BalancerZone::default() };
        let balancer = LoadBalancer {
            arn: arn.clone(),
            dns_name: format!("{name}-1.elb.us-west-2.amazonaws.com"),
            name: name.clone(),
            kind: "network".to_owned(),
            state: "active".to_owned(),
            vpc: "vpc-1".to_owned(),
            zones: vec![zone],
            ..LoadBalancer::default()
        };
        let mut state = self.state();
        state.tags.insert(arn.clone(), marks("c1", Some(service)));
        state.network.insert(name, balancer);
        drop(state);
        self.target_group(service, "c1", vec![arn]);
    }

    pub(super) fn unattached_target_group_of(&self, service: &Service, cluster: &str) {
        self.target_group(service, cluster, Vec::new());
    }

    fn target_group(&self, service: &Service, cluster: &str, balancers: Vec<String>) {
        let port = &service.spec.ports[0];
        let wanted = crate::loadbalancer::desired::Port {
            port: port.port,
            protocol: "TCP".to_owned(),
            node_port: port.node_port,
            traffic_protocol: "TCP".to_owned(),
            certificate: None,
            ssl_policy: None,
            health_check: elbv2::HealthCheck { protocol: "TCP".to_owned(), interval: 30, ..Default::default() },
        };
        let name = crate::loadbalancer::names::target_group("c1", &service.key(), &wanted);
        let group = TargetGroup {
            arn: format!("arn:group/{name}"),
            name,
            port: port.node_port,
            protocol: "TCP".to_owned(),
            balancers,
            ..TargetGroup::default()
        };
        let mut state = self.state();
        state.tags.insert(group.arn.clone(), marks(cluster, Some(service)));
        state.target_groups.push(group);
    }

    pub(super) fn classic_of(&self, service: &Service) {
        let name = service.default_load_balancer_name();
        self.group(&format!("k8s-elb-{name}"), "c1");
        let balancer = elb::LoadBalancer {
            dns_name: format!("{name}-1.us-west-2.elb.amazonaws.com"),
            subnets: ["subnet-1".to_owned()].into(),
            security_groups: vec![format!("sg-k8s-elb-{name}")],
            name: name.clone(),
            ..elb::LoadBalancer::default()
        };
        let mut state = self.state();
        state.tags.insert(name.clone(), marks("c1", Some(service)));
        state.classic.insert(name, balancer);
    }

    fn called(&self, operation: &'static str, detail: &str) -> Answer<()> {
        let mut state = self.state();
        state.calls.push(format!("{operation} {detail}").trim().to_owned());
        if state.failing.as_deref() == Some(operation) {
            return Err(refused(operation, "InternalFailure"));
        }
        Ok(())
    }

    fn tags(&self, of: &[String]) -> Answer<BTreeMap<String, Tags>> {
        assert!(of.len() <= 20);
        let state = self.state();
        of.iter()
            .map(|of| state.tags.get(of).map(|tags| (of.clone(), tags.clone())))
            .collect::<Option<_>>()
            .ok_or_else(|| refused("DescribeTags", "LoadBalancerNotFound"))
    }
}

#[async_trait]
impl Api for Cloud {
    async fn instances(&self, query: &Query) -> Answer<Vec<Instance>> {
        self.called("DescribeInstances", "")?;
        let instance = |id: &String| Instance {
            id: id.clone(),
            state: Some("running".to_owned()),
            vpc: "vpc-1".to_owned(),
            zone: "us-west-2a".to_owned(),
            security_groups: vec![NODE_GROUP.to_owned()],
            ..Instance::default()
        };
        Ok(query.ids.iter().map(instance).collect())
    }
    async fn instance_topology(&self, _: &[String]) -> Answer<BTreeMap<String, Vec<String>>> {
        unreachable!()
    }
    async fn network_interfaces(&self, _: &Query) -> Answer<Vec<NetworkInterface>> {
        unreachable!()
    }
    async fn availability_zones(&self) -> Answer<Vec<AvailabilityZone>> {
        self.called("DescribeAvailabilityZones", "")?;
        Ok(Vec::new())
    }
    async fn subnets(&self, _: &Query) -> Answer<Vec<Subnet>> {
        self.called("DescribeSubnets", "")?;
        let (id, vpc, zone) = ("subnet-1".to_owned(), "vpc-1".to_owned(), "us-west-2a".to_owned());
        Ok(vec![Subnet { id, vpc, zone, cidr: "10.0.0.0/24".to_owned(), ..Subnet::default() }])
    }
    async fn route_tables(&self, _: &Query) -> Answer<Vec<RouteTable>> {
        self.called("DescribeRouteTables", "")?;
        Ok(Vec::new())
    }
    async fn security_groups(&self, query: &Query) -> Answer<Vec<SecurityGroup>> {
        let names: Vec<&str> = query.filters.iter().map(|filter| &*filter.name).collect();
        self.called("DescribeSecurityGroups", &names.join(" "))?;
        let matches = |group: &&SecurityGroup| {
            query.filters.iter().all(|filter| match &*filter.name {
                "vpc-id" => filter.values.contains(&group.vpc),
                "group-id" => filter.values.contains(&group.id),
                "group-name" => filter.values.contains(&group.name),
                "tag-key" => filter.values.iter().any(|key| group.tags.contains_key(key)),
                "ip-permission.group-id" => false,
                name => panic!("filter {name}"),
            })
        };
        Ok(self.state().groups.iter().filter(matches).cloned().collect())
    }
    async fn volumes(&self, _: &Query) -> Answer<Vec<Volume>> {
        unreachable!()
    }
    async fn classic_balancers(&self, names: &[String]) -> Answer<Vec<elb::LoadBalancer>> {
        self.called("DescribeLoadBalancers", &format!("classic {}", names.len()))?;
        let state = self.state();
        let found = names.iter().map(|name| state.classic.get(name).cloned());
        match names {
            [] => Ok(state.classic.values().cloned().collect()),
            _ => found.collect::<Option<_>>().ok_or_else(|| {
                // One of them, as AWS.
                let gone = names.iter().find(|name| !state.classic.contains_key(*name)).unwrap();
                not_found(&format!("There is no ACTIVE Load Balancer named '{gone}'"))
            }),
        }
    }
    async fn classic_attributes(&self, _: &str) -> Answer<elb::Attributes> {
        self.called("DescribeLoadBalancerAttributes", "classic")?;
        Ok(elb::Attributes::default())
    }
    async fn classic_policies(&self, _: &str) -> Answer<Vec<elb::Policy>> {
        unreachable!()
    }
    async fn classic_tags(&self, names: &[String]) -> Answer<BTreeMap<String, Tags>> {
        self.called("DescribeTags", "classic")?;
        self.tags(names)
    }
    async fn balancers(&self, which: &Which) -> Answer<Vec<LoadBalancer>> {
        let Which::Names(names) = which else {
            self.called("DescribeLoadBalancers", "all")?;
            return Ok(self.state().network.values().cloned().collect());
        };
        assert!(names.len() <= 20);
        self.called("DescribeLoadBalancers", &names.len().to_string())?;
        let state = self.state();
        let found = names.iter().map(|name| state.network.get(name).cloned());
        found.collect::<Option<_>>().ok_or_else(|| {
            let gone = names.iter().filter(|name| !state.network.contains_key(*name)).cloned().collect::<Vec<_>>();
            not_found(&format!("Load balancers '[{}]' not found", gone.join(", ")))
        })
    }
    async fn balancer_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        self.called("DescribeLoadBalancerAttributes", "")?;
        Ok(BTreeMap::new())
    }
    async fn listeners(&self, _: &str) -> Answer<Vec<Listener>> {
        self.called("DescribeListeners", "")?;
        Ok(Vec::new())
    }
    async fn target_groups(&self, which: &Which) -> Answer<Vec<TargetGroup>> {
        match which {
            Which::OfBalancer(arn) => {
                self.called("DescribeTargetGroups", "of 1")?;
                let of = |group: &&TargetGroup| group.balancers.contains(arn);
                Ok(self.state().target_groups.iter().filter(of).cloned().collect())
            }
            _ => {
                self.called("DescribeTargetGroups", "all")?;
                Ok(self.state().target_groups.clone())
            }
        }
    }
    async fn target_group_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        unreachable!()
    }
    async fn target_health(&self, _: &str) -> Answer<Vec<TargetHealth>> {
        self.called("DescribeTargetHealth", "")?;
        Ok(Vec::new())
    }
    async fn balancer_tags(&self, arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
        assert_eq!(arns.iter().collect::<BTreeSet<_>>().len(), arns.len());
        self.called("DescribeTags", "")?;
        self.tags(arns)
    }
    async fn write(&self, write: &Write) -> Answer<Option<String>> {
        unreachable!("{write:?}")
    }
    async fn dry_run(&self, write: &crate::client::write::Ec2Write) -> Answer<()> {
        unreachable!("{write:?}")
    }
}
