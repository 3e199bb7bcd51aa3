//! Assertions signed with the certificate of an application.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
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
    /// Reads PEM text with a key and its certificate, in any order. The error quotes nothing.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, String> {
        if pem.first() == Some(&0x30) {
            return Err("a PFX file is not supported; make a PEM file of it: \
                        openssl pkcs12 -in cert.pfx -nodes -out cert.pem"
                .to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
            "no private key that can be read; expected a PEM block PRIVATE KEY without a password".to_owned()
        })?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err("the private key is not an RSA key".to_owned()),
        };
        let key = key.map_err(|_| "the private key is not a usable RSA key".to_owned())?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let mut chain = chain.map_err(|_| "a certificate cannot be read".to_owned())?;
        if chain.is_empty() {
            return Err("no certificate; expected a PEM block CERTIFICATE beside the key".to_owned());
        }
        // A certificate contains its public key as it is.
        let public = key.public_key().as_ref();
        let is_own = |it: &CertificateDer<'_>| it.windows(public.len()).any(|part| part == public);
        let own = chain.iter().position(is_own).ok_or("no certificate belongs to the private key")?;
        let own = chain.remove(own);
        chain.insert(0, own);
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

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use rcgen::{CertificateParams, PKCS_RSA_SHA256, RsaKeySize};

    use super::*;

    /// A key and its certificate, as PEM.
    fn pem() -> (String, String) {
        let key = rcgen::KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let certificate = CertificateParams::new(vec!["ccm".to_owned()]).unwrap().self_signed(&key).unwrap();
        (key.serialize_pem(), certificate.pem())
    }

    #[test]
    fn an_assertion_is_signed_and_contains_the_certificate() {
        let (key, certificate) = pem();
        let both = Certificate::parse(format!("{certificate}{key}").as_bytes()).unwrap();
        let assertion = both.assertion("client", "https://login/token").unwrap();
        let parts: Vec<&str> = assertion.split('.').collect();
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json = |part: &str| serde_json::from_slice::<Value>(&decoded(part)).unwrap();
        let (header, claims) = (json(parts[0]), json(parts[1]));
        assert_eq!(
            (&header["alg"], &claims["iss"], &claims["aud"]),
            (&json!("RS256"), &json!("client"), &json!("https://login/token"))
        );
        let own = digest(&SHA1_FOR_LEGACY_USE_ONLY, &both.chain[0]);
        assert_eq!(header["x5t"], URL_SAFE_NO_PAD.encode(own));
        assert_eq!(header["x5c"][0], STANDARD.encode(&both.chain[0]));
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, both.key.public_key().as_ref());
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decoded(parts[2])).unwrap();
    }

    #[test]
    fn the_certificate_of_the_key_is_the_first_wherever_it_is_in_the_file() {
        let ((_, other), (key, own)) = (pem(), pem());
        let chain = |text: String| Certificate::parse(text.as_bytes()).map(|it| it.chain);
        let (first, last) =
            (chain(format!("{own}{other}{key}")).unwrap(), chain(format!("{key}{other}{own}")).unwrap());
        assert_eq!((first.len(), &first), (2, &last));
        assert!(chain(format!("{other}{key}")).unwrap_err().contains("private key"));
    }

    #[test]
    fn a_file_without_key_or_certificate_says_what_it_lacks() {
        let (key, certificate) = pem();
        let lacks = |text: &[u8]| Certificate::parse(text).err().unwrap();
        assert!(lacks(key.as_bytes()).starts_with("no certificate"));
        assert!(lacks(certificate.as_bytes()).starts_with("no private key"));
        assert!(lacks(&[0x30, 0x82]).contains("openssl pkcs12"));
    }
}
