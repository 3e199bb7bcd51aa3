//! A client for one request at a time, sufficient for readiness checks and test setup, without an async runtime.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// Longer than the API server's own limit for one request.
const TIMEOUT: Duration = Duration::from_secs(70);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    port: u16,
    token: String,
    /// Without it, in clear.
    tls: Option<Arc<ClientConfig>>,
}

pub(crate) fn tls(ca_pem: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).context("reading the certificate of the authority")?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A TLS client that accepts any server certificate, with these cipher suites (`None`: all) and a certificate and key
/// in PEM.
#[allow(clippy::unwrap_used, reason = "fails a test, as the test would")]
pub fn trusting_client(
    suites: Option<&[CipherSuite]>,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<(&str, &str)>,
) -> ClientConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suites.is_none_or(|suites| suites.contains(&suite.suite())));
    let provider = Arc::new(provider);
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)));
    match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![chain], key).unwrap()
        }
    }
}

/// Accepts any server certificate.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl Client {
    pub(crate) fn new(port: u16, token: &str, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { port, token: token.to_owned(), tls }
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&str>) -> anyhow::Result<(u16, String)> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let Some(tls) = &self.tls else { return self.exchange(socket, method, path, body) };
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let stream = StreamOwned::new(ClientConnection::new(Arc::clone(tls), name)?, socket);
        self.exchange(stream, method, path, body)
    }

    fn exchange(
        &self,
        mut stream: impl Read + Write,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> anyhow::Result<(u16, String)> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.unwrap_or_default();
        let token =
            if self.token.is_empty() { String::new() } else { format!("Authorization: Bearer {}\r\n", self.token) };
        // HTTP/1.0: the response is never chunked and ends with the connection, so it needs no further parsing.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{token}Accept: application/json\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len(),
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        stream.flush()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer))
    }
}

fn parse(answer: &str) -> anyhow::Result<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("the answer has no end of headers"))?;
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or_else(|| anyhow!("the answer has no status"))?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let (status, body) = parse("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\n{}\r\n\r\n").unwrap();
        assert_eq!((status, body.as_str()), (404, "{}\r\n\r\n"));
        assert!(parse("").is_err());
        assert!(parse("HTTP/1.0\r\n\r\n").is_err());
    }
}
