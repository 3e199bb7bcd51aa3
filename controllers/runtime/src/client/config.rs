//! Builds the connection settings from flags and environment.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret as _;

use super::error::{ConnectError, chain};

/// The options of the connection to the API server.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// `--kubeconfig`; empty for none.
    pub kubeconfig: String,
    /// `--master`; overrides the address in the kubeconfig.
    pub master: String,
    /// `User-Agent` header.
    pub user_agent: String,
    /// The access flags of a command.
    pub access: Access,
}

/// Whom a command acts as, where, and how long it waits: the flags of kubectl. The manager has none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The other files of `$KUBECONFIG`. They add to the first one what it does not have.
    pub more: Vec<String>,
    /// `--context`; empty for the current context of the kubeconfig.
    pub context: String,
    /// `--as`; empty for the user of the kubeconfig.
    pub user: String,
    /// `--as-group`
    pub groups: Vec<String>,
    /// `--request-timeout`; `None` for the deadlines of the requests.
    pub timeout: Option<Duration>,
}

impl Access {
    /// The kubeconfig at this path, merged with the others as kubectl merges them.
    fn read(&self, path: &str) -> Result<Kubeconfig, KubeconfigError> {
        let read = |path: &str| read_once(path).map(without_empty);
        self.more.iter().map(|path| read(path)).fold(read(path), |merged, other| merged?.merge(other?))
    }

    /// The named context, or the current one.
    fn context<'a>(&self, file: &'a Kubeconfig) -> Option<&'a Context> {
        let name = match &*self.context {
            "" => file.current_context.as_deref()?,
            name => name,
        };
        file.contexts.iter().find(|context| context.name == name)?.context.as_ref()
    }
}

/// The kubeconfig at a path. A pipe, such as of `--kubeconfig <(command)`, can be read only once.
fn read_once(path: &str) -> Result<Kubeconfig, KubeconfigError> {
    static PIPES: Mutex<BTreeMap<String, Kubeconfig>> = Mutex::new(BTreeMap::new());
    if !std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return Kubeconfig::read_from(path);
    }
    let mut pipes = PIPES.lock();
    if let Some(known) = pipes.get(path) {
        return Ok(known.clone());
    }
    let file = Kubeconfig::read_from(path)?;
    pipes.insert(path.to_owned(), file.clone());
    Ok(file)
}

/// The kubeconfig without empty values, which count as absent, as with client-go.
fn without_empty(mut file: Kubeconfig) -> Kubeconfig {
    let text = |value: &mut Option<String>| drop(value.take_if(|text| text.is_empty()));
    // An empty path is the folder of the kubeconfig by now.
    let path = |value: &mut Option<String>| drop(value.take_if(|path| path.is_empty() || path.ends_with('/')));
    text(&mut file.current_context);
    for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        text(&mut cluster.certificate_authority_data);
        text(&mut cluster.tls_server_name);
        path(&mut cluster.certificate_authority);
    }
    for user in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        [&mut user.username, &mut user.client_certificate_data, &mut user.impersonate].into_iter().for_each(text);
        [&mut user.token_file, &mut user.client_certificate, &mut user.client_key].into_iter().for_each(path);
        drop(user.token.take_if(|token| token.expose_secret().is_empty()));
        drop(user.client_key_data.take_if(|key| key.expose_secret().is_empty()));
        if user.username.is_none() {
            user.password = None;
        }
    }
    file
}

/// The namespace of the context; `None` if the kubeconfig cannot be read or names none.
pub fn context_namespace(path: &str, access: &Access) -> Option<String> {
    let file = access.read(path).ok()?;
    access.context(&file)?.namespace.clone().filter(|namespace| !namespace.is_empty())
}

/// The names of the contexts; none if the kubeconfig cannot be read.
pub fn context_names(path: &str, access: &Access) -> Vec<String> {
    let file = access.read(path).unwrap_or_default();
    file.contexts.into_iter().map(|context| context.name).collect()
}

/// Another server that accepts the same credentials as the API server: a replica of this program.
#[derive(Debug, Clone)]
pub struct RemoteServer {
    /// Its address, with `https`: the credentials are sent there.
    pub address: Uri,
    /// The trusted certificates.
    pub trust: Trust,
}

/// The trusted server certificates.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The CA of the API server.
    Same,
    /// These CA certificates, as DER.
    Authorities(Vec<Vec<u8>>),
    /// Any certificate: any server that listens there gets the credentials.
    Anybody,
}

impl Setup {
    /// The same credentials for another server.
    pub(super) fn for_server(mut self, server: &RemoteServer) -> Result<Self, ConnectError> {
        self.config.cluster_url = server.address.clone();
        // The TLS server name and proxy in the kubeconfig apply to the API server only.
        self.config.tls_server_name = None;
        self.proxy = environment_proxy(&server.address, |name| std::env::var(name).ok())?;
        match &server.trust {
            Trust::Same => self.config.accept_invalid_certs = false,
            Trust::Authorities(authorities) => {
                self.config.accept_invalid_certs = false;
                self.config.root_cert = Some(authorities.clone());
                self.trust = "the given certificate authority".to_owned();
            }
            Trust::Anybody => self.config.accept_invalid_certs = true,
        }
        Ok(self)
    }
}

/// Settings of a connection.
pub(super) struct Setup {
    /// Address, TLS and credentials, but neither the client certificate nor the proxy.
    pub(super) config: kube::Config,
    pub(super) identity: Option<Identity>,
    pub(super) proxy: Option<Proxy>,
    /// The source of the trusted certificates, for error messages.
    pub(super) trust: String,
}

/// A client certificate with its key, in PEM.
#[derive(Hash)]
pub(super) struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    /// Takes it out of the settings: kube refuses certificates of version 1, which Go takes.
    fn take(auth: &mut AuthInfo) -> Result<Option<Self>, String> {
        let certificate =
            pem("client-certificate", auth.client_certificate_data.take(), auth.client_certificate.take())?;
        let key = auth.client_key_data.take().map(|key| key.expose_secret().to_owned());
        match (certificate, pem("client-key", key, auth.client_key.take())?) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate, key })),
            _ => Err("of client-certificate and client-key only one is given".to_owned()),
        }
    }

    /// What presents it to servers. The error has no contents of the key.
    pub(super) fn resolver(&self, provider: &CryptoProvider) -> Result<Arc<dyn ResolvesClientCert>, String> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>();
        let chain = chain.map_err(|error| format!("client-certificate: not a certificate in PEM: {error}"))?;
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| "client-key: no private key in PEM".to_owned())?;
        ccm_kit::tls::identity(chain, key, provider)
            .map_err(|error| format!("client-certificate and client-key: {error}"))
    }
}

/// What a key of the kubeconfig with the ending `-data` has in base64, else the contents of the file.
fn pem(what: &str, data: Option<String>, file: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => BASE64.decode(data).map(Some).map_err(|_| format!("{what}-data is not base64")),
        (None, Some(file)) => std::fs::read(&file).map(Some).map_err(|error| format!("{what} {file}: {error}")),
        (None, None) => Ok(None),
    }
}

/// A proxy and the credentials for it.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) address: Uri,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) user: Option<(String, String)>,
    /// The source of its address, for error messages.
    source: String,
}

impl Proxy {
    /// Its name in errors, without the user name.
    pub(super) fn label(&self) -> String {
        format!("the proxy {} of {}", self.address.authority().map_or("", |address| address.as_str()), self.source)
    }
}

/// Reads flags, files and environment; makes no request.
pub(super) async fn load(options: &ConnectOptions) -> Result<Setup, ConnectError> {
    let path = &*options.kubeconfig;
    let fail = |reason| match path {
        "" => ConnectError::None(reason),
        path => ConnectError::Kubeconfig { path: path.to_owned(), reason },
    };
    let (mut config, proxy_url) = match (path, &*options.master) {
        ("", "") => (kube::Config::incluster().map_err(|error| fail(chain(&error)))?, None),
        ("", master) => (kube::Config::new(master_address(master, false)?), None),
        (path, master) => kubeconfig(path, master, &options.access).await?,
    };
    if config.cluster_url.scheme_str() == Some("http") {
        config.auth_info = without_credentials(config.auth_info);
    }
    read_token(&mut config.auth_info).map_err(&fail)?;
    let identity = Identity::take(&mut config.auth_info).map_err(&fail)?;
    if !options.access.user.is_empty() {
        config.auth_info.impersonate = Some(options.access.user.clone());
        config.auth_info.impersonate_groups = Some(options.access.groups.clone());
    }
    if let Some(authorities) = &mut config.root_cert {
        // Go skips what it cannot parse.
        authorities.retain(|der| RootCertStore::empty().add(CertificateDer::from(&**der)).is_ok());
        if authorities.is_empty() {
            return Err(fail("the certificate-authority has no certificate that can be read".to_owned()));
        }
    }
    // The file is read again with the others. kube would refuse what is left out here.
    config.root_cert_file = None;
    // Retries are done here: kube's policy waits for up to 1000 s and repeats writes.
    config.default_retry = false;
    config.disable_compression = true;
    // kube compares NO_PROXY with the address of the proxy, and supports no proxy in a pod.
    config.proxy_url = None;
    let proxy = match proxy_url {
        Some(url) => Some(given_proxy(path, &url, &config.cluster_url)?),
        None => environment_proxy(&config.cluster_url, |name| std::env::var(name).ok())?,
    };
    let trust = match (&config.root_cert, path) {
        (None, _) => "the certificate authorities of this machine".to_owned(),
        (Some(_), "") => "the certificate authority of the service account (ca.crt)".to_owned(),
        (Some(_), path) => format!("the certificate-authority in the kubeconfig {path}"),
    };
    Ok(Setup { config, identity, proxy, trust })
}

/// Whom to impersonate, and no more: client-go sends credentials only over TLS.
fn without_credentials(auth: AuthInfo) -> AuthInfo {
    let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } = auth;
    AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, ..AuthInfo::default() }
}

/// Replaces a token file by its token. kube would send the newline that many files end with, and prefer an inline token,
/// which is here for the case that there is no file, as with client-go.
fn read_token(auth: &mut AuthInfo) -> Result<(), String> {
    let Some(path) = auth.token_file.take() else { return Ok(()) };
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    match text.as_deref().map(str::trim) {
        Ok("") | Err(_) if auth.token.is_some() => {}
        Ok("") => return Err(format!("the token file {path}: it is empty")),
        Ok(token) => auth.token = Some(token.to_owned().into()),
        Err(error) => return Err(format!("the token file {path}: {error}")),
    }
    Ok(())
}

async fn kubeconfig(path: &str, master: &str, access: &Access) -> Result<(kube::Config, Option<String>), ConnectError> {
    let fail = |reason| ConnectError::Kubeconfig { path: path.to_owned(), reason };
    let mut file = access.read(path).map_err(|error| fail(read_error(&error)))?;
    if !access.context.is_empty() && access.context(&file).is_none() {
        let known: Vec<&str> = file.contexts.iter().map(|context| &*context.name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(fail(format!("--context={}: no such context; it has {known}", access.context)));
    }
    let Context { cluster, user, .. } = access.context(&file).cloned().unwrap_or_default();
    let user = file.auth_infos.iter().find(|named| Some(&named.name) == user.as_ref());
    let user = user.and_then(|named| named.auth_info.clone()).unwrap_or_default();
    let cluster = file.clusters.iter_mut().find(|named| named.name == cluster).and_then(|named| named.cluster.as_mut());
    let mut proxy_url = None;
    if let Some(cluster) = cluster {
        proxy_url = cluster.proxy_url.clone().filter(|url| !url.is_empty());
        let tls = speaks_tls(cluster, &user);
        let server = match (master, &cluster.server) {
            ("", None) => None,
            // The error does not quote it: it may contain a password.
            ("", Some(server)) => Some(address(server, tls).map_err(|reason| fail(format!("server: {reason}")))?),
            (master, _) => Some(master_address(master, tls)?),
        };
        cluster.server = server.map(|address| address.to_string());
    }
    let context = Some(access.context.clone()).filter(|name| !name.is_empty());
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    Ok((config.map_err(|error| fail(chain(&error)))?, proxy_url))
}

/// A parser's error may quote the lines around it, and with them a token.
fn read_error(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("not a kubeconfig: error in line {}, column {}", at.line(), at.column()),
            None => "not a kubeconfig".to_owned(),
        },
        error => chain(error),
    }
}

/// Whether an address without scheme means https, by client-go's rule.
fn speaks_tls(cluster: &Cluster, user: &AuthInfo) -> bool {
    cluster.certificate_authority.is_some()
        || cluster.certificate_authority_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true)
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some()
}

fn master_address(master: &str, tls: bool) -> Result<Uri, ConnectError> {
    address(master, tls).map_err(|reason| ConnectError::Master(master.to_owned(), reason))
}

/// The address, with the scheme that it may lack.
fn address(text: &str, tls: bool) -> Result<Uri, String> {
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => format!("{}://{text}", if tls { "https" } else { "http" }),
    };
    let example = "give something like https://10.0.0.1:6443 or https://[2001:db8::1]:6443";
    let uri: Uri = url.parse().map_err(|error| format!("not an address ({error}); {example}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        (Some("http" | "https"), _) => Err(format!("no host; {example}")),
        _ => Err(format!("neither http nor https; {example}")),
    }
}

fn given_proxy(path: &str, url: &str, target: &Uri) -> Result<Proxy, ConnectError> {
    let fail =
        |reason: &str| ConnectError::Kubeconfig { path: path.to_owned(), reason: format!("proxy-url: {reason}") };
    let proxy = Matcher::builder().all(url.to_owned()).build().intercept(target);
    let proxy = proxy.map(|found| proxy_of(&found, format!("proxy-url in the kubeconfig {path}")));
    let proxy = proxy.ok_or_else(|| fail("not an address; give something like http://10.0.0.1:3128"))?;
    supported(proxy).map_err(|scheme| fail(&scheme))
}

/// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go's `http.ProxyFromEnvironment` reads them.
fn environment_proxy(target: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, ConnectError> {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
    if host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()) {
        return Ok(None);
    }
    let either = |upper: &str, lower: &str| variable(upper).filter(|v| !v.is_empty()).or_else(|| variable(lower));
    let matcher = Matcher::builder()
        .https(either("HTTPS_PROXY", "https_proxy").unwrap_or_default())
        .http(either("HTTP_PROXY", "http_proxy").unwrap_or_default())
        .no(either("NO_PROXY", "no_proxy").unwrap_or_default())
        .build();
    let Some(found) = matcher.intercept(target) else { return Ok(None) };
    let source = format!("{}_PROXY", target.scheme_str().unwrap_or("http").to_uppercase());
    let proxy = supported(proxy_of(&found, source.clone()));
    proxy.map(Some).map_err(|reason| ConnectError::Setup(format!("{source}: {reason}")))
}

fn proxy_of(found: &Intercept, source: String) -> Proxy {
    let user = found.raw_auth().map(|(name, password)| (name.to_owned(), password.to_owned()));
    Proxy { address: found.uri().clone(), authorization: found.basic_auth().cloned(), user, source }
}

fn supported(proxy: Proxy) -> Result<Proxy, String> {
    match proxy.address.scheme_str() {
        Some("http" | "https" | "socks5" | "socks5h") => Ok(proxy),
        other => {
            Err(format!("proxies of the kind {:?} are not supported, only http, https and socks5", other.unwrap_or("")))
        }
    }
}

#[cfg(test)]
mod tests;
