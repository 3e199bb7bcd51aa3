//! TLS versions, cipher suites and key exchange, with the names and numbers of Go's flags.
//!
//! rustls only has suites that are considered safe. A name that only Go supports is accepted with a warning if the list
//! has another one, so that manifests need no change; TLS 1.0 and 1.1 mean TLS 1.2. As in Go, the list applies to
//! TLS 1.2 only: the suites of TLS 1.3 are always enabled.

use std::sync::Arc;

use ccm_kit::document::did_you_mean;
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

/// Other names that Go accepts for a suite of rustls.
const LEGACY: [(&str, &str); 2] = [
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// Suites that Go has and rustls does not: without forward secrecy, or with a broken cipher or mode.
const GO_ONLY: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Numbers of key exchange mechanisms that Go knows.
const GO_CURVES: [u16; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

const HTTP2_NEEDS: [CipherSuite; 2] =
    [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];

static BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
static ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The parameters that a handshake may negotiate.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Suites and key exchange.
    pub provider: Arc<CryptoProvider>,
    /// Versions.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// Accepted but unsupported values. Logged when the port is bound.
    pub warnings: Vec<String>,
}

impl Tls {
    /// Parses the lists. `prefix` precedes the names of the flags in errors.
    pub fn new(
        suites: &[String],
        curves: &[String],
        min_version: &str,
        http2: bool,
        prefix: &str,
        errors: &mut Vec<String>,
    ) -> Self {
        let mut warnings = Vec::new();
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut versions = match min_version {
            "" | "VersionTLS12" => BOTH,
            "VersionTLS13" => ONLY_13,
            "VersionTLS10" | "VersionTLS11" => {
                warnings
                    .push(format!("--{prefix}tls-min-version={min_version}: TLS 1.2 is the oldest version there is"));
                BOTH
            }
            other => {
                let known = ["VersionTLS12", "VersionTLS13", "VersionTLS10", "VersionTLS11"];
                let hint = did_you_mean(other, &known).unwrap_or_default();
                errors.push(format!(
                    "unknown tls version {other:?} (--{prefix}tls-min-version takes VersionTLS10, VersionTLS11, VersionTLS12 and VersionTLS13{hint})"
                ));
                BOTH
            }
        };
        if !suites.is_empty() {
            match choose(suites, &provider.cipher_suites, prefix, versions == ONLY_13, http2, &mut warnings) {
                Ok(chosen) => {
                    if !chosen.iter().any(|suite| suite.version().version == ProtocolVersion::TLSv1_2) {
                        versions = ONLY_13;
                    }
                    provider.cipher_suites = chosen;
                }
                Err(error) => errors.push(error),
            }
        }
        if !curves.is_empty() {
            match groups(curves, prefix, &mut warnings) {
                Ok(chosen) => provider.kx_groups.retain(|group| chosen.contains(&group.name())),
                Err(error) => errors.push(error),
            }
        }
        Self { provider: Arc::new(provider), versions, warnings }
    }

    /// Whether TLS 1.2 is limited to certificates with an RSA key.
    pub fn needs_rsa(&self) -> bool {
        let tls12 = self.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
        let mut names = tls12.map(name).peekable();
        names.peek().is_some() && names.all(|name| name.contains("_RSA_"))
    }
}

/// The suites of the list that this program has, with those of TLS 1.3.
fn choose(
    wanted: &[String],
    available: &[SupportedCipherSuite],
    prefix: &str,
    only_13: bool,
    http2: bool,
    warnings: &mut Vec<String>,
) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut chosen = Vec::new();
    let mut missing = Vec::new();
    for word in wanted {
        let known = LEGACY.iter().find(|(legacy, _)| legacy == word).map_or(word.as_str(), |(_, name)| name);
        match available.iter().find(|suite| name(suite) == known) {
            Some(suite) => chosen.push(suite.suite()),
            None if GO_ONLY.contains(&known) => missing.push(known),
            None => {
                let all: Vec<String> = available.iter().map(name).collect();
                let known: Vec<&str> = all.iter().map(String::as_str).collect();
                let hint = did_you_mean(word, &known).unwrap_or_default();
                return Err(format!(
                    "Cipher suite {word} not supported or doesn't exist (--{prefix}tls-cipher-suites takes {}{hint})",
                    all.join(", ")
                ));
            }
        }
    }
    let missing = missing.join(", ");
    if !missing.is_empty() {
        warnings.push(format!("--{prefix}tls-cipher-suites: {missing} are not available in this program and left out"));
    }
    if http2 && !only_13 && !chosen.iter().any(|suite| HTTP2_NEEDS.contains(suite)) {
        return Err(format!(
            "error configuring http2: http2: TLSConfig.CipherSuites is missing an HTTP/2-required AES_128_GCM_SHA256 cipher (need at least one of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) (add one to --{prefix}tls-cipher-suites, or give --{prefix}disable-http2-serving)"
        ));
    }
    let keep = |suite: &&SupportedCipherSuite| suite.tls13().is_some() || chosen.contains(&suite.suite());
    let kept: Vec<SupportedCipherSuite> = available.iter().filter(keep).copied().collect();
    if !only_13 && !missing.is_empty() && kept.iter().all(|suite| suite.tls13().is_some()) {
        return Err(format!(
            "--{prefix}tls-cipher-suites: none of {missing} is available in this program, so that TLS 1.2 would be off: add one of the others, or give --{prefix}tls-min-version=VersionTLS13"
        ));
    }
    Ok(kept)
}

/// The IANA name.
fn name(suite: &SupportedCipherSuite) -> String {
    // rustls includes the version in the names of TLS 1.3.
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

fn groups(numbers: &[String], prefix: &str, warnings: &mut Vec<String>) -> Result<Vec<NamedGroup>, String> {
    let available = rustls::crypto::aws_lc_rs::default_provider().kx_groups;
    let mut seen = Vec::new();
    for text in numbers {
        let number: i64 = text.trim().parse().map_err(|_| {
            format!(
                "invalid argument {text:?} for \"--{prefix}tls-curve-preferences\" flag: strconv.ParseInt: parsing {text:?}: invalid syntax"
            )
        })?;
        let id = u16::try_from(number).ok().filter(|id| *id > 0).ok_or_else(|| {
            format!("curve preference {number} is out of range (must be 1-65535) (--{prefix}tls-curve-preferences)")
        })?;
        if seen.contains(&id) {
            return Err(format!("duplicate curve preference {id} (--{prefix}tls-curve-preferences)"));
        }
        if !GO_CURVES.contains(&id) {
            return Err(format!(
                "curve preference {id} is not supported (--{prefix}tls-curve-preferences takes 23, 24, 29 and 4588)"
            ));
        }
        seen.push(id);
    }
    let (usable, missing): (Vec<u16>, Vec<u16>) =
        seen.into_iter().partition(|id| available.iter().any(|group| group.name() == NamedGroup::from(*id)));
    if usable.is_empty() {
        return Err(format!(
            "--{prefix}tls-curve-preferences: none of {missing:?} is available in this program: add 23, 24, 29 or 4588"
        ));
    }
    if !missing.is_empty() {
        warnings.push(format!(
            "--{prefix}tls-curve-preferences: {missing:?} are not available in this program and left out"
        ));
    }
    Ok(usable.into_iter().map(NamedGroup::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(suites: &str, curves: &str, min: &str, http2: bool) -> Result<Tls, String> {
        let list = |text: &str| text.split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let mut errors = Vec::new();
        let tls = Tls::new(&list(suites), &list(curves), min, http2, "", &mut errors);
        errors.into_iter().next().map_or(Ok(tls), Err)
    }

    fn names(tls: &Tls) -> Vec<String> {
        tls.provider.cipher_suites.iter().map(name).collect()
    }

    const RSA: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";

    #[test]
    fn the_list_limits_tls_1_2_and_leaves_tls_1_3() {
        let made = tls(RSA, "", "", true).unwrap();
        let names = names(&made);
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(names.contains(&RSA.to_owned()) && names.contains(&"TLS_AES_128_GCM_SHA256".to_owned()), "{names:?}");
        assert!(made.needs_rsa() && made.warnings.is_empty());
        assert!(!tls("", "", "", true).unwrap().needs_rsa());
    }

    #[test]
    fn names_that_only_go_has_are_left_out_with_a_warning_while_another_remains() {
        let made = tls(&format!("TLS_RSA_WITH_AES_128_CBC_SHA,{RSA}"), "", "", true).unwrap();
        assert_eq!(made.warnings.len(), 1);
        assert!(made.warnings[0].contains("TLS_RSA_WITH_AES_128_CBC_SHA"), "{:?}", made.warnings);
        let error = tls("TLS_RSA_WITH_AES_128_CBC_SHA", "", "", false).unwrap_err();
        assert!(error.contains("--tls-min-version=VersionTLS13"), "{error}");
        assert!(tls("TLS_RSA_WITH_AES_128_CBC_SHA", "", "VersionTLS13", true).is_ok());
    }

    #[test]
    fn http2_needs_its_suite_unless_it_is_off_or_tls_1_2_is() {
        let list = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        let error = tls(list, "", "", true).unwrap_err();
        assert!(
            error.starts_with("error configuring http2: http2: TLSConfig.CipherSuites is missing an HTTP/2-required")
        );
        assert!(tls(list, "", "", false).is_ok());
        assert!(tls(list, "", "VersionTLS13", true).is_ok());
        let only_13 = tls("TLS_AES_128_GCM_SHA256", "", "", false).unwrap();
        assert_eq!(only_13.versions.len(), 1);
    }

    #[test]
    fn unknown_names_are_an_error_with_upstreams_text() {
        let error = tls("FOO", "", "", true).unwrap_err();
        assert!(error.starts_with("Cipher suite FOO not supported or doesn't exist"), "{error}");
        assert!(tls("", "", "1.2", true).unwrap_err().starts_with("unknown tls version \"1.2\""));
        assert!(
            tls("", "0", "", true).unwrap_err().starts_with("curve preference 0 is out of range (must be 1-65535)")
        );
        assert!(tls("", "23,23", "", true).unwrap_err().starts_with("duplicate curve preference 23"));
        assert!(tls("", "9", "", true).unwrap_err().starts_with("curve preference 9 is not supported"));
        assert!(tls("", "x", "", true).unwrap_err().contains("strconv.ParseInt: parsing \"x\": invalid syntax"));
        assert!(tls("", "25", "", true).unwrap_err().contains("none of [25]"));
    }

    #[test]
    fn key_exchange_is_limited_to_the_numbers_given() {
        let made = tls("", "29,25", "", true).unwrap();
        let groups: Vec<_> = made.provider.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(groups, [NamedGroup::X25519]);
        assert_eq!(made.warnings.len(), 1);
        assert_eq!(tls("", "", "VersionTLS10", true).unwrap().warnings.len(), 1);
    }

    #[test]
    fn every_suite_of_rustls_is_known_to_go() {
        for suite in &rustls::crypto::aws_lc_rs::default_provider().cipher_suites {
            let name = name(suite);
            assert!(name.starts_with("TLS_") && !name.contains("TLS13"), "{name}");
            assert!(!GO_ONLY.contains(&name.as_str()), "{name}");
        }
    }
}
