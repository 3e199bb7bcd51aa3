//! Writes of Services: their finalizer and their status, in one patch of the status.

use std::sync::Arc;

use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{Condition, LoadBalancerStatus, Service};
use serde_json::{Map, Value, json};

use super::body;
use crate::client::Call;
use crate::gate::{Gate, GateError};
use crate::store::Store;

/// What is to be changed of a Service.
#[derive(Debug, Clone, Default)]
pub struct ServicePatch {
    /// Our finalizer.
    pub finalizer: Option<Finalizer>,
    /// The status of the balancer; an empty one clears what is there.
    pub status: Option<LoadBalancerStatus>,
    /// Conditions.
    pub conditions: Option<ConditionChanges>,
}

/// What becomes of our finalizer. Those of others stay, also when they are not known here yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalizer {
    /// Behind the existing ones.
    Add,
    /// Upstream sends `"finalizers":null` when ours is the only one it has seen, which wipes one that was added meanwhile.
    Remove,
}

/// Conditions that are set, and types that go. The API server merges by type, so that those of others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConditionChanges {
    /// Set.
    pub set: Vec<Condition>,
    /// Types of those that go.
    pub gone: Vec<&'static str>,
}

/// The one way to write Services.
#[derive(Debug, Clone, Copy)]
pub struct ServiceWriter<'a> {
    gate: &'a Gate,
    services: &'a Store<Service>,
}

impl<'a> ServiceWriter<'a> {
    /// A writer for Services of this store.
    pub fn new(gate: &'a Gate, services: &'a Store<Service>) -> Self {
        Self { gate, services }
    }

    /// Writes the patch; whether the Service was there. An empty patch is no write.
    pub async fn write(&self, service: &Arc<Service>, patch: &ServicePatch) -> Result<bool, GateError> {
        if patch.is_empty() {
            return Ok(true);
        }
        let decide =
            |service: &Arc<Service>| Some(Call::strategic(format!("{}/status", path(service)), &patch.body(service)));
        let written = super::write(self.gate, self.services, service.clone(), |s| &s.metadata.uid, decide).await?;
        if let Some((_, answer)) = &written
            // The object may have gone with its finalizer.
            && patch.finalizer != Some(Finalizer::Remove)
        {
            self.services.written(answer);
        }
        Ok(written.is_some())
    }
}

/// Path of a Service.
pub fn path(service: &Service) -> String {
    let key = service.key();
    format!("/api/v1/namespaces/{}/services/{}", key.namespace, key.name)
}

impl ServicePatch {
    fn is_empty(&self) -> bool {
        self.finalizer.is_none() && self.status.is_none() && self.conditions.is_none()
    }

    fn body(&self, service: &Service) -> Value {
        let (mut metadata, mut status) = (Map::new(), Map::new());
        metadata.insert("uid".to_owned(), json!(service.metadata.uid));
        if let Some(change) = self.finalizer {
            let others = service.metadata.finalizers.iter().map(String::as_str);
            let mut order: Vec<&str> = others.filter(|name| *name != FINALIZER_LOAD_BALANCER).collect();
            let key = match change {
                Finalizer::Add => "finalizers",
                Finalizer::Remove => "$deleteFromPrimitiveList/finalizers",
            };
            metadata.insert(key.to_owned(), json!([FINALIZER_LOAD_BALANCER]));
            if !order.is_empty() {
                order.extend((change == Finalizer::Add).then_some(FINALIZER_LOAD_BALANCER));
                metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
            }
        }
        if let Some(balancer) = &self.status {
            let ingress = if balancer.ingress.is_empty() { Value::Null } else { json!(balancer.ingress) };
            status.insert("loadBalancer".to_owned(), json!({"ingress": ingress}));
        }
        if let Some(ConditionChanges { set, gone }) = &self.conditions {
            let gone = gone.iter().map(|kind| json!({"$patch": "delete", "type": kind}));
            let all = set.iter().map(|condition| json!(condition)).chain(gone);
            status.insert("conditions".to_owned(), all.collect());
        }
        body(metadata, Map::new(), status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body for a Service with these finalizers, without the UID that all have.
    fn body_of(patch: &ServicePatch, finalizers: &[&str]) -> Value {
        let metadata = json!({"namespace": "a", "name": "b", "uid": "u", "finalizers": finalizers});
        let service: Service = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
        let mut body = patch.body(&service);
        assert_eq!(body["metadata"].as_object_mut().unwrap().remove("uid"), Some(json!("u")));
        body
    }

    fn finalizer(change: Finalizer) -> ServicePatch {
        ServicePatch { finalizer: Some(change), ..ServicePatch::default() }
    }

    #[test]
    fn our_finalizer_is_added_behind_the_others() {
        assert_eq!(
            body_of(&finalizer(Finalizer::Add), &["foo"]),
            json!({"metadata": {
                "$setElementOrder/finalizers": ["foo", "service.kubernetes.io/load-balancer-cleanup"],
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
        assert_eq!(
            body_of(&finalizer(Finalizer::Add), &[]),
            json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn removing_our_finalizer_never_names_the_whole_list() {
        assert_eq!(
            body_of(&finalizer(Finalizer::Remove), &["service.kubernetes.io/load-balancer-cleanup", "other"]),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                "$setElementOrder/finalizers": ["other"]}})
        );
        assert_eq!(
            body_of(&finalizer(Finalizer::Remove), &["service.kubernetes.io/load-balancer-cleanup"]),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn a_status_is_written_as_the_provider_gave_it_and_an_empty_one_clears() {
        let written = json!({"ingress": [
            {"ip": "1.2.3.4", "ipMode": "VIP"},
            {"hostname": "lb.example.com", "ports": [
                {"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "error": "example.com/Down"}]},
        ]});
        let status = |status| ServicePatch { status: Some(status), ..ServicePatch::default() };
        let patch = status(serde_json::from_value(written.clone()).unwrap());
        assert_eq!(body_of(&patch, &[])["status"], json!({"loadBalancer": written}));
        let cleared = body_of(&status(LoadBalancerStatus::default()), &[]);
        assert_eq!(cleared["status"].to_string(), r#"{"loadBalancer":{"ingress":null}}"#);
    }

    #[test]
    fn finalizer_status_and_conditions_are_one_patch() {
        let condition = Condition {
            kind: "A".into(),
            status: "True".into(),
            observed_generation: 3,
            last_transition_time: "2026-01-01T00:00:00Z".into(),
            reason: "R".into(),
            message: "m".into(),
        };
        let patch = ServicePatch {
            finalizer: Some(Finalizer::Add),
            status: Some(LoadBalancerStatus::default()),
            conditions: Some(ConditionChanges { set: vec![condition], gone: vec!["B"] }),
        };
        let written = json!({"type": "A", "status": "True", "observedGeneration": 3,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R", "message": "m"});
        assert_eq!(
            body_of(&patch, &[]),
            json!({
                "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
                "status": {
                    "loadBalancer": {"ingress": null},
                    "conditions": [written, {"$patch": "delete", "type": "B"}],
                },
            })
        );
    }
}
