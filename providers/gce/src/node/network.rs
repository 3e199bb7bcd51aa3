//! The network of the cluster, and the subnetwork of its internal balancers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_kit::Cluster;
use ccm_provider::{NodeReader, ProviderError, address};
use parking_lot::Mutex;

use crate::client::network::Subnetwork;
use crate::client::resource::{ResourceId, last_part, same_url};
use crate::client::{ApiError, Client};
use crate::node::identity::InstanceId;

/// The range of automatic subnetworks.
const AUTOMATIC: &str = "10.128.0.0/9";
/// The number of nodes whose instances are read for their subnetwork.
const NODES_ASKED: usize = 3;

/// The state of the search for the subnetwork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subnet {
    /// Its URL.
    Url(String),
    /// That of some nodes. Others may be in another one, and in another order next time.
    OfNodes(String),
    /// A legacy network has no subnetwork.
    Legacy,
    /// Neither the configuration nor the network nor the nodes determine it; with the reason.
    Unknown(String),
}

/// The network of the cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Its URL, as configured.
    pub(crate) url: String,
    client: Client,
    cluster: Cluster,
    region: String,
    configured: Option<String>,
    found: Arc<Mutex<Option<Subnet>>>,
}

impl Network {
    pub(crate) fn new(
        client: Client,
        cluster: Cluster,
        region: String,
        url: String,
        subnetwork: Option<String>,
    ) -> Self {
        Self { url, client, cluster, region, configured: subnetwork, found: Arc::default() }
    }

    pub(crate) fn name(&self) -> &str {
        last_part(&self.url)
    }

    /// The subnetwork: that of the configuration, else the automatic one of the region, else that of the nodes. A
    /// result is kept; without one, or if a node could not be read, the search is repeated.
    pub(crate) async fn subnetwork(&self) -> Result<Subnet, ProviderError> {
        if let Some(url) = &self.configured {
            return Ok(Subnet::Url(url.clone()));
        }
        let known = self.found.lock().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let (found, is_whole) = self.find().await?;
        if is_whole && !matches!(found, Subnet::Unknown(_)) {
            *self.found.lock() = Some(found.clone());
        }
        Ok(found)
    }

    /// The subnetwork, and whether all was read that it follows from.
    async fn find(&self) -> Result<(Subnet, bool), ProviderError> {
        let name = self.name();
        let Some(network) = self.client.network(name).await? else {
            let project = &self.client.links().network_project;
            return Err(ProviderError::unknown(format!(
                "the network {name:?} does not exist in project {project:?}: correct network-name or network-project-id"
            )));
        };
        if !network.ipv4_range.is_empty() {
            return Ok((Subnet::Legacy, true));
        }
        if network.auto_create_subnetworks {
            let subnetworks = self.client.subnetworks(&self.region, name).await?;
            if let [one] = &*automatic(&subnetworks, &self.url) {
                return Ok((Subnet::Url(one.self_link.clone()), true));
            }
        }
        Ok(self.of_nodes().await)
    }

    /// The subnetwork in this network and region that the first nodes agree on. Of a zone with a node that cannot be read
    /// no other is asked for.
    async fn of_nodes(&self) -> (Subnet, bool) {
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        let (mut found, mut answers) = (Vec::<String>::new(), 0);
        let mut unread: BTreeMap<String, ApiError> = BTreeMap::new();
        for id in nodes.iter().filter_map(|node| InstanceId::of(node)) {
            if answers == NODES_ASKED {
                break;
            }
            if unread.contains_key(&id.zone) {
                continue;
            }
            let instance = match self.client.instance(&id.zone, &id.name).await {
                Ok(instance) => instance,
                Err(error) => {
                    unread.insert(id.zone, error);
                    continue;
                }
            };
            answers += 1;
            let nics = instance.into_iter().flat_map(|instance| instance.network_interfaces);
            let mut nics = nics.filter(|nic| same_url(&nic.network, &self.url) && is_in(&nic.subnetwork, &self.region));
            found.extend(nics.next().map(|nic| nic.subnetwork));
        }
        found.sort();
        found.dedup_by(|a, b| same_url(a, b));
        let is_whole = unread.is_empty();
        let subnet = match (&mut *found, unread.into_values().next()) {
            ([one], _) => Subnet::OfNodes(std::mem::take(one)),
            ([], Some(error)) => Subnet::Unknown(error.to_string()),
            ([], None) => {
                Subnet::Unknown("no node has a NIC in the network and region; set subnetwork-name".to_owned())
            }
            (several, _) => {
                Subnet::Unknown(format!("nodes are in several ({}); set subnetwork-name", several.join(", ")))
            }
        };
        (subnet, is_whole)
    }
}

fn is_in(subnetwork: &str, region: &str) -> bool {
    use crate::client::resource::Scope;
    ResourceId::parse(subnetwork).is_some_and(|id| id.scope == Scope::region(region))
}

/// The automatically created subnetworks of a network.
fn automatic<'a>(subnetworks: &'a [Subnetwork], network: &str) -> Vec<&'a Subnetwork> {
    let Some(whole) = address::parse_cidr(AUTOMATIC) else { return Vec::new() };
    let is_inside = |cidr: &str| address::parse_cidr(cidr).is_some_and(|range| whole.contains(&range));
    let ours =
        |subnetwork: &&Subnetwork| same_url(&subnetwork.network, network) && is_inside(&subnetwork.ip_cidr_range);
    subnetworks.iter().filter(ours).collect()
}

#[cfg(test)]
mod tests {
    use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
    use ccm_cloudsim::gce::seed::InstanceSeed;
    use ccm_cloudsim::gce::{Gce, Options, World};
    use ccm_kit::http::{Settings, Tls};
    use ccm_provider::Node;
    use ccm_provider::metric::Registry;
    use ccm_provider_contract::TestCluster;

    use super::*;
    use crate::client::credentials::{Source, Token, Tokens};
    use crate::client::failure::refusal;
    use crate::client::metrics::caller;
    use crate::client::resource::Links;
    use crate::client::session::Session;

    const NETWORK: &str = "https://www.googleapis.com/compute/v1/projects/p/global/networks/n";
    const REGION: &str = "us-central1";
    const ZONE: &str = "us-central1-b";

    /// One token forever.
    #[derive(Debug)]
    struct Fixed(String);

    #[async_trait::async_trait]
    impl Source for Fixed {
        async fn fetch(&self) -> Result<Token, ccm_kit::call::Failure> {
            Token::new(&self.0, None)
        }
    }

    fn client(cloud: &Gce) -> Client {
        let settings = Settings {
            cloud: "GCE",
            environment: &|_| None,
            tls: Tls::default(),
            timeout: std::time::Duration::from_secs(5),
            user_agent: "test",
            request_ids: &[],
            refusal,
        };
        let http = ccm_kit::http::Client::new(&settings).unwrap();
        let tokens = Tokens::new(Arc::new(Fixed(cloud.token())));
        let links = Links {
            base: cloud.url(),
            network_base: cloud.url(),
            project: "p".to_owned(),
            network_project: "p".to_owned(),
        };
        let (caller, metrics) = caller(&Registry::new());
        Client::new(caller, metrics, Session::new(http, tokens, cloud.root()), links)
    }

    /// A cloud with the objects that `seed` creates, and a cluster with these nodes.
    fn network(seed: impl FnOnce(&mut World), nodes: &[&str]) -> (Gce, Network) {
        let cloud = Gce::start(Options::default()).unwrap();
        cloud.world(|world| {
            world.project("p");
            seed(world);
        });
        let (cluster, handle) = (Arc::<TestCluster>::default(), Cluster::default());
        for name in nodes {
            let (zone, name) = name.split_once('/').unwrap_or((ZONE, name));
            let id = format!("gce://p/{zone}/{name}");
            let node = Node { name: name.into(), provider_id: Some(id.into()), ..Node::default() };
            cluster.add_node(node.into());
        }
        handle.set(cluster.context("kubernetes"));
        let network = Network::new(client(&cloud), handle, REGION.to_owned(), NETWORK.to_owned(), None);
        (cloud, network)
    }

    fn ends_with(subnet: &Subnet, name: &str) -> bool {
        matches!(subnet, Subnet::Url(url) | Subnet::OfNodes(url) if url.ends_with(&format!("/regions/{REGION}/subnetworks/{name}")))
    }

    fn instance(world: &mut World, name: &str, subnetwork: &str) {
        let (zone, name) = name.split_once('/').unwrap_or((ZONE, name));
        let seed = InstanceSeed { project: "p", zone, name, subnetwork, ..InstanceSeed::default() };
        world.instance(&seed).unwrap();
    }

    #[tokio::test]
    async fn the_subnetwork_of_an_automatic_network_is_that_of_the_region() {
        let seed = |world: &mut World| {
            let network = world.network("p", "n", true);
            world.subnetwork(&network, REGION, "n", "10.128.0.0/20", &[]);
            world.subnetwork(&network, REGION, "own", "192.168.0.0/24", &[]);
        };
        let (cloud, network) = network(seed, &[]);
        assert!(ends_with(&network.subnetwork().await.unwrap(), "n"));
        let mark = cloud.mark();
        network.subnetwork().await.unwrap();
        assert_eq!(cloud.mark(), mark, "it is known");
    }

    #[tokio::test]
    async fn a_legacy_network_has_none() {
        let (_cloud, network) = network(|world| drop(world.legacy_network("p", "n", "10.240.0.0/16")), &[]);
        assert_eq!(network.subnetwork().await.unwrap(), Subnet::Legacy);
    }

    #[tokio::test]
    async fn without_automatic_subnetworks_that_of_the_nodes_counts() {
        let seed = |world: &mut World| {
            let network = world.network("p", "n", false);
            let one = world.subnetwork(&network, REGION, "one", "10.0.0.0/24", &[]);
            let two = world.subnetwork(&network, REGION, "two", "10.0.1.0/24", &[]);
            instance(world, "a", &one);
            instance(world, "b", &one);
            instance(world, "c", &two);
        };
        let (_cloud, one) = network(seed, &["a", "b"]);
        assert!(ends_with(&one.subnetwork().await.unwrap(), "one"));
        for nodes in [&["a", "c"] as &[_], &[]] {
            let (_cloud, doubtful) = network(seed, nodes);
            let found = doubtful.subnetwork().await.unwrap();
            assert!(matches!(&found, Subnet::Unknown(why) if why.contains("subnetwork-name")), "{found:?}");
        }
    }

    #[tokio::test]
    async fn what_some_nodes_show_counts_until_the_others_can_be_read() {
        let seed = |world: &mut World| {
            let network = world.network("p", "n", false);
            let one = world.subnetwork(&network, REGION, "one", "10.0.0.0/24", &[]);
            let two = world.subnetwork(&network, REGION, "two", "10.0.1.0/24", &[]);
            instance(world, "a", &one);
            instance(world, "us-central1-c/b", &two);
        };
        let (cloud, network) = network(seed, &["a", "us-central1-c/b"]);
        let down = Fault::Code { status: 403, code: "forbidden".into(), message: "no".into() };
        cloud.fault(Rule::every(down).on("compute", "instances.get").window(0, 1));
        assert!(ends_with(&network.subnetwork().await.unwrap(), "two"));
        let found = network.subnetwork().await.unwrap();
        assert!(matches!(&found, Subnet::Unknown(why) if why.contains("subnetwork-name")), "{found:?}");
    }

    #[tokio::test]
    async fn a_failed_search_is_repeated() {
        let seed = |world: &mut World| {
            let network = world.network("p", "n", true);
            world.subnetwork(&network, REGION, "n", "10.128.0.0/20", &[]);
        };
        let (cloud, network) = network(seed, &[]);
        let denied = Fault::Code { status: 403, code: "forbidden".into(), message: "no".into() };
        cloud.fault(Rule::every(denied));
        let error = network.subnetwork().await.unwrap_err().to_string();
        assert!(error.contains("compute.networks.get"), "{error}");
        cloud.faults(Faults::clear);
        assert!(ends_with(&network.subnetwork().await.unwrap(), "n"));
    }

    #[test]
    fn an_automatic_subnetwork_is_known_by_its_range() {
        let of = |name: &str, network: &str, range: &str| Subnetwork {
            name: name.to_owned(),
            network: format!("https://www.googleapis.com/compute/v1/projects/p/global/networks/{network}"),
            ip_cidr_range: range.to_owned(),
            ..Subnetwork::default()
        };
        let all = [of("a", "n", "10.128.0.0/20"), of("b", "n", "192.168.0.0/24"), of("c", "m", "10.132.0.0/20")];
        let found = automatic(&all, "projects/p/global/networks/n");
        assert_eq!(found.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["a"]);
    }
}
