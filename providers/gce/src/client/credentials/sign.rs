//! Assertions signed with the key of a service account.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

/// The lifetime of an assertion in seconds: one hour is the maximum.
const LIFETIME: i64 = 3600;

/// A JSON Web Token with these claims, valid from now on, signed with RS256. The error quotes nothing of the key.
pub(super) fn assertion(key_pem: &str, key_id: &str, mut claims: Value) -> Result<String, String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes())
        .map_err(|_| "private_key is not a PEM block of a PKCS #8 key".to_owned())?;
    let key = KeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| "private_key is not an RSA key".to_owned())?;
    let now = Timestamp::now().as_second();
    if let Value::Object(claims) = &mut claims {
        claims.insert("iat".to_owned(), now.into());
        claims.insert("exp".to_owned(), (now + LIFETIME).into());
    }
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": key_id});
    let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let text = format!("{}.{}", encoded(&header), encoded(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| "private_key cannot sign".to_owned())?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
