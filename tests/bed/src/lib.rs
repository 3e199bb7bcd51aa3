//! A real Kubernetes API server for tests: etcd and kube-apiserver on 127.0.0.1, with a fresh data folder.
//!
//! It has the storage, admission, RBAC, watch and conflict behavior of Kubernetes, and is ready a few seconds after
//! [`Bed::start`]. It is not a cluster: there is no scheduler and no kubelet, and no controller manager unless
//! [`Bed::start_controller_manager`] is called, so only the test changes anything.
//!
//! The binaries are those in `KUBEBUILDER_ASSETS` or those that `hack/k8s/build.sh` built in the user's cache. Without
//! them [`Bed::start`] returns `None` and reports it on stderr; with `CI=true` that is an error, so that a test never
//! passes because it did not run. `CCM_TEST_KUBERNETES` and `CCM_TEST_ETCD` select other versions, as for that script.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let Some(bed) = ccm_test_bed::Bed::shared().await? else { return Ok(()) };
//! let (status, body) = bed.get("/api/v1/nodes").await?;
//! assert_eq!(status, 200, "{body}");
//! # Ok(())
//! # }
//! ```
//!
//! By convention such tests are in a module named `real_apiserver` of a test binary named `it`, and those with a
//! kube-controller-manager in one named `long_lane`; `hack/test.sh` selects them by these names.

mod audit;
mod binaries;
mod controller_manager;
mod guardian;
mod http;
mod make;
mod object;
mod pki;
mod process;
mod program;
mod reused;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use serde_json::json;

pub use audit::{AuditEntry, AuditLog};
pub use binaries::{cache_folder, kubernetes_version, not_run, version_in};
pub use controller_manager::{CONTROLLER_MANAGER_USER, ControllerManager};
pub use http::trusting_client;
pub use make::{Make, node, service, service_with, tcp_ports, volume};
pub use object::Object;
pub use pki::{Authority, ClientCertificate, Pki};
use process::Processes;
pub use program::{LONG, Process, deadline};
pub use reused::Reused;

/// The user that the shipped RBAC binds, and the user of [`Bed::ccm_token`].
pub const CCM_USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

/// The name in the front proxy's certificate, the only one from which the API server accepts headers.
pub const FRONT_PROXY_USER: &str = "front-proxy-client";

/// The content of the audit log: one event per finished request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    /// No audit log.
    #[default]
    Off,
    /// Metadata of requests, and the response status.
    Metadata,
    /// Also the bodies of writes of nodes and Services.
    Bodies,
}

/// A free port for a server. Not one of the kernel's range for outgoing connections, which another test may take before
/// the server listens.
pub fn free_port() -> anyhow::Result<u16> {
    let [port] = process::free_ports()?;
    Ok(port)
}

/// Options of a bed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The content of [`Bed::audit_log`].
    pub audit: Audit,
    /// Additional flags for kube-apiserver. A repeated flag overrides the bed's own.
    pub apiserver_args: Vec<String>,
    /// Additional users, besides the administrator and [`CCM_USER`].
    pub users: Vec<User>,
}

impl Options {
    /// With the audit log enabled.
    pub fn audit(mut self) -> Self {
        self.audit = Audit::Metadata;
        self
    }

    /// With the audit log enabled, including the bodies of writes of nodes and Services.
    pub fn audit_bodies(mut self) -> Self {
        self.audit = Audit::Bodies;
        self
    }

    /// With one more flag for kube-apiserver, such as `--feature-gates=WatchList=false`.
    pub fn apiserver_arg(mut self, arg: impl Into<String>) -> Self {
        self.apiserver_args.push(arg.into());
        self
    }

    /// With one more user; the caller provides the token.
    pub fn user(mut self, user: User) -> Self {
        self.users.push(user);
        self
    }
}

/// A user that the API server knows by a static token.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The bearer token.
    pub token: String,
    /// The user name for RBAC.
    pub name: String,
    /// Groups, besides `system:authenticated`.
    pub groups: Vec<String>,
}

/// A running API server, with RBAC and the node authorizer. Dropping it stops the processes and deletes the data; if
/// the test process ends without dropping it (a static, a signal, an abort), a guardian process does this.
#[derive(Debug)]
pub struct Bed {
    /// `https://127.0.0.1:<port>`
    pub url: String,
    /// Bearer token of an administrator (`system:masters`).
    pub token: String,
    /// Bearer token of [`CCM_USER`], which has no permissions until the test applies RBAC rules.
    pub ccm_token: String,
    /// The authority that signed the server's certificate, as PEM.
    pub ca_pem: String,
    processes: Arc<Processes>,
    /// Where the audit log of this test begins.
    audit_from: u64,
}

impl Bed {
    /// Starts a separate bed and waits until it is ready. [`Bed::reused`] is cheaper.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        Self::start_with(Options::default()).await
    }

    /// [`Bed::start`] with options.
    pub async fn start_with(options: Options) -> anyhow::Result<Option<Self>> {
        blocking(move || Self::start_blocking(&options)).await
    }

    /// The bed that all tests of this process share, started by the first caller. Tests must use their own names or
    /// namespaces, and must not stop the server.
    pub async fn shared() -> anyhow::Result<Option<&'static Self>> {
        static SHARED: OnceLock<Result<Option<Bed>, String>> = OnceLock::new();
        let shared = blocking(|| {
            Ok(SHARED.get_or_init(|| Self::start_blocking(&Options::default()).map_err(|e| format!("{e:#}"))))
        })
        .await?;
        match shared {
            Ok(bed) => Ok(bed.as_ref()),
            Err(message) => anyhow::bail!("the shared bed did not start: {message}"),
        }
    }

    fn start_blocking(options: &Options) -> anyhow::Result<Option<Self>> {
        let Some(binaries) = binaries::find()? else { return Ok(None) };
        let token = secret("admin");
        let ccm_token = secret("ccm");
        let mut users = vec![
            User { token: token.clone(), name: "bed-admin".into(), groups: vec!["system:masters".into()] },
            User {
                token: ccm_token.clone(),
                name: CCM_USER.into(),
                groups: vec!["system:serviceaccounts".into(), "system:serviceaccounts:kube-system".into()],
            },
        ];
        users.extend(options.users.iter().cloned());
        let processes = Processes::start(&binaries, options, &users, &token)?;
        Ok(Some(Self {
            url: processes.url(),
            token,
            ccm_token,
            ca_pem: processes.pki().pem(Authority::Client).to_owned(),
            processes: Arc::new(processes),
            audit_from: 0,
        }))
    }

    /// Path of a kubeconfig for the administrator. It exists as long as the bed.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// Writes a kubeconfig with another token, such as [`Bed::ccm_token`], readable by its owner only, and returns its
    /// path.
    pub fn kubeconfig_with(&self, token: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder().join(format!("{}.kubeconfig", uuid::Uuid::new_v4()));
        self.processes.write_kubeconfig(&path, token)?;
        Ok(path)
    }

    /// The certificate of an authority, as a PEM file.
    pub fn authority_file(&self, authority: Authority) -> PathBuf {
        self.processes.pki().file(authority)
    }

    /// The certificate of an authority, as PEM.
    pub fn authority_pem(&self, authority: Authority) -> &str {
        self.processes.pki().pem(authority)
    }

    /// A client certificate for this user in these groups (two at most). With [`Authority::FrontProxy`] the API server
    /// accepts headers only from [`FRONT_PROXY_USER`].
    pub fn client_certificate(
        &self,
        authority: Authority,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<ClientCertificate> {
        self.processes.pki().sign(authority, &uuid::Uuid::new_v4().to_string(), user, groups, false)
    }

    /// [`Bed::client_certificate`] that was valid until 2001.
    pub fn expired_client_certificate(
        &self,
        authority: Authority,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<ClientCertificate> {
        self.processes.pki().sign(authority, &uuid::Uuid::new_v4().to_string(), user, groups, true)
    }

    /// Writes a kubeconfig with a client certificate for this user in these groups, and returns its path.
    pub fn kubeconfig_for_user(&self, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        let certificate = self.client_certificate(Authority::Client, user, groups)?;
        let path = certificate.certificate_file.with_extension("kubeconfig");
        self.processes.write_kubeconfig_for_certificate(&path, &certificate)?;
        Ok(path)
    }

    /// A token of a service account from the TokenRequest API, for the API server, valid for an hour. Account and
    /// namespace are created if they do not exist.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let made = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        for (path, object) in
            [("/api/v1/namespaces", made("Namespace", namespace)), (&accounts, made("ServiceAccount", name))]
        {
            let (status, body) = self.request("POST", path, &self.token, Some(&object)).await?;
            anyhow::ensure!(matches!(status, 201 | 409), "POST {path}: {status} {body}");
        }
        let path = format!("{accounts}/{name}/token");
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let (status, body) = self.request("POST", &path, &self.token, Some(&wanted)).await?;
        anyhow::ensure!(status == 201, "POST {path}: {status} {body}");
        let answer: serde_json::Value = serde_json::from_str(&body).context("reading the answer of TokenRequest")?;
        let token = answer.pointer("/status/token").and_then(serde_json::Value::as_str);
        Ok(token.with_context(|| format!("POST {path}: the answer has no token"))?.to_owned())
    }

    /// Writes a kubeconfig with [`Bed::service_account_token`], readable by its owner only, and returns its path.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        self.kubeconfig_with(&self.service_account_token(namespace, name).await?)
    }

    /// Starts a kube-controller-manager of the bed's version, as with kubeadm and with these additional flags (a
    /// repeated flag overrides), and waits until its `/healthz` returns ok. It may not have its lease yet. `None`, with
    /// a line on stderr, if this machine has none.
    pub async fn start_controller_manager(&self, args: &[&str]) -> anyhow::Result<Option<ControllerManager>> {
        let processes = Arc::clone(&self.processes);
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        blocking(move || ControllerManager::start(&processes, &args)).await
    }

    /// The folder with data, keys and the logs, such as `etcd.log` and `kube-apiserver.log`.
    pub fn folder(&self) -> &Path {
        self.processes.folder()
    }

    /// The path of the audit log if [`Options::audit`] enabled it: one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    /// A reader of the audit log, from the start of this test.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(&self.audit_log(), self.audit_from)
    }

    /// `GET` as the administrator: status and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        self.request("GET", path, &self.token, None).await
    }

    /// The same from a program that serves TLS on a port of the loopback interface, with any certificate.
    pub async fn get_from(&self, port: u16, path: &str) -> anyhow::Result<(u16, String)> {
        Self::get_from_as(port, path, &self.token).await
    }

    /// The same with another token; an empty one is not sent.
    pub async fn get_from_as(port: u16, path: &str, token: &str) -> anyhow::Result<(u16, String)> {
        let tls = Arc::new(trusting_client(None, rustls::ALL_VERSIONS, None));
        let (client, path) = (http::Client::new(port, token, Some(tls)), path.to_owned());
        blocking(move || client.send("GET", &path, None)).await
    }

    /// One request with the given bearer token and JSON body; `PATCH` is sent as a merge patch. For test setup; the
    /// code under test should use the program's client.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&serde_json::Value>,
    ) -> anyhow::Result<(u16, String)> {
        let client = self.processes.client(token);
        let (method, path, body) = (method.to_owned(), path.to_owned(), body.map(ToString::to_string));
        blocking(move || client.send(&method, &path, body.as_deref())).await
    }

    /// Kills the API server, like a crash: open connections break and new ones are refused. etcd keeps running.
    pub async fn stop_apiserver(&self) -> anyhow::Result<()> {
        self.blocking(Processes::stop_apiserver).await
    }

    /// Starts the API server again, with the same port and data, and waits until it is ready.
    pub async fn start_apiserver(&self) -> anyhow::Result<()> {
        self.blocking(Processes::start_apiserver).await
    }

    /// Suspends the API server: connections stay open, without responses.
    pub async fn pause_apiserver(&self) -> anyhow::Result<()> {
        self.blocking(|processes| processes.signal_apiserver("STOP")).await
    }

    /// Undoes [`Bed::pause_apiserver`].
    pub async fn resume_apiserver(&self) -> anyhow::Result<()> {
        self.blocking(|processes| processes.signal_apiserver("CONT")).await
    }

    /// Starts another API server on another port with the same etcd, and kills the old one when the new one is ready.
    /// [`Bed::url`] and existing kubeconfigs keep the first address; requests of the bed are sent to [`Bed::address`].
    pub async fn replace_apiserver(&self) -> anyhow::Result<()> {
        self.blocking(Processes::replace_apiserver).await
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&Processes) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let processes = Arc::clone(&self.processes);
        blocking(move || work(&processes)).await
    }

    /// `127.0.0.1:<port>` of the running API server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.processes.port())
    }

    /// Stops the API server and etcd, copies the data, and starts both again.
    pub async fn back_up(&self) -> anyhow::Result<()> {
        self.replace_data("etcd", "etcd.backup").await
    }

    /// The same with the data of the last [`Bed::back_up`], which restores an older revision.
    pub async fn restore(&self) -> anyhow::Result<()> {
        self.replace_data("etcd.backup", "etcd").await
    }

    async fn replace_data(&self, from: &'static str, to: &'static str) -> anyhow::Result<()> {
        let (from, to) = (self.folder().join(from), self.folder().join(to));
        self.blocking(move |processes| {
            processes.stop_apiserver()?;
            processes.stop_etcd()?;
            if to.exists() {
                std::fs::remove_dir_all(&to).with_context(|| format!("deleting {}", to.display()))?;
            }
            let copied =
                std::process::Command::new("cp").arg("-a").args([&from, &to]).status().context("running cp")?;
            anyhow::ensure!(copied.success(), "copying {} failed: {copied}", from.display());
            processes.start_etcd()?;
            processes.start_apiserver()
        })
        .await
    }

    /// Stops everything now, like dropping the bed, but without blocking a thread of the runtime.
    pub async fn stop(self) {
        // This fails only after a panic in the drop; then the guardian stops everything.
        let _ = blocking(move || {
            drop(self);
            Ok(())
        })
        .await;
    }
}

/// The path of kubectl; `None`, with a line on stderr, if this machine has none.
pub fn kubectl() -> anyhow::Result<Option<PathBuf>> {
    binaries::kubectl()
}

/// Waits for the work on a blocking thread: no runtime owns the processes, so a bed survives the runtime of the test
/// that started it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("a task of the test bed was lost")?
}

/// Every user of the machine can connect to the port, so tokens must not be guessable.
fn secret(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::new_v4().simple())
}
