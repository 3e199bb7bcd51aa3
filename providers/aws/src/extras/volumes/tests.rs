use super::*;
use crate::tests::world::World;
use ccm_cloudsim::aws::ec2::model::Volume;
use ccm_provider::well_known::ANNOTATION_PROVISIONED_BY;
use serde_json::{Value, json};

const CSI_DRIVER: &str = "ebs.csi.aws.com";

fn volume(source: &Value) -> PersistentVolume {
    serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": source})).unwrap()
}

fn in_tree(id: &str) -> PersistentVolume {
    volume(&json!({"awsElasticBlockStore": {"volumeID": id}}))
}

fn csi(driver: &str, handle: &str) -> PersistentVolume {
    volume(&json!({"csi": {"driver": driver, "volumeHandle": handle}}))
}

fn world() -> Arc<World> {
    let world = World::with(0);
    for (id, zone) in [("vol-1", "us-west-2a"), ("vol-2", "us-west-2-lax-1a"), ("vol-3", "")] {
        let volume = Volume {
            zone: zone.into(),
            size: 1,
            kind: "gp3".into(),
            state: "available".into(),
            tags: Default::default(),
            created: jiff::Timestamp::UNIX_EPOCH,
        };
        world.ec2(|ec2| ec2.volumes.insert(id.into(), volume));
    }
    Arc::new(world)
}

fn zone_and_region(labels: &Labels) -> (&str, &str) {
    let labels = labels.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(labels.len(), 2);
    (&labels[LABEL_ZONE], &labels[LABEL_REGION])
}

#[tokio::test(start_paused = true)]
async fn volumes_of_all_spellings_are_one_call_and_carry_zone_and_region() {
    let world = world();
    let volumes =
        [in_tree("vol-1"), in_tree("aws://us-west-2a/vol-1"), in_tree("aws:///vol-2"), csi(CSI_DRIVER, "vol-1")];
    let labels = EbsVolumes::new(world.api()).labels(&volumes).await;
    assert_eq!(zone_and_region(&labels[0]), ("us-west-2a", "us-west-2"));
    assert_eq!(labels[0].as_ref().unwrap(), labels[1].as_ref().unwrap());
    assert_eq!(zone_and_region(&labels[2]), ("us-west-2-lax-1a", "us-west-2"));
    assert_eq!(zone_and_region(&labels[3]), ("us-west-2a", "us-west-2"));
    assert_eq!(world.calls(), ["DescribeVolumes volume-id=2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ours_or_not_there_yet_has_no_labels_and_is_not_asked_for() {
    let world = world();
    let mut provisioned = csi(CSI_DRIVER, "vol-1");
    provisioned.metadata.annotations.insert(ANNOTATION_PROVISIONED_BY.into(), CSI_DRIVER.into());
    let volumes = [
        volume(&json!({"hostPath": {"path": "/x"}})),
        csi("pd.csi.storage.gke.io", "vol-1"),
        in_tree(VOLUME_PLACEHOLDER),
        in_tree(""),
        provisioned,
    ];
    let labels = EbsVolumes::new(world.api()).labels(&volumes).await;
    assert!(labels.iter().all(|labels| matches!(labels, Ok(None))), "{labels:?}");
    assert!(world.calls().is_empty());
}

#[test]
fn the_controller_knows_which_volumes_are_ours() {
    let declared = |volume: &PersistentVolume| VolumeSource::of(volume, &VOLUME_SOURCES).map(|source| source.words);
    assert_eq!(declared(&in_tree("vol-1")), Some("AWS EBS volume"));
    assert_eq!(declared(&csi(CSI_DRIVER, "vol-1")), Some("AWS EBS volume"));
    assert_eq!(declared(&csi("pd.csi.storage.gke.io", "vol-1")), None);
    assert_eq!(EbsVolumes::new(world().api()).sources(), VOLUME_SOURCES);
}

#[tokio::test(start_paused = true)]
async fn one_bad_volume_spoils_no_other() {
    let volumes =
        [in_tree("vol-404"), in_tree("vol-1"), in_tree("vol-3"), in_tree("gp2/x"), csi(CSI_DRIVER, "a://vol-1")];
    let labels = EbsVolumes::new(world().api()).labels(&volumes).await;
    let error = |number: usize| labels[number].as_ref().unwrap_err();
    assert!(matches!(error(0).root(), ProviderError::DiskNotFound));
    assert_eq!(error(0).to_string(), "not in the account and region that ccm works in: disk is not found");
    assert_eq!(zone_and_region(&labels[1]), ("us-west-2a", "us-west-2"));
    assert_eq!(error(2).to_string(), "EC2 gives \"\" as the zone of EBS volume vol-3");
    assert!(matches!(error(3).class(), ErrorClass::Invalid { findings } if findings.len() == 1));
    assert_eq!(
        error(4).to_string(),
        "spec.csi.volumeHandle \"a://vol-1\" names no EBS volume; expected vol-… or aws://<zone>/vol-…"
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_cloud_is_no_missing_disk() {
    let world = world();
    world.fail("DescribeVolumes", "RequestLimitExceeded", 1);
    let labels = EbsVolumes::new(world.api()).labels(&[in_tree("vol-1")]).await;
    assert!(matches!(labels[0].as_ref().unwrap_err().class(), ErrorClass::Throttled { .. }));
}
