//! Labels of managed disks.

use ccm_cloudsim::azure::Options;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{PersistentVolume, ProviderError};
use serde_json::json;

use crate::bed::Bed;

fn volume(id: &str) -> PersistentVolume {
    let spec = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": id}});
    serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
}

#[tokio::test]
async fn a_disk_has_the_labels_of_its_zone_and_region() {
    let bed = Bed::start(Options::default());
    let id = bed.cloud.world(|world| world.disk("sub", "rg", "d", "2"));
    let provider = bed.process("").await;
    let labels = |id: String| {
        let volumes = provider.volumes().unwrap();
        async move { volumes.labels(&[volume(&id)]).await.pop().unwrap() }
    };
    let found: Vec<String> = labels(id.clone()).await.unwrap().unwrap().into_values().collect();
    assert_eq!(found, ["eastus", "eastus-2"]);
    let missing = labels(format!("{id}x")).await.unwrap_err();
    assert!(matches!(missing.root(), ProviderError::DiskNotFound), "{missing}");
    bed.cloud.fault(Rule::every(Fault::Html { status: 404 }).on("compute", "disks.get"));
    let unread = labels(id).await.unwrap_err();
    assert!(!matches!(unread.root(), ProviderError::DiskNotFound), "{unread}");
}

#[tokio::test]
async fn a_disk_has_the_region_of_the_nodes_however_the_configuration_writes_it() {
    for location in ["EastUS", "East US"] {
        let bed = Bed::start(Options::default());
        let id = bed.cloud.world(|world| world.disk("sub", "rg", "d", ""));
        let config = bed.config("").replace("location: eastus", &format!("location: {location}"));
        let labels = bed.build(config).await.unwrap().volumes().unwrap().labels(&[volume(&id)]).await.pop().unwrap();
        assert_eq!(labels.unwrap().unwrap().into_values().collect::<Vec<_>>(), ["eastus"], "{location}");
    }
}
