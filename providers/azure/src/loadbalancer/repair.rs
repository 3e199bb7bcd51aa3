//! Objects in the state Failed, which keep a load balancer from being written: they are written once more as they are.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::lock;
use tokio::time::Instant;

use super::json::{self, same};
use crate::client::id::ArmId;
use crate::client::operation::{NIC, NIC_GET, NIC_PUT, PUBLIC_IP, PUBLIC_IP_GET, PUBLIC_IP_PUT};
use crate::client::{Client, Write};

/// One that fails again is left alone for this time.
const AGAIN: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(60);
const REFUSAL: &str = "Cannot proceed with operation because resource ";

/// The repairs of this process.
#[derive(Debug, Default)]
pub(super) struct Repairs(Mutex<BTreeMap<ArmId, Instant>>);

/// The object that an error names as not provisioned.
pub(super) fn neighbour(message: &str) -> Option<ArmId> {
    let (_, rest) = message.split_once(REFUSAL)?;
    let id = ArmId::parse(rest.split_whitespace().next()?).ok()?;
    // An interface is named by one of its configurations.
    let parent = id.parent().filter(|parent| parent.is(NIC.kind));
    Some(parent.unwrap_or(id))
}

impl Repairs {
    /// Writes an object again if it has failed; whether that succeeded.
    pub(super) async fn repair(&self, client: &Client, id: &ArmId) -> bool {
        let (get, put) = match () {
            () if id.is(NIC.kind) => (NIC_GET, NIC_PUT),
            () if id.is(PUBLIC_IP.kind) => (PUBLIC_IP_GET, PUBLIC_IP_PUT),
            () => return false,
        };
        let object = client.get(get, id).await.ok().flatten();
        let Some(object) = object.filter(|it| same(json::property(it, "provisioningState"), "Failed")) else {
            return false;
        };
        {
            let mut repairs = lock(&self.0);
            repairs.retain(|_, at| at.elapsed() < AGAIN);
            if repairs.insert(id.clone(), Instant::now()).is_some() {
                return false;
            }
        }
        tracing::warn!(%id, "an object in the state Failed keeps the load balancer from being written: it is written again");
        let written = client.finish(&Write::put(put, id.clone(), object), LIMIT).await;
        written.inspect_err(|error| tracing::warn!(%id, %error, "it is not repaired")).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_object() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
        let text = format!("{REFUSAL}{id} used by resource /subscriptions/s is not in Succeeded state.");
        assert_eq!(neighbour(&text).unwrap().as_str(), id);
        assert_eq!(neighbour(&format!("{REFUSAL}{id}/ipConfigurations/c used")).unwrap().as_str(), id);
        assert_eq!(neighbour("no"), None);
    }
}
