//! Proxies and certificates from the environment, as in Go programs.

use std::net::IpAddr;

use http::Uri;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Looks up an environment variable; `None` if it is unset or empty.
pub type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// The variable in upper or lower case: the name that is set, and its value.
pub fn variable(environment: Environment<'_>, name: &str) -> Option<(String, String)> {
    [name.to_owned(), name.to_ascii_lowercase()].into_iter().find_map(|name| Some((name.clone(), environment(&name)?)))
}

/// The URL of a proxy. As in Go, `proxy:3128` means `http://proxy:3128`.
pub fn proxy_url(value: String) -> String {
    if value.contains("://") { value } else { format!("http://{value}") }
}

/// The proxy variable that applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// No proxy, whatever the environment says.
    Direct,
    /// `HTTP_PROXY`
    Http,
    /// `HTTPS_PROXY`
    Https,
}

/// The route to an address. The local host and link-local addresses (the metadata service, container credentials) are
/// never requested through a proxy. Go has the first exception; without the second, every `NO_PROXY` would have to list
/// those addresses.
pub fn route(uri: &Uri) -> Route {
    let host = uri.host().unwrap_or_default();
    let is_near = match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unicast_link_local() || ip.segments().starts_with(&[0xfd00, 0xec2])
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    match uri.scheme_str() {
        _ if is_near => Route::Direct,
        Some("http") => Route::Http,
        _ => Route::Https,
    }
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
    fn this_host_and_its_metadata_are_requested_directly() {
        let cases = [
            ("https://ec2.us-west-2.amazonaws.com/", Route::Https),
            ("http://ec2.example/", Route::Http),
            ("http://169.254.169.254/latest/api/token", Route::Direct),
            ("http://169.254.170.23/v1/credentials", Route::Direct),
            ("http://[fd00:ec2::254]/latest", Route::Direct),
            ("http://[fd00:ec3::1]/", Route::Http),
            ("https://127.0.0.9:8443/", Route::Direct),
            ("http://[::1]:1/", Route::Direct),
            ("http://LOCALHOST:1/", Route::Direct),
            ("https://localhost.example/", Route::Https),
        ];
        for (uri, expected) in cases {
            assert_eq!(route(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

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
