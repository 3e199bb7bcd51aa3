//! Environment variables, and the files that they name.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

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

/// The certificates of PEM text.
pub(super) fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("not a file of PEM certificates: {error}"))?;
        store.add(certificate).map_err(|error| format!("certificate {} of the file: {error}", store.len() + 1))?;
    }
    if store.is_empty() { Err("no certificate in the file; want PEM blocks".to_owned()) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_bundle_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle").display().to_string();
        assert!(bundle(&path).unwrap_err().starts_with("cannot be read: No such file"));
        for (text, expected) in [
            ("no certificates here\n", "no certificate in the file; want PEM blocks"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "not a file of PEM certificates: "),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 1 of the file: "),
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = bundle(&path).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
