//! The user of a client certificate, and the verification of its authority.
//!
//! As in `k8s.io/apiserver/pkg/authentication/request/x509`: the common name is the user, each organization a group.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::user::User;

/// Object identifier of the subject attribute with the UID of a Kubernetes user.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Authorities of client certificates.
#[derive(Debug, Clone)]
pub(super) struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// Parses certificates in PEM.
    ///
    /// # Errors
    ///
    /// The text is not PEM, has no certificate, or has one that cannot be parsed.
    pub(super) fn parse(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("not a certificate in PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("a certificate of an authority cannot be used: {error}"))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate in it".into());
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { verifier })
    }

    /// Verifies that one of the authorities signed this certificate, that it is for clients, and that it is valid now.
    ///
    /// # Errors
    ///
    /// The reason why it is invalid.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (leaf, between) = chain.split_first().ok_or("there is no certificate")?;
        self.verifier
            .verify_client_cert(leaf, between, UnixTime::now())
            .map(drop)
            .map_err(|error| format!("verifying certificate {} failed: {error}", serial(leaf)))
    }

    /// Their names, by which clients with several certificates select one.
    pub(super) fn names(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }
}

fn serial(leaf: &[u8]) -> String {
    X509Certificate::from_der(leaf)
        .map_or_else(|_| "that cannot be read".into(), |(_, parsed)| format!("SN={}", parsed.tbs_certificate.serial))
}

/// The user of a certificate; `None` without a common name.
///
/// # Errors
///
/// The certificate cannot be parsed, or its UID is invalid.
pub(super) fn user(leaf: &CertificateDer<'_>) -> Result<Option<User>, String> {
    let (_, parsed) =
        X509Certificate::from_der(leaf).map_err(|error| format!("a client certificate cannot be read: {error}"))?;
    let subject = parsed.subject();
    // Of several common names Go takes the last.
    let Some(name) = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).filter(|n| !n.is_empty())
    else {
        return Ok(None);
    };
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let mut uids = subject.iter_attributes().filter(|part| part.attr_type().to_id_string() == UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(_), Some(_)) => return Err("expected 1 UID, but found multiple".into()),
        (Some(uid), None) => match uid.as_str() {
            Ok("") => return Err("UID cannot be an empty string".into()),
            Ok(uid) => uid.to_owned(),
            Err(_) => return Err("unable to parse UID into a string".into()),
        },
    };
    let digest = hex_digest(leaf);
    let extra =
        [("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")])].into();
    Ok(Some(User { name: name.to_owned(), uid, groups, extra }))
}

/// The common name; empty without one.
pub(super) fn common_name(leaf: &CertificateDer<'_>) -> String {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return String::new() };
    let name = parsed.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}

/// The remaining validity of a certificate; zero if it has expired.
pub(super) fn remaining(leaf: &CertificateDer<'_>) -> Option<Duration> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let until = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
    Some(Duration::from_secs(until).saturating_sub(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?))
}

/// The names by which a server certificate is selected: its DNS names, and its common name if it looks like one.
pub(super) fn dns_names(leaf: &[u8]) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return Vec::new() };
    let mut names = Vec::new();
    let common = parsed.subject().iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
    if is_domain(common) {
        names.push(common.to_lowercase());
    }
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let x509_parser::extensions::GeneralName::DNSName(name) = name {
                names.push(name.to_lowercase());
            }
        }
    }
    names
}

/// Whether the text is a DNS name, possibly with `*` as its first label, and not an IP address.
fn is_domain(text: &str) -> bool {
    let body = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text == "*" || (text.parse::<std::net::IpAddr>().is_err() && body.len() <= 253 && body.split('.').all(label))
}

fn hex_digest(data: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Accepts any client certificate whose key the client has. The signer is verified for each request, because the
/// response to an untrusted certificate is 401, not a failed handshake, and authorities may change during a connection.
#[derive(Debug)]
pub(super) struct AskLater {
    names: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl AskLater {
    pub(super) fn new(authorities: &[&Authorities], provider: Arc<CryptoProvider>) -> Self {
        let names = authorities.iter().flat_map(|some| some.names()).cloned().collect();
        Self { names, provider }
    }
}

impl ClientCertVerifier for AskLater {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
