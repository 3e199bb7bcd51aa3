//! The settings of serving, parsed from the flags and validated.
//!
//! Rules and texts of `k8s.io/apiserver/pkg/server/options` (`serving.go`, `authentication.go`, `authorization.go`) and
//! `k8s.io/cloud-provider/options/webhook.go`. Errors that Go detects when it binds the port are reported here with the
//! others.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ccm_provider::flag::FlagValues;

use super::suites::Tls;

/// The settings of HTTPS serving.
#[derive(Debug, Clone)]
pub struct Serving {
    /// `--bind-address`. An unspecified address means all addresses of both families, as in Go.
    pub address: IpAddr,
    /// `--secure-port`; 0 disables serving.
    pub port: u16,
    /// The certificate for clients that request no name or an unknown one.
    pub certificate: CertificateSource,
    /// `--tls-sni-cert-key`
    pub sni: Vec<SniPair>,
    /// Versions, cipher suites, key exchange.
    pub tls: Tls,
    /// Maximum streams of one HTTP/2 connection; `None` with `--disable-http2-serving`.
    pub http2_streams: Option<u32>,
    /// `--permit-port-sharing`: SO_REUSEPORT.
    pub share_port: bool,
}

/// The source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Generated at each start, kept in memory.
    Memory,
    /// `<stem>.crt` and `<stem>.key` in a folder; generated if they are missing.
    Folder {
        /// The folder and the stem.
        stem: PathBuf,
    },
    /// The given files, reloaded when they change.
    Files(KeyPairFiles),
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate, followed by the intermediate authorities.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// One value of `--tls-sni-cert-key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniPair {
    /// The files.
    pub files: KeyPairFiles,
    /// The names that clients request, in lower case; `*` in `*.example.com` matches any first label. If empty, those
    /// in the certificate.
    pub names: Vec<String>,
}

/// Settings of delegated authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// `--authentication-kubeconfig`; if empty, the pod's service account; without one, only anonymous requests.
    pub kubeconfig: String,
    /// `--authentication-skip-lookup`
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`
    pub token_ttl: Duration,
    /// `--client-ca-file`
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file`
    pub proxy_ca: Option<PathBuf>,
    /// `--requestheader-…`
    pub proxy_headers: HeaderNames,
}

/// Names of the headers of a front proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// `--requestheader-allowed-names`: common names of front proxies; if empty, all that the authority signed.
    pub allowed: Vec<String>,
    /// `--requestheader-username-headers`: the first present header is used.
    pub user: Vec<String>,
    /// `--requestheader-uid-headers`: the first present header is used.
    pub uid: Vec<String>,
    /// `--requestheader-group-headers`: all are used.
    pub group: Vec<String>,
    /// `--requestheader-extra-headers-prefix`
    pub extra_prefix: Vec<String>,
}

/// Settings of delegated authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// `--authorization-kubeconfig`; if empty, the pod's service account; without one, only the paths of
    /// `always_allow`.
    pub kubeconfig: String,
    /// `--authorization-always-allow-paths`
    pub always_allow: AllowedPaths,
    /// `--authorization-webhook-cache-authorized-ttl`
    pub allow_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`
    pub deny_ttl: Duration,
}

/// Paths that need no permission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl Serving {
    /// Parses the flags of secure serving, for this validated address and port.
    pub fn from_values(values: &FlagValues, address: IpAddr, port: u16, errors: &mut Vec<String>) -> Self {
        let flags = Prefixed { values, prefix: "" };
        let mut serving = flags.serving(address, port, "cloud-controller-manager", port != 0, errors);
        let streams = values.int("http2-max-streams-per-connection").unwrap_or_default();
        if streams < 0 || u32::try_from(streams).is_err() {
            errors.push(format!(
                "--http2-max-streams-per-connection {streams} must be between 0 and {}, inclusive. 0 for the default",
                u32::MAX
            ));
        }
        if let (Some(most), Ok(wanted)) = (&mut serving.http2_streams, u32::try_from(streams))
            && wanted > 0
        {
            *most = wanted;
        }
        serving.share_port = values.bool("permit-port-sharing");
        serving
    }

    /// Parses the flags of webhook serving, for this validated address and port. As in upstream, the flags must be
    /// valid only if the port will be served.
    pub fn of_webhooks(values: &FlagValues, address: IpAddr, port: u16, errors: &mut Vec<String>) -> Self {
        let wanted = port != 0 && !values.list("webhooks").is_empty();
        let flags = Prefixed { values, prefix: "webhook-" };
        flags.serving(address, port, "cloud-controller-manager-webhook", wanted, errors)
    }
}

/// The default number of streams of an HTTP/2 connection, as in upstream.
const STREAMS: u32 = 100;

/// The flags that secure and webhook serving have in common.
struct Prefixed<'a> {
    values: &'a FlagValues,
    prefix: &'static str,
}

impl Prefixed<'_> {
    fn name(&self, flag: &str) -> String {
        format!("{}{flag}", self.prefix)
    }

    fn text(&self, flag: &str) -> String {
        self.values.text(&self.name(flag))
    }

    fn serving(&self, address: IpAddr, port: u16, stem: &str, wanted: bool, errors: &mut Vec<String>) -> Serving {
        let mut found = Vec::new();
        let http2 = !self.values.bool(&self.name("disable-http2-serving"));
        let ciphers = self.values.list(&self.name("tls-cipher-suites"));
        let curves = self.values.list(&self.name("tls-curve-preferences"));
        let tls = Tls::new(&ciphers, &curves, &self.text("tls-min-version"), http2, self.prefix, &mut found);
        let serving = Serving {
            address,
            port,
            certificate: self.certificate(stem, &mut found),
            sni: self.sni(&mut found),
            tls,
            http2_streams: http2.then_some(STREAMS),
            share_port: false,
        };
        if wanted {
            errors.append(&mut found);
        }
        serving
    }

    fn certificate(&self, stem: &str, errors: &mut Vec<String>) -> CertificateSource {
        let (certificate, key) = (self.text("tls-cert-file"), self.text("tls-private-key-file"));
        let folder = self.text("cert-dir");
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) if folder.is_empty() => CertificateSource::Memory,
            (true, true) => CertificateSource::Folder { stem: PathBuf::from(folder).join(stem) },
            (false, false) => {
                CertificateSource::Files(KeyPairFiles { certificate: certificate.into(), key: key.into() })
            }
            (no_certificate, _) => {
                let (given, missing) = match no_certificate {
                    true => ("tls-private-key-file", "tls-cert-file"),
                    false => ("tls-cert-file", "tls-private-key-file"),
                };
                errors.push(format!(
                    "missing filename for serving cert: --{} is given without --{}",
                    self.name(given),
                    self.name(missing)
                ));
                CertificateSource::Memory
            }
        }
    }

    fn sni(&self, errors: &mut Vec<String>) -> Vec<SniPair> {
        let flag = self.name("tls-sni-cert-key");
        let pairs = self.values.list(&flag);
        let read = |text: &String| {
            SniPair::parse(text)
                .map_err(|error| errors.push(format!("invalid argument {text:?} for \"--{flag}\" flag: {error}")))
                .ok()
        };
        pairs.iter().filter_map(read).collect()
    }
}

impl SniPair {
    /// Parses `certificate,key[:name,…]`.
    ///
    /// # Errors
    ///
    /// Upstream's text after `invalid argument … flag: `.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (files, names) = match text.split_once(':') {
            Some((_, names)) if names.trim().is_empty() => return Err("empty names list is not allowed"),
            Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_lowercase()).collect()),
            None => (text, Vec::new()),
        };
        match files.split(',').collect::<Vec<_>>()[..] {
            [certificate, key] => Ok(Self {
                files: KeyPairFiles { certificate: certificate.trim().into(), key: key.trim().into() },
                names,
            }),
            _ => Err("expected comma separated certificate and key file paths"),
        }
    }
}

impl Authentication {
    /// Parses the flags of delegated authentication.
    pub fn from_values(values: &FlagValues, errors: &mut Vec<String>) -> Self {
        let list = |name: &str, errors: &mut Vec<String>| {
            let list = values.list(name);
            if list.iter().any(|word| word.trim().is_empty()) {
                errors.push(format!("empty value in {name:?}"));
            }
            list.iter().map(|word| word.trim().to_owned()).collect::<Vec<_>>()
        };
        let headers = HeaderNames {
            user: list("requestheader-username-headers", errors),
            group: list("requestheader-group-headers", errors),
            extra_prefix: list("requestheader-extra-headers-prefix", errors),
            allowed: list("requestheader-allowed-names", errors),
            uid: list("requestheader-uid-headers", errors),
        };
        if !headers.uid.is_empty() && !headers.uid.iter().any(|name| name.eq_ignore_ascii_case("x-remote-uid")) {
            errors.push(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
                    .into(),
            );
        }
        Self {
            kubeconfig: values.text("authentication-kubeconfig"),
            skip_lookup: values.bool("authentication-skip-lookup"),
            tolerate_lookup_failure: values.bool("authentication-tolerate-lookup-failure"),
            token_ttl: values.duration("authentication-token-webhook-cache-ttl"),
            client_ca: path(values, "client-ca-file"),
            proxy_ca: path(values, "requestheader-client-ca-file"),
            proxy_headers: headers,
        }
    }
}

fn path(values: &FlagValues, name: &str) -> Option<PathBuf> {
    Some(values.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
}

impl Authorization {
    /// Parses the flags of delegated authorization.
    pub fn from_values(values: &FlagValues, errors: &mut Vec<String>) -> Self {
        let always_allow =
            AllowedPaths::new(&values.list("authorization-always-allow-paths")).unwrap_or_else(|error| {
                errors.push(format!("--authorization-always-allow-paths: {error}"));
                AllowedPaths::default()
            });
        Self {
            kubeconfig: values.text("authorization-kubeconfig"),
            always_allow,
            allow_ttl: values.duration("authorization-webhook-cache-authorized-ttl"),
            deny_ttl: values.duration("authorization-webhook-cache-unauthorized-ttl"),
        }
    }
}

impl AllowedPaths {
    /// Paths, or prefixes of paths followed by `*`; the first slash is optional.
    ///
    /// # Errors
    ///
    /// A `*` that is not the last character.
    pub fn new(paths: &[String]) -> Result<Self, String> {
        let mut allowed = Self::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            let (body, is_prefix) = path.strip_suffix('*').map_or((path, false), |body| (body, true));
            if body.contains('*') {
                return Err(format!("only trailing * allowed in {path:?}"));
            }
            let list = if is_prefix { &mut allowed.prefixes } else { &mut allowed.exact };
            list.push(body.to_owned());
        }
        Ok(allowed)
    }

    /// Whether this path needs no permission. An allowed path does not include the paths below it.
    pub fn contains(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|exact| exact == path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}
