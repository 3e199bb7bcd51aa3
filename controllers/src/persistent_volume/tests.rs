//! The volumes that get labels, and the changes to them: table tests and property tests.

use std::collections::BTreeMap;

use ccm_provider::well_known::{
    ANNOTATION_PROVISIONED_BY, LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA,
};
use ccm_provider::{PersistentVolume, VolumeLabels, VolumeSource};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{Mutation, Origin, When, matters, mutate, origin};

const OURS: [VolumeSource; 2] = [VolumeSource::AWS_EBS, VolumeSource::csi("ebs.csi.aws.com", "AWS EBS volume")];

fn read(json: Value) -> PersistentVolume {
    serde_json::from_value(json).unwrap()
}

fn pv(metadata: &Value, spec: &Value) -> PersistentVolume {
    let mut json = json!({"metadata": metadata, "spec": spec});
    json["metadata"]["name"] = "pv".into();
    read(json)
}

fn ebs() -> Value {
    json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})
}

fn plain() -> PersistentVolume {
    pv(&json!({}), &ebs())
}

fn with_affinity(affinity: &Value) -> PersistentVolume {
    let mut spec = ebs();
    spec["nodeAffinity"] = affinity.clone();
    pv(&json!({}), &spec)
}

fn labels(pairs: &[(&str, &str)]) -> VolumeLabels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn zone_and_region() -> VolumeLabels {
    labels(&[(LABEL_ZONE, "a"), (LABEL_REGION, "r")])
}

fn requirement(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn terms(mutation: &Mutation) -> &Value {
    &mutation.affinity.as_ref().unwrap()["required"]["nodeSelectorTerms"]
}

fn set(mutation: &Mutation) -> Vec<String> {
    mutation.labels.iter().map(|(key, _, value)| format!("{key}={value}")).collect()
}

/// The volume after a patch as the API server applies it to a webhook's answer.
fn patched(volume: &Value, patch: &Value) -> Value {
    let mut volume = volume.clone();
    for operation in patch.as_array().unwrap() {
        assert_eq!(operation["op"], "add");
        let path: Vec<String> = operation["path"].as_str().unwrap()[1..]
            .split('/')
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect();
        let (last, parents) = path.split_last().unwrap();
        let mut place = &mut volume;
        for parent in parents {
            place = place.get_mut(parent).unwrap_or_else(|| panic!("no {parent} for {operation}"));
        }
        place.as_object_mut().unwrap().insert(last.clone(), operation["value"].clone());
    }
    volume
}

#[test]
fn a_provisioner_is_trusted_with_a_whole_pair_of_labels_and_a_user_is_not() {
    let given = |annotated: bool, labels: &[(&str, &str)]| {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let annotations = if annotated { json!({ANNOTATION_PROVISIONED_BY: "x"}) } else { json!({}) };
        pv(&json!({"labels": labels, "annotations": annotations}), &ebs())
    };
    let stable = [(LABEL_ZONE, "a"), (LABEL_REGION, "r")];
    let beta = [(LABEL_ZONE_BETA, "b"), (LABEL_REGION_BETA, "s")];
    assert_eq!(origin(&given(true, &stable), &OURS), Origin::Provisioner(labels(&stable)));
    assert_eq!(origin(&given(true, &beta), &OURS), Origin::Provisioner(labels(&beta)));
    // One stable label is missing: only the older pair counts.
    let three = [beta[0], beta[1], stable[0]];
    assert_eq!(origin(&given(true, &three), &OURS), Origin::Provisioner(labels(&beta)));
    let cloud = Origin::Cloud(&OURS[0]);
    assert_eq!(origin(&given(true, &stable[..1]), &OURS), cloud);
    assert_eq!(origin(&given(true, &[stable[0], beta[1]]), &OURS), cloud);
    assert_eq!(origin(&given(false, &stable), &OURS), cloud);
}

#[test]
fn no_labels_change_nothing_not_even_the_affinity() {
    for when in [When::Made, When::Later] {
        let mutation = mutate(&plain(), &VolumeLabels::new(), when).unwrap();
        assert!(mutation.is_empty() && mutation.plan(&plain()).is_silent());
        assert_eq!(mutation.json_patch(&plain()), json!([]));
    }
}

#[test]
fn labels_become_labels_and_requirements_in_the_order_of_their_keys() {
    for when in [When::Made, When::Later] {
        let mutation = mutate(&plain(), &zone_and_region(), when).unwrap();
        assert_eq!(set(&mutation), [format!("{LABEL_REGION}=r"), format!("{LABEL_ZONE}=a")]);
        let expressions = [requirement(LABEL_REGION, &["r"]), requirement(LABEL_ZONE, &["a"])];
        assert_eq!(terms(&mutation), &json!([{"matchExpressions": expressions}]));
    }
}

#[test]
fn zones_of_one_label_are_sorted_values_and_other_values_are_never_split() {
    for key in [LABEL_ZONE, LABEL_ZONE_BETA] {
        let mutation = mutate(&plain(), &labels(&[(key, "a__c__b"), ("x", "a__b")]), When::Made).unwrap();
        let expressions = terms(&mutation)[0]["matchExpressions"].as_array().unwrap();
        assert!(expressions.contains(&requirement(key, &["a", "b", "c"])), "{expressions:?}");
        assert!(expressions.contains(&requirement("x", &["a__b"])), "{expressions:?}");
        assert!(set(&mutation).contains(&format!("{key}=a__c__b")));
    }
}

#[test]
fn an_empty_zone_is_refused_with_upstreams_text() {
    for value in ["", "a__", "a____b"] {
        let error = mutate(&plain(), &labels(&[(LABEL_ZONE, value)]), When::Made).unwrap_err();
        assert_eq!(error, format!("failed to convert label string for Zone: {value} to a Set"));
    }
    assert!(mutate(&plain(), &labels(&[(LABEL_REGION, "")]), When::Made).is_ok());
}

#[test]
fn requirements_are_added_to_every_term_and_others_stay() {
    let (own, field) =
        (json!({"key": "disk", "operator": "Exists"}), json!({"key": "metadata.name", "operator": "In"}));
    let volume = with_affinity(&json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [own]}, {"matchFields": [field]}]}, "future": 1}));
    let mutation = mutate(&volume, &zone_and_region(), When::Made).unwrap();
    let (region, zone) = (requirement(LABEL_REGION, &["r"]), requirement(LABEL_ZONE, &["a"]));
    assert_eq!(
        terms(&mutation),
        &json!([{"matchExpressions": [own, region, zone]}, {"matchFields": [field], "matchExpressions": [region, zone]}])
    );
    assert_eq!(mutation.affinity.unwrap()["future"], 1);
}

#[test]
fn a_key_that_any_term_has_keeps_the_affinity_as_it_is_and_the_labels_are_set() {
    for terms in [
        json!([{"matchExpressions": [requirement(LABEL_ZONE, &["z"])]}, {"matchExpressions": []}]),
        json!([{"matchExpressions": []}, {"matchExpressions": [requirement(LABEL_REGION, &["r"])]}]),
    ] {
        let volume = with_affinity(&json!({"required": {"nodeSelectorTerms": terms}}));
        let mutation = mutate(&volume, &zone_and_region(), When::Made).unwrap();
        assert_eq!((mutation.affinity.as_ref(), mutation.labels.len()), (None, 2));
    }
}

#[test]
fn an_affinity_without_terms_gets_one() {
    for empty in [
        json!({}),
        json!({"required": null}),
        json!({"required": {}}),
        json!({"required": {"nodeSelectorTerms": []}}),
        Value::Null,
    ] {
        let mutation = mutate(&with_affinity(&empty), &labels(&[(LABEL_ZONE, "a")]), When::Made).unwrap();
        assert_eq!(terms(&mutation), &json!([{"matchExpressions": [requirement(LABEL_ZONE, &["a"])]}]), "{empty}");
    }
}

#[test]
fn labels_of_the_user_are_overwritten_at_creation_and_never_afterwards() {
    let volume = pv(&json!({"labels": {LABEL_ZONE: "mine", "other": "stays"}}), &ebs());
    let made = mutate(&volume, &zone_and_region(), When::Made).unwrap();
    assert_eq!(made.labels[1], (LABEL_ZONE.to_owned(), Some("mine".to_owned()), "a".to_owned()));
    assert_eq!((made.labels.len(), made.contradictions.len()), (2, 0));

    let later = mutate(&volume, &zone_and_region(), When::Later).unwrap();
    assert_eq!(set(&later), [format!("{LABEL_REGION}=r")]);
    assert_eq!(later.contradictions, [(LABEL_ZONE.to_owned(), "mine".to_owned(), "a".to_owned())]);
}

#[test]
fn the_json_patch_leads_to_the_same_volume_as_the_mutation_says() {
    for metadata in [
        json!({"name": "pv"}),
        json!({"name": "pv", "labels": {}}),
        json!({"name": "pv", "labels": null}),
        json!({"name": "pv", "labels": {"a/b~c": "1", LABEL_ZONE: "mine"}}),
    ] {
        let before = json!({"metadata": metadata, "spec": ebs()});
        let volume = read(before.clone());
        let mutation = mutate(&volume, &zone_and_region(), When::Made).unwrap();
        let after = patched(&before, &mutation.json_patch(&volume));
        assert_eq!(after["metadata"]["labels"][LABEL_ZONE], "a", "{metadata}");
        assert_eq!(after["metadata"]["labels"]["a/b~c"], metadata["labels"]["a/b~c"], "{metadata}");
        assert_eq!(Some(&after["spec"]["nodeAffinity"]), mutation.affinity.as_ref());
        let again = mutate(&read(after), &zone_and_region(), When::Made).unwrap();
        assert!(again.is_empty(), "a second review changes nothing: {again:?}");
    }
}

#[test]
fn the_patch_of_the_controller_has_the_version_and_only_the_changes() {
    let volume = pv(&json!({"resourceVersion": "7", "labels": {LABEL_ZONE: "a"}}), &ebs());
    let mutation = mutate(&volume, &zone_and_region(), When::Later).unwrap();
    let patch = mutation.merge_patch(&volume);
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7", "labels": {LABEL_REGION: "r"}}));
    assert_eq!(patch["spec"].as_object().unwrap().keys().collect::<Vec<_>>(), ["nodeAffinity"]);
    let bound = with_affinity(&json!({"required": {}}));
    let labels_only = mutate(&bound, &zone_and_region(), When::Later).unwrap().merge_patch(&bound);
    assert!(labels_only.get("spec").is_none(), "{labels_only}");
}

#[test]
fn the_plan_names_labels_and_affinity() {
    let plan = mutate(&plain(), &labels(&[(LABEL_ZONE, "a")]), When::Later).unwrap().plan(&plain());
    assert_eq!(
        plan.to_string(),
        "persistentvolume pv:\n  1. update PersistentVolume pv: label topology.kubernetes.io/zone = a, spec.nodeAffinity = \
         {\"required\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"topology.kubernetes.io/zone\",\
         \"operator\":\"In\",\"values\":[\"a\"]}]}]}} (because the cloud says where the volume is)"
    );
    assert_eq!(plan.subject, "persistentvolume pv");
}

#[test]
fn only_changes_of_fields_that_are_read_matter() {
    let with = |metadata: Value, spec: Value| pv(&metadata, &spec);
    let base = || with(json!({"uid": "u", "resourceVersion": "1"}), ebs());
    assert!(!matters(&base(), &with(json!({"uid": "u", "resourceVersion": "2"}), ebs())));
    assert!(matters(&base(), &with(json!({"uid": "v"}), ebs())));
    assert!(matters(&base(), &with(json!({"uid": "u", "labels": {"a": "b"}}), ebs())));
    assert!(matters(&base(), &with(json!({"uid": "u", "annotations": {"a": "b"}}), ebs())));
    assert!(matters(&base(), &with(json!({"uid": "u"}), json!({}))));
}

fn any_labels() -> impl Strategy<Value = VolumeLabels> {
    let key = prop_oneof![
        Just(LABEL_ZONE.to_owned()),
        Just(LABEL_REGION.to_owned()),
        Just(LABEL_ZONE_BETA.to_owned()),
        "[a-z~/]{1,6}"
    ];
    proptest::collection::btree_map(key, "[a-z_]{0,6}", 0..4)
}

fn any_affinity() -> impl Strategy<Value = Value> {
    let expression = prop_oneof![Just(LABEL_ZONE), Just("other")].prop_map(|key| requirement(key, &["v"]));
    let term = proptest::collection::vec(expression, 0..3).prop_map(|all| json!({"matchExpressions": all}));
    proptest::collection::vec(term, 0..3).prop_map(|terms| json!({"required": {"nodeSelectorTerms": terms}}))
}

proptest! {
    #[test]
    fn a_review_never_removes_anything_and_a_second_one_changes_nothing(
        cloud in any_labels(), mine in any_labels(), affinity in proptest::option::of(any_affinity()),
    ) {
        let mut before = json!({"metadata": {"name": "pv", "labels": mine}, "spec": ebs()});
        if let Some(affinity) = affinity {
            before["spec"]["nodeAffinity"] = affinity;
        }
        let volume = read(before.clone());
        let Ok(mutation) = mutate(&volume, &cloud, When::Made) else { return Ok(()) };
        let after = patched(&before, &mutation.json_patch(&volume));
        for (key, value) in &mine {
            let wanted = cloud.get(key).unwrap_or(value);
            prop_assert_eq!(&after["metadata"]["labels"][key], wanted);
        }
        let count = |volume: &Value| volume["spec"]["nodeAffinity"].to_string().matches("\"operator\"").count();
        prop_assert!(count(&after) >= count(&before));
        let again = mutate(&read(after), &cloud, When::Made).unwrap();
        prop_assert!(again.is_empty(), "{:?}", again);
    }

    #[test]
    fn the_controller_never_changes_existing_labels(cloud in any_labels(), mine in any_labels()) {
        let volume = pv(&json!({"labels": mine}), &ebs());
        let Ok(mutation) = mutate(&volume, &cloud, When::Later) else { return Ok(()) };
        prop_assert!(mutation.labels.iter().all(|(key, before, _)| before.is_none() && !mine.contains_key(key)));
    }
}
