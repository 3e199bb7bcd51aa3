//! Keys and certificates of one bed. Generated each time, so that the repository has no secrets and nothing expires.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The authority that signs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// `--client-ca-file` of the API server: the certificate's subject is the user. Also signs the serving certificate.
    Client,
    /// `--requestheader-client-ca-file`: a client named [`crate::FRONT_PROXY_USER`] sets the user in headers.
    FrontProxy,
}

impl Authority {
    /// Name of its files, without extension.
    fn stem(self) -> &'static str {
        match self {
            Self::Client => "ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }
}

/// A client certificate with its key, as text and as files that exist as long as the bed.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate as PEM.
    pub certificate_pem: String,
    /// Its private key as PEM.
    pub key_pem: String,
    /// File with [`ClientCertificate::certificate_pem`].
    pub certificate_file: PathBuf,
    /// File with [`ClientCertificate::key_pem`], readable by its owner only.
    pub key_file: PathBuf,
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ClientCertificate").field("certificate_file", &self.certificate_file).finish_non_exhaustive()
    }
}

/// The two authorities of a bed, or of a test.
#[derive(Debug)]
pub struct Pki {
    folder: PathBuf,
    client: Signer,
    front_proxy: Signer,
}

#[derive(Debug)]
struct Signer {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Writes, for both authorities, `<stem>.pem` and `<stem>.key`; `server.pem` and `.key`; `front-proxy-client.pem`
    /// and `.key`; `sa.key` and `sa.pub`.
    pub fn write(folder: &Path) -> anyhow::Result<Self> {
        let pki = Self {
            folder: folder.to_owned(),
            client: signer(folder, Authority::Client, "ccm-test-bed")?,
            front_proxy: signer(folder, Authority::FrontProxy, "ccm-test-bed-front-proxy")?,
        };
        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name = name("kube-apiserver", &[])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server = server.signed_by(&key, &pki.client.issuer)?;
        put(&folder.join("server.pem"), &server.pem())?;
        put_secret(&folder.join("server.key"), &key.serialize_pem())?;

        pki.sign(Authority::FrontProxy, "front-proxy-client", crate::FRONT_PROXY_USER, &[], false)?;

        let accounts = KeyPair::generate()?;
        put_secret(&folder.join("sa.key"), &accounts.serialize_pem())?;
        put(&folder.join("sa.pub"), &accounts.public_key_pem())?;
        Ok(pki)
    }

    /// The authority's certificate.
    pub fn pem(&self, authority: Authority) -> &str {
        &self.signer(authority).pem
    }

    /// The file of [`Pki::pem`].
    pub(crate) fn file(&self, authority: Authority) -> PathBuf {
        self.folder.join(format!("{}.pem", authority.stem()))
    }

    /// Signs and writes `<stem>.pem` and `<stem>.key`.
    pub fn sign(
        &self,
        authority: Authority,
        stem: &str,
        user: &str,
        groups: &[&str],
        expired: bool,
    ) -> anyhow::Result<ClientCertificate> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = name(user, groups)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if expired {
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        let made = ClientCertificate {
            certificate_pem: params.signed_by(&key, &self.signer(authority).issuer)?.pem(),
            key_pem: key.serialize_pem(),
            certificate_file: self.folder.join(format!("{stem}.pem")),
            key_file: self.folder.join(format!("{stem}.key")),
        };
        put(&made.certificate_file, &made.certificate_pem)?;
        put_secret(&made.key_file, &made.key_pem)?;
        Ok(made)
    }

    fn signer(&self, authority: Authority) -> &Signer {
        match authority {
            Authority::Client => &self.client,
            Authority::FrontProxy => &self.front_proxy,
        }
    }
}

fn signer(folder: &Path, authority: Authority, common: &str) -> anyhow::Result<Signer> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name(common, &[])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let pem = params.self_signed(&key)?.pem();
    put(&folder.join(format!("{}.pem", authority.stem())), &pem)?;
    put_secret(&folder.join(format!("{}.key", authority.stem())), &key.serialize_pem())?;
    Ok(Signer { pem, issuer: Issuer::new(params, key) })
}

/// The subject in the form of Kubernetes: the common name is the user, each organization a group.
fn name(common: &str, groups: &[&str]) -> anyhow::Result<DistinguishedName> {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    // rcgen keeps one value of each type, and treats the number of the type as a type other than its name.
    for (at, group) in groups.iter().enumerate() {
        let kind = match at {
            0 => DnType::OrganizationName,
            1 => DnType::CustomDnType(vec![2, 5, 4, 10]),
            _ => bail!("a certificate of the test bed holds at most two groups, and {common} is to be in {groups:?}"),
        };
        name.push(kind, *group);
    }
    Ok(name)
}

fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Writes a file that only its owner may read.
pub(crate) fn put_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_for_their_owner_only_and_do_not_appear_in_debug_output() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::write(folder.path()).unwrap();
        let made = pki.sign(Authority::Client, "ann", "ann", &["a", "b"], false).unwrap();
        for key in ["ca.key", "front-proxy-ca.key", "front-proxy-client.key", "server.key", "sa.key", "ann.key"] {
            let mode = fs::metadata(folder.path().join(key)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
        assert_eq!(fs::read_to_string(&made.key_file).unwrap(), made.key_pem);
        assert_eq!(fs::read_to_string(pki.file(Authority::FrontProxy)).unwrap(), pki.pem(Authority::FrontProxy));
        assert_ne!(pki.pem(Authority::FrontProxy), pki.pem(Authority::Client));
        assert!(!format!("{made:?}{pki:?}").contains("PRIVATE"), "{made:?}{pki:?}");

        let error = pki.sign(Authority::Client, "ann", "ann", &["a", "b", "c"], false).unwrap_err().to_string();
        assert!(error.contains("at most two groups"), "{error}");
    }
}
