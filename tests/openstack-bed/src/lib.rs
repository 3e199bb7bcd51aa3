//! Real OpenStack services for tests, with a separate tenant for each test.
//!
//! Keystone, Neutron, Octavia, Nova, Placement and Glance run on 127.0.0.1, without machines, agents or load balancers;
//! `hack/openstack/bed.sh` describes and installs them. A machine has one bed: [`OpenStack::start`] starts it unless it
//! runs, and does not stop it, because a start takes seconds. `hack/test.sh openstack` stops it. Without the services
//! [`OpenStack::start`] returns `None` and reports it on stderr; with `CI=true` that is an error.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use ccm_test_openstack::{OpenStack, Service};
//!
//! let Some(openstack) = OpenStack::start().await? else { return Ok(()) };
//! let tenant = openstack.tenant().await?;
//! let ports = tenant.list(Service::Network, "/v2.0/ports").await?;
//! assert!(ports.iter().all(|port| port["project_id"] == tenant.project_id.as_str()));
//! tenant.delete().await
//! # }
//! ```
//!
//! By convention such tests are in a module named `real_openstack` of a test binary named `it`. The fast lane skips
//! such modules; the stage `openstack` of `hack/test.sh` runs them. A test that also runs on a simulated cloud uses
//! both through [`Cloud`].

mod cases;
mod cleanup;
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "fails a test, as the test would")]
mod cloud;
mod http;
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "fails a test, as the test would")]
mod real;
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "fails a test, as the test would")]
mod simulated;
mod tenant;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

pub use cloud::{Cloud, FIPS, GROUPS, LBS, Place, Who, id, texts};
pub use http::{Answer, Service};
pub use real::Real;
pub use simulated::Simulated;
pub use tenant::{ApplicationCredential, FailingCreations, Tenant};

/// The address of Keystone.
pub const AUTH_URL: &str = "http://127.0.0.1:15000/v3";

/// The availability zone of all servers.
pub const ZONE: &str = "zone-1";

/// The prefix of every Keystone token.
const TOKEN: &str = "gAAAAA";

/// The exit status of the script for "not available on this machine".
const NOT_AVAILABLE: i32 = 3;

/// The running services, accessed as the administrator.
#[derive(Clone, Debug)]
pub struct OpenStack {
    admin: http::Session,
}

impl OpenStack {
    /// Finds the services, and starts them if they are not running.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        let started = blocking(|| {
            let mut command = script();
            // In CI too: a missing component is reported below.
            let output =
                command.arg("start").env_remove("CI").stdout(Stdio::null()).output().context("running bed.sh")?;
            let log = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.code() == Some(NOT_AVAILABLE) {
                ccm_test_bed::not_run(log.lines().next_back().unwrap_or_default())?;
                return Ok(false);
            }
            anyhow::ensure!(output.status.success(), "hack/openstack/bed.sh start: {}\n{log}", output.status);
            Ok(true)
        })
        .await?;
        if !started {
            return Ok(None);
        }
        let admin = http::Session::with_password("admin", "bed", "admin").await?;
        Ok(Some(Self { admin }))
    }

    /// A new project with a user and a network, for one test.
    pub async fn tenant(&self) -> anyhow::Result<Tenant> {
        Tenant::new(self).await
    }

    /// One request as the administrator.
    pub async fn request(
        &self,
        method: &str,
        service: Service,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> anyhow::Result<Answer> {
        self.admin.send(method, service, path, body).await
    }

    /// All remaining objects of a project, such as `ports 1c5c…`.
    pub async fn leftovers(&self, project_id: &str) -> anyhow::Result<Vec<String>> {
        cleanup::leftovers(&self.admin, project_id).await
    }

    /// Runs a statement as the administrator of the databases, which have the names of the services. Returns the rows,
    /// with tabs between the columns.
    pub async fn sql(&self, statement: &str) -> anyhow::Result<String> {
        sql(statement).await
    }

    /// Suspends Octavia's worker until the returned guard is dropped: load balancers stay in a PENDING state. All tests
    /// share the worker, so a second caller waits.
    pub async fn pause_worker(&self) -> anyhow::Result<PausedWorker> {
        blocking(|| {
            let path = folder()?.join("run/worker.lock");
            let lock = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
            lock.lock()?;
            let paused = PausedWorker { _lock: lock };
            run(&["pause", "octavia-worker"])?;
            Ok(paused)
        })
        .await
    }
}

/// Resumes the worker when dropped. If the process ends before that, the next [`OpenStack::start`] resumes it.
#[derive(Debug)]
pub struct PausedWorker {
    _lock: File,
}

impl Drop for PausedWorker {
    fn drop(&mut self) {
        let _ = run(&["resume", "octavia-worker"]);
    }
}

fn script() -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/openstack/bed.sh");
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    command
}

/// Runs the script and returns its output.
fn run(arguments: &[&str]) -> anyhow::Result<String> {
    let output = script().args(arguments).output().context("running hack/openstack/bed.sh")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "hack/openstack/bed.sh {arguments:?}: {}\n{errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn sql(statement: &str) -> anyhow::Result<String> {
    let statement = statement.to_owned();
    blocking(move || run(&["sql", &statement])).await
}

/// The folder of the script.
fn folder() -> anyhow::Result<PathBuf> {
    Ok(ccm_test_bed::cache_folder().context("neither XDG_CACHE_HOME nor HOME is set")?.join("openstack"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("a task of the test bed was lost")?
}
