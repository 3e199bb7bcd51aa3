//! The IAM permissions of this provider as policy documents: one per function, each with least privilege.
//!
//! Existing objects are changed only if they carry the cluster's tag, and new ones must carry it. Reads have no such
//! conditions in EC2 and Elastic Load Balancing. Resource types and condition keys of each action: AWS's service
//! authorization reference.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Placeholder for the cluster's ID.
const CLUSTER: &str = "CLUSTER_ID";
const OWNED: &[&str] = &["owned"];
const ANY: &[&str] = &["*"];

/// Files of the policies in `manifests/aws/iam`, one for each function.
pub(crate) const NODE: &str = "node.json";
pub(crate) const LOAD_BALANCER: &str = "load-balancer.json";
pub(crate) const ROUTE: &str = "route.json";
pub(crate) const TAGGING: &str = "tagging.json";
const VOLUME: &str = "volume.json";

#[derive(Debug, Clone, Copy)]
enum When {
    Always,
    /// The object carries the cluster's tag, with one of the values; `*` is any.
    Tagged(&'static [&'static str]),
    /// New objects get the cluster's tag with the value `owned`.
    TaggedOnCreation,
    /// A condition key with one of the values.
    Key(&'static str, &'static [&'static str]),
}

/// The permissions that the program can do without, and the effect. Upstream uses none of them, or works without.
pub(crate) const OPTIONAL: &[(&str, &str)] = &[
    ("ec2:DescribeInstanceTopology", "nodes get no labels of their network topology"),
    (
        "ec2:DescribeAvailabilityZones",
        "nodes get no label of the ID of their zone, and subnets of local zones are not left out",
    ),
    (
        "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
        "a rule for health checks that several load balancers need keeps the name of the first one; one for clients is \
         revoked and opened again",
    ),
    (
        "elasticloadbalancing:SetLoadBalancerListenerSSLCertificate",
        "a listener of a classic load balancer is deleted and created again for another certificate",
    ),
    ("ec2:ReplaceRoute", "a route of a former instance is deleted and created again"),
    (
        "elasticloadbalancing:DescribeTags",
        "names decide which load balancers are this cluster's, with one Warning, and `ccm orphans` fails; a Warning names \
         target groups that another process may have left when a Service goes; each process adds the tags of \
         `additional-resource-tags` once",
    ),
];

#[derive(Debug, Clone, Copy)]
struct Grant {
    role: &'static str,
    sid: &'static str,
    /// `ec2:DescribeInstances`
    actions: &'static [&'static str],
    /// The end of an ARN after service, region and account; `*` is everything.
    resources: &'static [&'static str],
    when: When,
}

#[rustfmt::skip]
const GRANTS: &[Grant] = &[
    Grant { role: NODE, sid: "ReadNodes", resources: ANY, when: When::Always, actions: &[
        "ec2:DescribeInstances", "ec2:DescribeInstanceTopology", "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeAvailabilityZones",
    ] },

    Grant { role: LOAD_BALANCER, sid: "ReadNetwork", resources: ANY, when: When::Always, actions: &[
        "ec2:DescribeInstances", "ec2:DescribeAvailabilityZones", "ec2:DescribeSubnets", "ec2:DescribeRouteTables",
        "ec2:DescribeSecurityGroups", "ec2:DescribeNetworkInterfaces",
    ] },
    Grant { role: LOAD_BALANCER, sid: "ReadBalancers", resources: ANY, when: When::Always, actions: &[
        "elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeLoadBalancerAttributes",
        "elasticloadbalancing:DescribeLoadBalancerPolicies", "elasticloadbalancing:DescribeTags",
        "elasticloadbalancing:DescribeListeners", "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetGroupAttributes", "elasticloadbalancing:DescribeTargetHealth",
    ] },
    Grant { role: LOAD_BALANCER, sid: "CreateSecurityGroups", resources: &["ec2:security-group/*"],
        when: When::TaggedOnCreation, actions: &["ec2:CreateSecurityGroup"] },
    Grant { role: LOAD_BALANCER, sid: "CreateSecurityGroupsInVpcs", resources: &["ec2:vpc/*"],
        when: When::Always, actions: &["ec2:CreateSecurityGroup"] },
    Grant { role: LOAD_BALANCER, sid: "TagNewSecurityGroups", resources: &["ec2:security-group/*"],
        when: When::Key("ec2:CreateAction", &["CreateSecurityGroup"]), actions: &["ec2:CreateTags"] },
    Grant { role: LOAD_BALANCER, sid: "ChangeSecurityGroups", resources: &["ec2:security-group/*"],
        when: When::Tagged(ANY), actions: &[
        "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress",
        "ec2:UpdateSecurityGroupRuleDescriptionsIngress", "ec2:CreateTags",
    ] },
    Grant { role: LOAD_BALANCER, sid: "DeleteSecurityGroups", resources: &["ec2:security-group/*"],
        when: When::Tagged(OWNED), actions: &["ec2:DeleteSecurityGroup"] },
    Grant { role: LOAD_BALANCER, sid: "CreateBalancers", when: When::TaggedOnCreation,
        resources: &["elasticloadbalancing:loadbalancer/*", "elasticloadbalancing:targetgroup/*"], actions: &[
        "elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup",
    ] },
    Grant { role: LOAD_BALANCER, sid: "TagNewBalancers", when: When::Key("elasticloadbalancing:CreateAction",
        &["CreateLoadBalancer", "CreateTargetGroup", "CreateListener"]),
        resources: &["elasticloadbalancing:loadbalancer/*", "elasticloadbalancing:targetgroup/*", "elasticloadbalancing:listener/*"],
        actions: &["elasticloadbalancing:AddTags"] },
    Grant { role: LOAD_BALANCER, sid: "ChangeTagsOfBalancers", when: When::Tagged(ANY),
        resources: &["elasticloadbalancing:loadbalancer/*", "elasticloadbalancing:targetgroup/*", "elasticloadbalancing:listener/*"],
        actions: &["elasticloadbalancing:AddTags"] },
    Grant { role: LOAD_BALANCER, sid: "ChangeBalancers", resources: &["elasticloadbalancing:loadbalancer/*"],
        when: When::Tagged(ANY), actions: &[
        "elasticloadbalancing:DeleteLoadBalancer", "elasticloadbalancing:ModifyLoadBalancerAttributes",
        "elasticloadbalancing:CreateLoadBalancerListeners", "elasticloadbalancing:DeleteLoadBalancerListeners",
        "elasticloadbalancing:AttachLoadBalancerToSubnets", "elasticloadbalancing:DetachLoadBalancerFromSubnets",
        "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer", "elasticloadbalancing:ConfigureHealthCheck",
        "elasticloadbalancing:CreateLoadBalancerPolicy", "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
        "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
        "elasticloadbalancing:SetLoadBalancerListenerSSLCertificate",
        "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
        "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
        "elasticloadbalancing:CreateListener", "elasticloadbalancing:SetSecurityGroups",
    ] },
    // Listeners of older versions have no tags. The names of all balancers begin with this letter.
    Grant { role: LOAD_BALANCER, sid: "ChangeListeners", resources: &["elasticloadbalancing:listener/net/a*"],
        when: When::Always, actions: &["elasticloadbalancing:ModifyListener", "elasticloadbalancing:DeleteListener"] },
    Grant { role: LOAD_BALANCER, sid: "ChangeTargetGroups", resources: &["elasticloadbalancing:targetgroup/*"],
        when: When::Tagged(ANY), actions: &[
        "elasticloadbalancing:ModifyTargetGroup", "elasticloadbalancing:ModifyTargetGroupAttributes",
        "elasticloadbalancing:DeleteTargetGroup", "elasticloadbalancing:RegisterTargets",
        "elasticloadbalancing:DeregisterTargets",
    ] },
    // The first balancer of an account needs AWS's service-linked role.
    Grant { role: LOAD_BALANCER, sid: "FirstBalancerOfAccount",
        resources: &["iam:role/aws-service-role/elasticloadbalancing.amazonaws.com/AWSServiceRoleForElasticLoadBalancing"],
        when: When::Key("iam:AWSServiceName", &["elasticloadbalancing.amazonaws.com"]),
        actions: &["iam:CreateServiceLinkedRole"] },

    Grant { role: ROUTE, sid: "ReadRoutes", resources: ANY, when: When::Always, actions: &[
        "ec2:DescribeInstances", "ec2:DescribeRouteTables",
    ] },
    Grant { role: ROUTE, sid: "ChangeRoutes", resources: &["ec2:route-table/*"], when: When::Tagged(ANY),
        actions: &["ec2:CreateRoute", "ec2:ReplaceRoute", "ec2:DeleteRoute"] },
    Grant { role: ROUTE, sid: "LetInstancesForward", resources: &["ec2:instance/*"], when: When::Tagged(ANY),
        actions: &["ec2:ModifyInstanceAttribute"] },
    // Interfaces seldom carry the cluster's tag.
    Grant { role: ROUTE, sid: "LetInterfacesForward", resources: &["ec2:network-interface/*"], when: When::Always,
        actions: &["ec2:ModifyNetworkInterfaceAttribute"] },

    Grant { role: TAGGING, sid: "TagInstances", resources: &["ec2:instance/*"], when: When::Tagged(ANY),
        actions: &["ec2:CreateTags", "ec2:DeleteTags"] },

    Grant { role: VOLUME, sid: "ReadVolumes", resources: ANY, when: When::Always, actions: &["ec2:DescribeVolumes"] },
];

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    version: &'static str,
    statement: Vec<Statement>,
}

type Conditions = BTreeMap<&'static str, BTreeMap<String, Vec<String>>>;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    sid: &'static str,
    effect: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<BTreeMap<&'static str, &'static str>>,
    action: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    condition: Conditions,
}

/// The policy documents: path in the manifests' folder, and JSON. `CLUSTER_ID`, `ROLE_ARN`, `ACCOUNT_ID` and
/// `BASE_ROLE` are placeholders for the reader.
pub fn iam_policies() -> Vec<(&'static str, String)> {
    let of = |role: &str| GRANTS.iter().filter(move |grant| grant.role == role).map(statement).collect();
    vec![
        ("aws/iam/node.json", document(of(NODE))),
        ("aws/iam/load-balancer.json", document(of(LOAD_BALANCER))),
        ("aws/iam/route.json", document(of(ROUTE))),
        ("aws/iam/tagging.json", document(of(TAGGING))),
        ("aws/iam/volume.json", document(of(VOLUME))),
        ("aws/iam/assume-role.json", document(vec![assume_role()])),
        ("aws/iam/trust-of-assumed-role.json", document(vec![trust()])),
    ]
}

/// The policies that grant a permission.
pub(crate) fn granted_by(permission: &str) -> BTreeSet<&'static str> {
    let with = GRANTS.iter().filter(|grant| grant.actions.contains(&permission));
    with.map(|grant| grant.role).collect()
}

/// All permissions of Elastic Load Balancing that change something.
pub(crate) fn balancer_writes() -> BTreeSet<&'static str> {
    let actions = GRANTS.iter().flat_map(|grant| grant.actions).copied();
    actions.filter(|action| action.starts_with("elasticloadbalancing:") && !action.contains(":Describe")).collect()
}

fn document(statement: Vec<Statement>) -> String {
    let document = Document { version: "2012-10-17", statement };
    // Infallible: texts, lists and maps by text.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn statement(grant: &Grant) -> Statement {
    Statement {
        sid: grant.sid,
        effect: "Allow",
        principal: None,
        action: grant.actions.to_vec(),
        resource: grant.resources.iter().map(|resource| arn(resource)).collect(),
        condition: conditions(grant.when),
    }
}

/// In any partition, region and account.
fn arn(resource: &str) -> String {
    match resource.split_once(':') {
        Some(("iam", rest)) => format!("arn:*:iam::*:{rest}"),
        Some((service, rest)) => format!("arn:*:{service}:*:*:{rest}"),
        None => resource.to_owned(),
    }
}

fn conditions(when: When) -> Conditions {
    let one = |operator: &'static str, key: String, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        BTreeMap::from([(operator, BTreeMap::from([(key, values)]))])
    };
    match when {
        When::Always => BTreeMap::new(),
        When::Tagged(values) => one("StringLike", format!("aws:ResourceTag/kubernetes.io/cluster/{CLUSTER}"), values),
        When::TaggedOnCreation => one("StringEquals", format!("aws:RequestTag/kubernetes.io/cluster/{CLUSTER}"), OWNED),
        When::Key(key, values) => one("StringEquals", key.to_owned(), values),
    }
}

/// For the identity that the program starts with, when `RoleARN` is set.
fn assume_role() -> Statement {
    Statement {
        sid: "AssumeRole",
        effect: "Allow",
        principal: None,
        action: vec!["sts:AssumeRole"],
        resource: vec!["ROLE_ARN".to_owned()],
        condition: BTreeMap::new(),
    }
}

/// Trust policy of the role in `RoleARN`. The program always sends the role's account as the source.
fn trust() -> Statement {
    Statement {
        sid: "TrustBaseRole",
        principal: Some(BTreeMap::from([("AWS", "BASE_ROLE")])),
        resource: Vec::new(),
        condition: conditions(When::Key("aws:SourceAccount", &["ACCOUNT_ID"])),
        ..assume_role()
    }
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Operation as _;

    use super::*;
    use crate::client::operation::{Operation, READS, Service};
    use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};

    fn operations() -> BTreeSet<String> {
        let writes =
            [(Service::Ec2, Ec2Write::NAMES), (Service::Elb, ElbWrite::NAMES), (Service::ElbV2, ElbV2Write::NAMES)];
        let writes = writes.iter().flat_map(|(service, names)| names.iter().map(|name| Operation::new(*service, name)));
        READS.iter().copied().chain(writes).map(|operation| operation.permission()).collect()
    }

    #[test]
    fn every_operation_is_granted_and_nothing_else() {
        let granted: BTreeSet<String> =
            GRANTS.iter().flat_map(|grant| grant.actions).map(|action| (*action).to_owned()).collect();
        let mut wanted = operations();
        wanted.insert("iam:CreateServiceLinkedRole".to_owned());
        let missing: Vec<_> = wanted.difference(&granted).collect();
        let unused: Vec<_> = granted.difference(&wanted).collect();
        assert!(missing.is_empty() && unused.is_empty(), "missing {missing:?}, unused {unused:?}");
    }

    #[test]
    fn the_reference_lists_what_the_program_can_do_without() {
        let reference = include_str!("../docs/permissions.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for (permission, effect) in OPTIONAL {
            assert!(operations().contains(*permission), "{permission}");
            assert!(reference.contains(&format!("- `{permission}`: {effect}")), "{permission}");
        }
    }

    #[test]
    fn what_changes_something_is_limited_to_resources() {
        for grant in GRANTS {
            let reads = grant.actions.iter().all(|action| action.contains(":Describe"));
            assert_eq!(grant.resources == ANY, reads, "{}", grant.sid);
            let services: BTreeSet<_> = grant.actions.iter().filter_map(|action| action.split(':').next()).collect();
            for resource in grant.resources.iter().filter(|resource| **resource != "*") {
                assert!(services.contains(resource.split(':').next().unwrap()), "{}: {resource}", grant.sid);
            }
        }
    }

    #[test]
    fn what_exists_is_deleted_only_with_the_clusters_tag() {
        for grant in GRANTS.iter().filter(|grant| grant.actions.iter().any(|action| action.contains(":Delete"))) {
            let tagged = matches!(grant.when, When::Tagged(_));
            assert!(tagged || grant.sid == "ChangeListeners", "{}", grant.sid);
        }
    }

    #[test]
    fn documents_are_json_with_distinct_names_within_iams_size() {
        for (name, text) in iam_policies() {
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(document["Version"], "2012-10-17", "{name}");
            let statements = document["Statement"].as_array().unwrap();
            let sids: BTreeSet<_> = statements.iter().map(|statement| statement["Sid"].as_str().unwrap()).collect();
            assert!(!statements.is_empty() && sids.len() == statements.len(), "{name}");
            assert!(sids.iter().all(|sid| sid.chars().all(char::is_alphanumeric)), "{name}");
            // A managed policy may have 6,144 characters, not counting whitespace.
            let size = text.chars().filter(|c| !c.is_whitespace()).count();
            assert!(size <= 6_144, "{name}: {size}");
        }
    }

    #[test]
    fn a_new_group_must_carry_the_tag_and_may_be_tagged_only_when_it_is_made() {
        let policies = iam_policies();
        let (_, text) = policies.iter().find(|(name, _)| *name == "aws/iam/load-balancer.json").unwrap();
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let statement = |sid: &str| {
            document["Statement"].as_array().unwrap().iter().find(|statement| statement["Sid"] == sid).unwrap().clone()
        };
        let create = statement("CreateSecurityGroups");
        assert_eq!(create["Resource"][0], "arn:*:ec2:*:*:security-group/*");
        assert_eq!(create["Condition"]["StringEquals"]["aws:RequestTag/kubernetes.io/cluster/CLUSTER_ID"][0], "owned");
        let tag = statement("TagNewSecurityGroups");
        assert_eq!(tag["Condition"]["StringEquals"]["ec2:CreateAction"][0], "CreateSecurityGroup");
        let first = statement("FirstBalancerOfAccount");
        assert_eq!(first["Condition"]["StringEquals"]["iam:AWSServiceName"][0], "elasticloadbalancing.amazonaws.com");
    }
}
