//! The program in processes that are restarted when they exit, as by a kubelet.

use std::net::SocketAddr;
use std::path::PathBuf;

use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{Authority, Bed};
use ccm_test_suite::{Process, Rig};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ccm-under-test");

pub(super) struct Replica<'a> {
    rig: &'a Rig,
    /// Its name, which is also its user.
    name: &'static str,
    kubeconfig: PathBuf,
    port: u16,
    /// Its `/etc/hosts`, in a separate mount namespace.
    hosts: Option<PathBuf>,
    pub(super) process: Process,
    pub(super) restarts: usize,
    /// Sends requests to its port.
    client: Client,
}

fn kubeconfig(bed: &Bed, name: &str, cluster: &Value, token: &str) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let path = bed.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

impl<'a> Replica<'a> {
    /// Starts it with this cluster in its kubeconfig. The bed must know its name as a token.
    pub(super) async fn start(rig: &'a Rig, name: &'static str, mut cluster: Value, hosts: Option<PathBuf>) -> Self {
        let bed = rig.bed();
        if cluster["server"].as_str().unwrap().starts_with("https") {
            cluster["certificate-authority"] = json!(bed.authority_file(Authority::Client));
        }
        let port = ccm_test_bed::free_port().unwrap();
        let own = json!({"server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": bed.authority_file(Authority::Client)});
        let own = kubeconfig(bed, &format!("{name}-port"), &own, &bed.token);
        let options = ConnectOptions { kubeconfig: own.display().to_string(), ..ConnectOptions::default() };
        let client = Client::connect(&options, Metrics::new()).await.unwrap();
        let kubeconfig = kubeconfig(bed, name, &cluster, name);
        let process = Self::spawn(rig, name, &kubeconfig, port, hosts.as_ref(), 0);
        Self { rig, name, kubeconfig, port, hosts, process, restarts: 0, client }
    }

    fn spawn(
        rig: &Rig,
        name: &str,
        kubeconfig: &std::path::Path,
        port: u16,
        hosts: Option<&PathBuf>,
        number: usize,
    ) -> Process {
        let file = |name: &str| rig.bed().folder().join(name).display().to_string();
        let config = kubeconfig.display();
        let flags = [
            "--leader-elect=true".to_owned(),
            "--controllers=cloud-node,cloud-node-lifecycle,service".to_owned(),
            "--node-monitor-period=1s".to_owned(),
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", file("server.pem")),
            format!("--tls-private-key-file={}", file("server.key")),
        ];
        let mut args = rig.args(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let output = rig.cloud.path(&format!("{name}-{number}.log"));
        let Some(hosts) = hosts else { return Process::start(PROGRAM, &args, &output) };
        let script = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
        let before = ["-m", "sh", "-c", script, &hosts.display().to_string(), PROGRAM].map(str::to_owned);
        args.splice(0..0, before);
        Process::start("unshare", &args, &output)
    }

    /// Restarts it if it has exited.
    pub(super) fn revive(&mut self) {
        if self.process.exited().is_some() {
            self.restarts += 1;
            self.process =
                Self::spawn(self.rig, self.name, &self.kubeconfig, self.port, self.hosts.as_ref(), self.restarts);
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Whether it reports ready.
    pub(super) async fn is_ready(&self) -> bool {
        self.client.send(&Call::get("/readyz")).await.is_ok()
    }

    async fn state(&self) -> Option<Value> {
        self.client.read(&Call::get("/debug/state")).await.ok()
    }

    pub(super) async fn leads(&self) -> bool {
        self.state().await.is_some_and(|state| state["leadership"]["state"] == "leading")
    }

    /// The number of nodes and Services in its stores.
    pub(super) async fn counts(&self) -> Option<[usize; 2]> {
        let state = self.state().await?;
        let count = |kind: &str| usize::try_from(state["stores"][kind]["objects"].as_u64()?).ok();
        Some([count("nodes")?, count("services")?])
    }
}
