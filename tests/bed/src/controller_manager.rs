//! A kube-controller-manager for the bed's API server.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use crate::pki::Authority;
use crate::process::{Processes, free_ports, retried, tail, until_ready};
use crate::{binaries, blocking};

/// Its user. With its default flags each of its controllers uses its own service account in
/// `kube-system`.
pub const CONTROLLER_MANAGER_USER: &str = "system:kube-controller-manager";

/// A running kube-controller-manager; dropping it kills it. The bed's other processes live at least as long.
#[derive(Debug)]
pub struct ControllerManager {
    /// `https://127.0.0.1:<port>`; its certificate is signed by the bed's authority.
    pub url: String,
    port: u16,
    log: PathBuf,
    // `None` only during the drop.
    child: Option<Child>,
    processes: Arc<Processes>,
}

impl ControllerManager {
    /// See [`crate::Bed::start_controller_manager`].
    pub(crate) fn start(processes: &Arc<Processes>, extra: &[String]) -> anyhow::Result<Option<Self>> {
        let Some(program) = binaries::controller_manager()? else { return Ok(None) };
        let what = "starting a kube-controller-manager beside the test bed";
        retried(what, || Self::attempt(processes, &program, extra)).map(Some)
    }

    fn attempt(processes: &Arc<Processes>, program: &Path, extra: &[String]) -> anyhow::Result<Self> {
        let [port] = free_ports()?;
        let own =
            processes.pki().sign(Authority::Client, "kube-controller-manager", CONTROLLER_MANAGER_USER, &[], false)?;
        let kubeconfig = processes.folder().join("kube-controller-manager.kubeconfig");
        processes.write_kubeconfig_for_certificate(&kubeconfig, &own)?;
        let mut arguments = arguments(processes, &kubeconfig, port);
        arguments.extend(extra.iter().cloned());
        // A separate file for each, so that a second one does not overwrite the log of the first.
        let log = processes.folder().join(format!("kube-controller-manager-{port}.log"));
        let child = processes.launch(program, &arguments, &log)?;
        let url = format!("https://127.0.0.1:{port}");
        let mut started = Self { url, port, log, child: Some(child), processes: Arc::clone(processes) };
        started.wait_ready()?;
        Ok(started)
    }

    fn wait_ready(&mut self) -> anyhow::Result<()> {
        let client = self.processes.admin_client(self.port);
        let (child, log) = (&mut self.child, &self.log);
        until_ready(&client, "/healthz", log, || match child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => bail!("kube-controller-manager ended ({status}); its log ends with:\n{}", tail(log)),
            None => Ok(()),
        })
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// The file with its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// `GET` from its own port as the administrator: status and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let client = self.processes.admin_client(self.port);
        let path = path.to_owned();
        blocking(move || client.send("GET", &path, None)).await
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        let child = self.child.as_mut().context("the process was given up")?;
        Ok(child.try_wait()?.is_none())
    }
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.processes.end(child);
        }
    }
}

/// The arguments as with kubeadm, without a cloud and without pod ranges.
fn arguments(processes: &Processes, kubeconfig: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| processes.folder().join(name).display().to_string();
    let (kubeconfig, authority) = (kubeconfig.display(), processes.pki().file(Authority::Client));
    let authority = authority.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("server.pem")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={authority}"),
        format!("--requestheader-client-ca-file={}", processes.pki().file(Authority::FrontProxy).display()),
        format!("--root-ca-file={authority}"),
        format!("--service-account-private-key-file={}", file("sa.key")),
        format!("--cluster-signing-cert-file={authority}"),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--use-service-account-credentials=true".into(),
        "--controllers=*".into(),
        "--leader-elect=true".into(),
    ]
}
