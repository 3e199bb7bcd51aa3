//! The whole program with `--cloud-provider=aws`, as a process, with a real API server and two simulations of AWS.
//!
//! The program is the one that this package builds with its feature `aws`, as in
//! `cargo test --workspace --all-features`, or the one in `CCM_AWS_PROGRAM`.

mod bad_input;
mod cloud;
mod lives;
mod long_lane;
mod nodes;
mod pods;
mod volumes;

use std::time::Duration;

use ccm_test_suite::{LONG, Make, Process, Rig, deadline, node, service_with, tcp_ports};
use serde_json::json;

use cloud::{Cloud, REGION};

const ANNOTATION: &str = "service.beta.kubernetes.io/aws-load-balancer-";
/// Longer than any delay between two calls of one sync.
const QUIET: Duration = Duration::from_millis(1500);

/// A cluster on a cloud: network `10.0.0.0/16` with public subnets in two zones, all with the tag of cluster `c1`.
struct World {
    rig: Rig,
    cloud: Cloud,
    program: String,
    vpc: String,
    subnets: Vec<String>,
    node_group: String,
    table: String,
}

/// A program with the provider, if this machine has one.
fn program() -> Option<String> {
    let named = std::env::var("CCM_AWS_PROGRAM").ok().filter(|path| !path.is_empty());
    let built = cfg!(feature = "aws").then(|| env!("CARGO_BIN_EXE_ccm-under-test").to_owned());
    let found = named.or(built);
    if found.is_none() {
        let reason = "no program with the provider for AWS: --features aws builds it, CCM_AWS_PROGRAM names another";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
        // Bypasses the test harness, which would capture it.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("\nNOT RUN: {reason}\n").as_bytes());
    }
    found
}

impl World {
    /// `None` if a component is missing, after a message about it.
    async fn start(cloud: impl FnOnce() -> Option<Cloud>) -> Option<Self> {
        let (program, cloud) = (program()?, cloud()?);
        let rig = Rig::real_alone(ccm_test_bed::Options::default(), "unused", "").await?;
        let vpc = cloud.text("ec2:CreateVpc", "CidrBlock=10.0.0.0/16", "vpc/vpcId");
        let subnet = |zone: char, number: u8| {
            let form = format!("VpcId={vpc}&CidrBlock=10.0.{number}.0/24&AvailabilityZone={REGION}{zone}");
            cloud.text("ec2:CreateSubnet", &form, "subnet/subnetId")
        };
        let subnets = vec![subnet('a', 1), subnet('b', 2)];
        let gateway = cloud.text("ec2:CreateInternetGateway", "", "internetGateway/internetGatewayId");
        cloud.hand("ec2:AttachInternetGateway", &format!("InternetGatewayId={gateway}&VpcId={vpc}"));
        let main =
            format!("Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}&Filter.2.Name=association.main&Filter.2.Value.1=true");
        let table = cloud.text("ec2:DescribeRouteTables", &main, "routeTableSet/item/routeTableId");
        let way_out = format!("RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}");
        cloud.hand("ec2:CreateRoute", &way_out);
        let group = format!("GroupName=nodes&GroupDescription=nodes&VpcId={vpc}");
        let node_group = cloud.text("ec2:CreateSecurityGroup", &group, "groupId");
        let world = Self { rig, cloud, program, vpc, subnets, node_group, table };
        world.tag(&world.subnets[0], "shared");
        world.tag(&world.subnets[1], "shared");
        world.tag(&world.node_group, "owned");
        world.tag(&world.table, "owned");
        Some(world)
    }

    fn tag(&self, id: &str, value: &str) {
        let form = format!("ResourceId.1={id}&Tag.1.Key=kubernetes.io/cluster/c1&Tag.1.Value={value}");
        self.cloud.hand("ec2:CreateTags", &form);
    }

    /// A running instance of the cluster in one of the subnets: its ID and private name.
    fn instance(&self, number: usize) -> (String, String) {
        let (subnet, group) = (&self.subnets[number % 2], &self.node_group);
        let form = format!(
            "ImageId=ami-12345678&InstanceType=m5.large&MinCount=1&MaxCount=1&SubnetId={subnet}&SecurityGroupId.1={group}"
        );
        let id = self.cloud.text("ec2:RunInstances", &form, "instancesSet/item/instanceId");
        self.tag(&id, "owned");
        let path = "reservationSet/item/instancesSet/item/privateDnsName";
        let name = self.cloud.text("ec2:DescribeInstances", &format!("InstanceId.1={id}"), path);
        (id, name)
    }

    /// An instance and the node that its kubelet would register: the IDs of both.
    async fn node(&self, number: usize) -> (String, String) {
        let (id, name) = self.instance(number);
        self.rig.create(node(&name).uninitialized().pod_cidr(&format!("10.88.{number}.0/24"))).await;
        (id, name)
    }

    /// The text of a cloud config: not on an instance, with all endpoints at the cloud, except those in `other`.
    fn config(&self, global: &str, other: &[(&str, &str)]) -> String {
        let (vpc, subnet, url) = (&self.vpc, &self.subnets[0], self.cloud.url());
        let mut config = format!(
            "[Global]\nRegion = {REGION}\nVPC = {vpc}\nSubnetID = {subnet}\nKubernetesClusterID = c1\n{global}\n"
        );
        for service in ["EC2", "Elastic Load Balancing", "Elastic Load Balancing v2"] {
            let url = other.iter().find(|(name, _)| *name == service).map_or(url.as_str(), |(_, url)| url);
            config.push_str(&format!(
                "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = {REGION}\nURL = {url}\n\
                 SigningRegion = {REGION}\n"
            ));
        }
        config
    }

    /// Starts the program with this cloud config and credentials from the environment.
    fn manager(&self, config: &str, args: &[&str]) -> Process {
        let path = self.rig.cloud.path("aws.conf");
        std::fs::write(&path, config).unwrap();
        let file = format!("--cloud-config={}", path.display());
        let environment = [
            ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "not-a-secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ];
        self.start_program(&[&[file.as_str()][..], args].concat(), &environment)
    }

    fn start_program(&self, args: &[&str], environment: &[(&str, String)]) -> Process {
        let kubeconfig = format!("--kubeconfig={}", self.rig.bed().kubeconfig().display());
        let fixed = ["--cloud-provider=aws", "--leader-elect=false", "--secure-port=0", "-v=2", &kubeconfig];
        let args: Vec<String> = fixed.iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        Process::start_with(&self.program, &args, environment, &self.rig.cloud.path("manager.log"))
    }

    /// Waits until the work has ended: no calls for a while, except periodic ones.
    async fn quiet(&self) {
        deadline(LONG, || format!("{:?}", self.cloud.since(0)), async || self.cloud.quiet_for() >= QUIET).await;
    }

    /// Waits until the cloud meets a condition.
    async fn until(&self, what: &str, mut is_so: impl FnMut(&Cloud) -> bool) {
        self.rig.until(LONG, what, async |_| is_so(&self.cloud).then_some(())).await;
    }

    /// Name of a Service's load balancer.
    async fn balancer(&self, name: &str) -> String {
        let uid = self.rig.service(name).await.unwrap().uid().replace('-', "");
        format!("a{uid}").chars().take(32).collect()
    }
}

/// A Service with annotations (without their prefix) and TCP ports.
fn service(name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Make {
    service_with(name, ANNOTATION, annotations, ports)
}
