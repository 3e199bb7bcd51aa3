//! Verification of the certificates of servers, and client certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore, SignatureScheme};

/// Verifies signatures, and server certificates unless any is trusted.
///
/// A server may show one of the trusted certificates, as with Go programs. The default verifier of rustls rejects such a
/// certificate if it is a CA certificate, as `openssl req -x509` creates it, or if its issuer is not trusted too.
#[derive(Debug)]
pub struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None`: any certificate is trusted.
    usual: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Trusts these authorities, and the servers that show one of these certificates.
    ///
    /// # Errors
    ///
    /// There is no authority.
    pub fn new(
        authorities: RootCertStore,
        trusted: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider.clone()).build()?;
        Ok(Self { usual: Some(usual), trusted, ..Self::of_anybody(provider) })
    }

    /// Trusts any certificate.
    pub fn of_anybody(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, usual: None, trusted: Vec::new() }
    }
}

/// A client certificate with its key.
///
/// rustls compares the two, but parses no certificates of version 1, as `openssl x509 -req` makes them: the server is
/// left to judge those.
///
/// # Errors
///
/// The key or the certificate cannot be read, or they do not belong together.
pub fn identity(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesClientCert>, Error> {
    let pair = CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?);
    match pair.keys_match() {
        Ok(())
        | Err(
            Error::InconsistentKeys(InconsistentKeys::Unknown) | Error::InvalidCertificate(CertificateError::Other(_)),
        ) => Ok(Arc::new(SingleCertAndKey::from(pair))),
        Err(error) => Err(error),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{BadSignature, Other, UnknownIssuer};
        let Some(usual) = &self.usual else { return Ok(ServerCertVerified::assertion()) };
        match usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // An expired certificate has another error.
            Err(Error::InvalidCertificate(UnknownIssuer | BadSignature | Other(_)))
                if self.trusted.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
