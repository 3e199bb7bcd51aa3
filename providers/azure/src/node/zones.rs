//! Zones: of machines, and those of the region.
//!
//! Upstream: `azure_zones.go`, `pkg/provider/zone`.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::{Cached, Interrupted};
use ccm_provider::ProviderError;
use futures::FutureExt;
use serde_json::Value;

use super::machine::{Machine, State};
use crate::client::operation::ZONES_GET;
use crate::client::view::{list, text};
use crate::client::{ApiError, Client};

/// How long the zones of the regions are kept. A failed read keeps the old ones.
const KEPT: Duration = Duration::from_secs(1800);

/// The zone label of a machine: that of its availability zone, else its fault domain. `has_zones`: the cloud has zones.
pub(crate) fn zone_label(machine: &Machine, state: Option<&State>, has_zones: bool) -> Result<String, ProviderError> {
    if let Some(zone) = machine.zone.as_deref().filter(|_| has_zones) {
        return match zone.parse::<u32>() {
            Ok(_) => Ok(format!("{}-{zone}", machine.location.to_ascii_lowercase())),
            Err(_) => Err(ProviderError::unknown(format!("failed to parse zone {zone:?} of {}", machine.id))),
        };
    }
    match (state.and_then(|state| state.fault_domain), &machine.scale_set) {
        (Some(domain), _) => Ok(domain.to_string()),
        (None, None) => Ok("0".to_owned()),
        (None, Some(_)) => Err(ProviderError::unknown(format!("failed to get zone info of {}", machine.id))),
    }
}

/// The zones of all regions of a subscription, by location: lower-cased, without blanks.
pub(crate) type ZoneMap = BTreeMap<String, Vec<String>>;

/// The zones of the regions, read again from time to time. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Zones(Cached<ZoneMap, ApiError>);

impl Zones {
    pub(crate) fn new(client: Client, subscription: String) -> Self {
        let read = move || {
            let (client, subscription) = (client.clone(), subscription.clone());
            async move {
                let path = format!("/subscriptions/{subscription}/providers/Microsoft.Compute");
                Ok(zone_map(&client.document(ZONES_GET, &subscription, &path).await?))
            }
            .boxed()
        };
        Self(Cached::new(read, (|how| ApiError::interrupted(ZONES_GET, how)) as fn(Interrupted) -> ApiError))
    }

    /// Reads the zones, for the start. Without them new load balancers would have none.
    pub(crate) async fn read(&self) -> Result<(), ApiError> {
        self.0.get(KEPT, None).await.map(drop)
    }

    /// The zones of a region: none if it has none. A failed read keeps the old ones. An error if they were never read.
    pub(crate) async fn of(&self, location: &str) -> Result<Vec<String>, ApiError> {
        let known = match self.0.get(KEPT, None).await {
            Ok(known) => known,
            Err(error) => self.0.last().ok_or(error)?,
        };
        Ok(known.value.get(&folded(location)).cloned().unwrap_or_default())
    }
}

/// A location as in labels.
pub(crate) fn folded(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect()
}

fn zone_map(provider: &Value) -> ZoneMap {
    let machines =
        list(provider, "/resourceTypes").iter().filter(|kind| text(kind, "/resourceType") == "virtualMachines");
    let mappings = machines.flat_map(|kind| list(kind, "/zoneMappings"));
    let zones = |mapping: &Value| {
        let mut zones: Vec<String> =
            list(mapping, "/zones").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        zones.sort();
        (folded(text(mapping, "/location")), zones)
    };
    mappings.map(zones).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::id::ArmId;

    fn machine(zone: Option<&str>, is_in_set: bool) -> Machine {
        let id = ArmId::new("s", "g", "Microsoft.Compute/virtualMachines", "v");
        let mut machine = Machine::read(&json!({"id": id, "location": "WestUS"})).unwrap();
        machine.zone = zone.map(str::to_owned);
        machine.scale_set = is_in_set.then(|| ArmId::new("s", "g", "Microsoft.Compute/virtualMachineScaleSets", "x"));
        machine
    }

    #[test]
    fn the_zone_is_that_of_the_location_else_the_fault_domain() {
        let domain = State { fault_domain: Some(3), ..State::default() };
        let label = |zone, is_in_set, state| {
            zone_label(&machine(zone, is_in_set), state, true).map_err(|error| error.to_string())
        };
        assert_eq!(label(Some("2"), true, None).unwrap(), "westus-2");
        assert!(label(Some("a"), false, None).unwrap_err().contains("failed to parse zone"));
        assert_eq!(label(None, true, Some(&domain)).unwrap(), "3");
        assert_eq!(label(None, false, None).unwrap(), "0");
        assert!(label(None, true, None).unwrap_err().contains("failed to get zone info"));
        assert_eq!(zone_label(&machine(Some("2"), false), Some(&domain), false).unwrap(), "3", "a cloud without zones");
    }

    #[test]
    fn locations_are_compared_without_case_and_blanks() {
        let map = zone_map(&json!({"resourceTypes": [
            {"resourceType": "disks", "zoneMappings": [{"location": "West US", "zones": ["9"]}]},
            {"resourceType": "virtualMachines", "zoneMappings": [{"location": "West US", "zones": ["3", "1", "2"]}]},
        ]}));
        assert_eq!(map, ZoneMap::from([("westus".to_owned(), vec!["1".to_owned(), "2".to_owned(), "3".to_owned()])]));
        assert_eq!(folded("WestUS"), "westus");
    }
}
