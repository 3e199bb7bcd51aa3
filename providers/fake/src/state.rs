//! The tables that calls change, and the file that preserves them across restarts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ccm_kit::document::{self, DocumentError};
use ccm_kit::{Problems, Value};
use ccm_provider::LoadBalancerIngress;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::config::{Config, InitialBalancer};
use crate::values::{StoredRoute, each, read_ingress};

#[cfg(test)]
mod tests;

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Balancer {
    pub(crate) name: String,
    pub(crate) ingress: Vec<LoadBalancerIngress>,
    pub(crate) nodes: Vec<String>,
}

/// The objects that calls have created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The load balancers by `namespace/name` of the Service.
    pub(crate) balancers: BTreeMap<String, Balancer>,
    /// The routes in order of creation.
    pub(crate) routes: Vec<StoredRoute>,
}

impl Tables {
    /// The tables at the start: from the file if it exists, else from the configuration.
    pub(crate) fn at_start(config: &Config) -> Result<Self, String> {
        let Some(path) = &config.start.state_file else { return Ok(Self::initial(config)) };
        let refuse = |error: &dyn std::fmt::Display| format!("stateFile: {}: {error}", path.display());
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| refuse(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::initial(config)),
            Err(error) => Err(refuse(&error)),
        }
    }

    fn initial(config: &Config) -> Self {
        let mut tables = Self::default();
        tables.set_balancers(&config.load_balancers.initial);
        tables.routes.clone_from(&config.routes.initial);
        tables
    }

    /// Replaces all load balancers.
    pub(crate) fn set_balancers(&mut self, initial: &[InitialBalancer]) {
        let balancer = |i: &InitialBalancer| Balancer { ingress: i.ingress.clone(), ..Balancer::default() };
        self.balancers = initial.iter().map(|i| (i.service.clone(), balancer(i))).collect();
    }

    fn parse(text: &str) -> Result<Self, DocumentError> {
        let tree = document::parse(text)?;
        let problems = Problems::default();
        let tables = Value::root(&tree, &problems).fields().map(|mut f| {
            let mut tables = Self::default();
            if let Some(balancers) = f.value("loadBalancers") {
                let map = balancers.json().as_object();
                if map.is_none() {
                    balancers.problem("expected a map");
                }
                for (key, json) in map.into_iter().flatten() {
                    let value = Value::at(json, format!("loadBalancers[{key:?}]"), &problems);
                    let Some(mut b) = value.fields() else { continue };
                    let _ = b.text("service");
                    let balancer = Balancer {
                        name: b.text("name").unwrap_or_default(),
                        ingress: each(&b.list("ingress"), read_ingress),
                        nodes: b.list("nodes").iter().filter_map(Value::text).collect(),
                    };
                    tables.balancers.insert(key.clone(), balancer);
                }
            }
            tables.routes = each(&f.list("routes"), |mut route| StoredRoute::read(&mut route));
            tables
        });
        problems.into_result()?;
        Ok(tables.unwrap_or_default())
    }

    fn to_json(&self) -> Json {
        let balancer = |(key, b): (&String, &Balancer)| {
            (key.clone(), json!({"service": key, "name": b.name, "ingress": b.ingress, "nodes": b.nodes}))
        };
        json!({
            "loadBalancers": self.balancers.iter().map(balancer).collect::<serde_json::Map<_, _>>(),
            "routes": self.routes.iter().map(StoredRoute::to_json).collect::<Vec<_>>(),
        })
    }

    /// Writes the tables atomically.
    pub(crate) fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        std::fs::write(&temporary, format!("{:#}\n", self.to_json()))?;
        std::fs::rename(&temporary, path)
    }
}
