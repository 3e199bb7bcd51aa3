//! Labels and node affinity of EBS volumes.

use super::cloud::Cloud;
use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) async fn volumes_get_their_zone(world: World) {
    let (rig, cloud) = (&world.rig, &world.cloud);
    let make = |zone: char| {
        let form = format!("AvailabilityZone={REGION}{zone}&Size=1");
        cloud.text("ec2:CreateVolume", &form, "volumeId")
    };
    let (a, b) = (make('a'), make('b'));
    let csi = |driver: &str| json!({"driver": driver, "volumeHandle": b});
    for (name, source, of) in [
        ("in-tree", "awsElasticBlockStore", json!({"volumeID": format!("aws://{REGION}a/{a}")})),
        ("plain", "awsElasticBlockStore", json!({"volumeID": a})),
        ("csi", "csi", csi("ebs.csi.aws.com")),
        ("of-others", "csi", csi("pd.csi.storage.gke.io")),
        ("lost", "awsElasticBlockStore", json!({"volumeID": "vol-0fedcba9876543210"})),
    ] {
        rig.create(ccm_test_suite::volume(name, source, of)).await;
    }
    for number in 0..30 {
        let source = json!({"volumeID": a});
        rig.create(ccm_test_suite::volume(&format!("many-{number}"), "awsElasticBlockStore", source)).await;
    }
    let provisioned = ccm_test_suite::volume("provisioned", "csi", csi("ebs.csi.aws.com"));
    let annotations = json!({"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"});
    rig.create(provisioned.with(|volume| volume["metadata"]["annotations"] = annotations)).await;

    let mark = cloud.mark();
    let manager = world.manager(&world.config("", &[]), &["--controllers=pvlabel"]);
    for (name, zone) in [("in-tree", "a"), ("plain", "a"), ("csi", "b")] {
        let zone = format!("{REGION}{zone}");
        let labeled = async |rig: &Rig| {
            let volume = rig.get("persistentvolumes", "", name).await?;
            (!volume.label(ZONE).is_empty()).then_some(volume)
        };
        let volume = rig.until(LONG, &format!("{name} has labels"), labeled).await;
        assert_eq!((volume.label(ZONE), volume.label("topology.kubernetes.io/region")), (&*zone, REGION), "{name}");
        let required = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        let expressions = json!([
            {"key": "topology.kubernetes.io/region", "operator": "In", "values": [REGION]},
            {"key": ZONE, "operator": "In", "values": [zone]},
        ]);
        assert_eq!(required[0]["matchExpressions"], expressions, "{name}");
    }
    let event = rig.until_event("lost", "FailedToLabelVolume").await;
    assert!(event.contains("error querying AWS EBS volume vol-0fedcba9876543210: "), "{event}");
    for name in ["of-others", "provisioned", "lost"] {
        assert_eq!(rig.get("persistentvolumes", "", name).await.unwrap().label(ZONE), "", "{name}");
    }
    let all = async |rig: &Rig| {
        let volumes = rig.list("persistentvolumes").await;
        (volumes.iter().filter(|volume| !volume.label(ZONE).is_empty()).count() == 33).then_some(())
    };
    rig.until(LONG, "all have labels", all).await;
    // Concurrent lookups are one call; the list of the volumes may have arrived in parts.
    let asked = cloud.since(mark).iter().filter(|call| call.action == "DescribeVolumes").count();
    assert!((1..=10).contains(&asked), "{asked} calls\n{}", manager.output());
    assert_eq!(cloud.writes(mark), [""; 0]);
    manager.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_get_their_zone_on_the_simulated_aws() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    volumes_get_their_zone(world).await;
}
