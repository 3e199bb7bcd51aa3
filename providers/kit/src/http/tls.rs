//! TLS of the connections to a cloud.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::environment::{bundle, roots};

/// TLS of the connections to a cloud. The default trusts what the host trusts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tls<'a> {
    /// A PEM file with the trusted certificates, in place of those that the host trusts.
    pub authorities: Option<&'a str>,
    /// The same as PEM text; read only without a file.
    pub authorities_pem: Option<&'a str>,
    /// PEM files with the certificate and the key of this program.
    pub identity: Option<(&'a str, &'a str)>,
    /// Any certificate is trusted.
    pub insecure: bool,
}

impl Tls<'_> {
    /// # Errors
    ///
    /// A file or a text is unusable; the error names the file.
    pub(super) fn client_config(self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("TLS: {error}"))
        };
        let builder = match (self.insecure, self.authorities, self.authorities_pem) {
            (true, ..) => {
                let any = Arc::new(AnyServer(provider.signature_verification_algorithms));
                builder()?.dangerous().with_custom_certificate_verifier(any)
            }
            (_, Some(path), _) => {
                builder()?.with_root_certificates(bundle(path).map_err(|why| format!("{path:?}: {why}"))?.0)
            }
            (_, None, Some(pem)) => builder()?.with_root_certificates(roots(pem.as_bytes())?),
            (_, None, None) => builder()?.with_native_roots().or_else(|error| {
                tracing::warn!(%error, "this host trusts no certificates: only plain HTTP will work");
                Ok::<_, String>(builder()?.with_root_certificates(RootCertStore::empty()))
            })?,
        };
        let Some((certificate, key)) = self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| format!("{certificate:?}: {error}"))?;
        // The error of the parser names no content of the file.
        let parsed = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{key:?}: {error}"))?;
        builder.with_client_auth_cert(chain, parsed).map_err(|error| format!("{certificate:?} with {key:?}: {error}"))
    }
}

/// Trusts any server, whose signatures must still be right.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
