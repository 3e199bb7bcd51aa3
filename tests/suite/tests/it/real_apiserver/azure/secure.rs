//! The login, Resource Manager and the URLs of operations over HTTPS.

use std::path::Path;
use std::sync::Arc;

use ccm_test_bed::{Authority, Pki};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// With the certificate for 127.0.0.1 in a folder of a [`Pki`].
fn acceptor(folder: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config).into()
}

/// Ends TLS in front of a server.
async fn relay(listener: TcpListener, tls: TlsAcceptor, target: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, target) = (tls.clone(), target.clone());
        tokio::spawn(async move {
            // Errors come from clients, which close connections.
            let Ok(mut client) = tls.accept(stream).await else { return };
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            let _ended = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_works_over_https_with_a_certificate_that_the_host_trusts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let options = Options { public_url: url.clone(), ..Options::default() };
    let Some(world) = World::with(options).await else { return };
    let rig = &world.rig;
    let folder = rig.cloud.path("tls");
    std::fs::create_dir(&folder).unwrap();
    let pki = Pki::write(&folder).unwrap();
    let plain = world.azure.root();
    let target = plain.split_once("://").unwrap().1.trim_end_matches('/').to_owned();
    let relay = tokio::spawn(relay(listener, acceptor(&folder), target));
    let (file, trusted) = (rig.cloud.path("azure.yaml"), folder.join("trusted.pem"));
    std::fs::write(&trusted, pki.pem(Authority::Client)).unwrap();
    std::fs::write(&file, world.config("").replace(&plain, &url)).unwrap();
    let run = |name: &str, environment: &[(&str, String)]| {
        let args = world.args(&[&format!("--cloud-config={}", file.display()), "--configure-cloud-routes=false"]);
        Process::start_with(env!("CARGO_BIN_EXE_ccm-under-test"), &args, environment, &rig.cloud.path(name))
    };

    let mut doubting = run("doubting.log", &[]);
    assert!(!doubting.ended(LONG).await.success());
    assert!(doubting.output().contains("certificate"), "{}", doubting.output());
    assert_eq!(world.azure.mark(), 0, "nothing was sent");

    let manager = run("trusting.log", &[("SSL_CERT_FILE", trusted.display().to_string())]);
    rig.initialized("pool000000").await;
    rig.create(service_with("web", "", &[], &[80])).await;
    rig.address("web").await;
    rig.delete_service("web").await;
    assert_eq!(world.names("loadBalancers"), BTreeSet::new());
    manager.stop().await;
    assert_eq!(world.azure.violations(), [""; 0]);
    relay.abort();
}
