use super::*;
use crate::tests::Bed;
use ccm_provider::CloudProvider;

fn volume(name: &str, spec: &serde_json::Value) -> PersistentVolume {
    let json = json!({"metadata": {"name": name}, "spec": spec});
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn labels_are_found_by_any_id_or_by_name() {
    let bed = Bed::new(
        "interfaces: {pvLabels: true}\nvolumes: [{id: vol-1, labels: {a: b}}, {id: pv-name}, {id: vol-1, labels: {x: y}}]",
    );
    let volumes = bed.cloud().volumes().unwrap();
    let asked = [
        volume("p", &json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})),
        volume("p", &json!({"gcePersistentDisk": {"pdName": "vol-1"}})),
        volume("p", &json!({"azureDisk": {"diskName": "vol-1"}})),
        volume("p", &json!({"vsphereVolume": {"volumePath": "vol-1"}})),
        volume("p", &json!({"csi": {"driver": "d", "volumeHandle": "vol-1"}})),
        volume("pv-name", &json!({"hostPath": {"path": "/"}})),
        volume("p", &json!({"cinder": {"volumeID": "other"}})),
    ];
    let answers: Vec<_> = volumes.labels(&asked).await.into_iter().map(Result::unwrap).collect();
    let labels = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert!(answers[..5].iter().all(|answer| *answer == labels), "{answers:?}");
    assert_eq!((&answers[5], &answers[6]), (&Some(BTreeMap::new()), &None));
    let ends = bed.ends();
    assert_eq!((&ends[0]["args"], &ends[0]["result"]), (&json!({"volume": "vol-1"}), &json!({"a": "b"})));
    assert_eq!(ends[4]["args"], json!({"volume": "p"}));
    assert_eq!((&ends[6]["args"], &ends[6]["result"]), (&json!({"volume": "other"}), &json!(null)));
}

#[tokio::test]
async fn faults_filter_by_volume() {
    let bed = Bed::new(
        "interfaces: {pvLabels: true}\nfaults: [{call: GetLabelsForVolume, volume: vol-*, kind: DiskNotFound}, \
         {call: GetLabelsForVolume, result: {r: s}}]",
    );
    let volumes = bed.cloud().volumes().unwrap();
    let asked = [volume("p", &json!({"cinder": {"volumeID": "vol-1"}})), volume("p", &json!({}))];
    let answers = volumes.labels(&asked).await;
    assert!(matches!(answers[0], Err(ProviderError::DiskNotFound)));
    assert_eq!(answers[1].as_ref().unwrap().as_ref().unwrap()["r"], "s");
}

#[tokio::test]
async fn clusters_are_listed_and_have_a_master() {
    let bed = Bed::new("interfaces: {clusters: true}\nclusters: [{name: a, master: 192.0.2.1}, {name: b}]");
    let clusters = bed.cloud().clusters().unwrap();
    assert_eq!(clusters.list_clusters().await.unwrap(), ["a", "b"]);
    assert_eq!(clusters.master("a").await.unwrap(), "192.0.2.1");
    assert_eq!(clusters.master("c").await.unwrap_err().to_string(), "cluster \"c\" not found");
    let ends = bed.ends();
    assert_eq!((&ends[0]["args"], &ends[0]["result"]), (&json!({}), &json!(["a", "b"])));
    assert_eq!((&ends[1]["args"], &ends[1]["result"]), (&json!({"cluster": "a"}), &json!("192.0.2.1")));
}
