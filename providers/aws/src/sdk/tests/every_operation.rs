//! Calls each operation once on the simulated AWS, which checks requests against AWS's own models if installed.

use std::collections::{BTreeMap, BTreeSet};

use ccm_cloudsim::aws::ec2::seed::{InstanceSeed, Network, NetworkSeed, instances, network};
use ccm_cloudsim::aws::{Aws, Options};

use super::*;
use crate::client::ec2::{Peer, Permission, Source};
use crate::client::elb::{
    AccessLog, Attributes, ConnectionDraining, HealthCheck as ClassicCheck, Listener as ClassicListener,
};
use crate::client::elbv2::{HealthCheck, SubnetMapping, Target, Which};
use crate::client::operation::{READS, Service};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite, ListenerSettings, RouteTarget};

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/12345678-1234-1234-1234-123456789012";

struct Bed {
    aws: Aws,
    api: SdkApi,
    network: Network,
    nodes: Vec<String>,
}

impl Bed {
    fn start() -> Self {
        let aws = Aws::start(Options::default()).unwrap();
        let (network, nodes) = aws.world(|world| {
            world.elb.certificates.insert(CERTIFICATE.to_owned());
            let seed = NetworkSeed { cluster: Some("c1".to_owned()), ..NetworkSeed::default() };
            let network = network(world, &seed).unwrap();
            let (subnets, groups) = (network.private.clone(), vec![network.node_group.clone()]);
            let seed = InstanceSeed { count: 3, subnets, groups, ..InstanceSeed::default() };
            let nodes = instances(world, &seed).unwrap();
            (network, nodes)
        });
        let api = api(&aws.url());
        Self { aws, api, network, nodes }
    }

    /// Sends the write as a dry run first, which must change nothing.
    async fn ec2(&self, write: Ec2Write) -> Option<String> {
        let state = || self.aws.world(|world| (world.ec2.groups.clone(), world.ec2.route_tables.clone()));
        let before = state();
        self.api.dry_run(&write).await.unwrap_or_else(|error| panic!("dry run of {write:?}: {error}"));
        assert_eq!(state(), before, "{write:?}");
        let write = Write::Ec2(write);
        self.api.write(&write).await.unwrap_or_else(|error| panic!("{write:?}: {error}"))
    }

    async fn elb(&self, write: ElbWrite) {
        let write = Write::Elb(write);
        let made = self.api.write(&write).await.unwrap_or_else(|error| panic!("{write:?}: {error}"));
        assert_eq!(made, None);
    }

    async fn elbv2(&self, write: ElbV2Write) -> Option<String> {
        let write = Write::ElbV2(write);
        self.api.write(&write).await.unwrap_or_else(|error| panic!("{write:?}: {error}"))
    }
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn owned() -> Tags {
    tags(&[("kubernetes.io/cluster/c1", "owned"), ("kubernetes.io/service-name", "default/web")])
}

#[tokio::test]
async fn every_operation_does_what_it_says_and_follows_the_models() {
    let bed = Bed::start();
    let group = ec2(&bed).await;
    classic(&bed, &group).await;
    network_balancer(&bed, &group).await;
    let group = Id::Known(group);
    // The interfaces of deleted balancers stay for a while.
    bed.aws.clock().step(Duration::from_secs(3_600));
    bed.ec2(Ec2Write::DeleteSecurityGroup { group }).await;

    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    let service = |service: Service| match service {
        Service::Ec2 => "ec2",
        Service::Elb => "elb",
        Service::ElbV2 => "elbv2",
        Service::Sts => "sts",
    };
    wanted.extend(READS.iter().map(|read| (service(read.service).to_owned(), read.name.to_owned())));
    for (of, names) in [("ec2", Ec2Write::NAMES), ("elb", ElbWrite::NAMES), ("elbv2", ElbV2Write::NAMES)] {
        wanted.extend(names.iter().map(|name| (of.to_owned(), (*name).to_owned())));
    }
    let (seen, unread) = bed.aws.ledger(|ledger| {
        let seen: BTreeSet<_> = ledger.since(0).map(|call| (call.service.clone(), call.action.clone())).collect();
        let unread: Vec<_> = ledger.since(0).filter(|call| !call.unread.is_empty()).cloned().collect();
        (seen, unread)
    });
    assert_eq!(wanted.difference(&seen).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "never called");
    assert!(unread.is_empty(), "{unread:?}");
    assert_eq!(bed.aws.violations(), Vec::<String>::new());
}

/// Creates an additional security group.
async fn ec2(bed: &Bed) -> String {
    let Bed { api, network, nodes, .. } = bed;
    let found = api.instances(&Query::by("instance-id", nodes)).await.unwrap();
    assert_eq!(found.len(), 3);
    let first = found.iter().find(|instance| instance.id == nodes[0]).unwrap();
    assert_eq!(
        (first.state.as_deref(), &*first.instance_type, &*first.vpc),
        (Some("running"), "m5.large", &*network.vpc)
    );
    assert_eq!((&*first.subnet, &first.security_groups), (&*network.private[0], &vec![network.node_group.clone()]));
    assert!(first.private_dns_name.starts_with("ip-10-") && first.zone == "us-west-2a", "{first:?}");
    let interface = &first.interfaces[0];
    assert_eq!((&*interface.status, interface.device_index), ("in-use", Some(0)));
    assert_eq!(first.private_ip.as_ref(), interface.private_ips.first());
    api.instance_topology(&nodes[..1]).await.unwrap();
    let interfaces = api.network_interfaces(&Query::by("private-ip-address", first.private_ip.clone())).await.unwrap();
    assert_eq!((interfaces.len(), &interfaces[0].id, &interfaces[0].subnet), (1, &interface.id, &network.private[0]));
    let zones = api.availability_zones().await.unwrap();
    assert!(
        zones.iter().any(|zone| zone.name == "us-west-2a" && !zone.id.is_empty() && zone.kind == "availability-zone")
    );
    let subnets = api.subnets(&Query::by("vpc-id", [&network.vpc])).await.unwrap();
    assert!(subnets.iter().any(|subnet| subnet.id == network.public[0] && !subnet.cidr.is_empty()), "{subnets:?}");
    assert!(api.volumes(&Query::all()).await.unwrap().is_empty());

    let tables = || async { api.route_tables(&Query::ids([&network.main_table])).await.unwrap().remove(0) };
    assert!(tables().await.main);
    let (table, destination) = (network.main_table.clone(), "10.244.1.0/24".to_owned());
    let target = RouteTarget::Instance(nodes[0].clone());
    bed.ec2(Ec2Write::CreateRoute { table: table.clone(), destination: destination.clone(), target }).await;
    let target =
        RouteTarget::Interface(found.iter().find(|node| node.id == nodes[1]).unwrap().interfaces[0].id.clone());
    bed.ec2(Ec2Write::ReplaceRoute { table: table.clone(), destination: destination.clone(), target }).await;
    let route = tables().await.routes.into_iter().find(|route| route.destination == destination).unwrap();
    assert_eq!((route.instance.as_ref(), route.blackhole), (Some(&nodes[1]), false));
    bed.ec2(Ec2Write::DeleteRoute { table, destination: destination.clone() }).await;
    assert!(tables().await.routes.iter().all(|route| route.destination != destination));
    bed.ec2(Ec2Write::ModifyInstanceAttribute { instance: nodes[0].clone() }).await;
    let second = found.iter().find(|node| node.id == nodes[1]).unwrap().interfaces[0].id.clone();
    bed.ec2(Ec2Write::ModifyNetworkInterfaceAttribute { interface: second }).await;
    let found = api.instances(&Query::ids(&nodes[..2])).await.unwrap();
    assert!(found.iter().all(|node| node.interfaces[0].source_dest_check == Some(false)), "{found:?}");

    let resources: Vec<Id> = nodes.iter().map(Id::from).collect();
    bed.ec2(Ec2Write::CreateTags { resources, tags: tags(&[("team", "blue"), ("stage", "")]) }).await;
    // One object has another value: its tag stays.
    bed.ec2(Ec2Write::DeleteTags { resources: nodes.clone(), tags: tags(&[("team", "blue"), ("stage", "x")]) }).await;
    let left = &api.instances(&Query::ids(&nodes[..1])).await.unwrap()[0].tags;
    assert!(!left.contains_key("team") && left.get("stage").is_some_and(String::is_empty), "{left:?}");
    security_group(bed).await
}

async fn security_group(bed: &Bed) -> String {
    let Bed { api, network, .. } = bed;
    let (name, description) = ("k8s-elb-a1".to_owned(), "for default/web".to_owned());
    let create = Ec2Write::CreateSecurityGroup { name, description, vpc: network.vpc.clone(), tags: owned() };
    let group = bed.ec2(create).await.expect("an ID");
    let source = |from: Peer, description: &str| Source { from, description: description.to_owned() };
    let sources = vec![
        source(Peer::Ipv4("10.0.0.0/8".to_owned()), "clients"),
        source(Peer::Ipv6("fd00::/8".to_owned()), ""),
        source(Peer::Group { id: Id::from(&network.node_group), account: None }, ""),
    ];
    let permission = Permission { protocol: "tcp".to_owned(), from_port: Some(80), to_port: Some(80), sources };
    let (id, permissions) = (Id::from(&group), vec![permission]);
    bed.ec2(Ec2Write::AuthorizeSecurityGroupIngress { group: id.clone(), permissions: permissions.clone() }).await;
    let read = || async { api.security_groups(&Query::by("group-id", [&group])).await.unwrap().remove(0) };
    let found = read().await;
    assert_eq!((&*found.name, &*found.description, &found.tags), ("k8s-elb-a1", "for default/web", &owned()));
    let found: BTreeSet<_> = found.ingress.iter().flat_map(|permission| &permission.sources).cloned().collect();
    assert!(found.contains(&permissions[0].sources[0]) && found.contains(&permissions[0].sources[1]), "{found:?}");
    assert!(found.iter().any(
        |source| matches!(&source.from, Peer::Group { id, account: Some(_) } if id.known() == Some(&network.node_group))
    ));
    let mut permissions = permissions;
    permissions[0].sources.iter_mut().for_each(|source| source.description = "described again".to_owned());
    let describe = (id.clone(), permissions.clone());
    let describe = Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group: describe.0, permissions: describe.1 };
    bed.ec2(describe).await;
    let described = read().await.ingress;
    assert!(described.iter().flat_map(|one| &one.sources).all(|source| source.description == "described again"));
    bed.ec2(Ec2Write::RevokeSecurityGroupIngress { group: id, permissions }).await;
    assert!(read().await.ingress.is_empty());
    group
}

async fn classic(bed: &Bed, group: &str) {
    let (api, balancer) = (&bed.api, "a1classic".to_owned());
    let subnet = |n: usize| vec![bed.network.public[n].clone()];
    let listener = |port: i32, instance_port: i32| ClassicListener {
        port,
        protocol: "TCP".to_owned(),
        instance_port,
        instance_protocol: "TCP".to_owned(),
        certificate: None,
    };
    bed.elb(ElbWrite::CreateLoadBalancer {
        balancer: balancer.clone(),
        listeners: vec![listener(80, 31_080)],
        subnets: subnet(0),
        security_groups: vec![group.into()],
        internal: true,
        tags: owned(),
    })
    .await;
    bed.elb(ElbWrite::AddTags { balancer: balancer.clone(), tags: tags(&[("team", "blue")]) }).await;
    bed.elb(ElbWrite::CreateLoadBalancerListeners {
        balancer: balancer.clone(),
        listeners: vec![listener(81, 31_081), listener(82, 31_082)],
    })
    .await;
    let secure = ClassicListener {
        protocol: "SSL".to_owned(),
        certificate: Some(CERTIFICATE.to_owned()),
        ..listener(443, 31_443)
    };
    let listeners = vec![secure];
    bed.elb(ElbWrite::CreateLoadBalancerListeners { balancer: balancer.clone(), listeners }).await;
    let (port, certificate) = (443, CERTIFICATE.to_owned());
    bed.elb(ElbWrite::SetLoadBalancerListenerSSLCertificate { balancer: balancer.clone(), port, certificate }).await;
    bed.elb(ElbWrite::DeleteLoadBalancerListeners { balancer: balancer.clone(), ports: vec![82, 443] }).await;
    bed.elb(ElbWrite::AttachLoadBalancerToSubnets { balancer: balancer.clone(), subnets: subnet(1) }).await;
    bed.elb(ElbWrite::DetachLoadBalancerFromSubnets { balancer: balancer.clone(), subnets: subnet(0) }).await;
    let security_groups = vec![Id::from(&bed.network.default_group)];
    bed.elb(ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer: balancer.clone(), security_groups }).await;
    let check = ClassicCheck {
        target: "HTTP:31080/healthz".to_owned(),
        interval: 10,
        timeout: 5,
        healthy_threshold: 2,
        unhealthy_threshold: 6,
    };
    bed.elb(ElbWrite::ConfigureHealthCheck { balancer: balancer.clone(), check: check.clone() }).await;
    let attributes = Attributes {
        access_log: Some(AccessLog {
            enabled: true,
            emit_interval: Some(5),
            bucket: Some("logs".to_owned()),
            prefix: Some("web".to_owned()),
        }),
        connection_draining: Some(ConnectionDraining { enabled: true, timeout: Some(90) }),
        idle_timeout: Some(120),
        cross_zone: Some(true),
    };
    bed.elb(ElbWrite::ModifyLoadBalancerAttributes { balancer: balancer.clone(), attributes }).await;
    let policy = "k8s-proxyprotocol-enabled".to_owned();
    bed.elb(ElbWrite::CreateLoadBalancerPolicy {
        balancer: balancer.clone(),
        policy: policy.clone(),
        kind: "ProxyProtocolPolicyType".to_owned(),
        attributes: BTreeMap::from([("ProxyProtocol".to_owned(), "true".to_owned())]),
    })
    .await;
    let of_backend = |policies: Vec<String>| ElbWrite::SetLoadBalancerPoliciesForBackendServer {
        balancer: balancer.clone(),
        instance_port: 31_080,
        policies,
    };
    bed.elb(of_backend(vec![policy.clone()])).await;
    let instances = bed.nodes.clone();
    bed.elb(ElbWrite::RegisterInstancesWithLoadBalancer { balancer: balancer.clone(), instances }).await;
    let instances = bed.nodes[..1].to_vec();
    bed.elb(ElbWrite::DeregisterInstancesFromLoadBalancer { balancer: balancer.clone(), instances }).await;

    let names = [balancer.clone()];
    let found = api.classic_balancers(&names).await.unwrap().remove(0);
    assert_eq!((&*found.scheme, found.security_groups), ("internal", vec![bed.network.default_group.clone()]));
    assert_eq!(found.subnets.iter().collect::<Vec<_>>(), [&bed.network.public[1]]);
    assert_eq!(found.health_check, Some(check));
    assert_eq!(found.instances, bed.nodes[1..].iter().cloned().collect());
    assert_eq!(found.backend_policies.get(&31_080), Some(&BTreeSet::from([policy.clone()])));
    let ports: BTreeSet<_> = found.listeners.iter().filter_map(|l| Some(l.listener.as_ref()?.port)).collect();
    assert_eq!(ports, BTreeSet::from([80, 81]));
    let attributes = api.classic_attributes(&balancer).await.unwrap();
    assert_eq!((attributes.idle_timeout, attributes.cross_zone), (Some(120), Some(true)));
    assert_eq!(attributes.access_log.unwrap().prefix.as_deref(), Some("web"));
    assert!(api.classic_policies(&balancer).await.unwrap().iter().any(|found| found.name == policy));
    assert_eq!(api.classic_tags(&names).await.unwrap()[&balancer]["team"], "blue");

    // Empty lists must be sent: they remove the existing entries.
    bed.elb(of_backend(Vec::new())).await;
    bed.elb(ElbWrite::SetLoadBalancerPoliciesOfListener { balancer: balancer.clone(), port: 80, policies: Vec::new() })
        .await;
    let found = api.classic_balancers(&names).await.unwrap().remove(0);
    assert!(found.backend_policies.values().all(BTreeSet::is_empty), "{:?}", found.backend_policies);
    bed.elb(ElbWrite::DeleteLoadBalancer { balancer: balancer.clone() }).await;
    assert!(api.classic_balancers(&names).await.unwrap_err().is(&["LoadBalancerNotFound"]));
}

async fn network_balancer(bed: &Bed, group: &str) {
    let api = &bed.api;
    let mapping = |n: usize| SubnetMapping { subnet: bed.network.public[n].clone(), ..SubnetMapping::default() };
    let balancer = bed.elbv2(ElbV2Write::CreateLoadBalancer {
        name: "a1network".to_owned(),
        mappings: vec![mapping(0), mapping(1)],
        security_groups: vec![group.into()],
        internal: false,
        tags: owned(),
    });
    let balancer = balancer.await.expect("an ARN");
    let mut health_check = HealthCheck {
        protocol: "HTTP".to_owned(),
        port: "10256".to_owned(),
        path: Some("/healthz".to_owned()),
        interval: 10,
        timeout: Some(6),
        healthy_threshold: 3,
        unhealthy_threshold: 3,
    };
    let target_group = bed.elbv2(ElbV2Write::CreateTargetGroup {
        name: "k8s-default-web-1".to_owned(),
        protocol: "TCP".to_owned(),
        port: 31_080,
        vpc: bed.network.vpc.clone(),
        health_check: health_check.clone(),
        tags: owned(),
    });
    let target_group = target_group.await.expect("an ARN");
    let mut desired = ListenerSettings {
        port: 443,
        protocol: "TCP".to_owned(),
        certificate: None,
        ssl_policy: None,
        target_group: Id::from(&target_group),
    };
    let create = ElbV2Write::CreateListener { balancer: Id::from(&balancer), listener: desired.clone(), tags: owned() };
    let listener = bed.elbv2(create).await.expect("an ARN");
    desired.protocol = "TLS".to_owned();
    desired.certificate = Some(CERTIFICATE.to_owned());
    desired.ssl_policy = Some(crate::client::DEFAULT_POLICY.to_owned());
    bed.elbv2(ElbV2Write::ModifyListener { listener: listener.clone(), desired }).await;
    let found = api.listeners(&balancer).await.unwrap().remove(0);
    assert_eq!((&*found.protocol, &found.target_group), ("TLS", &Some(target_group.clone())));
    assert_eq!((found.certificates, found.ssl_policy.is_some()), (vec![CERTIFICATE.to_owned()], true));

    health_check.unhealthy_threshold = 2;
    let modify = ElbV2Write::ModifyTargetGroup {
        target_group: target_group.clone(),
        health_check: health_check.clone(),
        pace: true,
    };
    bed.elbv2(modify).await;
    let attributes = BTreeMap::from([("preserve_client_ip.enabled".to_owned(), "false".to_owned())]);
    let of_group = Id::from(&target_group);
    bed.elbv2(ElbV2Write::ModifyTargetGroupAttributes { target_group: of_group.clone(), attributes }).await;
    let attributes = BTreeMap::from([("load_balancing.cross_zone.enabled".to_owned(), "true".to_owned())]);
    bed.elbv2(ElbV2Write::ModifyLoadBalancerAttributes { balancer: Id::from(&balancer), attributes }).await;
    let targets: Vec<Target> = bed.nodes.iter().map(|id| Target { id: id.clone(), port: 31_080 }).collect();
    bed.elbv2(ElbV2Write::RegisterTargets { target_group: of_group, targets: targets.clone() }).await;
    let of_group = target_group.clone();
    bed.elbv2(ElbV2Write::DeregisterTargets { target_group: of_group, targets: targets[..1].to_vec() }).await;
    let security_groups = vec![Id::from(&bed.network.default_group)];
    bed.elbv2(ElbV2Write::SetSecurityGroups { balancer: balancer.clone(), security_groups }).await;
    let found = api.balancers(&Which::Names(vec!["a1network".to_owned()])).await.unwrap().remove(0);
    assert_eq!((&*found.arn, &*found.kind, &*found.scheme), (&*balancer, "network", "internet-facing"));
    assert_eq!((found.zones.len(), found.security_groups), (2, vec![bed.network.default_group.clone()]));
    assert!(!found.dns_name.is_empty() && !found.state.is_empty());
    let groups = api.target_groups(&Which::OfBalancer(balancer.clone())).await.unwrap();
    assert_eq!((&*groups[0].arn, &groups[0].health_check), (&*target_group, &health_check));
    assert_eq!((&*groups[0].target_type, &groups[0].balancers), ("instance", &vec![balancer.clone()]));
    let attributes = api.target_group_attributes(&target_group).await.unwrap();
    assert_eq!(attributes["preserve_client_ip.enabled"], "false");
    assert_eq!(api.balancer_attributes(&balancer).await.unwrap()["load_balancing.cross_zone.enabled"], "true");
    let health = api.target_health(&target_group).await.unwrap();
    assert!(targets[1..].iter().all(|target| health.iter().any(|found| found.target == *target)), "{health:?}");
    let tags = api.balancer_tags(&[balancer.clone(), target_group.clone()]).await.unwrap();
    assert!(tags.values().all(|tags| !tags.is_empty()) && tags.len() == 2);

    bed.elbv2(ElbV2Write::DeleteListener { listener }).await;
    bed.elbv2(ElbV2Write::DeleteLoadBalancer { balancer }).await;
    bed.elbv2(ElbV2Write::DeleteTargetGroup { target_group }).await;
    let none = Which::Names(vec!["k8s-default-web-1".to_owned()]);
    assert!(api.target_groups(&none).await.unwrap_err().is(&["TargetGroupNotFound"]));
}
