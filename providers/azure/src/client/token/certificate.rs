//! Assertions signed with the certificate of an application.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// The lifetime of an assertion in seconds.
const LIFETIME: i64 = 600;

/// The key and the certificates of an application, its own first.
pub(crate) struct Certificate {
    key: KeyPair,
    chain: Vec<CertificateDer<'static>>,
}

impl Certificate {
    /// Reads PEM text with a key and its certificate, in any order.
    ///
    /// # Errors
    ///
    /// One of them is missing or cannot be used. The text quotes nothing.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, String> {
        if pem.first() == Some(&0x30) {
            return Err("a PFX file is not supported; make a PEM file of it: \
                        openssl pkcs12 -in cert.pfx -nodes -out cert.pem"
                .to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
            "no private key that can be read; want a PEM block PRIVATE KEY without a password".to_owned()
        })?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err("the private key is no RSA key".to_owned()),
        };
        let key = key.map_err(|_| "the private key is no RSA key that can be used".to_owned())?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.map_err(|_| "a certificate cannot be read".to_owned())?;
        if chain.is_empty() {
            return Err("no certificate; want a PEM block CERTIFICATE beside the key".to_owned());
        }
        Ok(Self { key, chain })
    }

    /// A signed statement of `client` for the token endpoint `audience`. Contains the chain, so that the issuer may check
    /// the subject in place of a registered certificate.
    pub(crate) fn assertion(&self, client: &str, audience: &str) -> Result<String, String> {
        let thumbprint =
            self.chain.first().map(|own| digest(&SHA1_FOR_LEGACY_USE_ONLY, own)).ok_or("no certificate")?;
        let chain: Vec<String> = self.chain.iter().map(|certificate| STANDARD.encode(certificate)).collect();
        let header = json!({"alg": "RS256", "typ": "JWT", "x5t": URL_SAFE_NO_PAD.encode(thumbprint), "x5c": chain});
        let now = Timestamp::now().as_second();
        let claims = json!({
            "aud": audience, "iss": client, "sub": client, "jti": uuid::Uuid::new_v4().to_string(),
            "nbf": now, "iat": now, "exp": now + LIFETIME,
        });
        let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encoded(&header), encoded(&claims));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| "the private key cannot sign".to_owned())?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
