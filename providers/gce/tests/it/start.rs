//! The start: the sources of project, zone, network and tokens.

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm_cloudsim::gce::Options;
use ccm_provider::{CloudConfig, CloudProvider, NewRoute, ProviderError, ProviderFactory as _, Route};
use ccm_provider_contract::TestCluster;
use ccm_provider_gce::Factory;
use serde_json::json;

use crate::bed::{Bed, CLUSTER, PROJECT, ZONE, flags};

async fn start(bed: &Bed, text: String, variables: &[(&str, String)]) -> Result<Arc<dyn CloudProvider>, ProviderError> {
    let mut environment = bed.environment();
    environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let config = CloudConfig { path: "gce.conf".into(), text };
    Factory::with_environment(environment).build(Some(config), &flags(&[])).await
}

/// Lists routes, which shows network and project.
async fn routes(provider: &Arc<dyn CloudProvider>) -> Result<usize, ProviderError> {
    provider.initialize(Arc::<TestCluster>::default().context(CLUSTER)).await.unwrap();
    Ok(provider.routes().unwrap().list(CLUSTER).await?.len())
}

#[tokio::test]
async fn p03_a_bare_multizone_makes_the_zones_of_the_region_managed() {
    let bed = Bed::start(Options::default());
    for (line, lists) in [("multizone", 1), ("multizone = yes", 1), ("multizone = off", 0), ("", 0)] {
        let mark = bed.cloud.mark();
        start(&bed, bed.config(line), &[]).await.unwrap();
        assert_eq!(bed.calls(mark).iter().filter(|call| *call == "zones.list").count(), lists, "{line:?}");
    }
}

#[tokio::test]
async fn p04_the_token_is_that_of_the_instance_whatever_file_the_environment_names() {
    let bed = Bed::start(Options::default());
    let nowhere = ("GOOGLE_APPLICATION_CREDENTIALS", "/does/not/exist".to_owned());
    let provider = start(&bed, bed.config(""), std::slice::from_ref(&nowhere)).await.unwrap();
    assert_eq!(routes(&provider).await.unwrap(), 0);
    // With Application Default Credentials that file is used.
    let error = start(&bed, bed.config("token-url = nil"), &[nowhere]).await.err().unwrap().to_string();
    assert!(error.contains("/does/not/exist"), "{error}");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn p05_a_start_needs_the_metadata_server_for_project_and_zone() {
    let bed = Bed::start(Options::default());
    let gone = || ("GCE_METADATA_HOST", "127.0.0.1:1".to_owned());
    let error = start(&bed, bed.config("project-id = p"), &[gone()]).await.err().unwrap().to_string();
    assert!(error.contains("metadata server") && error.contains("local-zone"), "{error}");
    // With all three keys and other credentials, no metadata server is needed.
    let keys = format!("project-id = p\nlocal-zone = {ZONE}\nnetwork-name = default\ntoken-url = nil");
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("adc.json");
    std::fs::write(&path, service_account(&bed)).unwrap();
    let adc = ("GOOGLE_APPLICATION_CREDENTIALS", path.display().to_string());
    let provider = start(&bed, bed.config(&keys), &[gone(), adc]).await.unwrap();
    assert_eq!(routes(&provider).await.unwrap(), 0);
}

#[tokio::test]
async fn p06_a_project_by_number_is_used_by_name() {
    let bed = Bed::start(Options::default());
    let number = bed.cloud.world(|world| world.projects[PROJECT]);
    let keys = format!("project-id = {number}\nlocal-zone = {ZONE}\nnetwork-name = default");
    let provider = start(&bed, bed.config(&keys), &[]).await.unwrap();
    let calls = route_calls(&bed, &provider).await;
    assert!(calls.iter().all(|params| params.contains("projects/p/global/routes")), "{calls:?}");
    assert!(calls[1].contains("projects/p/global/networks/default"), "{calls:?}");
}

/// The number is used unchanged, with a warning.
#[tokio::test]
async fn a_project_by_number_without_the_right_to_look_it_up_is_used_by_number() {
    let denied = [("*".to_owned(), vec!["resourcemanager.projects.get".to_owned(), "compute.projects.get".to_owned()])];
    let bed = Bed::start(Options { denied: denied.into(), ..Options::default() });
    let number = bed.cloud.world(|world| world.projects[PROJECT]);
    let keys = format!("project-id = {number}\nlocal-zone = {ZONE}\nnetwork-name = default");
    let provider = start(&bed, bed.config(&keys), &[]).await.unwrap();
    let mark = bed.cloud.mark();
    assert_eq!(routes(&provider).await.unwrap(), 0);
    let paths = bed.cloud.ledger(|ledger| ledger.since(mark).map(|entry| entry.params.clone()).collect::<Vec<_>>());
    assert!(paths.iter().any(|params| params.contains(&format!("projects/{number}/"))), "{paths:?}");
}

#[tokio::test]
async fn p21_an_endpoint_without_its_slash_works() {
    let bed = Bed::start(Options::default());
    for end in ["", "/", "/projects/"] {
        let text = bed.config("").replace(&bed.cloud.url(), &format!("{}{end}", bed.cloud.url().trim_end_matches('/')));
        assert_eq!(routes(&start(&bed, text, &[]).await.unwrap()).await.unwrap(), 0, "{end:?}");
    }
}

#[tokio::test]
async fn a_start_without_a_file_asks_the_metadata_server() {
    let bed = Bed::start(Options::default());
    let mark = bed.cloud.mark();
    bed.factory().build(None, &flags(&[])).await.unwrap();
    let seen = bed.cloud.ledger(|ledger| ledger.since(mark).map(|entry| entry.action.clone()).collect::<Vec<_>>());
    for path in ["project/project-id", "instance/zone", "instance/network-interfaces/0/network"] {
        assert!(seen.iter().any(|action| action.ends_with(path)), "{path}: {seen:?}");
    }
}

#[tokio::test]
async fn tokens_that_are_over_are_renewed() {
    let bed = Bed::start(Options::default());
    let provider = start(&bed, bed.config(""), &[]).await.unwrap();
    assert_eq!(routes(&provider).await.unwrap(), 0);
    bed.cloud.expire_tokens();
    assert_eq!(provider.routes().unwrap().list("other").await.unwrap().len(), 0);
}

/// The key of a service account that the cloud issues tokens for.
fn service_account(bed: &Bed) -> String {
    json!({"type": "service_account", "client_email": "ccm@p.iam.gserviceaccount.com", "private_key": key(),
        "private_key_id": "1", "token_uri": bed.cloud.token_url()})
    .to_string()
}

#[tokio::test]
async fn other_kinds_of_credentials_are_named_and_their_secrets_never_shown() {
    let bed = Bed::start(Options::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adc.json");
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", path.display().to_string())];
    for (text, expected) in [
        (json!({"type": "gdch_service_account", "private_key": "hush"}), "gdch_service_account"),
        (json!({"type": "service_account", "private_key": "hush"}), "client_email"),
        (json!({"private_key": "hush"}), "type"),
    ] {
        std::fs::write(&path, text.to_string()).unwrap();
        let error = start(&bed, bed.config("token-url = nil"), &variables).await.err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{error}");
    }
}

/// A new RSA key as PEM.
fn key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()))
}

#[tokio::test]
async fn a_shared_vpc_has_its_routes_in_the_project_of_the_network() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| drop(world.network("host", "shared", false)));
    let provider = start(&bed, bed.config("network-project-id = host\nnetwork-name = shared"), &[]).await.unwrap();
    let calls = route_calls(&bed, &provider).await;
    assert!(calls.iter().all(|params| params.contains("projects/host/global/routes")), "{calls:?}");
    assert!(calls[1].contains("projects/host/global/networks/shared"), "{calls:?}");
}

/// The calls of a list of routes, and of the creation of one.
async fn route_calls(bed: &Bed, provider: &Arc<dyn CloudProvider>) -> Vec<String> {
    let node = bed.node("n1");
    let cluster = Arc::<TestCluster>::default();
    cluster.add_node(node.clone());
    // The first context counts.
    provider.initialize(cluster.context(CLUSTER)).await.unwrap();
    let mark = bed.cloud.mark();
    assert_eq!(routes(provider).await.unwrap(), 0);
    let route =
        Route { target_node: Some(node.name.clone()), destination_cidr: "10.244.1.0/24".into(), ..Route::default() };
    let new = NewRoute { name_hint: "11111111-2222-3333-4444-555555555555".to_owned(), route };
    provider.routes().unwrap().create(CLUSTER, &[new]).await.remove(0).unwrap();
    bed.cloud.ledger(|ledger| {
        let calls = ledger.since(mark).filter(|entry| entry.action.starts_with("routes."));
        calls.map(|entry| entry.params.clone()).collect()
    })
}

#[tokio::test]
async fn metrics_have_upstreams_labels() {
    let bed = Bed::start(Options::default());
    let provider = start(&bed, bed.config("regional"), &[]).await.unwrap();
    assert_eq!(routes(&provider).await.unwrap(), 0);
    let registry = provider.metrics().unwrap();
    for request in ["zones_list", "routes_list"] {
        let labels = [("request", request), ("region", "<n/a>"), ("zone", "<n/a>"), ("version", "v1")];
        assert_eq!(registry.value("cloudprovider_gce_api_request_duration_seconds", &labels), Some(1.0), "{request}");
    }
}
