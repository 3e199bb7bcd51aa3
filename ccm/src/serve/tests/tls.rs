//! Names, certificates, versions and protocols.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{CipherSuite, ProtocolVersion};
use rustls_pki_types::CertificateDer;

use super::client::{Offer, PATIENCE};
use super::{Hello, Log, serve, serving};
use crate::serve::listener::Limits;

const OFTEN: Duration = Duration::from_millis(10);

/// A certificate with its key, in files of these names.
struct Pair {
    files: String,
    certificate: CertificateDer<'static>,
}

impl Pair {
    fn make(folder: &Path, stem: &str, common: Option<&str>, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(common) = common {
            params.distinguished_name.push(rcgen::DnType::CommonName, common);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let file = |ending: &str| folder.join(format!("{stem}.{ending}"));
        std::fs::write(file("crt"), made.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        let files = format!("{},{}", file("crt").display(), file("key").display());
        Self { files, certificate: made.der().clone() }
    }
}

async fn shown(address: std::net::SocketAddr, name: &str) -> CertificateDer<'static> {
    let stream = Offer { name, ..Offer::default() }.connect(address).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let make = |stem: &str, common, names: &[&str]| Pair::make(folder.path(), stem, common, names);
    let default = make("default", None, &["default.test"]);
    let exact = make("exact", None, &["other.test"]);
    let wild = make("wild", None, &["wild.test"]);
    let own = make("own", Some("common.test"), &["own.test", "*.own.test", "exact.example.com"]);
    let late = make("late", Some("10.0.0.1"), &["own.test", "late.test"]);
    let address = make("address", None, &["address.test"]);
    let (certificate, key) = default.files.split_once(',').unwrap();
    let pairs = [
        format!("{}:Exact.example.com,second.test", exact.files),
        format!("{}:*.example.com", wild.files),
        own.files.clone(),
        late.files.clone(),
        format!("{}:127.0.0.1", address.files),
    ];
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let serving =
        serving(&[("tls-cert-file", &[certificate]), ("tls-private-key-file", &[key]), ("tls-sni-cert-key", &pairs)]);
    let (_server, port) = serve(&serving, Arc::new(Hello), Limits::DEFAULT, OFTEN);
    for (name, pair) in [
        ("exact.example.com", &exact),
        ("EXACT.example.COM", &exact),
        ("second.test", &exact),
        ("a.example.com", &wild),
        ("a.b.example.com", &default),
        ("example.com", &default),
        ("common.test", &own),
        ("a.own.test", &own),
        // Of two certificates with the same name the first is used.
        ("own.test", &own),
        ("late.test", &late),
        // If names are given by the flag, those in the certificate are ignored.
        ("other.test", &default),
        ("default.test", &default),
        ("unknown.test", &default),
        // Clients send no name for an address: the address of the connection is used.
        ("127.0.0.1", &address),
        ("10.0.0.1", &address),
    ] {
        assert!(shown(port, name).await == pair.certificate, "{name}");
    }
}

#[tokio::test]
async fn new_files_count_for_new_connections_and_broken_ones_do_not() {
    let log = Log::start();
    let folder = tempfile::tempdir().unwrap();
    let old = Pair::make(folder.path(), "tls", None, &["localhost"]);
    let (certificate, key) = old.files.split_once(',').unwrap();
    let serving = serving(&[("tls-cert-file", &[certificate]), ("tls-private-key-file", &[key])]);
    let (_server, port) = serve(&serving, Arc::new(Hello), Limits::DEFAULT, OFTEN);
    let mut kept = super::client::http1(port).await;
    assert!(shown(port, "localhost").await == old.certificate);

    std::fs::write(certificate, "no certificate").unwrap();
    log.wait_for("new serving certificates cannot be used, the old ones stay").await;
    assert!(shown(port, "localhost").await == old.certificate);

    let new = Pair::make(folder.path(), "tls", None, &["localhost"]);
    log.wait_for("Loaded new serving certificates").await;
    assert!(shown(port, "localhost").await == new.certificate);
    assert_eq!(super::client::status(&mut kept, "/").await, Some(200), "old connections go on");
    let key_text = std::fs::read_to_string(key).unwrap();
    assert!(!key_text.lines().filter(|line| !line.starts_with('-')).any(|line| log.text().contains(line)));
}

/// The negotiated parameters. `None` if the handshake fails.
async fn agreed(
    flags: &[(&'static str, &[&str])],
    offer: Offer<'_>,
) -> Option<(ProtocolVersion, CipherSuite, Vec<u8>)> {
    let (_server, port) = serve(&serving(flags), Arc::new(Hello), Limits::DEFAULT, OFTEN);
    let stream = tokio::time::timeout(PATIENCE, offer.connect(port)).await.unwrap().ok()?;
    let session = stream.get_ref().1;
    let protocol = session.alpn_protocol().unwrap_or_default().to_vec();
    Some((session.protocol_version()?, session.negotiated_cipher_suite()?.suite(), protocol))
}

#[tokio::test]
async fn versions_and_suites_are_those_of_the_flags() {
    const SUITE: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    static TLS12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let tls12 = || Offer { versions: TLS12, ..Offer::default() };
    let only_13: &[(&'static str, &[&str])] = &[("tls-min-version", &["VersionTLS13"])];
    assert_eq!(agreed(only_13, tls12()).await, None);
    assert_eq!(agreed(only_13, Offer::default()).await.unwrap().0, ProtocolVersion::TLSv1_3);
    assert_eq!(agreed(&[], tls12()).await.unwrap().0, ProtocolVersion::TLSv1_2);
    let one: &[(&'static str, &[&str])] =
        &[("tls-cipher-suites", &["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]), ("disable-http2-serving", &["true"])];
    assert_eq!(agreed(one, tls12()).await.unwrap().1, SUITE);
    let other = [CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    assert_eq!(agreed(one, Offer { suites: &other, ..tls12() }).await, None);
    assert_eq!(agreed(&[], Offer { suites: &other, ..tls12() }).await.unwrap().1, other[0]);
}

#[tokio::test]
async fn http2_is_spoken_unless_it_is_switched_off() {
    let both = || Offer { protocols: &["h2", "http/1.1"], ..Offer::default() };
    let off: &[(&'static str, &[&str])] = &[("disable-http2-serving", &["true"])];
    assert_eq!(agreed(&[], both()).await.unwrap().2, b"h2");
    assert_eq!(agreed(off, both()).await.unwrap().2, b"http/1.1");
    assert_eq!(agreed(&[], Offer { protocols: &["http/1.1"], ..Offer::default() }).await.unwrap().2, b"http/1.1");
    assert_eq!(agreed(&[], Offer::default()).await.unwrap().2, b"");
    assert_eq!(agreed(off, Offer { protocols: &["h2"], ..Offer::default() }).await, None);
}
