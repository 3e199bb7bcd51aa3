//! Routes: the configuration of the router of the rack for pod ranges.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::address::parse_cidr;
use ccm_provider::{ErrorClass, NewRoute, ProviderError, Route, SingleRoutes};
use serde::{Deserialize, Serialize};

use crate::machines::Machine;
use crate::rack::Rack;

/// `routes/<range>.json`
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Stored {
    cluster: String,
    node: String,
    range: String,
}

#[derive(Debug)]
pub(crate) struct RackRoutes(pub(crate) Arc<Rack>);

const KIND: &str = "routes";

/// The file name of a validated range.
fn file(range: &str) -> Result<String, ProviderError> {
    let range = parse_cidr(range).ok_or_else(|| {
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, format!("pod range {range:?} is not a CIDR"))
    })?;
    Ok(range.trunc().to_string().replace('/', "_"))
}

#[async_trait]
impl SingleRoutes for RackRoutes {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let machines = self.0.list::<Machine>("machines")?;
        let ours = self.0.list::<Stored>(KIND)?.into_iter().filter(|(_, stored)| stored.cluster == cluster);
        let route = |(name, stored): (String, Stored)| Route {
            name,
            blackhole: machines.iter().all(|(machine, _)| *machine != stored.node),
            target_node: Some(stored.node.into()),
            destination_cidr: stored.range,
            ..Route::default()
        };
        Ok(ours.map(route).collect())
    }

    async fn create(&self, cluster: &str, new: &NewRoute) -> Result<(), ProviderError> {
        let (range, node) = (&new.route.destination_cidr, new.route.target_node.as_deref().unwrap_or_default());
        let name = file(range)?;
        let wanted = Stored { cluster: cluster.to_owned(), node: node.to_owned(), range: range.clone() };
        let _changing = self.0.changing();
        match self.0.read::<Stored>(KIND, &name)? {
            None => self.0.write(KIND, &name, &wanted),
            Some(same) if same == wanted => Ok(()),
            Some(other) => {
                Err(ProviderError::unknown(format!("{range} leads to {} of cluster {}", other.node, other.cluster)))
            }
        }
    }

    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), ProviderError> {
        let name = file(&route.destination_cidr)?;
        let _changing = self.0.changing();
        match self.0.read::<Stored>(KIND, &name)? {
            Some(stored) if stored.cluster == cluster => self.0.remove(KIND, &name),
            _ => Ok(()),
        }
    }
}
