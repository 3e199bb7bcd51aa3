//! External instance groups behind internal load balancers: `external-instance-groups-prefix`.

use ccm_cloudsim::gce::Options;
use serde_json::json;

use super::scene::{Scene, internal, node_of, service, set, web};
use crate::bed::ZONE;

const GROUPS: &str = "projects/p/zones/us-central1-b/instanceGroups";
const PREFIX: &str = "external-instance-groups-prefix = infra-";

/// Another program puts an instance into its own group.
fn joins(scene: &Scene, group: &str, instance: &str) {
    let instance = json!({"instance": format!("zones/us-central1-b/instances/{instance}")});
    let _ = scene.cloud().by_hand("POST", GROUPS, &json!({"name": group}));
    let body = json!({"instances": [instance]});
    scene.cloud().by_hand("POST", &format!("{GROUPS}/{group}/addInstances"), &body).unwrap();
}

/// The names of the groups behind the balancer of [`web`].
fn behind(scene: &Scene) -> Vec<String> {
    let backend = scene.object("backendServices", "LB");
    let groups = backend["backends"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        groups.iter().map(|it| it["group"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn groups_of_others_are_used_as_they_are_and_never_changed() {
    let mut scene = Scene::of(Options::default(), &["n1", "n2"], PREFIX, &[]).await;
    joins(&scene, "infra-masters", "n1");
    joins(&scene, "infra-other", "control");
    joins(&scene, "elsewhere", "n2");
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    // One of the other groups has a member that is not a node, one another prefix.
    assert_eq!(
        (behind(&scene), scene.group(ZONE)),
        (vec!["infra-masters".into(), "k8s-ig--cid".into()], vec!["n2".into()])
    );
    scene.is_steady(&mut web).await;
    // A node that joins an external group leaves ours, and vice versa.
    let mark = scene.cloud().mark();
    scene.nodes.push(scene.bed.node("n3"));
    scene.update(&mut web).await;
    assert_eq!(scene.group(ZONE), ["n2", "n3"]);
    joins(&scene, "infra-workers", "n3");
    scene.ensure(&mut web).await;
    assert_eq!((behind(&scene).len(), scene.group(ZONE)), (3, vec!["n2".to_owned()]));
    joins(&scene, "infra-workers", "control");
    scene.ensure(&mut web).await;
    assert_eq!((behind(&scene).len(), scene.group(ZONE)), (2, vec!["n2".to_owned(), "n3".to_owned()]));
    scene.is_steady(&mut web).await;
    let writes = scene.writes(mark);
    assert!(writes.iter().any(|write| write == "instanceGroups.removeInstances"), "{writes:?}");
    scene.delete(&mut web).await;
    assert_eq!(
        scene.names(),
        ["elsewhere", "infra-masters", "infra-other", "infra-workers"].map(|name| format!("instanceGroups {name}"))
    );
    scene.is_correct();
}

#[tokio::test]
async fn without_a_node_of_its_own_the_cluster_has_no_group() {
    let mut scene = Scene::of(Options::default(), &["n1"], PREFIX, &[]).await;
    joins(&scene, "infra-masters", "n1");
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    assert_eq!(behind(&scene), ["infra-masters"]);
    assert_eq!(scene.find("instanceGroups", "k8s-ig--cid"), None);
    scene.is_steady(&mut web).await;
}

#[tokio::test]
async fn the_key_may_come_and_go() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    for (more, groups, members) in [(PREFIX, 2, 1), ("", 1, 2)] {
        scene.reconfigure(more).await;
        if groups == 2 {
            // The group is not balanced yet.
            joins(&scene, "infra-masters", "n1");
        }
        scene.ensure(&mut web).await;
        assert_eq!((behind(&scene).len(), scene.group(ZONE).len()), (groups, members), "{more}");
        scene.is_steady(&mut web).await;
    }
    scene.is_correct();
}

/// The Service asks for the shared backend service, and its rule does not have it yet.
#[tokio::test]
async fn hosts_follow_into_a_new_zone_behind_the_backend_service_of_the_rule() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut own = internal(web());
    scene.ensure(&mut own).await;
    let share = "alpha.cloud.google.com/load-balancer-backend-share";
    let mut other = internal(service("other", json!({})));
    set(&mut other, share, "true");
    scene.ensure(&mut other).await;
    set(&mut own, share, "true");
    scene.bed.instance_in("us-central1-c", "n2", json!({}));
    scene.nodes.push(node_of("us-central1-c", "n2"));
    scene.update(&mut own).await;
    assert_eq!(scene.object("backendServices", "LB")["backends"].as_array().unwrap().len(), 2);
    scene.is_correct();
}
