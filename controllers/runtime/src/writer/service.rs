//! Writes of Services: finalizers, annotations and status, in one patch of the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_provider::{Condition, LoadBalancerStatus, Service};
use serde_json::{Map, Value, json};

use super::body;
use crate::client::Call;
use crate::gate::{Gate, GateError};
use crate::store::Store;

/// Changes of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePatch {
    /// Finalizers to add after the existing ones. Other finalizers stay, even if the store has not seen them yet.
    pub add_finalizers: Vec<&'static str>,
    /// Finalizers to remove. Upstream sends `"finalizers":null` when its own is the only one it has seen, which removes
    /// one that was added meanwhile.
    pub remove_finalizers: Vec<&'static str>,
    /// Annotations to set; `None`: to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The status of the load balancer; an empty one clears the present one.
    pub status: Option<LoadBalancerStatus>,
    /// Conditions.
    pub conditions: Option<ConditionChanges>,
}

/// Conditions to set, and types to remove. The API server merges by type, so that conditions of other types stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConditionChanges {
    /// Set.
    pub set: Vec<Condition>,
    /// Types to remove.
    pub gone: Vec<&'static str>,
}

/// The writer of Services.
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

    /// Writes the patch; returns whether the Service existed. An empty patch is not sent.
    pub async fn write(&self, service: &Arc<Service>, patch: &ServicePatch) -> Result<bool, GateError> {
        if *patch == ServicePatch::default() {
            return Ok(true);
        }
        let decide =
            |service: &Arc<Service>| Some(Call::strategic(format!("{}/status", path(service)), &patch.body(service)));
        let written = super::write(self.gate, self.services, service.clone(), |s| &s.metadata.uid, decide).await?;
        if let Some((_, answer)) = &written
            // The removal of the last finalizer may have deleted the object.
            && patch.remove_finalizers.is_empty()
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
    fn body(&self, service: &Service) -> Value {
        let (mut metadata, mut status) = (Map::new(), Map::new());
        metadata.insert("uid".to_owned(), json!(service.metadata.uid));
        let (add, remove) = (&self.add_finalizers, &self.remove_finalizers);
        if !add.is_empty() {
            metadata.insert("finalizers".to_owned(), json!(add));
        }
        if !remove.is_empty() {
            metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!(remove));
        }
        let present = service.metadata.finalizers.iter().map(String::as_str);
        let mut order: Vec<&str> = present.filter(|name| !add.contains(name) && !remove.contains(name)).collect();
        let any = !add.is_empty() || !remove.is_empty();
        if any && !order.is_empty() {
            order.extend(add);
            metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
        }
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
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
    use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;

    use super::*;

    /// The body for a Service with these finalizers, without the UID that every body has.
    fn body_of(patch: &ServicePatch, finalizers: &[&str]) -> Value {
        let metadata = json!({"namespace": "a", "name": "b", "uid": "u", "finalizers": finalizers});
        let service: Service = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
        let mut body = patch.body(&service);
        assert_eq!(body["metadata"].as_object_mut().unwrap().remove("uid"), Some(json!("u")));
        body
    }

    fn adds() -> ServicePatch {
        ServicePatch { add_finalizers: vec![FINALIZER_LOAD_BALANCER], ..ServicePatch::default() }
    }

    fn removes() -> ServicePatch {
        ServicePatch { remove_finalizers: vec![FINALIZER_LOAD_BALANCER], ..ServicePatch::default() }
    }

    #[test]
    fn our_finalizer_is_added_behind_the_others() {
        assert_eq!(
            body_of(&adds(), &["foo"]),
            json!({"metadata": {
                "$setElementOrder/finalizers": ["foo", "service.kubernetes.io/load-balancer-cleanup"],
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
        assert_eq!(
            body_of(&adds(), &[]),
            json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn removing_our_finalizer_never_names_the_whole_list() {
        assert_eq!(
            body_of(&removes(), &["service.kubernetes.io/load-balancer-cleanup", "other"]),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                "$setElementOrder/finalizers": ["other"]}})
        );
        assert_eq!(
            body_of(&removes(), &["service.kubernetes.io/load-balancer-cleanup"]),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn finalizers_come_and_go_in_one_patch_beside_annotations() {
        let patch = ServicePatch {
            add_finalizers: vec!["new"],
            remove_finalizers: vec!["old"],
            annotations: [("set".to_owned(), Some("1".to_owned())), ("gone".to_owned(), None)].into(),
            ..ServicePatch::default()
        };
        assert_eq!(
            body_of(&patch, &["old", "other"]),
            json!({"metadata": {
                "finalizers": ["new"],
                "$deleteFromPrimitiveList/finalizers": ["old"],
                "$setElementOrder/finalizers": ["other", "new"],
                "annotations": {"set": "1", "gone": null}}})
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
            status: Some(LoadBalancerStatus::default()),
            conditions: Some(ConditionChanges { set: vec![condition], gone: vec!["B"] }),
            ..adds()
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
