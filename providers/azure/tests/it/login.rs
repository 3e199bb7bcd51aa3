//! The login: every kind of identity, and what goes wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ccm_cloudsim::azure::{Application, Options};
use ccm_provider::{Aspects, CloudProvider};

use crate::bed::{Bed, node, pass};

/// Whether the provider of this configuration can read machines.
async fn works(bed: &Bed, config: String) -> Result<(), String> {
    let provider = bed.build(config).await.map_err(|error| error.to_string())?;
    reads(bed, &provider).await
}

/// Whether the provider can read machines.
async fn reads(bed: &Bed, provider: &Arc<dyn CloudProvider>) -> Result<(), String> {
    provider.initialize(bed.cluster.context("kubernetes")).await.map_err(|error| error.to_string())?;
    let answers = provider.instances().unwrap().lookup(&[node("vm", "")], Aspects::METADATA).await;
    match &answers[0] {
        ccm_provider::Lookup::Found(_) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn bed() -> Bed {
    let bed = Bed::start(Options::default());
    bed.machine("vm");
    bed
}

#[tokio::test]
async fn a_client_secret_may_be_wrong_or_come_from_the_environment() {
    let mut bed = bed();
    works(&bed, bed.config("")).await.unwrap();
    let wrong = format!("{}aadClientId: client\naadClientSecret: hush\n", bed.place());
    let error = works(&bed, wrong).await.unwrap_err();
    assert!(error.contains("no credentials for Azure: no token: invalid_client") && !error.contains("hush"), "{error}");
    bed.environment = [("AZURE_CLIENT_ID", "client"), ("AZURE_CLIENT_SECRET", "secret")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    works(&bed, bed.place()).await.unwrap();
    works(&bed, format!("{}aadClientSecret: expired\n", bed.place())).await.unwrap();
    bed.environment.insert("AZURE_TENANT_ID".to_owned(), "elsewhere".to_owned());
    assert!(works(&bed, bed.place()).await.unwrap_err().contains("no token"));
    bed.is_clean();
}

#[tokio::test]
async fn a_federated_token_is_read_again_for_each_login() {
    let bed = bed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let trust = |token: &str| {
        let tenants = BTreeSet::from(["tenant".to_owned()]);
        let federated = BTreeSet::from([token.to_owned()]);
        let application = Application { tenants, federated, ..Application::default() };
        bed.cloud.world(|world| world.identities.applications.insert("workload".to_owned(), application));
    };
    let config = || {
        let file = path.display();
        let place = bed.place();
        format!(
            "{place}aadClientId: workload\nuseFederatedWorkloadIdentityExtension: true\naadFederatedTokenFile: {file}\n"
        )
    };
    trust("first");
    assert!(works(&bed, config()).await.unwrap_err().contains("aadFederatedTokenFile"));
    works(&bed, bed.config("aadFederatedTokenFile: /none\n")).await.unwrap();
    std::fs::write(&path, "other\n").unwrap();
    assert!(works(&bed, config()).await.unwrap_err().contains("no token"));
    std::fs::write(&path, "first\n").unwrap();
    let provider = bed.build(config()).await.unwrap();
    // The issuer replaces its token while the program runs.
    trust("second");
    std::fs::write(&path, "second\n").unwrap();
    bed.cloud.expire_tokens();
    reads(&bed, &provider).await.unwrap();
    bed.is_clean();
}

#[tokio::test]
async fn a_secret_that_expires_or_is_replaced_is_named_until_the_configuration_has_the_new_one() {
    let bed = bed();
    let secrets = |name: &str, expiry: Option<jiff::Timestamp>| {
        bed.cloud.world(|world| {
            world.identities.applications.get_mut("client").unwrap().secrets = [(name.to_owned(), expiry)].into();
        });
        bed.cloud.expire_tokens();
    };
    let provider = bed.build(bed.config("")).await.unwrap();
    secrets("secret", Some(jiff::Timestamp::UNIX_EPOCH));
    let error = reads(&bed, &provider).await.unwrap_err();
    assert!(error.contains("the client secret has expired: create a new one and set aadClientSecret"), "{error}");
    secrets("new", None);
    pass(2).await;
    let error = reads(&bed, &provider).await.unwrap_err();
    assert!(error.contains("aadClientSecret is wrong"), "{error}");
    // As after a reload.
    works(&bed, bed.config("").replace("aadClientSecret: secret", "aadClientSecret: new")).await.unwrap();
    bed.is_clean();
}

#[tokio::test]
async fn a_managed_identity_gets_its_token_from_the_machine() {
    let mut bed = bed();
    let metadata = bed.cloud.root();
    bed.environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST".to_owned(), metadata);
    bed.cloud.world(|world| world.identities.managed.extend(["".to_owned(), "mine".to_owned()]));
    let managed = |identity: &str| {
        format!("{}useManagedIdentityExtension: true\nuserAssignedIdentityID: {identity}\n", bed.place())
    };
    works(&bed, managed("\"\"")).await.unwrap();
    works(&bed, managed("mine")).await.unwrap();
    assert!(works(&bed, managed("other")).await.unwrap_err().contains("Identity not found"));
    bed.is_clean();
}

#[tokio::test]
async fn network_objects_of_another_tenant_are_read_with_its_token() {
    let bed = bed();
    bed.cloud.world(|world| {
        world.subscriptions.insert("net".to_owned(), "other".to_owned());
        world.group("net", "rg");
        let application = world.identities.applications.get_mut("client").unwrap();
        application.tenants.insert("other".to_owned());
    });
    let config = bed.config("networkResourceTenantID: other\nnetworkResourceSubscriptionID: net\n");
    let provider = bed.build(config).await.unwrap();
    provider.initialize(bed.cluster.context("kubernetes")).await.unwrap();
    let routes = provider.routes().unwrap().list("kubernetes").await;
    assert_eq!(routes.unwrap(), []);
}

#[tokio::test]
async fn a_refused_token_is_replaced_at_once() {
    let bed = bed();
    let provider = bed.process("").await;
    bed.cloud.expire_tokens();
    let answers = provider.instances().unwrap().lookup(&[node("vm", "")], Aspects::METADATA).await;
    assert!(matches!(answers[0], ccm_provider::Lookup::Found(_)), "{answers:?}");
}

#[tokio::test]
async fn the_start_makes_few_calls() {
    let bed = bed();
    let mark = bed.cloud.mark();
    bed.process("").await;
    let calls: Vec<String> = bed.cloud.ledger(|ledger| ledger.since(mark).map(|entry| entry.action.clone()).collect());
    assert!(calls.len() <= 3, "endpoints, token, zones: {calls:?}");
}

#[tokio::test]
async fn a_certificate_is_read_from_its_file_and_a_renewed_one_needs_no_restart() {
    let bed = bed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cert.pem");
    let write = || {
        let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["ccm".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(&path, format!("{}{}", key.serialize_pem(), certificate.pem())).unwrap();
        let thumbprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate.der());
        URL_SAFE_NO_PAD.encode(thumbprint)
    };
    let trust = |thumbprint: String| {
        bed.cloud.world(|world| {
            let application = world.identities.applications.get_mut("client").unwrap();
            application.certificates = BTreeSet::from([thumbprint]);
        });
    };
    let config = || format!("{}aadClientId: client\naadClientCertPath: {}\n", bed.place(), path.display());
    assert!(works(&bed, config()).await.unwrap_err().contains("aadClientCertPath"));
    let first = write();
    assert!(works(&bed, config()).await.unwrap_err().contains("no token"));
    trust(first);
    let provider = bed.build(config()).await.unwrap();
    provider.initialize(bed.cluster.context("kubernetes")).await.unwrap();
    trust(write());
    bed.cloud.expire_tokens();
    let answers = provider.instances().unwrap().lookup(&[node("vm", "")], Aspects::METADATA).await;
    assert!(matches!(answers[0], ccm_provider::Lookup::Found(_)), "{answers:?}");
    std::fs::write(&path, [0x30, 0x82]).unwrap();
    assert!(works(&bed, config()).await.unwrap_err().contains("openssl pkcs12"));
}

#[tokio::test]
async fn a_login_at_ad_fs_needs_no_tenant() {
    let bed = bed();
    bed.cloud.world(|world| {
        world.subscriptions.insert("sub".to_owned(), "adfs".to_owned());
        world.identities.applications.get_mut("client").unwrap().tenants.insert("adfs".to_owned());
    });
    works(&bed, bed.config("identitySystem: adfs\n").replace("tenantId: tenant\n", "")).await.unwrap();
    bed.is_clean();
}
