use ccm_provider::well_known::ANNOTATION_PROVISIONED_BY;
use serde_json::{Value, json};

use super::*;
use crate::world::{REGION, World};

const CSI_DRIVER: &str = "cinder.csi.openstack.org";

fn volume(source: &Value) -> PersistentVolume {
    serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": source})).unwrap()
}

fn in_tree(id: &str) -> PersistentVolume {
    volume(&json!({"cinder": {"volumeID": id}}))
}

fn csi(driver: &str, handle: &str) -> PersistentVolume {
    volume(&json!({"csi": {"driver": driver, "volumeHandle": handle}}))
}

fn provider(world: &World, ignore_zones: bool) -> CinderVolumes {
    CinderVolumes::new(Settings { region: REGION.to_owned(), ignore_zones }, world.client.clone())
}

fn pairs(labels: &Labels) -> Vec<(&str, &str)> {
    let labels = labels.as_ref().unwrap().as_ref().unwrap();
    labels.iter().map(|(key, value)| (&**key, &**value)).collect()
}

#[tokio::test]
async fn a_volume_has_its_zone_and_region_and_an_empty_zone_is_no_label() {
    let world = World::with(0).await;
    let make = |zone| world.cloud.world(|inside| inside.volume(&world.project, zone));
    let (zoned, odd, bare) = (make("az1"), make("Zone A/1"), make(""));
    let volumes = [in_tree(&zoned), csi(CSI_DRIVER, &odd), in_tree(&bare)];
    let labels = provider(&world, false).labels(&volumes).await;
    assert_eq!(pairs(&labels[0]), [(LABEL_REGION, REGION), (LABEL_ZONE, "az1")]);
    assert_eq!(pairs(&labels[1]), [(LABEL_REGION, REGION), (LABEL_ZONE, "Zone-A-1")]);
    assert_eq!(pairs(&labels[2]), [(LABEL_REGION, REGION)]);
    assert_eq!(world.calls(), ["block-storage:volume_get"; 3]);
}

#[tokio::test]
async fn what_is_not_ours_or_not_there_yet_has_no_labels_and_is_not_asked_for() {
    let world = World::with(0).await;
    let mut provisioned = csi(CSI_DRIVER, "x");
    provisioned.metadata.annotations.insert(ANNOTATION_PROVISIONED_BY.into(), CSI_DRIVER.into());
    let volumes = [
        volume(&json!({"hostPath": {"path": "/x"}})),
        csi("ebs.csi.aws.com", "vol-1"),
        in_tree(VOLUME_PLACEHOLDER),
        in_tree(""),
        provisioned,
    ];
    let labels = provider(&world, false).labels(&volumes).await;
    assert!(labels.iter().all(|labels| matches!(labels, Ok(None))), "{labels:?}");
    let labels = provider(&world, true).labels(&[in_tree("x")]).await;
    assert!(matches!(labels[0], Ok(None)), "ignore-volume-az");
    assert!(world.calls().is_empty());
}

#[tokio::test]
async fn a_missing_volume_is_an_error_and_one_bad_volume_spoils_no_other() {
    let world = World::with(0).await;
    let good = world.cloud.world(|inside| inside.volume(&world.project, "az1"));
    let missing = "11111111-2222-3333-4444-555555555555";
    let labels = provider(&world, false).labels(&[in_tree(missing), in_tree("a/b"), in_tree(&good)]).await;
    let error = |number: usize| labels[number].as_ref().unwrap_err();
    assert_eq!(error(0).to_string(), "not in the project and region that ccm works in: disk is not found");
    assert_eq!(error(1).to_string(), "spec.cinder.volumeID \"a/b\" names no Cinder volume; expected its ID");
    assert_eq!(pairs(&labels[2]).len(), 2);
    world.fail(("block-storage", "volume_get"), 503, 1);
    let labels = provider(&world, false).labels(&[in_tree(&good)]).await;
    assert!(!matches!(labels[0].as_ref().unwrap_err().root(), ProviderError::DiskNotFound));
}
