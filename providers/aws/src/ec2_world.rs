//! A small EC2 for unit tests in paused time: reads over a few objects, with every call noted and faults by operation. What it
//! cannot show (protocol, paging, lag) is tested against the simulated cloud over HTTP.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::client::ec2::{
    AvailabilityZone, Instance, InstanceInterface, NetworkInterface, RouteTable, SecurityGroup, Subnet, Volume,
};
use crate::client::operation::{Operation, Service};
use crate::client::{Answer, Api, ApiError, Query, Tags, Write, elb, elbv2};

/// The objects, the calls, the faults.
#[derive(Debug, Default)]
pub(crate) struct World {
    state: Mutex<State>,
    /// How long a call takes.
    pub(crate) takes: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) instances: BTreeMap<String, Instance>,
    /// Alive, but left out of answers.
    pub(crate) hidden: BTreeSet<String>,
    pub(crate) interfaces: Vec<NetworkInterface>,
    pub(crate) zones: Vec<AvailabilityZone>,
    pub(crate) topology: BTreeMap<String, Vec<String>>,
    pub(crate) tables: Vec<RouteTable>,
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// Answers of the next calls of an operation: an error code each.
    pub(crate) faults: BTreeMap<&'static str, VecDeque<&'static str>>,
    /// Operation and how many pages or IDs, as text.
    pub(crate) calls: Vec<String>,
    /// Whether errors name the IDs that are not known.
    pub(crate) vague: bool,
}

/// An instance ID by number.
pub(crate) fn id(number: usize) -> String {
    format!("i-{number:017x}")
}

/// A running instance in 10.x.x.x with one interface.
pub(crate) fn instance(number: usize) -> Instance {
    let ip = format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255);
    Instance {
        id: id(number),
        state: Some("running".into()),
        instance_type: "m5.large".into(),
        zone: "us-west-2a".into(),
        vpc: "vpc-1".into(),
        private_dns_name: format!("ip-{}.us-west-2.compute.internal", ip.replace('.', "-")),
        private_ip: Some(ip.clone()),
        interfaces: vec![InstanceInterface {
            id: format!("eni-{number:017x}"),
            status: "in-use".into(),
            device_index: Some(0),
            private_ips: vec![ip],
            source_dest_check: Some(true),
            ..InstanceInterface::default()
        }],
        security_groups: vec!["sg-1".into()],
        tags: Tags::from([("kubernetes.io/cluster/c1".into(), "owned".into())]),
        source_dest_check: Some(true),
        ..Instance::default()
    }
}

impl World {
    /// With so many instances and the zone that they are in.
    pub(crate) fn with(instances: usize) -> Self {
        let world = Self { takes: Duration::from_millis(50), ..Self::default() };
        {
            let mut state = world.state();
            state.instances = (1..=instances).map(|number| (id(number), instance(number))).collect();
            state.zones.push(AvailabilityZone {
                name: "us-west-2a".into(),
                id: "usw2-az1".into(),
                kind: "availability-zone".into(),
            });
        }
        world
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The calls since the last time this was asked.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    async fn called(&self, operation: &'static str, detail: &str, pages: usize) -> Answer<()> {
        let fault = {
            let mut state = self.state();
            for _ in 0..pages.max(1) {
                state.calls.push(format!("{operation} {detail}").trim().to_owned());
            }
            state.faults.get_mut(operation).and_then(VecDeque::pop_front)
        };
        tokio::time::sleep(self.takes).await;
        fault.map_or(Ok(()), |code| Err(refused(operation, code, "as told")))
    }
}

fn refused(operation: &'static str, code: &str, message: &str) -> ApiError {
    ApiError::refused(Operation::new(Service::Ec2, operation), code, message)
}

fn text(query: &Query) -> String {
    let ids = (!query.ids.is_empty()).then(|| format!("{} IDs", query.ids.len()));
    let filters = query.filters.iter().map(|filter| format!("{}={}", filter.name, filter.values.len()));
    ids.into_iter().chain(filters).collect::<Vec<_>>().join(" ")
}

fn field(instance: &Instance, name: &str, value: &str) -> bool {
    match name {
        "instance-id" => instance.id == value,
        "private-dns-name" => instance.private_dns_name == value,
        "instance-state-name" => instance.state.as_deref() == Some(value),
        "vpc-id" => instance.vpc == value,
        "tag-key" => instance.tags.contains_key(value),
        _ => match name.strip_prefix("tag:") {
            Some(key) => instance.tags.get(key).is_some_and(|tag| tag == value),
            None => panic!("filter {name}"),
        },
    }
}

#[async_trait]
impl Api for World {
    async fn instances(&self, query: &Query) -> Answer<Vec<Instance>> {
        assert!(query.ids.len() <= 1000 && query.filters.iter().all(|filter| filter.values.len() <= 200));
        let (found, unknown, vague) = {
            let state = self.state();
            let visible = state.instances.values().filter(|instance| !state.hidden.contains(&instance.id));
            let found: Vec<Instance> = visible
                .filter(|instance| query.ids.is_empty() || query.ids.contains(&instance.id))
                .filter(|instance| {
                    let one = |name: &str, values: &[String]| values.iter().any(|value| field(instance, name, value));
                    query.filters.iter().all(|filter| one(&filter.name, &filter.values))
                })
                .cloned()
                .collect();
            let known = |id: &&String| state.instances.contains_key(*id);
            let unknown: Vec<String> = query.ids.iter().filter(|id| !known(id)).cloned().collect();
            (found, unknown, state.vague)
        };
        let pages = if query.ids.is_empty() { found.len().div_ceil(1000) } else { 1 };
        self.called("DescribeInstances", &text(query), pages).await?;
        if unknown.is_empty() {
            return Ok(found);
        }
        let names = if vague { "some".to_owned() } else { unknown.join(", ") };
        let message = format!("The instance IDs '{names}' do not exist");
        Err(refused("DescribeInstances", "InvalidInstanceID.NotFound", &message))
    }

    async fn instance_topology(&self, ids: &[String]) -> Answer<BTreeMap<String, Vec<String>>> {
        assert!(ids.len() <= 100);
        self.called("DescribeInstanceTopology", &ids.len().to_string(), 1).await?;
        let state = self.state();
        Ok(ids.iter().filter_map(|id| Some((id.clone(), state.topology.get(id)?.clone()))).collect())
    }

    async fn network_interfaces(&self, query: &Query) -> Answer<Vec<NetworkInterface>> {
        self.called("DescribeNetworkInterfaces", &text(query), 1).await?;
        let state = self.state();
        let matches = |interface: &&NetworkInterface| {
            query.filters.iter().all(|filter| match filter.name.as_str() {
                "vpc-id" => filter.values.contains(&interface.vpc),
                "private-ip-address" => interface.private_ip.as_ref().is_some_and(|ip| filter.values.contains(ip)),
                "attachment.status" => true,
                name => panic!("filter {name}"),
            })
        };
        Ok(state.interfaces.iter().filter(matches).cloned().collect())
    }

    async fn availability_zones(&self) -> Answer<Vec<AvailabilityZone>> {
        self.called("DescribeAvailabilityZones", "", 1).await?;
        Ok(self.state().zones.clone())
    }

    async fn subnets(&self, _: &Query) -> Answer<Vec<Subnet>> {
        unreachable!("no subnets here")
    }

    async fn route_tables(&self, query: &Query) -> Answer<Vec<RouteTable>> {
        self.called("DescribeRouteTables", &text(query), 1).await?;
        let matches = |table: &&RouteTable| {
            query.filters.iter().all(|filter| match filter.name.as_str() {
                "route-table-id" => filter.values.contains(&table.id),
                "vpc-id" => filter.values.contains(&table.vpc),
                "tag-key" => filter.values.iter().any(|key| table.tags.contains_key(key)),
                name => match name.strip_prefix("tag:") {
                    Some(key) => table.tags.get(key).is_some_and(|tag| filter.values.contains(tag)),
                    None => panic!("filter {name}"),
                },
            })
        };
        Ok(self.state().tables.iter().filter(matches).cloned().collect())
    }

    async fn security_groups(&self, _: &Query) -> Answer<Vec<SecurityGroup>> {
        unreachable!("no groups here")
    }

    async fn volumes(&self, query: &Query) -> Answer<Vec<Volume>> {
        assert!(query.filters.iter().all(|filter| filter.name == "volume-id" && filter.values.len() <= 200));
        self.called("DescribeVolumes", &text(query), 1).await?;
        let state = self.state();
        let wanted = query.filters.iter().flat_map(|filter| &filter.values);
        Ok(wanted.filter_map(|id| state.volumes.get(id).cloned()).collect())
    }

    async fn classic_balancers(&self, _: &[String]) -> Answer<Vec<elb::LoadBalancer>> {
        unreachable!("no balancers here")
    }

    async fn classic_attributes(&self, _: &str) -> Answer<elb::Attributes> {
        unreachable!("no balancers here")
    }

    async fn classic_policies(&self, _: &str) -> Answer<Vec<elb::Policy>> {
        unreachable!("no balancers here")
    }

    async fn classic_tags(&self, _: &[String]) -> Answer<BTreeMap<String, Tags>> {
        unreachable!("no balancers here")
    }

    async fn balancers(&self, _: &elbv2::Which) -> Answer<Vec<elbv2::LoadBalancer>> {
        unreachable!("no balancers here")
    }

    async fn balancer_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        unreachable!("no balancers here")
    }

    async fn listeners(&self, _: &str) -> Answer<Vec<elbv2::Listener>> {
        unreachable!("no balancers here")
    }

    async fn target_groups(&self, _: &elbv2::Which) -> Answer<Vec<elbv2::TargetGroup>> {
        unreachable!("no balancers here")
    }

    async fn target_group_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        unreachable!("no balancers here")
    }

    async fn target_health(&self, _: &str) -> Answer<Vec<elbv2::TargetHealth>> {
        unreachable!("no balancers here")
    }

    async fn balancer_tags(&self, _: &[String]) -> Answer<BTreeMap<String, Tags>> {
        unreachable!("no balancers here")
    }

    async fn write(&self, write: &Write) -> Answer<Option<String>> {
        let operation = write.operation().name;
        let detail = match write {
            Write::Ec2(write) => format!("{write:?}"),
            other => unreachable!("{other:?}"),
        };
        let detail = detail.trim_start_matches(operation).trim().to_owned();
        self.called(operation, &detail, 1).await?;
        Ok(None)
    }

    async fn dry_run(&self, write: &crate::client::write::Ec2Write) -> Answer<()> {
        unreachable!("{write:?}")
    }
}
