//! The processes of a bed. Plain std processes, not owned by any runtime.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;

use crate::binaries::Binaries;
use crate::guardian::Guardian;
use crate::http::{self, Client};
use crate::pki::{Authority, ClientCertificate, Pki, put_secret};
use crate::{Audit, FRONT_PROXY_USER, Options, User};

/// Usually it is ready after 3 s; a shared machine that compiles at the same time can need much longer.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Attempts of a start, if another process took a port between our check and the bind.
const ATTEMPTS: usize = 3;
/// Below the kernel's range for outgoing connections. Within that range, a client that keeps reconnecting to a stopped
/// server on the same machine eventually connects to itself and holds the port.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

#[derive(Debug)]
pub(crate) struct Processes {
    /// The port of the API server.
    port: AtomicU16,
    pki: Pki,
    admin_token: String,
    tls: Arc<rustls::ClientConfig>,
    apiserver: PathBuf,
    apiserver_args: Vec<String>,
    etcd: PathBuf,
    etcd_args: Vec<String>,
    etcd_port: u16,
    running: Mutex<Running>,
    // Last, so that the processes have ended when the folder is deleted.
    folder: TempDir,
}

#[derive(Debug)]
struct Running {
    etcd: Option<Child>,
    apiserver: Option<Child>,
    guardian: Guardian,
}

impl Processes {
    pub(crate) fn start(
        binaries: &Binaries,
        options: &Options,
        users: &[User],
        admin_token: &str,
    ) -> anyhow::Result<Self> {
        retried("starting the test bed", || Self::attempt(binaries, options, users, admin_token))
    }

    fn attempt(binaries: &Binaries, options: &Options, users: &[User], admin_token: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ccm-bed-").tempdir().context("making the bed's folder")?;
        let at = folder.path();
        let pki = Pki::write(at)?;
        put_secret(&at.join("tokens.csv"), &tokens(users)?)?;
        fs::write(at.join("audit-policy.json"), audit_policy(options.audit).to_string())?;
        let [etcd_port, peer_port, port] = free_ports()?;

        let mut guardian = Guardian::start(at)?;
        let etcd_args = etcd_args(at, etcd_port, peer_port);
        let etcd = launch(&mut guardian, &binaries.etcd, &etcd_args, &at.join("etcd.log"))?;
        let processes = Self {
            port: AtomicU16::new(port),
            tls: http::tls(pki.pem(Authority::Client))?,
            pki,
            admin_token: admin_token.to_owned(),
            apiserver: binaries.apiserver.clone(),
            apiserver_args: apiserver_args(at, etcd_port, options),
            etcd: binaries.etcd.clone(),
            etcd_args,
            etcd_port,
            running: Mutex::new(Running { etcd: Some(etcd), apiserver: None, guardian }),
            folder,
        };
        processes.write_kubeconfig(&processes.folder().join("admin.kubeconfig"), admin_token)?;
        processes.start_apiserver()?;
        Ok(processes)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port())
    }

    pub(crate) fn pki(&self) -> &Pki {
        &self.pki
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(self.port(), token, Some(Arc::clone(&self.tls)))
    }

    /// A client for a server of the bed on another port.
    pub(crate) fn admin_client(&self, port: u16) -> Client {
        Client::new(port, &self.admin_token, Some(Arc::clone(&self.tls)))
    }

    pub(crate) fn etcd_client(&self) -> Client {
        Client::new(self.etcd_port, "", None)
    }

    pub(crate) fn write_kubeconfig(&self, path: &Path, token: &str) -> anyhow::Result<()> {
        self.write_kubeconfig_for(path, &serde_json::json!({"token": token}))
    }

    pub(crate) fn write_kubeconfig_for_certificate(
        &self,
        path: &Path,
        certificate: &ClientCertificate,
    ) -> anyhow::Result<()> {
        let ClientCertificate { certificate_file, key_file, .. } = certificate;
        self.write_kubeconfig_for(
            path,
            &serde_json::json!({"client-certificate": certificate_file, "client-key": key_file}),
        )
    }

    fn write_kubeconfig_for(&self, path: &Path, user: &serde_json::Value) -> anyhow::Result<()> {
        // JSON is YAML. The authority's path instead of its bytes: the folder exists as long as the bed.
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": {
                "server": self.url(), "certificate-authority": self.pki.file(Authority::Client),
            }}],
            "users": [{"name": "bed", "user": user}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed"}}],
            "current-context": "bed",
        });
        put_secret(path, &format!("{config:#}\n"))
    }

    /// Starts another process of the bed; [`Processes::end`] must be called for it.
    pub(crate) fn launch(&self, program: &Path, args: &[String], log: &Path) -> anyhow::Result<Child> {
        launch(&mut self.running().guardian, program, args, log)
    }

    pub(crate) fn end(&self, child: Child) {
        end(&mut self.running().guardian, child);
    }

    pub(crate) fn start_apiserver(&self) -> anyhow::Result<()> {
        {
            let mut running = self.running();
            if running.apiserver.is_some() {
                bail!("the API server of the test bed is running already");
            }
            let child = self.launch_apiserver(&mut running.guardian, self.port())?;
            running.apiserver = Some(child);
        }
        self.wait_ready()
    }

    fn launch_apiserver(&self, guardian: &mut Guardian, port: u16) -> anyhow::Result<Child> {
        let args = [&self.apiserver_args[..], &[format!("--secure-port={port}")]].concat();
        launch(guardian, &self.apiserver, &args, &self.folder().join("kube-apiserver.log"))
    }

    pub(crate) fn replace_apiserver(&self) -> anyhow::Result<()> {
        let [port] = free_ports()?;
        let before = {
            let mut running = self.running();
            let child = self.launch_apiserver(&mut running.guardian, port)?;
            running.apiserver.replace(child)
        };
        let previous = self.port.swap(port, Ordering::SeqCst);
        if let Err(error) = self.wait_ready() {
            self.port.store(previous, Ordering::SeqCst);
            return Err(error);
        }
        before.map_or(Ok(()), |child| {
            self.end(child);
            Ok(())
        })
    }

    pub(crate) fn stop_etcd(&self) -> anyhow::Result<()> {
        self.stop("etcd", |running| &mut running.etcd)
    }

    pub(crate) fn start_etcd(&self) -> anyhow::Result<()> {
        let mut running = self.running();
        anyhow::ensure!(running.etcd.is_none(), "the etcd of the test bed is running already");
        let child = launch(&mut running.guardian, &self.etcd, &self.etcd_args, &self.folder().join("etcd.log"))?;
        running.etcd = Some(child);
        Ok(())
    }

    pub(crate) fn stop_apiserver(&self) -> anyhow::Result<()> {
        self.stop("API server", |running| &mut running.apiserver)
    }

    fn stop(&self, what: &str, child: fn(&mut Running) -> &mut Option<Child>) -> anyhow::Result<()> {
        let mut running = self.running();
        let child = child(&mut running).take().with_context(|| format!("the {what} of the test bed is not running"))?;
        end(&mut running.guardian, child);
        Ok(())
    }

    /// Sends a signal with `kill`, which is a builtin of every shell.
    pub(crate) fn signal_apiserver(&self, signal: &str) -> anyhow::Result<()> {
        let running = self.running();
        let child = running.apiserver.as_ref().context("the API server of the test bed is not running")?;
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, signal, &child.id().to_string()])
            .status()
            .context("running sh")?;
        if !status.success() {
            bail!("sending {signal} to the API server of the test bed failed: {status}");
        }
        Ok(())
    }

    /// Waits until the server reports ready and the namespaces that it creates right after that exist.
    fn wait_ready(&self) -> anyhow::Result<()> {
        let (client, log) = (self.client(&self.admin_token), self.folder().join("kube-apiserver.log"));
        let paths = ["/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"];
        paths.into_iter().try_for_each(|path| until_ready(&client, path, &log, || self.still_running()))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.still_running().is_ok()
    }

    fn still_running(&self) -> anyhow::Result<()> {
        let mut running = self.running();
        // etcd first: an API server without etcd exits too, and its log does not show the cause.
        let Running { etcd, apiserver, .. } = &mut *running;
        for (name, child) in [("etcd", etcd), ("kube-apiserver", apiserver)] {
            let child = child.as_mut().with_context(|| format!("{name} was stopped while it started"))?;
            if let Some(status) = child.try_wait()? {
                let log = tail(&self.folder().join(format!("{name}.log")));
                bail!("{name} ended ({status}); its log ends with:\n{log}");
            }
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // A panicking test must not prevent the cleanup of its bed.
        self.running.lock()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Reaps the children too; for an ended process both calls fail, which is ignored.
        for child in self.apiserver.iter_mut().chain(&mut self.etcd) {
            let _ = self.guardian.forget(child.id());
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Retries while another process takes a port between our check and the bind.
pub(crate) fn retried<T>(what: &'static str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if format!("{error:#}").contains("address already in use") => {}
            ended => return ended.context(what),
        }
    }
    attempt().context(what)
}

/// Waits until a path returns 200, as long as the process runs.
pub(crate) fn until_ready(
    client: &Client,
    path: &str,
    log: &Path,
    mut still_running: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let answer = client.send("GET", path, None);
        if matches!(answer, Ok((200, _))) {
            return Ok(());
        }
        still_running()?;
        if started.elapsed() > READY_WITHIN {
            let said = answer.map_or_else(|e| format!("{e:#}"), |(status, body)| format!("{status} {body}"));
            bail!("{path} is not ready after {READY_WITHIN:?}: {said}; the log ends with:\n{}", tail(log));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn launch(guardian: &mut Guardian, program: &Path, args: &[String], log: &Path) -> anyhow::Result<Child> {
    let log: File = OpenOptions::new().create(true).append(true).open(log)?;
    let child = Command::new(program)
        .args(args)
        // The programs read defaults and proxies from the environment, which is unknown in tests.
        .env_clear()
        // Each start allocates much that stays: fewer collections save a third of its CPU time.
        .env("GOGC", "400")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    guardian.watch(child.id())?;
    Ok(child)
}

fn end(guardian: &mut Guardian, mut child: Child) {
    let _ = guardian.forget(child.id());
    let _ = child.kill();
    let _ = child.wait();
}

/// Different free ports. The starting point differs between processes and calls, so that concurrent test binaries
/// rarely check the same ports.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let seed = uuid::Uuid::new_v4().as_u128() % u128::from(PORTS.end - PORTS.start);
    let seed = PORTS.start + u16::try_from(seed).unwrap_or_default();
    for port in (seed..PORTS.end).chain(PORTS.start..seed) {
        if held.len() == N {
            break;
        }
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|listener| (port, listener)));
    }
    let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.try_into().map_err(|found| anyhow!("only these ports are free on 127.0.0.1: {found:?}"))
}

fn etcd_args(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // No test needs the data after its end.
        "--unsafe-no-fsync=true".into(),
        "--quota-backend-bytes=8589934592".into(),
    ]
}

fn apiserver_args(folder: &Path, etcd: u16, options: &Options) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut args = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--cert-dir={}", file("certs")),
        format!("--tls-cert-file={}", file("server.pem")),
        format!("--tls-private-key-file={}", file("server.key")),
        // Both are written to the ConfigMap extension-apiserver-authentication, which delegated authentication reads.
        format!("--client-ca-file={}", file("ca.pem")),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.pem")),
        format!("--requestheader-allowed-names={FRONT_PROXY_USER}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-uid-headers=X-Remote-Uid".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.pem")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".into(),
        "--service-cluster-ip-range=10.96.0.0/12".into(),
        "--endpoint-reconciler-type=none".into(),
        "--allow-privileged=true".into(),
        // No controller creates the default service account of a namespace here, so pods must be accepted without it.
        "--disable-admission-plugins=ServiceAccount".into(),
    ];
    if options.audit != Audit::Off {
        args.push(format!("--audit-policy-file={}", file("audit-policy.json")));
        args.push(format!("--audit-log-path={}", file("audit.log")));
        args.push("--audit-log-maxsize=10000".into());
    }
    args.extend(options.apiserver_args.iter().cloned());
    args
}

/// One event per finished request. Bodies only of the objects that a cloud-controller-manager writes: tokens and
/// Secrets must not be logged.
fn audit_policy(audit: Audit) -> serde_json::Value {
    let resources = ["nodes", "nodes/status", "services", "services/status"];
    let bodies = serde_json::json!({"level": "Request", "verbs": ["create", "update", "patch", "delete"],
        "resources": [{"group": "", "resources": resources}]});
    let all = serde_json::json!({"level": "Metadata"});
    serde_json::json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": if audit == Audit::Bodies { vec![bodies, all] } else { vec![all] }})
}

/// `token,user,uid,"group1,group2"`
fn tokens(users: &[User]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for User { token, name, groups } in users {
        let groups = groups.join(",");
        if [token, name, &groups].iter().any(|field| field.contains(['"', '\n'])) || token.contains(',') {
            bail!("the user {name} can't be written to a token file");
        }
        lines.push_str(&format!("{token},\"{name}\",\"{name}\",\"{groups}\"\n"));
    }
    Ok(lines)
}

pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_outside_the_range_of_outgoing_connections() {
        let mut ports: [u16; 8] = free_ports().unwrap();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]), "{ports:?}");
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }

    #[test]
    fn bodies_are_logged_of_nodes_and_services_only() {
        assert_eq!(audit_policy(Audit::Metadata)["rules"], serde_json::json!([{"level": "Metadata"}]));
        let policy = audit_policy(Audit::Bodies);
        assert_eq!(policy["rules"][0]["resources"][0]["resources"][1], "nodes/status");
        assert_eq!(policy["rules"][1], serde_json::json!({"level": "Metadata"}));
    }

    #[test]
    fn a_token_line_quotes_fields_with_commas() {
        let user = |token: &str| User { token: token.into(), name: "a:b".into(), groups: vec!["x".into(), "y".into()] };
        assert_eq!(tokens(&[user("t")]).unwrap(), "t,\"a:b\",\"a:b\",\"x,y\"\n");
        assert!(tokens(&[user("t,u")]).is_err());
    }
}
