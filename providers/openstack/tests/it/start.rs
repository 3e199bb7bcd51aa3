//! The start: logins, the catalog, and configured objects that do not exist.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::openstack::{CatalogEntry, Options};
use ccm_provider::{Aspects, CloudConfig, CloudProvider, ErrorClass, Lookup, ProviderError, ProviderFactory as _};
use ccm_provider_contract::TestCluster;
use ccm_provider_openstack::Factory;

use crate::bed::{Bed, CLUSTER, flags};

async fn start(text: String) -> Result<Arc<dyn CloudProvider>, ProviderError> {
    let config = CloudConfig { path: "/nonexistent/cloud.conf".into(), text };
    let provider = Factory.build(Some(config), &flags()).await?;
    provider.initialize(Arc::<TestCluster>::default().context(CLUSTER)).await?;
    Ok(provider)
}

fn logins(bed: &Bed) -> usize {
    bed.cloud.ledger(|ledger| ledger.since(0).filter(|entry| entry.action == "token_create").count())
}

#[tokio::test]
async fn a_short_token_is_not_renewed_at_each_request() {
    for lifetime in [60, 3600] {
        let bed = Bed::start(Options { token_lifetime: Duration::from_secs(lifetime), ..Options::default() });
        let node = bed.node("node-1");
        let provider = start(bed.config("")).await.unwrap();
        for _ in 0..3 {
            let answers = provider.instances().unwrap().lookup(std::slice::from_ref(&node), Aspects::LIFECYCLE).await;
            assert!(matches!(answers[..], [Lookup::Found(_)]), "{answers:?}");
        }
        assert_eq!(logins(&bed), 1, "{lifetime} s");
    }
}

#[tokio::test]
async fn without_the_extensions_of_neutron_all_but_routes_works() {
    let refused = |status| Fault::Code { status, code: "Forbidden".to_owned(), message: "no".to_owned() };
    for (fault, starts) in [(refused(403), true), (refused(401), true), (refused(500), false)] {
        let bed = Bed::start(Options::default());
        bed.cloud.fault(Rule::every(fault.clone()).on("network", "network_extension_list"));
        match start(bed.config("")).await {
            Ok(provider) => {
                assert!(starts && provider.routes().is_none() && provider.instances().is_some(), "{fault:?}");
            }
            Err(error) => assert!(!starts, "{fault:?}: {error}"),
        }
    }
}

#[tokio::test]
async fn without_neutron_there_are_neither_nodes_nor_routes_and_the_program_runs() {
    let bed = Bed::start(Options::default());
    bed.cloud.change(|options| options.catalog.retain(|entry| entry.kind != "network"));
    let provider = start(bed.config("enabled = false")).await.unwrap();
    assert!(provider.routes().is_none() && provider.instances().is_none() && provider.load_balancer().is_none());
    assert!(provider.volumes().is_some());
}

#[tokio::test]
async fn a_missing_endpoint_is_named_with_those_that_there_are() {
    let bed = Bed::start(Options::default());
    let error = start(bed.config("").replace("region = RegionOne", "region = RegionTwo")).await.err().unwrap();
    let text = error.to_string();
    assert!(text.contains("failed to find network v2 public endpoint for region RegionTwo"), "{text}");
    assert!(text.contains("[Global] region") && text.contains("public in region RegionOne"), "{text}");
    bed.cloud.change(|options| {
        let mut other = CatalogEntry::new("network", "neutron", "/network");
        other.regions = vec!["RegionTwo".to_owned()];
        options.catalog.push(other);
    });
    let text =
        start(bed.config("").replace("region = RegionOne", "region = RegionTwo")).await.err().unwrap().to_string();
    assert!(text.contains("load-balancer v2 public endpoint for region RegionTwo"), "{text}");
}

#[tokio::test]
async fn a_bad_file_of_tls_is_named_by_its_key() {
    let bed = Bed::start(Options::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no.pem").display().to_string();
    std::fs::write(&path, "no certificate").unwrap();
    for (keys, key, why) in [
        (format!("ca-file = {path}.gone"), "ca-file", "cannot be read: No such file or directory"),
        (format!("ca-file = {path}"), "ca-file", "no certificate in the file"),
        (format!("cert-file = {path}\nkey-file = {path}.gone"), "key-file", ""),
        ("cafilecontents = nonsense".to_owned(), "cafilecontents", "no certificate"),
    ] {
        let error = start(bed.config("").replace("[Route]", &format!("{keys}\n[Route]"))).await.err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot connect to OpenStack: [Global] {key}")), "{text}");
        assert!(text.contains(why) && text.contains("remove"), "{text}");
        assert!(matches!(error.class(), ErrorClass::Invalid { findings } if findings.len() == 1), "{error:?}");
    }
}

#[tokio::test]
async fn what_answers_and_is_not_keystone_is_named_by_its_key_and_not_by_the_credentials() {
    let bed = Bed::start(Options::default());
    for path in ["/elsewhere/v3", "/elsewhere"] {
        let other = bed.config("").replace(&bed.cloud.auth_url(), &format!("{}{path}", bed.cloud.url()));
        let error = start(other).await.err().unwrap().to_string();
        assert!(error.contains("is [Global] auth-url the URL of Keystone?"), "{path}: {error}");
        assert!(!error.contains("credentials"), "{path}: {error}");
    }
    drop(bed.cloud.take_violations());
}

#[tokio::test]
async fn a_refused_login_names_its_keys_and_their_file() {
    let bed = Bed::start(Options::default());
    let wrong = bed.config("").replace("password = secret", "password = wr0ng-s3cret");
    let error = start(wrong).await.err().unwrap();
    let text = error.to_string();
    assert!(text.contains("[Global] username, password of /nonexistent/cloud.conf"), "{text}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}
