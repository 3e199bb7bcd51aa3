//! The fake provider's cloud: a file that the tour edits and the provider reads.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ccm_provider::ProviderFactory;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Cloud, Machine, Profile};
use crate::act::Act;
use crate::feed::Feed;
use crate::world::{World, calls};

static PROFILE: Profile = Profile {
    name: "fake",
    acts: &[Act::LookFirst, Act::ForReal, Act::Terminated, Act::CannotTell, Act::Deleted],
    annotations: &[],
    leaving: &["api"],
    parts: "balancer",
    doubt: "The cloud gives no answer",
    cause: "the cloud fails to answer for it",
    known_after: &[],
    per_node: Duration::from_millis(20),
    settles: Duration::ZERO,
    age: Duration::ZERO,
    read_next: (
        "providers/fake/README.md",
        "the cloud in a YAML file: use it with your own cluster, and write your own provider",
    ),
};

const FAULT: &str = "503 Service Unavailable";

const HEAD: &str = "\
# The cloud of the demo. It is read again before each call: edit this file and watch.
#   exists: false     on an instance: the machine is terminated
#   shutdown: true    on an instance: the machine is stopped
# An instance that you add here joins the cluster as a new node.
callLog: calls.jsonl
stateFile: state.json
zone: {region: here, failureDomain: here-a}
unlisted: missing
interfaces: {routes: true}
";

#[derive(Debug)]
pub(crate) struct CloudFile {
    path: PathBuf,
    wanted: Mutex<Wanted>,
    /// The last content, and the time stamp of the file.
    read: Mutex<(Option<SystemTime>, Vec<Machine>)>,
}

#[derive(Debug)]
struct Wanted {
    names: Vec<String>,
    gone: Vec<String>,
    fault: Option<String>,
}

impl CloudFile {
    /// Writes a cloud with this many machines into a folder.
    pub(super) fn create(folder: &Path, nodes: usize) -> Result<Self> {
        let wanted = Wanted { names: super::names(nodes).collect(), gone: Vec::new(), fault: None };
        let file = Self { path: folder.join("cloud.yaml"), wanted: Mutex::new(wanted), read: Mutex::default() };
        file.write(&file.wanted())?;
        Ok(file)
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock()
    }

    /// Writes the file atomically.
    fn write(&self, wanted: &Wanted) -> Result<()> {
        let next = self.path.with_extension("next");
        std::fs::write(&next, wanted.text()).with_context(|| format!("cannot write {}", next.display()))?;
        std::fs::rename(&next, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Cloud for CloudFile {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn config(&self) -> &Path {
        &self.path
    }

    fn factory(&self) -> Box<dyn ProviderFactory> {
        Box::new(ccm_provider_fake::Factory)
    }

    fn names(&self) -> Vec<String> {
        self.wanted().names.clone()
    }

    /// The machines in the file, which the user may have edited; the previous ones while it cannot be read.
    fn machines(&self) -> Vec<Machine> {
        let mut read = self.read.lock();
        let stamp = std::fs::metadata(&self.path).and_then(|meta| meta.modified()).ok();
        if stamp != read.0
            && let Some(machines) = machines(&self.path)
        {
            *read = (stamp, machines);
        }
        read.1.clone()
    }

    fn terminate(&self, name: &str) -> Result<String> {
        let mut wanted = self.wanted();
        wanted.gone.push(name.to_owned());
        self.write(&wanted)?;
        Ok(format!("edits cloud.yaml: {name} gets \"exists: false\""))
    }

    fn fail(&self, name: &str) -> Result<String> {
        let fault = format!("{{id: outage, call: InstanceExists, node: {name}, error: {FAULT}}}");
        let mut wanted = self.wanted();
        wanted.fault = Some(fault.clone());
        self.write(&wanted)?;
        Ok(format!("adds a fault to cloud.yaml: {fault}"))
    }

    fn recover(&self) -> Result<String> {
        let mut wanted = self.wanted();
        wanted.fault = None;
        self.write(&wanted)?;
        Ok("removes the fault".to_owned())
    }

    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>) {
        tasks.spawn(calls::follow(self.path.with_file_name("calls.jsonl"), world, feed));
    }

    fn try_next(&self) -> String {
        format!(
            "Or edit {}: set \"shutdown: true\" or \"exists: false\" on an instance, or add one.",
            self.path.display()
        )
    }
}

impl Wanted {
    fn text(&self) -> String {
        let mut text = format!("{HEAD}instances:\n");
        for (index, name) in self.names.iter().enumerate() {
            let zone = ["a", "b", "c"].get(index % 3).copied().unwrap_or("a");
            let (high, low) = (index / 200, index % 200 + 11);
            let gone = if self.gone.contains(name) { ", exists: false" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "- {{name: {name}, type: demo.large, zone: here-{zone}, addresses: [{{type: InternalIP, address: 172.16.{high}.{low}}}, \
                 {{type: ExternalIP, address: 198.18.{high}.{low}}}]{gone}}}"
            );
        }
        if let Some(fault) = &self.fault {
            let _ = write!(text, "faults:\n- {fault}\n");
        }
        text
    }
}

/// The machines of a file; `None` while it cannot be read.
fn machines(path: &Path) -> Option<Vec<Machine>> {
    let text = std::fs::read_to_string(path).ok()?;
    let file: Value = serde_saphyr::from_str(&text).ok()?;
    let machine = |instance: &Value| {
        let is = |key: &str, default: bool| instance.get(key).and_then(Value::as_bool).unwrap_or(default);
        let name = instance.get("name")?.as_str()?.to_owned();
        Some(Machine { name, on: is("exists", true) && !is("shutdown", false), provider_id: None, node_ip: None })
    };
    Some(file.get("instances")?.as_array()?.iter().filter_map(machine).collect())
}

#[cfg(test)]
mod tests {
    use ccm_provider::{CloudConfig, FlagValues, LoadBalancerExt as _, Service};

    use super::*;

    #[tokio::test]
    async fn another_process_sees_the_load_balancers() {
        let folder = tempfile::tempdir().unwrap();
        let file = CloudFile::create(folder.path(), 3).unwrap();
        let balancers = async || {
            let text = std::fs::read_to_string(file.config()).unwrap();
            let config = CloudConfig { path: file.config().into(), text };
            let cloud = file.factory().build(Some(config), &FlagValues::default()).await.unwrap();
            cloud.load_balancer().unwrap()
        };
        let mut web = Service::default();
        web.metadata.namespace = "default".into();
        web.metadata.name = "web".into();
        web.metadata.uid = "uid".into();
        let made = balancers().await.ensure("kubernetes", &web, &[]).await.unwrap();
        assert!(made.is_some());
        assert_eq!(balancers().await.get("kubernetes", &web).await.unwrap(), made);
    }

    #[tokio::test]
    async fn the_fake_provider_accepts_every_state_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = CloudFile::create(folder.path(), 450).unwrap();
        let check = async |file: &CloudFile| {
            let text = std::fs::read_to_string(file.config()).unwrap();
            let config = CloudConfig { path: file.config().into(), text };
            file.factory().build(Some(config), &FlagValues::default()).await.unwrap();
        };
        check(&file).await;
        file.terminate("node-003").unwrap();
        assert!(file.fail("node-007").unwrap().contains("node: node-007"));
        check(&file).await;
        let machines = file.machines();
        assert_eq!((machines.len(), machines.iter().filter(|machine| !machine.on).count()), (450, 1));
    }
}
