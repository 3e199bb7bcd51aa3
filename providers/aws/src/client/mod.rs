//! The calls to AWS.
//!
//! [`Api`] is the whole interface: one method per read, and [`Api::write`] for every write, which is data ([`Write`])
//! until it is sent. So a plan can be printed, compared and checked before it runs, and the list of operations from
//! which the IAM policies are generated ([`operation`]) stays complete. The types are our own: those of the SDK stay in
//! the module `crate::sdk`, which is compiled with the cargo feature of that name.

mod codes;
pub(crate) mod ec2;
pub(crate) mod elb;
pub(crate) mod elbv2;
mod id;
pub(crate) mod metrics;
pub(crate) mod operation;
pub(crate) mod write;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ccm_kit::call::{CallError, Meaning};

pub(crate) use id::{Id, Made, Object};
pub(crate) use write::Write;

/// The TLS policy that AWS gives a new listener.
pub(crate) const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// Tags by key.
pub(crate) type Tags = BTreeMap<String, String>;

pub(crate) type ApiError = CallError<operation::Operation>;

/// The answer of one operation, with all its pages.
pub(crate) type Answer<T> = Result<T, ApiError>;

/// Reads of EC2.
#[async_trait]
pub(crate) trait ReadEc2: Send + Sync {
    /// `ec2:DescribeInstances`. An unknown ID in [`Query::ids`] fails the whole call with `InvalidInstanceID.NotFound`;
    /// unknown IDs in the filter `instance-id` are simply absent.
    async fn instances(&self, query: &Query) -> Answer<Vec<ec2::Instance>>;
    /// `ec2:DescribeInstanceTopology` of at most 100 instances. Instances without topology are absent.
    async fn instance_topology(&self, ids: &[String]) -> Answer<BTreeMap<String, Vec<String>>>;
    /// `ec2:DescribeNetworkInterfaces`
    async fn network_interfaces(&self, query: &Query) -> Answer<Vec<ec2::NetworkInterface>>;
    /// `ec2:DescribeAvailabilityZones`
    async fn availability_zones(&self) -> Answer<Vec<ec2::AvailabilityZone>>;
    /// `ec2:DescribeSubnets`
    async fn subnets(&self, query: &Query) -> Answer<Vec<ec2::Subnet>>;
    /// `ec2:DescribeRouteTables`
    async fn route_tables(&self, query: &Query) -> Answer<Vec<ec2::RouteTable>>;
    /// `ec2:DescribeSecurityGroups`
    async fn security_groups(&self, query: &Query) -> Answer<Vec<ec2::SecurityGroup>>;
    /// `ec2:DescribeVolumes`
    async fn volumes(&self, query: &Query) -> Answer<Vec<ec2::Volume>>;
}

/// Reads of classic balancers.
#[async_trait]
pub(crate) trait ReadElb: Send + Sync {
    /// `elasticloadbalancing:DescribeLoadBalancers` of classic balancers: those with the names (at most 400), where an
    /// unknown name fails the whole call with `LoadBalancerNotFound`; without names, all of the account and region.
    async fn classic_balancers(&self, names: &[String]) -> Answer<Vec<elb::LoadBalancer>>;
    /// `elasticloadbalancing:DescribeLoadBalancerAttributes` of a classic balancer.
    async fn classic_attributes(&self, name: &str) -> Answer<elb::Attributes>;
    /// `elasticloadbalancing:DescribeLoadBalancerPolicies` of a classic balancer.
    async fn classic_policies(&self, name: &str) -> Answer<Vec<elb::Policy>>;
    /// `elasticloadbalancing:DescribeTags` of at most 20 classic balancers, by name.
    async fn classic_tags(&self, names: &[String]) -> Answer<BTreeMap<String, Tags>>;
}

/// Reads of network balancers.
#[async_trait]
pub(crate) trait ReadElbV2: Send + Sync {
    /// `elasticloadbalancing:DescribeLoadBalancers` (v2). By name, an unknown one gives `LoadBalancerNotFound`.
    async fn balancers(&self, which: &elbv2::Which) -> Answer<Vec<elbv2::LoadBalancer>>;
    /// `elasticloadbalancing:DescribeLoadBalancerAttributes` (v2).
    async fn balancer_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>>;
    /// `elasticloadbalancing:DescribeListeners` of a balancer.
    async fn listeners(&self, balancer_arn: &str) -> Answer<Vec<elbv2::Listener>>;
    /// `elasticloadbalancing:DescribeTargetGroups`. By name, an unknown one gives `TargetGroupNotFound`.
    async fn target_groups(&self, which: &elbv2::Which) -> Answer<Vec<elbv2::TargetGroup>>;
    /// `elasticloadbalancing:DescribeTargetGroupAttributes`
    async fn target_group_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>>;
    /// `elasticloadbalancing:DescribeTargetHealth`
    async fn target_health(&self, target_group_arn: &str) -> Answer<Vec<elbv2::TargetHealth>>;
    /// `elasticloadbalancing:DescribeTags` (v2) of at most 20 balancers, listeners or target groups, by ARN.
    async fn balancer_tags(&self, arns: &[String]) -> Answer<BTreeMap<String, Tags>>;
}

/// The part of AWS that this program uses. A read follows all pages and fails if any page fails: an incomplete answer
/// is never returned. Rate limits, retries and metrics are inside.
#[async_trait]
pub(crate) trait Api: ReadEc2 + ReadElb + ReadElbV2 + std::fmt::Debug {
    /// Sends one write, whose [`Id`]s must all be known. Returns the ID or ARN of the created object, if any.
    async fn write(&self, write: &Write) -> Answer<Option<String>>;

    /// Checks with `DryRun` whether EC2 would carry out a write; nothing changes. Success means that it would; a
    /// missing permission is an error with the code `UnauthorizedOperation`. Elastic Load Balancing has no dry run.
    async fn dry_run(&self, write: &write::Ec2Write) -> Answer<()>;
}

/// Whether this program cannot use an operation: its role lacks the permission, or AWS does not know the operation.
pub(crate) fn is_unavailable(error: &ApiError) -> bool {
    matches!(error.meaning(), Meaning::Denied | Meaning::Unsupported)
}

/// Whether a message of AWS names an object: its name or ID as a whole word, not as a part of a longer one.
pub(crate) fn names(message: &str, object: &str) -> bool {
    message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == object)
}

/// The selection of a describe call of EC2. Empty selects everything that the account has in the region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Query {
    /// IDs of the described objects; an unknown one fails the whole call.
    pub(crate) ids: BTreeSet<String>,
    /// All must match.
    pub(crate) filters: Vec<Filter>,
}

/// Most values in one filter.
pub(crate) const FILTER_VALUES: usize = 200;

/// One filter: any of the values matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Filter {
    /// As EC2 spells it: `vpc-id`, `tag-key`, `tag:Name`.
    pub(crate) name: String,
    /// At most [`FILTER_VALUES`]; the client splits a query that has more in its only long filter.
    pub(crate) values: Vec<String>,
}

impl Query {
    pub(crate) fn all() -> Self {
        Self::default()
    }

    /// By ID; an unknown one is an error.
    pub(crate) fn ids<I: IntoIterator<Item = S>, S: Into<String>>(ids: I) -> Self {
        Self { ids: ids.into_iter().map(Into::into).collect(), filters: Vec::new() }
    }

    pub(crate) fn by<I: IntoIterator<Item = S>, S: Into<String>>(name: &str, values: I) -> Self {
        Self::all().and(name, values)
    }

    #[must_use]
    pub(crate) fn and<I: IntoIterator<Item = S>, S: Into<String>>(mut self, name: &str, values: I) -> Self {
        self.filters.push(Filter { name: name.to_owned(), values: values.into_iter().map(Into::into).collect() });
        self
    }
}
