use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_provider::Verb;

use super::*;
use crate::client::ec2::{
    AvailabilityZone, Instance, NetworkInterface, Peer, RouteTable, SecurityGroup, Source, Subnet, Volume,
};
use crate::client::elbv2::Target;
use crate::client::write::{Id, Object};
use crate::client::{Answer, Api, Tags, elb, elbv2};
use crate::loadbalancer::plan::Env;
use crate::node::fleet::Fleet;
use crate::node::zones::Zones;
use crate::ownership::Ownership;

/// Takes writes and answers them in turn; has one group that refers to others.
#[derive(Debug, Default)]
struct Script {
    written: Mutex<Vec<Write>>,
    /// Code and text, or success with an ID.
    answers: Mutex<VecDeque<Result<&'static str, (&'static str, &'static str)>>>,
    referring: Vec<SecurityGroup>,
}

#[async_trait]
impl Api for Script {
    async fn instances(&self, _: &Query) -> Answer<Vec<Instance>> {
        unreachable!()
    }
    async fn instance_topology(&self, _: &[String]) -> Answer<BTreeMap<String, Vec<String>>> {
        unreachable!()
    }
    async fn network_interfaces(&self, _: &Query) -> Answer<Vec<NetworkInterface>> {
        unreachable!()
    }
    async fn availability_zones(&self) -> Answer<Vec<AvailabilityZone>> {
        unreachable!()
    }
    async fn subnets(&self, _: &Query) -> Answer<Vec<Subnet>> {
        unreachable!()
    }
    async fn route_tables(&self, _: &Query) -> Answer<Vec<RouteTable>> {
        unreachable!()
    }
    async fn security_groups(&self, query: &Query) -> Answer<Vec<SecurityGroup>> {
        assert_eq!(query.filters[0].name, "ip-permission.group-id");
        Ok(self.referring.clone())
    }
    async fn volumes(&self, _: &Query) -> Answer<Vec<Volume>> {
        unreachable!()
    }
    async fn classic_balancers(&self, _: &[String]) -> Answer<Vec<elb::LoadBalancer>> {
        unreachable!()
    }
    async fn classic_attributes(&self, _: &str) -> Answer<elb::Attributes> {
        unreachable!()
    }
    async fn classic_policies(&self, _: &str) -> Answer<Vec<elb::Policy>> {
        unreachable!()
    }
    async fn classic_tags(&self, _: &[String]) -> Answer<BTreeMap<String, Tags>> {
        unreachable!()
    }
    async fn balancers(&self, _: &elbv2::Which) -> Answer<Vec<elbv2::LoadBalancer>> {
        unreachable!()
    }
    async fn balancer_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        unreachable!()
    }
    async fn listeners(&self, _: &str) -> Answer<Vec<elbv2::Listener>> {
        unreachable!()
    }
    async fn target_groups(&self, _: &elbv2::Which) -> Answer<Vec<elbv2::TargetGroup>> {
        unreachable!()
    }
    async fn target_group_attributes(&self, _: &str) -> Answer<BTreeMap<String, String>> {
        unreachable!()
    }
    async fn target_health(&self, _: &str) -> Answer<Vec<elbv2::TargetHealth>> {
        unreachable!()
    }
    async fn balancer_tags(&self, _: &[String]) -> Answer<BTreeMap<String, Tags>> {
        unreachable!()
    }

    async fn write(&self, write: &Write) -> Answer<Option<String>> {
        self.written.lock().unwrap().push(write.clone());
        match self.answers.lock().unwrap().pop_front() {
            None => Ok(None),
            Some(Ok(id)) => Ok(Some(id.to_owned())),
            Some(Err((code, message))) => Err(ApiError::refused(write.operation(), code, message)),
        }
    }

    async fn dry_run(&self, write: &Ec2Write) -> Answer<()> {
        unreachable!("{write:?}")
    }
}

struct Bed {
    script: Arc<Script>,
    reads: Reads,
    outputs: Outputs,
}

impl Bed {
    fn new(answers: &[Result<&'static str, (&'static str, &'static str)>]) -> Self {
        Self::with(Script { answers: Mutex::new(answers.iter().copied().collect()), ..Script::default() })
    }

    fn with(script: Script) -> Self {
        let script = Arc::new(script);
        let env = Env {
            ownership: Ownership { cluster: "c1".to_owned(), legacy: false },
            vpc: "vpc-1".to_owned(),
            self_subnet: String::new(),
            node_groups_untouched: false,
            shared_group: None,
            managed_network_groups: false,
        };
        let api: Arc<dyn Api> = script.clone();
        let zones = Arc::new(Zones::new(api.clone()));
        let reads = Reads::new(api.clone(), Fleet::new(api), zones, Cluster::default(), &env);
        Self { script, reads, outputs: Outputs::default() }
    }

    async fn apply(&mut self, write: Write) -> Result<(), ProviderError> {
        let step = Step::new(Verb::Update, "Thing", "thing", "the test wants it", write);
        apply(&step, &mut self.outputs, &self.reads).await
    }

    fn written(&self) -> Vec<Write> {
        std::mem::take(&mut *self.script.written.lock().unwrap())
    }
}

fn create_group(name: &str) -> Write {
    let (name, description, vpc) = (name.to_owned(), String::new(), "vpc-1".to_owned());
    Write::Ec2(Ec2Write::CreateSecurityGroup { name, description, vpc, tags: Tags::new() })
}

fn delete_group() -> Write {
    Write::Ec2(Ec2Write::DeleteSecurityGroup { group: "sg-1".into() })
}

fn permission(cidrs: &[&str]) -> Permission {
    let source = |cidr: &&str| Source { from: Peer::Ipv4((*cidr).to_owned()), description: String::new() };
    Permission {
        protocol: "tcp".to_owned(),
        from_port: Some(80),
        to_port: Some(80),
        sources: cidrs.iter().map(source).collect(),
    }
}

fn authorize(cidrs: &[&str]) -> Write {
    let permissions = vec![permission(cidrs)];
    Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group: "sg-1".into(), permissions })
}

fn register(ids: &[&str]) -> Write {
    let targets = ids.iter().map(|id| Target { id: (*id).to_owned(), port: 30080 }).collect();
    Write::ElbV2(ElbV2Write::RegisterTargets { target_group: "arn".into(), targets })
}

#[tokio::test]
async fn what_one_write_makes_is_known_to_the_next() {
    let mut bed = Bed::new(&[Ok("sg-7"), Ok("")]);
    bed.apply(create_group("web")).await.unwrap();
    let group = Id::Made(Object::SecurityGroup("web".to_owned()));
    let permissions = vec![permission(&["10.0.0.0/8"])];
    bed.apply(Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions })).await.unwrap();
    let Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, .. }) = &bed.written()[1] else { panic!() };
    assert_eq!(group.known(), Some("sg-7"));
}

#[tokio::test]
async fn a_write_that_names_what_was_not_made_is_never_sent() {
    let mut bed = Bed::new(&[]);
    let group = Id::Made(Object::SecurityGroup("web".to_owned()));
    let error = bed.apply(Write::Ec2(Ec2Write::DeleteSecurityGroup { group })).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    assert!(bed.written().is_empty());
}

#[tokio::test]
async fn pitfall_38_what_is_so_already_is_done() {
    let elb = |write| Write::Elb(write);
    let v2 = |write| Write::ElbV2(write);
    let name = || "web".to_owned();
    let policy = ElbWrite::CreateLoadBalancerPolicy {
        balancer: name(),
        policy: name(),
        kind: name(),
        attributes: BTreeMap::new(),
    };
    let revoke =
        Ec2Write::RevokeSecurityGroupIngress { group: "sg-1".into(), permissions: vec![permission(&["10.0.0.0/8"])] };
    let cases = [
        (authorize(&["10.0.0.0/8"]), "InvalidPermission.Duplicate"),
        (Write::Ec2(revoke), "InvalidPermission.NotFound"),
        (delete_group(), "InvalidGroup.NotFound"),
        (elb(ElbWrite::DeleteLoadBalancer { balancer: name() }), "LoadBalancerNotFound"),
        (elb(policy), "DuplicatePolicyName"),
        (v2(ElbV2Write::DeleteLoadBalancer { balancer: name() }), "LoadBalancerNotFound"),
        (v2(ElbV2Write::DeleteTargetGroup { target_group: name() }), "TargetGroupNotFound"),
        (v2(ElbV2Write::DeleteListener { listener: name() }), "ListenerNotFound"),
    ];
    for (write, code) in cases {
        let mut bed = Bed::new(&[Err((code, "so already")), Err(("ValidationError", "no"))]);
        bed.apply(write.clone()).await.unwrap_or_else(|error| panic!("{write:?}: {error}"));
        assert!(bed.apply(write.clone()).await.is_err(), "another code must not pass: {write:?}");
        assert_eq!(bed.written().len(), 2);
    }
}

#[tokio::test]
async fn one_rule_that_is_there_keeps_no_other_out() {
    let mut bed = Bed::new(&[Err(("InvalidPermission.Duplicate", "one")), Err(("InvalidPermission.Duplicate", "it"))]);
    bed.apply(authorize(&["10.0.0.0/8", "192.168.0.0/16"])).await.unwrap();
    let all = authorize(&["10.0.0.0/8", "192.168.0.0/16"]);
    assert_eq!(bed.written(), [all, authorize(&["10.0.0.0/8"]), authorize(&["192.168.0.0/16"])]);
}

#[tokio::test]
async fn pitfall_29_a_refused_target_keeps_no_other_out_and_is_reported_at_the_end() {
    let said = "The following targets are not in a running state and cannot be registered: 'i-00000003'";
    let mut bed = Bed::new(&[Err(("InvalidTarget", said)), Ok("")]);
    bed.apply(register(&["i-00000001", "i-00000003"])).await.unwrap();
    // The next group doesn't ask for it again.
    bed.apply(register(&["i-00000002", "i-00000003"])).await.unwrap();
    bed.apply(register(&["i-00000003"])).await.unwrap();
    assert_eq!(
        bed.written(),
        [register(&["i-00000001", "i-00000003"]), register(&["i-00000001"]), register(&["i-00000002"])]
    );
    let error = bed.outputs.finish().unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Transient { .. }));
    assert_eq!(
        error.to_string(),
        format!("AWS refuses i-00000003 as target: {said}; all others are registered; will be retried")
    );
}

#[tokio::test]
async fn targets_are_matched_by_whole_ids_and_an_error_that_names_none_stays() {
    let mut bed = Bed::new(&[Err(("InvalidTarget", "i-000000011 is bad")), Err(("ValidationError", "i-00000001"))]);
    assert!(bed.apply(register(&["i-00000001"])).await.is_err());
    assert!(bed.apply(register(&["i-00000001"])).await.is_err());
    assert_eq!(bed.written().len(), 2);
    assert!(bed.outputs.finish().is_ok());
}

#[tokio::test]
async fn an_instance_that_cannot_be_deregistered_is_gone_and_not_reported() {
    let write = |ids: &[&str]| {
        let instances = ids.iter().map(|id| (*id).to_owned()).collect();
        Write::Elb(ElbWrite::DeregisterInstancesFromLoadBalancer { balancer: "web".to_owned(), instances })
    };
    let mut bed = Bed::new(&[Err(("InvalidInstance", "Could not find EC2 instance i-00000001.")), Ok("")]);
    bed.apply(write(&["i-00000001", "i-00000002"])).await.unwrap();
    assert_eq!(bed.written(), [write(&["i-00000001", "i-00000002"]), write(&["i-00000002"])]);
    assert!(bed.outputs.finish().is_ok());
}

#[tokio::test]
async fn a_group_that_is_held_is_tried_again_and_the_holder_named() {
    let holder = SecurityGroup { id: "sg-9".to_owned(), name: "database".to_owned(), ..SecurityGroup::default() };
    let violation = Err(("DependencyViolation", "resource sg-1 has a dependent object"));
    let script = |referring| Script { referring, answers: Mutex::new([violation].into()), ..Script::default() };
    let mut bed = Bed::with(script(vec![holder]));
    let error = bed.apply(delete_group()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(HELD));
    assert_eq!(
        error.to_string(),
        "security group sg-1 cannot be deleted yet: rules of sg-9 (database) refer to it; remove them unless this \
         program manages them; will be retried (DependencyViolation)"
    );
    let error = Bed::with(script(Vec::new())).apply(delete_group()).await.unwrap_err();
    assert!(error.to_string().contains("network interfaces of the load balancer"), "{error}");
}

#[tokio::test]
async fn a_target_group_in_use_is_tried_again() {
    let mut bed = Bed::new(&[Err(("ResourceInUse", "Target group 'x' is currently in use by a listener or a rule"))]);
    let write = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: "arn".to_owned() });
    assert_eq!(bed.apply(write).await.unwrap_err().retry_after(), Some(HELD));
}
