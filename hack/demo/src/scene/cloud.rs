//! The file of the simulated cloud, which the tour edits and the fake provider reads.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// Machines up to this number get the pod ranges that newcomers know from other tools.
const SMALL: usize = 200;

const HEAD: &str = "\
# The cloud of the demo. It is read again before each call: edit this file and watch.
#   exists: false     on an instance: the machine is terminated
#   shutdown: true    on an instance: the machine is stopped
# An instance that you add here joins the cluster as a new node.
callLog: calls.jsonl
zone: {region: here, failureDomain: here-a}
unlisted: missing
interfaces: {routes: true}
";

/// The cloud as the tour wants it.
#[derive(Debug)]
pub(crate) struct CloudFile {
    path: PathBuf,
    machines: Vec<Machine>,
    fault: Option<String>,
}

#[derive(Debug)]
struct Machine {
    name: String,
    gone: bool,
}

/// What the kubelets need to know of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Power {
    pub(crate) name: String,
    pub(crate) on: bool,
}

impl CloudFile {
    /// Writes a cloud with so many machines into a folder.
    pub(crate) fn create(folder: &Path, nodes: usize) -> Result<Self> {
        let width = nodes.to_string().len().max(2);
        let machines = (1..=nodes).map(|i| Machine { name: format!("node-{i:0width$}"), gone: false }).collect();
        let file = Self { path: folder.join("cloud.yaml"), machines, fault: None };
        file.write()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.machines.iter().map(|machine| machine.name.clone()).collect()
    }

    /// Terminates a machine; answers the change in words.
    pub(crate) fn terminate(&mut self, name: &str) -> Result<&'static str> {
        self.machines.iter_mut().filter(|machine| machine.name == name).for_each(|machine| machine.gone = true);
        self.write()?;
        Ok("exists: false")
    }

    /// Lets look-ups of one machine fail; answers the change in words.
    pub(crate) fn fail(&mut self, name: &str, error: &str) -> Result<String> {
        let fault = format!("{{id: outage, call: InstanceExists, node: {name}, error: {error}}}");
        self.fault = Some(fault.clone());
        self.write()?;
        Ok(fault)
    }

    /// Ends the failing.
    pub(crate) fn recover(&mut self) -> Result<()> {
        self.fault = None;
        self.write()
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}instances:\n");
        for (index, machine) in self.machines.iter().enumerate() {
            let zone = ["a", "b", "c"].get(index % 3).copied().unwrap_or("a");
            let (high, low) = (index / 200, index % 200 + 11);
            let gone = if machine.gone { ", exists: false" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "- {{name: {}, type: demo.large, zone: here-{zone}, addresses: [{{type: InternalIP, address: 172.16.{high}.{low}}}, \
                 {{type: ExternalIP, address: 198.18.{high}.{low}}}]{gone}}}",
                machine.name
            );
        }
        if let Some(fault) = &self.fault {
            let _ = write!(text, "faults:\n- {fault}\n");
        }
        text
    }

    /// Readers see the old content or the new one.
    fn write(&self) -> Result<()> {
        let next = self.path.with_extension("next");
        std::fs::write(&next, self.text()).with_context(|| format!("cannot write {}", next.display()))?;
        std::fs::rename(&next, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The machines of a file, as the user may have edited it; nothing while it cannot be read.
pub(crate) fn machines(path: &Path) -> Option<Vec<Power>> {
    let text = std::fs::read_to_string(path).ok()?;
    let file: Value = serde_saphyr::from_str(&text).ok()?;
    let machine = |instance: &Value| {
        let is = |key: &str, default: bool| instance.get(key).and_then(Value::as_bool).unwrap_or(default);
        let name = instance.get("name")?.as_str()?.to_owned();
        Some(Power { name, on: is("exists", true) && !is("shutdown", false) })
    };
    Some(file.get("instances")?.as_array()?.iter().filter_map(machine).collect())
}

/// `--cluster-cidr` for so many machines.
pub(crate) fn cluster_cidr(nodes: usize) -> &'static str {
    if nodes <= SMALL { "10.244.0.0/16" } else { "10.128.0.0/9" }
}

/// The pod range of a machine, within the range of the cluster.
pub(crate) fn pod_cidr(nodes: usize, index: usize) -> String {
    match nodes <= SMALL {
        true => format!("10.244.{}.0/24", index % 256),
        false => format!("10.{}.{}.0/24", 128 + index / 256 % 128, index % 256),
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::{CloudConfig, FlagValues, ProviderFactory};

    use super::*;

    #[tokio::test]
    async fn the_fake_provider_accepts_every_state_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = CloudFile::create(folder.path(), 450).unwrap();
        let check = async |file: &CloudFile| {
            let config = CloudConfig { path: file.path().into(), text: file.text() };
            ccm_provider_fake::Factory.build(Some(config), &FlagValues::default()).await.unwrap();
        };
        check(&file).await;
        file.terminate("node-003").unwrap();
        assert!(file.fail("node-007", "503 Service Unavailable").unwrap().contains("node: node-007"));
        check(&file).await;
        let machines = machines(file.path()).unwrap();
        assert_eq!((machines.len(), machines.iter().filter(|machine| !machine.on).count()), (450, 1));
    }

    #[test]
    fn every_machine_has_a_pod_range_of_its_own() {
        for nodes in [SMALL, 5000] {
            let ranges: std::collections::HashSet<String> = (0..nodes).map(|i| pod_cidr(nodes, i)).collect();
            assert_eq!(ranges.len(), nodes);
        }
    }
}
