//! An API server, a cloud in a file, and the program under test.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ccm_test_bed::{Audit, Bed, Make, Object, Process};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::arguments::Options;

/// The limit of each wait. Longer than any back-off and lease of the checks, also on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(100);
pub(crate) const RANGE: &str = "10.90.0.0/16";
/// A few instances; the checks of nodes have one each.
pub(crate) const TYPE: &str = "fake.large";

pub(crate) struct World {
    pub(crate) bed: Bed,
    pub(crate) options: Arc<Options>,
    folder: tempfile::TempDir,
    /// The content of the cloud's file, which is JSON, and thereby also YAML.
    cloud: Mutex<Value>,
    /// The port of the program that runs during all checks.
    pub(crate) port: u16,
}

impl World {
    /// `None` if this machine has no API server.
    pub(crate) async fn start(options: &Arc<Options>, audit: Audit) -> Result<Option<Self>> {
        let mut wanted = ccm_test_bed::Options::default();
        wanted.audit = audit;
        let Some(bed) = Bed::start_with(wanted).await? else { return Ok(None) };
        let world = Self {
            bed,
            options: Arc::clone(options),
            folder: tempfile::tempdir()?,
            cloud: Mutex::new(json!({
                "unlisted": "missing",
                "zone": {"failureDomain": "here-a", "region": "here"},
                "interfaces": {"instancesV2": true, "loadBalancer": true, "routes": true},
                "instances": [],
                "faults": [],
            })),
            port: ccm_test_bed::free_port()?,
        };
        world.change_cloud(|_| {})?;
        Ok(Some(world))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn change_cloud(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut cloud = self.cloud.lock();
        change(&mut cloud);
        let next = self.file("cloud.next");
        std::fs::write(&next, cloud.to_string())?;
        std::fs::rename(next, self.file("cloud.json")).context("replacing the cloud's file")
    }

    /// Adds an instance, or replaces the one with this name.
    pub(crate) fn set_instance(&self, instance: Value) -> Result<()> {
        self.change_cloud(|cloud| {
            if let Some(list) = cloud.pointer_mut("/instances").and_then(Value::as_array_mut) {
                list.retain(|other| other.get("name") != instance.get("name"));
                list.push(instance);
            }
        })
    }

    /// A running instance with one address.
    pub(crate) fn add_instance(&self, name: &str, address: &str) -> Result<()> {
        self.set_instance(json!({"name": name, "type": TYPE, "labels": {"example.com/rack": "r7"},
            "addresses": [{"type": "InternalIP", "address": address}]}))
    }

    /// Calls about this object fail from now on, until [`World::repair`]. `subject` is `node` or `service`.
    pub(crate) fn fail(&self, call: &str, subject: &str, name: &str) -> Result<()> {
        self.change_cloud(|cloud| {
            if let Some(list) = cloud.pointer_mut("/faults").and_then(Value::as_array_mut) {
                list.push(json!({"call": call, subject: name, "error": "quota exceeded"}));
            }
        })
    }

    pub(crate) fn repair(&self, call: &str, subject: &str, name: &str) -> Result<()> {
        self.change_cloud(|cloud| {
            if let Some(list) = cloud.pointer_mut("/faults").and_then(Value::as_array_mut) {
                list.retain(|rule| {
                    !(rule.get("call") == Some(&call.into()) && rule.get(subject) == Some(&name.into()))
                });
            }
        })
    }

    /// Arguments of each start: the API server, the cloud, and nothing on any port. Later ones take precedence.
    fn arguments(&self, kubeconfig: &std::path::Path, more: &[&str]) -> Vec<String> {
        let options = &self.options;
        let mut all = vec![
            format!("--cloud-provider={}", options.provider),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".into(),
            "--secure-port=0".into(),
            "--leader-elect=false".into(),
            "--v=2".into(),
        ];
        match &options.cloud_config {
            Some(file) => all.push(format!("--cloud-config={file}")),
            None if options.provider == "fake" => {
                all.push(format!("--cloud-config={}", self.file("cloud.json").display()));
            }
            None => {}
        }
        all.extend(options.more.iter().cloned());
        all.extend(more.iter().map(|&argument| argument.to_owned()));
        all
    }

    /// Starts the program with its output in the file `<name>.log`.
    pub(crate) fn launch(&self, name: &str, kubeconfig: &std::path::Path, more: &[&str]) -> Process {
        let program = self.options.program.display().to_string();
        Process::start(&program, &self.arguments(kubeconfig, more), &self.file(&format!("{name}.log")))
    }

    /// The same as the administrator.
    pub(crate) fn launch_as_admin(&self, name: &str, more: &[&str]) -> Process {
        self.launch(name, &self.bed.kubeconfig(), more)
    }

    /// Runs the program with these arguments until it ends by itself: whether it succeeded, and its output.
    pub(crate) async fn ended(&self, name: &str, more: &[&str]) -> Result<(bool, String)> {
        let mut process = self.launch_as_admin(name, more);
        let status = exit(&mut process, LIMIT).await.with_context(|| format!("started with {more:?}"))?;
        Ok((status.success(), process.output()))
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, text) = self.bed.request(method, path, &self.bed.token, body).await?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).with_context(|| format!("{method} {path}"))
    }

    pub(crate) async fn create(&self, make: Make) -> Result<()> {
        let namespaced = make.object.pointer("/metadata/namespace").is_some();
        let path = if namespaced { "/api/v1/namespaces/default" } else { "/api/v1" };
        self.create_at(&format!("{path}/{}", make.resource), &make.object).await
    }

    pub(crate) async fn create_at(&self, path: &str, object: &Value) -> Result<()> {
        self.ask("POST", path, Some(object)).await.map(drop)
    }

    pub(crate) async fn patch(&self, path: &str, change: Value) -> Result<()> {
        self.ask("PATCH", path, Some(&change)).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.ask("DELETE", path, None).await.map(drop)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Option<Object>> {
        match self.bed.get(path).await? {
            (200, text) => Ok(Some(Object(serde_json::from_str(&text)?))),
            (404, _) => Ok(None),
            (status, text) => bail!("GET {path}: {status} {text}"),
        }
    }

    /// Waits until `look` returns a value; the error says what did not happen, and the last state of the object.
    pub(crate) async fn until<T>(
        &self,
        path: &str,
        what: &str,
        mut look: impl FnMut(Option<&Object>) -> Option<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            let found = self.get(path).await?;
            if let Some(value) = look(found.as_ref()) {
                return Ok(value);
            }
            if began.elapsed() >= LIMIT {
                let state = found.map_or("it does not exist".into(), |object| brief(&object));
                bail!("after {LIMIT:?} still not: {what}; {path}: {state}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_so(&self, path: &str, what: &str, is_so: impl Fn(&Object) -> bool) -> Result<Object> {
        self.until(path, what, |object| object.filter(|object| is_so(object)).cloned()).await
    }

    pub(crate) async fn until_gone(&self, path: &str) -> Result<()> {
        self.until(path, "gone", |object| object.is_none().then_some(())).await
    }

    /// Waits for an event about the object with this name, whose line `Type Reason: message` begins so.
    pub(crate) async fn until_event(&self, name: &str, line: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let lines = |list: &Object| -> Vec<String> {
            let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            items.into_iter().map(|event| Object(event).event_line()).collect()
        };
        self.until_so(&path, &format!("an event {line}"), |list| {
            lines(list).iter().any(|event| event.starts_with(line))
        })
        .await
        .map(drop)
    }
}

/// Waits until a process has ended by itself.
pub(crate) async fn exit(process: &mut Process, limit: Duration) -> Result<std::process::ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = process.exited() {
            return Ok(status);
        }
        ensure!(began.elapsed() < limit, "the program still runs after {limit:?}: {}", tail(&process.output()));
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a process has ended; forever without a process.
pub(crate) async fn end(process: Option<&mut Process>) -> std::process::ExitStatus {
    let Some(process) = process else { return std::future::pending().await };
    loop {
        if let Some(status) = process.exited() {
            return status;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for something that a process does; an error as soon as it has ended by itself.
pub(crate) async fn while_it_runs<T>(process: &mut Process, what: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        result = what => result,
        status = end(Some(&mut *process)) => bail!(ended_by_itself(status, process)),
    }
}

/// Why what the process should do does not happen.
pub(crate) fn ended_by_itself(status: std::process::ExitStatus, process: &Process) -> String {
    format!("the program ended by itself ({status}):\n{}", tail(&process.output()))
}

/// The last lines of an output.
pub(crate) fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
}

/// An object without what the checks never look at.
fn brief(object: &Object) -> String {
    let mut value = object.0.clone();
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "finalizers" | "deletionTimestamp"));
    }
    value.to_string()
}

pub(crate) fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub(crate) fn service_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}
