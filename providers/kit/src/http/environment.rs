//! Environment variables, and the files that they name.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_native_certs::{load_certs_from_paths, load_native_certs};

/// Looks up an environment variable; `None` if it is unset or empty.
pub type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// The variable in upper or lower case: the name that is set, and its value.
pub fn variable(environment: Environment<'_>, name: &str) -> Option<(String, String)> {
    [name.to_owned(), name.to_ascii_lowercase()].into_iter().find_map(|name| Some((name.clone(), environment(&name)?)))
}

/// The certificates of a PEM file, and the contents of the file.
///
/// # Errors
///
/// The file cannot be read, has no certificate, or has an invalid one.
pub fn bundle(path: &str) -> Result<(RootCertStore, Vec<u8>), String> {
    let pem = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    Ok((roots(&pem)?, pem))
}

/// Where Linux distributions keep the certificates that the host trusts: the files, of which the first counts, and the
/// folders, which all count.
pub(super) const HOST: (&[&str], &[&str]) = (
    &[
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ],
    &["/etc/ssl/certs", "/etc/pki/tls/certs"],
);

/// The certificates that the host trusts, as Go programs find them: `SSL_CERT_FILE` replaces the files, `SSL_CERT_DIR` the
/// folders, and what cannot be read is skipped. Go's `crypto/x509`, `loadSystemRoots`.
pub(super) fn of_host(environment: Environment<'_>, (files, folders): (&[&str], &[&str])) -> RootCertStore {
    let (file, folder) = (environment("SSL_CERT_FILE"), environment("SSL_CERT_DIR"));
    let mut certificates = match (&file, &folder) {
        // Other systems keep them elsewhere.
        (None, None) if !cfg!(target_os = "linux") => load_native_certs().certs,
        _ => Vec::new(),
    };
    let of_file = |file: &Path| load_certs_from_paths(Some(file), None).certs;
    let file = file.as_deref().map(Path::new).or_else(|| files.iter().map(Path::new).find(|path| path.is_file()));
    certificates.extend(file.map_or(Vec::new(), of_file));
    let folders: Vec<&str> = folder.as_deref().map_or(folders.to_vec(), |folders| folders.split(':').collect());
    for folder in folders.into_iter().map(Path::new) {
        certificates.extend(load_certs_from_paths(None, Some(folder)).certs);
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates);
    store
}

/// The certificates of PEM text.
pub(super) fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("not a file of PEM certificates: {error}"))?;
        store.add(certificate).map_err(|error| format!("certificate {} of the file: {error}", store.len() + 1))?;
    }
    if store.is_empty() { Err("no certificate in the file; expected PEM blocks".to_owned()) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_of_the_host_are_found_as_go_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let made = rcgen::generate_simple_self_signed([name.replace('/', ".")]).unwrap();
            std::fs::write(&path, made.cert.pem()).unwrap();
            path.display().to_string()
        };
        let (usual, second, in_folder) = (made("usual.pem"), made("second.pem"), made("certs/a.pem"));
        let (other, other_folder) = (made("other.pem"), made("others/b.pem"));
        let parent = |file: &str| Path::new(file).parent().unwrap().display().to_string();
        let usual_folder = parent(&in_folder);
        let found = |file: &str, dir: &str| {
            let environment = |name: &str| {
                let value = if name == "SSL_CERT_FILE" { file } else { dir };
                Some(value.to_owned()).filter(|value| !value.is_empty())
            };
            let (files, folders) = (["/nonexistent", &*usual, &*second], [&*usual_folder, "/nonexistent"]);
            let store = of_host(&environment, (&files, &folders));
            let key = |store: &RootCertStore, at: usize| store.roots[at].subject_public_key_info.as_ref().to_vec();
            let has = |path: &str| {
                let own = key(&roots(&std::fs::read(path).unwrap()).unwrap(), 0);
                (0..store.roots.len()).any(|at| key(&store, at) == own)
            };
            [&usual, &second, &in_folder, &other, &other_folder].map(|path| has(path))
        };
        assert_eq!(found("", ""), [true, false, true, false, false], "the first file, and the folders");
        assert_eq!(found("/nonexistent", ""), [false, false, true, false, false]);
        assert_eq!(found(&other, ""), [false, false, true, true, false], "the folders count all the same");
        assert_eq!(found("", &parent(&other_folder)), [true, false, false, false, true]);
    }

    #[test]
    fn a_bad_bundle_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle").display().to_string();
        assert!(bundle(&path).unwrap_err().starts_with("cannot be read: No such file"));
        for (text, expected) in [
            ("no certificates here\n", "no certificate in the file; expected PEM blocks"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "not a file of PEM certificates: "),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 1 of the file: "),
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = bundle(&path).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
