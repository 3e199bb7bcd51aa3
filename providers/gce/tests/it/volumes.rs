//! Labels of persistent disks.

use std::sync::Arc;

use ccm_cloudsim::gce::Options;
use ccm_provider::{PersistentVolume, ProviderError, VolumeLabels};
use ccm_provider_contract::TestCluster;
use serde_json::{Value, json};

use crate::bed::{Bed, PROJECT, ZONE};

async fn labels(bed: &Bed, zones: Option<&str>, spec: &Value) -> Result<Option<VolumeLabels>, ProviderError> {
    let labels = zones.map_or(json!({}), |zones| json!({"topology.kubernetes.io/zone": zones}));
    let volume: PersistentVolume =
        serde_json::from_value(json!({"metadata": {"name": "pv", "labels": labels}, "spec": spec})).unwrap();
    let provider = bed.process("regional", &Arc::<TestCluster>::default()).await;
    provider.volumes().unwrap().labels(&[volume]).await.pop().unwrap()
}

fn disk(name: &str) -> Value {
    json!({"gcePersistentDisk": {"pdName": name}})
}

#[tokio::test]
async fn p50_disks_are_found_by_hint_and_without() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| {
        world.disk(PROJECT, ZONE, "zonal");
        world.region_disk(PROJECT, "us-central1", "regional", &["us-central1-f", "us-central1-a"]);
        world.disk(PROJECT, "us-central1-a", "twice");
        world.disk(PROJECT, "us-central1-c", "twice");
    });
    let pair = |zone: &str| {
        let pairs = [("topology.kubernetes.io/region", "us-central1"), ("topology.kubernetes.io/zone", zone)];
        Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    };
    assert_eq!(labels(&bed, Some(ZONE), &disk("zonal")).await.unwrap(), pair(ZONE));
    assert_eq!(labels(&bed, None, &disk("zonal")).await.unwrap(), pair(ZONE));
    let both = pair("us-central1-a__us-central1-f");
    assert_eq!(labels(&bed, Some("a__b"), &disk("regional")).await.unwrap(), both);
    assert_eq!(labels(&bed, None, &disk("regional")).await.unwrap(), both);
    let csi = |driver: &str, handle: &str| json!({"csi": {"driver": driver, "volumeHandle": handle}});
    let handle = format!("projects/{PROJECT}/zones/{ZONE}/disks/zonal");
    assert_eq!(labels(&bed, None, &csi("pd.csi.storage.gke.io", &handle)).await.unwrap(), pair(ZONE));
    assert_eq!(labels(&bed, None, &csi("other.example.com", &handle)).await.unwrap(), None);
    let error = labels(&bed, None, &disk("twice")).await.unwrap_err().to_string();
    assert!(error.contains("found in multiple zones"), "{error}");
    for (zones, name, expected) in [
        (Some(ZONE), "gone", "GCE persistent disk not found: diskName=\"gone\" zone=\"us-central1-b\""),
        (Some("a__b"), "gone", "GCE regional persistent disk not found: diskName=\"gone\""),
        (None, "gone", "GCE persistent disk not found: diskName=\"gone\""),
    ] {
        let error = labels(&bed, zones, &disk(name)).await.unwrap_err();
        assert!(matches!(error.root(), ProviderError::DiskNotFound), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}
