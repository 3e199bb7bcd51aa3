use ccm_provider::{ProviderError, VolumeLabels as Labels, VolumeSource};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::webhook::GroupVersionKind;

/// Finds AWS volumes by their ID; the volume `slow` exceeds every deadline.
#[derive(Default)]
struct Cloud {
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Volumes for Cloud {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Result<Option<Labels>, ProviderError>> {
        let mut answers = Vec::new();
        for volume in volumes {
            let id = volume.volume_id().unwrap();
            self.asked.lock().push(id.to_owned());
            answers.push(match id {
                "gone" => Err(ProviderError::DiskNotFound),
                "slow" => {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    Ok(None)
                }
                "odd" => Ok(Some(Labels::from([("topology.kubernetes.io/zone".into(), "a__".into())]))),
                zone => Ok(Some(Labels::from([("topology.kubernetes.io/zone".into(), zone.into())]))),
            });
        }
        answers
    }

    fn sources(&self) -> &[VolumeSource] {
        &[VolumeSource::AWS_EBS]
    }
}

fn request(operation: &str, spec: &Value) -> AdmissionRequest {
    AdmissionRequest {
        kind: GroupVersionKind { version: "v1".into(), kind: "PersistentVolume".into(), ..GroupVersionKind::default() },
        operation: operation.into(),
        object: json!({"metadata": {"name": "pv", "creationTimestamp": null}, "spec": spec}),
        ..AdmissionRequest::default()
    }
}

fn ebs(id: &str) -> Value {
    json!({"awsElasticBlockStore": {"volumeID": id}})
}

struct Scene {
    cloud: Arc<Cloud>,
    handler: VolumeLabels,
}

impl Scene {
    fn new(dry_run: bool) -> Self {
        let cloud = Arc::new(Cloud::default());
        let handler = VolumeLabels { labeler: Some(cloud.clone()), metrics: Metrics::new(), dry_run };
        Self { cloud, handler }
    }

    async fn admit(&self, request: AdmissionRequest) -> AdmissionResponse {
        self.handler.admit(request).await.unwrap().unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.cloud.asked.lock().clone()
    }
}

#[tokio::test]
async fn a_volume_of_ours_is_patched_and_others_are_let_through_unasked() {
    let scene = Scene::new(false);
    let patched = scene.admit(request("CREATE", &ebs("a"))).await;
    assert_eq!(patched.patch.unwrap()[0]["value"]["topology.kubernetes.io/zone"], "a");
    let mut pod = request("CREATE", &ebs("a"));
    pod.kind.kind = "Pod".into();
    let mut status = request("CREATE", &ebs("a"));
    status.sub_resource = "status".into();
    for foreign in [
        request("CREATE", &json!({"hostPath": {"path": "/"}})),
        request("CREATE", &json!({"gcePersistentDisk": {"pdName": "a"}})),
        request("CREATE", &json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "a"}})),
        request("CREATE", &ebs("placeholder-for-provisioning")),
        // The affinity is immutable.
        request("UPDATE", &ebs("a")),
        pod,
        status,
    ] {
        assert_eq!(scene.admit(foreign).await, AdmissionResponse::allow());
    }
    assert_eq!(scene.asked(), ["a"]);
}

#[tokio::test]
async fn a_provisioner_is_trusted_without_a_question() {
    let scene = Scene::new(false);
    let mut provisioned = request("CREATE", &ebs("a"));
    provisioned.object["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "x"});
    provisioned.object["metadata"]["labels"] =
        json!({"failure-domain.beta.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/region": "r"});
    let patch = scene.admit(provisioned).await.patch.unwrap();
    let paths: Vec<&str> = patch.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/spec/nodeAffinity"]);
    assert_eq!(scene.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_volume_is_a_403_with_upstreams_text_within_five_seconds() {
    let scene = Scene::new(false);
    for (id, text) in [
        ("gone", "error querying AWS EBS volume gone: disk is not found"),
        ("odd", "failed to convert label string for Zone: a__ to a Set"),
        ("slow", "error querying AWS EBS volume slow: GetLabelsForVolume did not answer within 4.5s"),
    ] {
        let began = tokio::time::Instant::now();
        let refused = scene.admit(request("CREATE", &ebs(id))).await;
        assert_eq!(refused, AdmissionResponse::forbid(text));
        assert!(began.elapsed() < TIMEOUT);
    }
}

#[tokio::test]
async fn a_dry_run_admits_every_volume_unchanged_and_warns_about_the_change() {
    let scene = Scene::new(true);
    for (id, words) in [("a", "label topology.kubernetes.io/zone = a"), ("gone", "would be refused: error querying")] {
        let answer = scene.admit(request("CREATE", &ebs(id))).await;
        assert!(answer.allowed && answer.patch.is_none());
        assert!(answer.warnings[0].contains(words), "{:?}", answer.warnings);
        assert!(!answer.warnings[0].contains(char::is_control), "the API server drops it: {:?}", answer.warnings);
    }
    let foreign = scene.admit(request("CREATE", &json!({"nfs": {}}))).await;
    assert_eq!(foreign, AdmissionResponse::allow());
}

#[tokio::test]
async fn without_a_labeler_every_volume_is_let_through() {
    let handler = VolumeLabels { labeler: None, metrics: Metrics::new(), dry_run: false };
    let answer = handler.admit(request("CREATE", &ebs("a"))).await.unwrap().unwrap();
    assert_eq!(answer, AdmissionResponse::allow());
}

#[tokio::test]
async fn a_volume_that_makes_no_sense_is_an_error() {
    let mut request = request("CREATE", &ebs("a"));
    request.object = json!({"metadata": {"name": 7}});
    assert!(Scene::new(false).handler.admit(request).await.unwrap_err().contains("cannot be read"));
}
