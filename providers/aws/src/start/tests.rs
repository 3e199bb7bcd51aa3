use parking_lot::Mutex;

use super::*;
use crate::tests::world::{World, id};

/// A host: its metadata service and the cloud behind it. Records the requests in order.
#[derive(Clone, Default)]
struct Host {
    identity: Option<Identity>,
    instance_id: Option<String>,
    /// Answers only after an hour.
    silent: bool,
    world: Arc<World>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Host {
    /// On the first of several instances.
    fn on_instance() -> Self {
        let identity = Identity { region: Some("us-west-2".to_owned()), ..Identity::default() };
        Self { identity: Some(identity), instance_id: Some(id(1)), world: Arc::new(World::with(3)), ..Self::default() }
    }

    fn tagged(self, tags: &[(&str, &str)]) -> Self {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.world.ec2(|ec2| {
            if let Some(own) = ec2.instances.get_mut(&id(1)) {
                own.tags = tags;
            }
        });
        self
    }

    /// Starts; returns the recorded requests and the result.
    async fn start(self, text: &str, allow_untagged: bool) -> (Vec<String>, Result<Start, String>) {
        let (asked, world) = (self.asked.clone(), self.world.clone());
        let result = start(Some(text), allow_untagged, Box::new(self)).await.map_err(|error| error.to_string());
        let mut asked = std::mem::take(&mut *asked.lock());
        asked.extend(world.calls());
        (asked, result)
    }

    async fn answer<T>(&self, what: &str, answer: Option<T>) -> Result<T, String> {
        self.asked.lock().push(what.to_owned());
        if self.silent {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        answer.ok_or_else(|| "it is switched off".to_owned())
    }
}

#[async_trait]
impl Metadata for Host {
    async fn identity(&self) -> Result<Identity, String> {
        self.answer("identity", self.identity.clone()).await
    }

    async fn instance_id(&self) -> Result<String, String> {
        self.answer("instance-id", self.instance_id.clone()).await
    }
}

#[async_trait]
impl Connector for Host {
    fn metadata(&self, _: &Config) -> Result<Arc<dyn Metadata>, ProviderError> {
        self.asked.lock().push("make metadata".to_owned());
        Ok(Arc::new(self.clone()))
    }

    async fn api(self: Box<Self>, config: &Config, region: &str) -> Result<Arc<dyn Api>, ProviderError> {
        self.asked.lock().push(format!("make clients in {region}"));
        config.role()?;
        Ok(self.world.api())
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_asks_for_itself_once() {
    let (asked, started) = Host::on_instance().tagged(&[("kubernetes.io/cluster/c1", "shared")]).start("", false).await;
    let started = started.unwrap();
    assert_eq!(
        asked,
        ["make metadata", "identity", "make clients in us-west-2", "instance-id", "DescribeInstances 1 IDs"]
    );
    assert_eq!((started.region.as_str(), started.vpc.as_str()), ("us-west-2", "vpc-1"));
    assert_eq!(started.ownership, Ownership { cluster: "c1".to_owned(), legacy: false });
    assert_eq!(started.own.map(|own| own.id), Some(id(1)));
}

/// Pitfall 6.
#[tokio::test(start_paused = true)]
async fn off_instance_nothing_is_asked() {
    let text =
        "[Global]\nRegion = eu-west-1\nVPC = vpc-9\nRoleARN = arn:aws:iam::1:role/ccm\nKubernetesClusterID = c1\n";
    let (asked, started) = Host::default().start(text, false).await;
    let started = started.unwrap();
    assert_eq!(asked, ["make metadata", "make clients in eu-west-1"]);
    assert_eq!((started.vpc.as_str(), started.subnet.as_str(), started.own), ("vpc-9", "", None));
    let with_subnet = "[Global]\nZone = eu-west-1b\nVPC = vpc-9\nSubnetID = subnet-9\nKubernetesClusterTag = c1\n";
    let (asked, started) = Host::default().start(with_subnet, false).await;
    let started = started.unwrap();
    assert_eq!(asked, ["make metadata", "make clients in eu-west-1"]);
    assert_eq!((started.subnet.as_str(), started.ownership.legacy), ("subnet-9", true));
}

/// Issue #1028 of upstream: the region is configured, so the metadata service need not answer.
#[tokio::test(start_paused = true)]
async fn a_region_in_the_file_needs_no_identity_document() {
    let host = Host { identity: None, ..Host::on_instance() };
    let (_, started) = host.start("[Global]\nRegion = us-west-2\nKubernetesClusterID = other\n", false).await;
    assert_eq!(started.unwrap().ownership.cluster, "other");
}

#[tokio::test(start_paused = true)]
async fn the_first_thing_that_is_wrong_is_reported_in_upstreams_order() {
    let bad_override = "[ServiceOverride \"1\"]\nService = EC2\n";
    let bad_role = "[Global]\nRoleARN = ccm\n";
    let cases: &[(Host, String, &[&str], &str)] = &[
        (
            Host::default(),
            format!("[Global]\nVPC\n{bad_override}"),
            &[],
            "unable to read AWS cloud provider config file: ",
        ),
        (Host::default(), bad_override.to_owned(), &[], "unable to validate custom endpoint overrides: "),
        (
            Host::default(),
            bad_role.to_owned(),
            &["make metadata", "identity"],
            "no region: neither Zone nor Region is set in section [Global] of the cloud config, and it is switched off",
        ),
        (Host::default(), format!("{bad_role}Zone = here\n"), &["make metadata"], "invalid AZ: here"),
        (
            Host::default(),
            format!("{bad_role}Region = r\n"),
            &["make metadata", "identity", "make clients in r"],
            "unable to create sts v2 client: [Global] RoleARN = \"ccm\": not an ARN",
        ),
        (
            Host::default(),
            "[Global]\nRegion = r\nKubernetesClusterID = a\nKubernetesClusterTag = b\n".to_owned(),
            &["make metadata", "identity", "make clients in r", "instance-id"],
            "error fetching instance-id from ec2 metadata service: it is switched off; to run outside",
        ),
        (
            Host { instance_id: Some("i-9".to_owned()), ..Host::on_instance() },
            String::new(),
            &["make metadata", "identity", "make clients in us-west-2", "instance-id", "DescribeInstances 1 IDs"],
            "error finding instance i-9: ",
        ),
        (
            Host::on_instance(),
            "[Global]\nKubernetesClusterID = a\nKubernetesClusterTag = b\n".to_owned(),
            &["make metadata", "identity", "make clients in us-west-2", "instance-id", "DescribeInstances 1 IDs"],
            "clusterID tags did not match: \"a\" vs \"b\"",
        ),
    ];
    for (host, text, asked, message) in cases {
        let host = Host { asked: Arc::default(), ..host.clone() };
        let (seen, result) = host.start(text, true).await;
        let error = result.expect_err(text);
        assert!(error.starts_with(message), "{text}: {error}");
        assert_eq!(seen, *asked, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_cluster_id_only_the_flag_helps() {
    let (_, refused) = Host::on_instance().tagged(&[("Name", "x")]).start("", false).await;
    let error = refused.unwrap_err();
    assert!(error.starts_with("AWS cloud failed to find ClusterID; tag the instance"), "{error}");
    let (_, started) = Host::on_instance().tagged(&[("Name", "x")]).start("", true).await;
    assert_eq!(started.unwrap().ownership, Ownership::untagged());
    // The flag allows no cluster ID, but not two.
    let two = [("kubernetes.io/cluster/a", "owned"), ("kubernetes.io/cluster/b", "owned")];
    let (_, refused) = Host::on_instance().tagged(&two).start("", true).await;
    assert!(refused.unwrap_err().starts_with("Found multiple cluster tags"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_metadata_service_ends_the_start() {
    let before = tokio::time::Instant::now();
    let (_, refused) = Host { silent: true, ..Host::on_instance() }.start("", false).await;
    assert!(refused.unwrap_err().ends_with("and no answer within 20s"));
    let (_, refused) = Host { silent: true, ..Host::on_instance() }.start("[Global]\nRegion = r\n", false).await;
    assert!(
        refused.unwrap_err().starts_with("error fetching instance-id from ec2 metadata service: no answer within 20s")
    );
    assert!(before.elapsed() < Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_silent_cloud_ends_the_start() {
    let world = World::taking(Duration::from_secs(3600)).launched(1);
    let (_, refused) = Host { world: Arc::new(world), ..Host::on_instance() }.start("", false).await;
    let error = refused.unwrap_err();
    let why = "ec2:DescribeInstances: no usable answer from AWS (none in time)";
    assert_eq!(error, format!("error finding instance {}: {why}", id(1)));
}
