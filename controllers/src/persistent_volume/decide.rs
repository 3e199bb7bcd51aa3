//! The volumes that get labels, and the changes to them. Pure; shared by the controller and the webhook.
//!
//! Source of the rules: `kubernetes/kubernetes` `plugin/pkg/admission/storage/persistentvolume/label/admission.go`, and
//! `kubernetes-sigs/cloud-pv-admission-labeler`. Unlike there, requirements are added in the order of their keys.

use std::collections::BTreeSet;

use ccm_provider::well_known::{LABEL_ZONE, LABEL_ZONE_BETA, ZONE_DELIMITER};
use ccm_provider::{Change, PersistentVolume, Plan, Risk, Step, Verb, VolumeLabels, VolumeSource};
use serde_json::{Map, Value, json};

/// The origin of the labels of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin<'a> {
    /// It gets no labels: it belongs to another cloud, has its topology from a CSI driver, or is still being
    /// provisioned.
    Foreign,
    /// Its provisioner has set these labels, which are trusted.
    Provisioner(VolumeLabels),
    /// The cloud provides them.
    Cloud(&'a VolumeSource),
}

/// The origin of the labels of a volume, for a cloud with these sources.
pub fn origin<'a>(volume: &PersistentVolume, sources: &'a [VolumeSource]) -> Origin<'a> {
    let Some(source) = VolumeSource::of(volume, sources) else { return Origin::Foreign };
    match volume.topology() {
        Some(labels) if volume.is_provisioned() => Origin::Provisioner(labels),
        _ if volume.is_placeholder() || source.id_of(volume).is_none_or(str::is_empty) => Origin::Foreign,
        _ => Origin::Cloud(source),
    }
}

/// Whether the controller looks up a volume: it belongs to this cloud, lacks its topology, and is not being deleted.
pub fn lacks_labels<'a>(volume: &PersistentVolume, sources: &'a [VolumeSource]) -> Option<&'a VolumeSource> {
    if volume.metadata.deletion_timestamp.is_some() || volume.topology().is_some() {
        return None;
    }
    match origin(volume, sources) {
        Origin::Cloud(source) => Some(source),
        Origin::Foreign | Origin::Provisioner(_) => None,
    }
}

/// Whether a change of a volume can change the decision about it.
pub fn matters(old: &PersistentVolume, new: &PersistentVolume) -> bool {
    let (was, is) = (&old.metadata, &new.metadata);
    was.uid != is.uid || was.labels != is.labels || was.annotations != is.annotations || old.spec != new.spec
}

/// The time at which the labels are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At creation: the topology given by the user is not trusted.
    Made,
    /// Later: present labels are not changed, and the API server allows no change of the affinity.
    Later,
}

/// Changes of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mutation {
    /// Labels to set, with their previous values.
    pub labels: Vec<(String, Option<String>, String)>,
    /// The whole of `spec.nodeAffinity`, if it changes.
    pub affinity: Option<Value>,
    /// Labels that differ from the cloud's and are kept: key, value, value of the cloud.
    pub contradictions: Vec<(String, String, String)>,
}

/// Decides the changes of a volume for these labels.
///
/// # Errors
///
/// The list of zones in a label has an empty element, with upstream's text.
pub fn mutate(volume: &PersistentVolume, labels: &VolumeLabels, when: When) -> Result<Mutation, String> {
    let mut mutation = Mutation::default();
    if labels.is_empty() {
        return Ok(mutation);
    }
    for (key, value) in labels {
        match volume.metadata.labels.get(key) {
            Some(present) if present == value => {}
            Some(present) if when == When::Later => {
                mutation.contradictions.push((key.clone(), present.clone(), value.clone()));
            }
            present => mutation.labels.push((key.clone(), present.cloned(), value.clone())),
        }
    }
    let requirements = labels.iter().map(|(key, value)| requirement(key, value)).collect::<Result<Vec<_>, _>>()?;
    let present = volume.spec.get("nodeAffinity").filter(|affinity| !affinity.is_null());
    mutation.affinity = match (present, when) {
        (Some(_), When::Later) => None,
        (present, _) => with_requirements(present, &requirements),
    };
    Ok(mutation)
}

/// The node requirement for a label of a volume.
fn requirement(key: &str, value: &str) -> Result<Value, String> {
    let values = if [LABEL_ZONE, LABEL_ZONE_BETA].contains(&key) {
        zones(value).ok_or_else(|| format!("failed to convert label string for Zone: {value} to a Set"))?
    } else {
        BTreeSet::from([value.to_owned()])
    };
    Ok(json!({"key": key, "operator": "In", "values": values}))
}

/// The zones of a label value: `a__b` is `a` and `b`. `None` if one of them is empty.
fn zones(value: &str) -> Option<BTreeSet<String>> {
    let zones = value.split(ZONE_DELIMITER).map(str::trim);
    zones.map(|zone| (!zone.is_empty()).then(|| zone.to_owned())).collect()
}

/// The affinity with the requirements in every term; `None` if a term already has one of their keys.
fn with_requirements(present: Option<&Value>, requirements: &[Value]) -> Option<Value> {
    let mut affinity = present.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut required = affinity.get("required").and_then(Value::as_object).cloned().unwrap_or_default();
    let terms = required.get("nodeSelectorTerms").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut terms = if terms.is_empty() { vec![Value::Object(Map::new())] } else { terms };
    let keys = |list: &[Value]| list.iter().filter_map(|one| Some(one.get("key")?.as_str()?.to_owned())).collect();
    let ours: BTreeSet<String> = keys(requirements);
    for term in &mut terms {
        let term = term.as_object_mut()?;
        let mut expressions = term.get("matchExpressions").and_then(Value::as_array).cloned().unwrap_or_default();
        if !ours.is_disjoint(&keys(&expressions)) {
            return None;
        }
        expressions.extend_from_slice(requirements);
        term.insert("matchExpressions".to_owned(), expressions.into());
    }
    required.insert("nodeSelectorTerms".to_owned(), terms.into());
    affinity.insert("required".to_owned(), required.into());
    Some(affinity.into())
}

/// `persistentvolume <name>`
pub(super) fn plan_subject(name: &str) -> String {
    format!("persistentvolume {name}")
}

impl Mutation {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.affinity.is_none()
    }

    /// The changes as the answer of a webhook (RFC 6902).
    pub fn json_patch(&self, volume: &PersistentVolume) -> Value {
        let labels: Map<String, Value> =
            self.labels.iter().map(|(key, _, value)| (key.clone(), value.as_str().into())).collect();
        let mut operations = Vec::new();
        if volume.metadata.labels.is_empty() && !labels.is_empty() {
            operations.push(json!({"op": "add", "path": "/metadata/labels", "value": labels}));
        } else {
            operations.extend(labels.into_iter().map(|(key, value)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": value})
            }));
        }
        if let Some(affinity) = &self.affinity {
            operations.push(json!({"op": "add", "path": "/spec/nodeAffinity", "value": affinity}));
        }
        operations.into()
    }

    /// The changes as a patch of the volume, which the API server refuses if the volume has changed since.
    pub fn merge_patch(&self, volume: &PersistentVolume) -> Value {
        let labels: Map<String, Value> =
            self.labels.iter().map(|(key, _, value)| (key.clone(), value.as_str().into())).collect();
        let mut patch = json!({"metadata": {"resourceVersion": &*volume.metadata.resource_version, "labels": labels}});
        if let (Some(affinity), Some(patch)) = (&self.affinity, patch.as_object_mut()) {
            patch.insert("spec".to_owned(), json!({"nodeAffinity": affinity}));
        }
        patch
    }

    /// The write as a plan step.
    pub fn plan(&self, volume: &PersistentVolume) -> Plan {
        let name = &volume.metadata.name;
        let plan = Plan::new(plan_subject(name));
        if self.is_empty() {
            return plan;
        }
        let labels = self.labels.iter().map(|(key, before, after)| Change {
            field: format!("label {key}").into(),
            before: before.clone(),
            after: Some(after.clone()),
        });
        let affinity = self.affinity.iter().map(|after| Change {
            field: "spec.nodeAffinity".into(),
            before: volume.spec.get("nodeAffinity").filter(|present| !present.is_null()).map(Value::to_string),
            after: Some(after.to_string()),
        });
        plan.with(Step {
            verb: Verb::Update,
            kind: "PersistentVolume".into(),
            id: name.to_string(),
            changes: labels.chain(affinity).collect(),
            reason: "the cloud says where the volume is".into(),
            risk: Risk::None,
        })
    }
}
