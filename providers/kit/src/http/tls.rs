//! TLS for connections to a cloud.

use std::sync::{Arc, LazyLock};

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use super::environment::{HOST, bundle, of_host, roots};
use crate::tls::{Verifier, identity};

/// The prefix of errors about [`Tls::authorities_pem`]; errors about a file begin with its path in quotes.
pub const PEM_TEXT: &str = "PEM text: ";

/// Read once, as in Go programs: a host trusts some hundred certificates.
static TRUSTED_BY_HOST: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let roots = of_host(&variable, HOST);
    if roots.is_empty() {
        tracing::warn!("this host trusts no certificates: only plain HTTP will work");
    }
    Arc::new(roots)
});

/// TLS settings for connections to a cloud. The default trusts the certificates of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tls<'a> {
    /// A PEM file with the trusted certificates, which replace those of the host.
    pub authorities: Option<&'a str>,
    /// The trusted certificates as PEM text; used only if no file is set.
    pub authorities_pem: Option<&'a str>,
    /// PEM files with the client certificate and its key.
    pub identity: Option<(&'a str, &'a str)>,
    /// Whether any certificate is trusted.
    pub insecure: bool,
}

impl Tls<'_> {
    /// # Errors
    ///
    /// A file or a text is invalid; the error names the file.
    pub(super) fn client_config(self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("TLS: {error}"))
        };
        let verifying = |verifier: Verifier| {
            Ok::<_, String>(builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
        };
        let trusting = |roots: RootCertStore, pem: &[u8]| {
            let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
            verifying(Verifier::new(roots, certificates, &provider).map_err(|error| format!("TLS: {error}"))?)
        };
        let builder = match (self.insecure, self.authorities, self.authorities_pem) {
            (true, ..) => verifying(Verifier::of_anybody(&provider))?,
            (_, Some(path), _) => {
                let (roots, pem) = bundle(path).map_err(|why| format!("{path:?}: {why}"))?;
                trusting(roots, &pem)?
            }
            (_, None, Some(pem)) => {
                let roots = roots(pem.as_bytes()).map_err(|why| format!("{PEM_TEXT}{why}"))?;
                trusting(roots, pem.as_bytes())?
            }
            (_, None, None) => builder()?.with_root_certificates(TRUSTED_BY_HOST.clone()),
        };
        let mut config = self.authenticated(builder)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn authenticated(self, builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, String> {
        let Some((certificate, key)) = self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| format!("{certificate:?}: {error}"))?;
        // The error of the parser contains no contents of the file.
        let parsed = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{key:?}: {error}"))?;
        let identity = identity(chain, parsed, builder.crypto_provider());
        let identity = identity.map_err(|error| format!("{certificate:?} with {key:?}: {error}"))?;
        Ok(builder.with_client_cert_resolver(identity))
    }
}
