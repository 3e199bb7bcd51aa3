//! The server's certificates: generated or read, selected by name, reloaded when their files change.
//!
//! Rules of `k8s.io/apiserver/pkg/server/dynamiccertificates` and `k8s.io/client-go/util/cert`.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::config::{CertificateSource, KeyPairFiles, Serving, SniPair};
use super::identity;

/// Validity of a generated certificate. Clients do not verify it: it only has to outlive the process.
const VALID: std::time::Duration = std::time::Duration::from_secs(3650 * 24 * 3600);

/// A certificate chain and key, read from disk or generated.
#[derive(Clone, PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Certificates {
    default: Arc<CertifiedKey>,
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    /// The certificate for a name that a client requests: that name, the same with `*` as its first label, the
    /// default.
    fn for_name(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_lowercase();
        let wildcard = || {
            let (_, rest) = name.split_once('.')?;
            self.named.get(&format!("*.{rest}"))
        };
        self.named.get(&name).or_else(wildcard).unwrap_or(&self.default)
    }

    /// The certificate for the local address, for clients that send no name.
    pub(super) fn for_address(&self, address: IpAddr) -> Option<&Arc<CertifiedKey>> {
        self.named.get(&address.to_canonical().to_string())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.default, |name| self.for_name(name)).clone())
    }
}

/// Presents one certificate, whatever name the client requests.
#[derive(Debug)]
pub(super) struct Only(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// The sources of the certificates, and the content of the last read.
pub(super) struct Reader {
    default: Option<KeyPairFiles>,
    sni: Vec<SniPair>,
    provider: Arc<CryptoProvider>,
    /// The default certificate first.
    last: Vec<Pem>,
    /// The last rejected content, so that its error is logged once; empty after a failed read.
    refused: Option<Vec<Pem>>,
}

pub(super) enum Look {
    Same,
    New(Certificates),
    /// The previous certificates stay in use.
    Refused(String),
}

impl Reader {
    /// Generates or reads all certificates.
    ///
    /// # Errors
    ///
    /// A file is missing or has other content, or a key belongs to another certificate.
    pub(super) fn open(serving: &Serving) -> Result<(Self, Certificates), String> {
        let (default, made) = match &serving.certificate {
            CertificateSource::Memory => {
                let made = self_signed(serving)?;
                tracing::info!("Generated self-signed cert in-memory");
                (None, Some(made))
            }
            CertificateSource::Folder { stem } => (Some(in_folder(stem, serving)?), None),
            CertificateSource::Files(files) => (Some(files.clone()), None),
        };
        let provider = serving.tls.provider.clone();
        let mut reader = Self { default, sni: serving.sni.clone(), provider, last: Vec::new(), refused: None };
        reader.last.extend(made);
        let pems = reader.read()?;
        let certificates = reader.parse(&pems)?;
        reader.last = pems;
        Ok((reader, certificates))
    }

    pub(super) fn look(&mut self) -> Look {
        let pems = match self.read() {
            Ok(pems) => pems,
            // A file that is being replaced is temporarily missing; one that stays missing is logged once.
            Err(error) if self.refused.as_ref().is_some_and(Vec::is_empty) => {
                tracing::debug!(error, "a certificate still cannot be read");
                return Look::Same;
            }
            Err(error) => {
                self.refused = Some(Vec::new());
                return Look::Refused(error);
            }
        };
        if pems == self.last {
            self.refused = None;
            return Look::Same;
        }
        if self.refused.as_ref() == Some(&pems) {
            return Look::Same;
        }
        match self.parse(&pems) {
            Ok(certificates) => {
                self.last = pems;
                self.refused = None;
                Look::New(certificates)
            }
            Err(error) => {
                self.refused = Some(pems);
                Look::Refused(error)
            }
        }
    }

    fn read(&self) -> Result<Vec<Pem>, String> {
        let default = match &self.default {
            Some(files) => read_pair(files)?,
            None => self.last.first().cloned().ok_or("there is no certificate")?,
        };
        let mut pems = vec![default];
        for pair in &self.sni {
            pems.push(read_pair(&pair.files).map_err(|error| format!("failed to load SNI cert and key: {error}"))?);
        }
        Ok(pems)
    }

    fn parse(&self, pems: &[Pem]) -> Result<Certificates, String> {
        let (default, rest) = pems.split_first().ok_or("there is no certificate")?;
        let named_by = |files: Option<&KeyPairFiles>| {
            files.map_or_else(|| "the self-signed certificate".to_owned(), |f| f.certificate.display().to_string())
        };
        let default = certified(default, &named_by(self.default.as_ref()), &self.provider)?;
        let mut named = HashMap::new();
        let mut explicit = Vec::new();
        // In reverse order, as in upstream: of two certificates with the same name the first is used.
        for (pem, pair) in rest.iter().zip(&self.sni).rev() {
            let key = certified(pem, &named_by(Some(&pair.files)), &self.provider)?;
            if pair.names.is_empty() {
                let leaf = key.cert.first().map(AsRef::as_ref).unwrap_or_default();
                named.extend(identity::dns_names(leaf).into_iter().map(|name| (name, key.clone())));
            } else {
                explicit.extend(pair.names.iter().map(|name| (name.clone(), key.clone())));
            }
        }
        // Names given by flags take precedence over those in certificates.
        named.extend(explicit);
        Ok(Certificates { default, named })
    }
}

fn certified(pem: &Pem, from: &str, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem.certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{from}: not a certificate in PEM: {error}"))?;
    let leaf = chain.first().ok_or_else(|| format!("{from}: there is no certificate in this file"))?;
    // The error must not contain the key, which is a secret.
    let key = PrivateKeyDer::from_pem_slice(&pem.key)
        .map_err(|_| format!("the key of {from}: there is no private key in PEM in this file"))?;
    let invalid = |error: &dyn Display| format!("invalid serving cert keypair: {from}: {error}");
    let key = provider.key_provider.load_private_key(key).map_err(|error| invalid(&error))?;
    // rustls compares the keys too, but parses no certificates of version 1, as `openssl x509 -req` makes them.
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|error| invalid(&error))?;
    if key.public_key().is_some_and(|public| public.as_ref() != parsed.tbs_certificate.subject_pki.raw) {
        return Err(invalid(&rustls::Error::from(InconsistentKeys::KeyMismatch)));
    }
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

fn read_pair(files: &KeyPairFiles) -> Result<Pem, String> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("open {}: {error}", path.display()));
    Ok(Pem { certificate: read(&files.certificate)?, key: read(&files.key)? })
}

/// The pair in the folder of `--cert-dir`, generated if it is missing.
fn in_folder(stem: &Path, serving: &Serving) -> Result<KeyPairFiles, String> {
    let with = |extension: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    };
    let files = KeyPairFiles { certificate: with(".crt"), key: with(".key") };
    match (readable(&files.certificate)?, readable(&files.key)?) {
        (true, true) => return Ok(files),
        (false, false) => {}
        _ => {
            return Err(format!(
                "error reading key and certificate: of {} and {} only one exists: --cert-dir holds both, or none to have them made",
                files.certificate.display(),
                files.key.display()
            ));
        }
    }
    let made = self_signed(serving)?;
    if let Some(folder) = stem.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make the folder {} of --cert-dir: {error}", folder.display()))?;
    }
    // The key first: a certificate without its key is useless to a concurrent reader.
    write(&files.key, &made.key, 0o600)?;
    write(&files.certificate, &made.certificate, 0o644)?;
    tracing::info!("Generated self-signed cert ({}, {})", files.certificate.display(), files.key.display());
    Ok(files)
}

fn readable(path: &Path) -> Result<bool, String> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("open {}: {error}", path.display())),
    }
}

/// Writes a file atomically.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    let next = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        drop(std::fs::remove_file(&next));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&next)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&next, path)
    };
    written().map_err(|error| format!("cannot write {} (--cert-dir): {error}", path.display()))
}

/// For `localhost`, 127.0.0.1 and the bound address, as in upstream.
fn self_signed(serving: &Serving) -> Result<Pem, String> {
    let fail = |error: rcgen::Error| format!("unable to generate self signed cert: {error}");
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let bound = serving.address.to_string();
    if !serving.address.is_unspecified() && !names.contains(&bound) {
        names.push(bound);
    }
    let mut params = CertificateParams::new(names).map_err(fail)?;
    let now = SystemTime::now();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    params.distinguished_name.push(DnType::CommonName, format!("localhost@{seconds}"));
    // Backdated by an hour, for clients whose clock is behind.
    let now = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds.saturating_sub(3600));
    params.not_before = now;
    params.not_after = now + VALID;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // With RSA cipher suites only, an elliptic-curve key would have no usable suite.
    let key = if serving.tls.needs_rsa() {
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
    } else {
        KeyPair::generate()
    };
    let key = key.map_err(fail)?;
    let certificate = params.self_signed(&key).map_err(fail)?;
    Ok(Pem { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_version_1_is_served_with_its_own_key() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let pair = |certificate: &[u8], key: &[u8]| {
            let pem = Pem { certificate: certificate.to_vec(), key: key.to_vec() };
            certified(&pem, "file", &provider).map(drop)
        };
        // Of `openssl x509 -req`, with its key.
        let first = include_bytes!("tests/version1.pem");
        let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (other, other_key) = (other.cert.pem(), other.signing_key.serialize_pem());
        assert_eq!(pair(first, first), Ok(()));
        assert_eq!(pair(other.as_bytes(), other_key.as_bytes()), Ok(()));
        for (certificate, key) in [(&first[..], other_key.as_bytes()), (other.as_bytes(), first)] {
            let error = pair(certificate, key).unwrap_err();
            assert!(
                error.starts_with("invalid serving cert keypair: file: ") && error.contains("KeyMismatch"),
                "{error}"
            );
        }
        let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(pair(none.as_bytes(), first).unwrap_err().starts_with("invalid serving cert keypair: file: "));
    }
}
