//! The program with its secure port, and clients of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_test_bed::{Bed, ClientCertificate};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::process::Process;

/// Accepts any server: its certificate is self-signed.
#[derive(Debug)]
struct Any;

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A client, without credentials or with a certificate and its key in PEM.
fn config(identity: Option<(&str, &str)>, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any));
    match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![chain], key).unwrap()
        }
    }
}

fn connect(port: u16, config: ClientConfig) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

/// The negotiated protocol within TLS, empty for none. `None` if the handshake fails.
pub(crate) fn agreed(port: u16, versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> Option<String> {
    let mut config = config(None, versions);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = connect(port, config).ok()?;
    Some(String::from_utf8(stream.conn.alpn_protocol().unwrap_or_default().to_vec()).unwrap())
}

/// Sends a request and reads the answer: status, head and body.
pub(crate) fn exchange(port: u16, identity: Option<(&str, &str)>, request: &[u8]) -> (u16, String, String) {
    let mut stream = connect(port, config(identity, rustls::ALL_VERSIONS)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // The server may close without close_notify.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// Repeats the request until the answer has this status.
pub(crate) fn until(status: u16, ask: impl Fn() -> (u16, String)) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (seen, body) = ask();
        if seen == status {
            return body;
        }
        assert!(Instant::now() < deadline, "still {seen} instead of {status}: {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program, serving on a port.
pub(crate) struct Served {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Served {
    pub(crate) fn start(bed: &Bed, flags: &[&str]) -> Self {
        Self::start_at(bed, free_port(), flags)
    }

    pub(crate) fn start_at(bed: &Bed, port: u16, flags: &[&str]) -> Self {
        let kubeconfig = bed.kubeconfig().display().to_string();
        let flag = |name: &str| format!("--{name}={kubeconfig}");
        let port_flag = format!("--secure-port={port}");
        let lease = format!("--leader-elect-resource-name=serving-{}", uuid::Uuid::new_v4());
        let (kube, authn, authz) =
            (flag("kubeconfig"), flag("authentication-kubeconfig"), flag("authorization-kubeconfig"));
        let mut args =
            vec!["--cloud-provider=fake", "--bind-address=127.0.0.1", &kube, &authn, &authz, &port_flag, &lease];
        args.extend(flags);
        let process = Process::start(&args);
        process.wait_for("Serving securely on");
        Self { process, port }
    }

    /// Waits until the cluster was listed.
    pub(crate) fn until_ready(&self) {
        let began = Instant::now();
        while self.ask("/readyz", None, "").0 != 200 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", self.ask("/readyz?verbose", None, ""));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ask(&self, path: &str, certificate: Option<&ClientCertificate>, headers: &str) -> (u16, String) {
        let identity = certificate.map(|own| (own.certificate_pem.as_str(), own.key_pem.as_str()));
        self.ask_as(path, identity, headers)
    }

    pub(crate) fn ask_as(&self, path: &str, identity: Option<(&str, &str)>, headers: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let (status, _, body) = exchange(self.port, identity, request.as_bytes());
        (status, body)
    }
}

/// The header of a bearer token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}
