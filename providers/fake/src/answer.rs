//! Answers in JSON, for the call log and for `result` of a fault.

use std::collections::BTreeMap;

use ccm_kit::{Fields, Value};
use ccm_provider::{InstanceMetadata, LoadBalancerStatus, NodeAddress, Route, ZoneInfo};
use serde_json::{Value as Json, json};

use crate::method::Method;
use crate::values::{each, read_address, read_ingress, read_route, route_to_json};

/// An answer of a call.
pub(crate) trait Answer: Sized {
    /// The form in the log; `None` for calls without an answer.
    fn to_json(&self) -> Option<Json>;
    /// Parses the form of [`Answer::to_json`]. Problems are recorded with the value.
    fn read(value: &Value<'_>) -> Option<Self>;
}

/// Whether the value is a valid answer of the call. Problems are recorded with the value.
pub(crate) fn fits(method: Method, value: &Value<'_>) -> Option<()> {
    fn read<T: Answer>(value: &Value<'_>) -> Option<()> {
        T::read(value).map(|_| ())
    }
    match method {
        Method::InstanceExists
        | Method::InstanceShutdown
        | Method::InstanceExistsByProviderId
        | Method::InstanceShutdownByProviderId => read::<bool>(value),
        Method::InstanceMetadata => read::<Option<InstanceMetadata>>(value),
        Method::InstanceId | Method::InstanceType | Method::InstanceTypeByProviderId | Method::Master => {
            read::<String>(value)
        }
        Method::NodeAddresses | Method::NodeAddressesByProviderId => read::<Vec<NodeAddress>>(value),
        Method::GetZone | Method::GetZoneByProviderId | Method::GetZoneByNodeName => read::<ZoneInfo>(value),
        Method::GetLoadBalancer => read::<Got>(value),
        Method::EnsureLoadBalancer => read::<Ensured>(value),
        Method::ListRoutes => read::<Vec<Route>>(value),
        Method::ListClusters => read::<Vec<String>>(value),
        Method::GetLabelsForVolume => read::<Option<BTreeMap<String, String>>>(value),
        Method::Lookup
        | Method::Initialize
        | Method::SetInformers
        | Method::UpdateLoadBalancer
        | Method::EnsureLoadBalancerDeleted
        | Method::CreateRoute
        | Method::DeleteRoute => Some(()),
    }
}

impl Answer for () {
    fn to_json(&self) -> Option<Json> {
        None
    }
    fn read(_: &Value<'_>) -> Option<Self> {
        Some(())
    }
}

/// Answers with the form of serde.
macro_rules! plain {
    ($($type:ty: |$value:ident| $read:expr;)*) => {$(
        impl Answer for $type {
            fn to_json(&self) -> Option<Json> {
                Some(json!(self))
            }
            fn read($value: &Value<'_>) -> Option<Self> {
                $read
            }
        }
    )*};
}

plain! {
    bool: |value| value.flag();
    String: |value| value.text();
    Vec<String>: |value| value.list()?.iter().map(Value::text).collect();
    Vec<NodeAddress>: |value| Some(each(&value.list()?, read_address));
    Option<BTreeMap<String, String>>: |value| if value.is_null() { Some(None) } else { value.texts().map(Some) };
}

impl Answer for Option<InstanceMetadata> {
    fn to_json(&self) -> Option<Json> {
        Some(self.as_ref().map_or(Json::Null, |metadata| {
            json!({
                "ProviderID": metadata.provider_id,
                "InstanceType": metadata.instance_type,
                "NodeAddresses": metadata.node_addresses,
                "Zone": metadata.zone,
                "Region": metadata.region,
                "AdditionalLabels": metadata.additional_labels,
            })
        }))
    }

    fn read(value: &Value<'_>) -> Option<Self> {
        if value.is_null() {
            return Some(None);
        }
        let mut f = value.fields()?;
        Some(Some(InstanceMetadata {
            provider_id: f.text("ProviderID").unwrap_or_default(),
            instance_type: f.text("InstanceType").unwrap_or_default(),
            node_addresses: each(&f.list("NodeAddresses"), read_address),
            zone: f.text("Zone").unwrap_or_default(),
            region: f.text("Region").unwrap_or_default(),
            additional_labels: f.texts("AdditionalLabels"),
        }))
    }
}

impl Answer for ZoneInfo {
    fn to_json(&self) -> Option<Json> {
        Some(json!({"FailureDomain": self.failure_domain, "Region": self.region}))
    }
    fn read(value: &Value<'_>) -> Option<Self> {
        let mut f = value.fields()?;
        Some(Self {
            failure_domain: f.text("FailureDomain").unwrap_or_default(),
            region: f.text("Region").unwrap_or_default(),
        })
    }
}

/// Answer of `GetLoadBalancer`.
#[derive(Debug)]
pub(crate) struct Got(pub(crate) Option<LoadBalancerStatus>);

/// Answer of `EnsureLoadBalancer`.
#[derive(Debug)]
pub(crate) struct Ensured(pub(crate) Option<LoadBalancerStatus>);

fn status_to_json(status: &LoadBalancerStatus) -> Json {
    json!({"ingress": status.ingress})
}

fn read_status(mut f: Fields<'_>) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: each(&f.list("ingress"), read_ingress) }
}

impl Answer for Got {
    fn to_json(&self) -> Option<Json> {
        Some(json!({"exists": self.0.is_some(), "status": self.0.as_ref().map(status_to_json)}))
    }
    fn read(value: &Value<'_>) -> Option<Self> {
        let mut f = value.fields()?;
        let exists = f.flag("exists");
        let status = f.fields("status").map(read_status);
        let exists = exists.unwrap_or(status.is_some());
        Some(Self(exists.then(|| status.unwrap_or_default())))
    }
}

impl Answer for Ensured {
    fn to_json(&self) -> Option<Json> {
        Some(self.0.as_ref().map_or(Json::Null, status_to_json))
    }
    fn read(value: &Value<'_>) -> Option<Self> {
        if value.is_null() { Some(Self(None)) } else { value.fields().map(|f| Self(Some(read_status(f)))) }
    }
}

impl Answer for Vec<Route> {
    fn to_json(&self) -> Option<Json> {
        Some(Json::Array(self.iter().map(route_to_json).collect()))
    }

    /// If addresses are given, the routes are parsed as with `nodeAddresses: true`.
    fn read(value: &Value<'_>) -> Option<Self> {
        Some(each(&value.list()?, |mut f| {
            let route = read_route(&mut f)?;
            Some(Route { enable_node_addresses: !route.target_node_addresses.is_empty(), ..route })
        }))
    }
}
