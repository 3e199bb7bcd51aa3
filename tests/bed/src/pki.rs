//! Keys and certificates of one bed. Generated each time: nothing secret lies in the tree, and nothing expires.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Writes `ca.pem`, `server.pem`, `server.key`, `sa.key` and `sa.pub`; returns the authority's certificate.
pub(crate) fn write(folder: &Path) -> anyhow::Result<String> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name = name("ccm-test-bed");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca_pem = ca.self_signed(&ca_key)?.pem();

    let server_key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    server.distinguished_name = name("kube-apiserver");
    let server = server.signed_by(&server_key, &Issuer::new(ca, ca_key))?;

    let accounts = KeyPair::generate()?;
    put(folder, "ca.pem", &ca_pem)?;
    put(folder, "server.pem", &server.pem())?;
    put(folder, "server.key", &server_key.serialize_pem())?;
    put(folder, "sa.key", &accounts.serialize_pem())?;
    put(folder, "sa.pub", &accounts.public_key_pem())?;
    Ok(ca_pem)
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn put(folder: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    fs::write(folder.join(file), text).with_context(|| format!("writing {file}"))
}
