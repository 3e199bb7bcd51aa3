use serde_json::{Value, json};

use super::*;

fn volume(labels: &Value, spec: &Value) -> PersistentVolume {
    serde_json::from_value(json!({"metadata": {"name": "pv", "labels": labels}, "spec": spec})).unwrap()
}

fn pd(zone: Option<&str>) -> Result<Option<Wanted>, ProviderError> {
    let labels = zone.map(|zone| json!({LABEL_ZONE: zone})).unwrap_or(json!({}));
    wanted(&volume(&labels, &json!({"gcePersistentDisk": {"pdName": "d"}})))
}

#[test]
fn p50_the_zone_label_says_where_a_disk_is() {
    let of = |place| Some(Wanted { project: None, name: "d".to_owned(), place });
    assert_eq!(pd(Some("us-central1-b")).unwrap(), of(Place::Zone("us-central1-b".to_owned())));
    assert_eq!(pd(Some("us-central1-a__us-central1-b")).unwrap(), of(Place::Region(None)));
    assert_eq!(pd(None).unwrap(), of(Place::Anywhere));
    assert!(pd(Some("a__")).is_err());
}

/// Templates leave labels empty.
#[test]
fn an_empty_zone_label_says_nothing() {
    let of = |zone: &str, beta: &str| {
        let labels = json!({LABEL_ZONE: zone, LABEL_ZONE_BETA: beta});
        wanted(&volume(&labels, &json!({"gcePersistentDisk": {"pdName": "d"}}))).unwrap().unwrap().place
    };
    assert_eq!(of("", ""), Place::Anywhere);
    assert_eq!(of("", "us-central1-b"), Place::Zone("us-central1-b".to_owned()));
}

#[test]
fn other_volumes_and_placeholders_have_no_disk() {
    for spec in [
        json!({}),
        json!({"hostPath": {"path": "/"}}),
        json!({"gcePersistentDisk": {"pdName": VOLUME_PLACEHOLDER}}),
        json!({"csi": {"driver": "other", "volumeHandle": "projects/p/zones/z/disks/d"}}),
    ] {
        assert_eq!(wanted(&volume(&json!({}), &spec)).unwrap(), None, "{spec}");
    }
    assert!(wanted(&volume(&json!({}), &json!({"gcePersistentDisk": {"pdName": "a/b"}}))).is_err());
}

#[test]
fn handles_of_the_driver_are_read() {
    let of = |project: Option<&str>, place| {
        Some(Wanted { project: project.map(str::to_owned), name: "d".to_owned(), place })
    };
    assert_eq!(handle("projects/p/zones/z-a/disks/d"), of(Some("p"), Place::Zone("z-a".to_owned())));
    assert_eq!(handle("projects/p/regions/r/disks/d"), of(Some("p"), Place::Region(Some("r".to_owned()))));
    assert_eq!(handle("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"), of(None, Place::Anywhere));
    for text in ["d", "projects/p/zones/z-a/instances/d", "projects/p/global/disks/d", "zones/z/disks/d"] {
        assert_eq!(handle(text), None, "{text}");
    }
}

#[test]
fn labels_are_those_of_the_disk() {
    let url = |rest: &str| format!("https://www.googleapis.com/compute/v1/projects/p/{rest}");
    let pair = |zone: &str| {
        VolumeLabels::from([
            (LABEL_ZONE.to_owned(), zone.to_owned()),
            (LABEL_REGION.to_owned(), "us-central1".to_owned()),
        ])
    };
    let zonal = Disk { zone: url("zones/us-central1-b"), ..Disk::default() };
    assert_eq!(labels(&zonal, "d").unwrap(), pair("us-central1-b"));
    let regional = Disk {
        region: url("regions/us-central1"),
        replica_zones: vec![url("zones/us-central1-f"), url("zones/us-central1-a")],
        ..Disk::default()
    };
    assert_eq!(labels(&regional, "d").unwrap(), pair("us-central1-a__us-central1-f"));
    assert!(labels(&Disk::default(), "d").is_err());
}
