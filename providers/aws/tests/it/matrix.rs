//! Every operation, with every outcome, in every situation: see [`ccm_provider_contract::matrix`].

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloudsim::aws::World;
use ccm_provider::{Service, ServicePort};
use ccm_provider_contract::Harness;
use ccm_provider_contract::matrix::{Kind, Known, MatrixCloud, Operation, Part, Trouble, run};
use ccm_provider_contract::watch::Effect;
use serde_json::Value;

use crate::bed::{CERTIFICATE, PREFIX, USER_GROUP};
use crate::contract;

/// The certificate of a classic balancer before its change.
const OTHER_CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/two";

struct Cloud {
    harness: Arc<contract::Cloud>,
    /// Whether network balancers have security groups.
    has_groups: bool,
}

fn start(kind: &'static str, config: &str) -> Arc<dyn MatrixCloud> {
    let harness = contract::Cloud::new(kind, config);
    harness.bed.add_group(USER_GROUP, None, Vec::new());
    harness.bed.aws.world(|world| world.elb.add_certificate(OTHER_CERTIFICATE));
    harness.bed.aws.names(groups_in);
    Arc::new(Cloud { harness: Arc::new(harness), has_groups: !config.is_empty() })
}

const KINDS: [Kind; 3] = [
    Kind { name: "classic", is_variant: false, start: || Box::pin(async { start("clb", "") }) },
    Kind { name: "network", is_variant: false, start: || Box::pin(async { start("nlb", "") }) },
    Kind {
        name: "network-groups",
        is_variant: true,
        start: || Box::pin(async { start("nlb", "NLBSecurityGroupMode = Managed") }),
    },
];

mod long_lane {
    use super::*;

    /// In the long lane, because it takes more than a minute.
    #[test]
    fn a_sample_of_the_matrix_has_only_known_failures() {
        run(&KINDS, Part::Sample, &Known::of(env!("CARGO_MANIFEST_DIR")));
    }

    #[test]
    fn the_whole_matrix_has_only_known_failures() {
        run(&KINDS, Part::All, &Known::of(env!("CARGO_MANIFEST_DIR")));
    }
}

/// The names of the security groups whose IDs are in the parameters of a call. ARNs contain names.
fn groups_in(world: &World, params: &str) -> String {
    let groups = world.ec2.groups.iter().filter(|(id, _)| params.contains(id.as_str()));
    groups.map(|(_, group)| format!("&group={}", group.name)).collect()
}

fn add_port(service: &mut Service, port: i32, number: i32) {
    let first = service.spec.ports[0].clone();
    let node_port = first.node_port + number;
    service.spec.ports.push(ServicePort { name: format!("p{port}"), port, node_port, ..first });
}

impl Cloud {
    fn set(service: &mut Service, key: &str, value: &str) {
        service.metadata.annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
    }
}

#[async_trait]
impl MatrixCloud for Cloud {
    fn harness(&self) -> Arc<dyn Harness> {
        self.harness.clone()
    }

    /// The actions of the policy for load balancers.
    fn table(&self) -> Vec<String> {
        let policies = ccm_provider_aws::iam_policies();
        let (_, text) = policies.iter().find(|(path, _)| path.ends_with("load-balancer.json")).unwrap();
        let policy: Value = serde_json::from_str(text).unwrap();
        let statements = policy["Statement"].as_array().unwrap().iter();
        let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
        actions.map(|action| action.as_str().unwrap().to_owned()).collect()
    }

    fn entry(&self, operation: &str) -> String {
        let (service, action) = operation.split_once(':').unwrap();
        format!("{}:{action}", if service == "ec2" { "ec2" } else { "elasticloadbalancing" })
    }

    fn unused(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("iam:CreateServiceLinkedRole", "AWS itself calls it"),
            ("ec2:CreateTags", "only for groups whose creation did not tag them"),
            ("ec2:DescribeNetworkInterfaces", "only for nodes on Fargate"),
            ("ec2:UpdateSecurityGroupRuleDescriptionsIngress", "only for rules of the Go program"),
        ]
    }

    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
        effect(operation, trouble)
    }

    fn names(&self, service: &Service) -> Vec<String> {
        let (key, name) = (service.key(), service.default_load_balancer_name());
        vec![name, format!("k8s-{}-{}-", key.namespace, key.name), key.to_string()]
    }

    fn dress(&self, service: &mut Service) {
        add_port(service, 8080, 2);
        if self.harness.kind == "clb" {
            Self::set(service, "subnets", &self.harness.bed.network.public[0]);
            Self::set(service, "ssl-cert", OTHER_CERTIFICATE);
            Self::set(service, "ssl-ports", "80");
        }
    }

    fn change(&self, service: &mut Service) {
        service.spec.ports.truncate(1);
        add_port(service, 443, 1);
        service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
        for (key, value) in [
            ("cross-zone-load-balancing-enabled", "true"),
            ("healthcheck-healthy-threshold", "4"),
            ("healthcheck-unhealthy-threshold", "4"),
            ("additional-resource-tags", "team=web"),
            ("ssl-cert", CERTIFICATE),
            ("ssl-ports", "443"),
            ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
        ] {
            Self::set(service, key, value);
        }
        if self.harness.kind == "clb" {
            Self::set(service, "ssl-ports", "80,443");
            Self::set(service, "proxy-protocol", "*");
            Self::set(service, "extra-security-groups", USER_GROUP);
            Self::set(service, "subnets", &self.harness.bed.network.public[1]);
        } else {
            Self::set(service, "target-group-attributes", "preserve_client_ip.enabled=false");
        }
        if self.has_groups {
            Self::set(service, "healthcheck-interval", "15");
            Self::set(service, "security-groups", USER_GROUP);
        }
    }

    fn has_frame(&self, service: &Service) -> bool {
        let name = service.default_load_balancer_name();
        self.harness.bed.aws.world(|world| {
            world.elb.balancers.values().any(|one| one.name == name)
                || world.elbv2.balancers.values().any(|one| one.name == name)
        })
    }

    fn members(&self, service: &Service) -> Vec<BTreeSet<String>> {
        let (name, group) =
            (service.default_load_balancer_name(), format!("k8s-{}-{}-", "default", service.metadata.name));
        self.harness.bed.aws.world(|world| {
            let classic = world.elb.balancers.values().filter(|one| one.name == name);
            let classic = classic.map(|one| one.instances.iter().cloned().collect());
            let groups = world.elbv2.groups.values().filter(|one| one.name.starts_with(&group));
            let network = groups.map(|one| {
                let staying = one.targets.values().filter(|target| target.draining_until.is_none());
                staying.map(|target| target.id.clone()).collect()
            });
            classic.chain(network).collect()
        })
    }

    fn moves_members(&self, operation: &str) -> bool {
        let words = [
            "RegisterTargets",
            "RegisterInstances",
            "DeregisterTargets",
            "DeregisterInstances",
            "DescribeInstances",
            "DescribeLoadBalancers",
            "DescribeTargetHealth",
            "DescribeTargetGroups",
            // Whose the balancer is: one of another cluster must not get our nodes. (Without the permission, names decide.)
            "DescribeTags",
        ];
        words.iter().any(|word| {
            operation.ends_with(word) || operation.contains("InstancesWith") || operation.contains("InstancesFrom")
        })
    }
}

/// The errors of the services, as in their API references.
fn effect(operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
    let (service, action) = operation.name.split_once(':').unwrap();
    let code = |code, message| Ok(Effect::code(400, code, message));
    match trouble {
        Trouble::Denied => Ok(Effect::Denied),
        Trouble::Refused if service == "ec2" => code("InvalidParameterValue", "Value (x) is not possible"),
        Trouble::Refused => code("ValidationError", "The value 'x' is not possible"),
        Trouble::NotFound if !operation.writes => {
            Err("a read that denies an existing object is a stale read, which has tests of its own")
        }
        Trouble::NotFound
            if ["Delete", "Revoke", "Deregister", "Detach"].iter().any(|verb| action.starts_with(verb)) =>
        {
            Err("the removal of a missing object is done")
        }
        Trouble::NotFound => code(missing(service, action), "The object 'x' does not exist"),
        Trouble::Conflict => Err("objects have no versions; one that exists already is what follows a lost answer"),
        Trouble::Busy => match action {
            "DeleteSecurityGroup" => code("DependencyViolation", "resource sg-x has a dependent object"),
            "DeleteTargetGroup" => {
                code("ResourceInUse", "Target group 'x' is currently in use by a listener or a rule")
            }
            "DeleteLoadBalancer" if service == "elbv2" => code("ResourceInUse", "Load balancer 'x' is in use"),
            _ => Err("the operation has no error about a busy object"),
        },
        Trouble::Quota => match quota(service, action) {
            Some(name) => code(name, "The maximum number of objects is reached"),
            None => Err("the operation has no quota"),
        },
        Trouble::Throttled => Ok(Effect::Throttled),
        Trouble::Server if service == "ec2" => Ok(Effect::code(500, "InternalError", "An internal error has occurred")),
        Trouble::Server => Ok(Effect::code(500, "InternalFailure", "An internal error has occurred")),
        Trouble::Html => Ok(Effect::Html),
        Trouble::Lost => Ok(Effect::AnswerLost),
        Trouble::FailsLater => Err("AWS has no operations that fail later"),
        Trouble::Hangs => Ok(Effect::Hangs),
        Trouble::Stops => Ok(Effect::Served),
        Trouble::Half if operation.writes => Err("only lists have pages"),
        Trouble::Half if operation.continued => {
            Ok(Effect::code(500, "InternalError", "An internal error has occurred"))
        }
        Trouble::Half => Ok(Effect::AnswerCut),
    }
}

/// The code for an object that a write names and that does not exist.
fn missing(service: &str, action: &str) -> &'static str {
    match (service, action) {
        ("ec2", _) => "InvalidGroup.NotFound",
        (_, "CreateLoadBalancer") => "SubnetNotFound",
        ("elbv2", action) if action.contains("Target") => "TargetGroupNotFound",
        ("elbv2", "ModifyListener" | "DeleteListener") => "ListenerNotFound",
        _ => "LoadBalancerNotFound",
    }
}

/// The code of an exhausted quota.
fn quota(service: &str, action: &str) -> Option<&'static str> {
    Some(match (service, action) {
        ("ec2", "CreateSecurityGroup") => "SecurityGroupLimitExceeded",
        ("ec2", "AuthorizeSecurityGroupIngress") => "RulesPerSecurityGroupLimitExceeded",
        (_, "CreateLoadBalancer") => "TooManyLoadBalancers",
        ("elbv2", "CreateTargetGroup") => "TooManyTargetGroups",
        ("elbv2", "CreateListener") => "TooManyListeners",
        ("elbv2", "RegisterTargets") => "TooManyTargets",
        ("elb", "CreateLoadBalancerPolicy") => "TooManyPolicies",
        (_, "AddTags") => "TooManyTags",
        _ => return None,
    })
}
