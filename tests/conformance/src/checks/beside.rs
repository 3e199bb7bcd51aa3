//! Beside a kube-controller-manager, with the documented role.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ccm_test_bed::{CCM_USER, Object, node, service};
use serde_json::{Value, json};

use super::election::holder;
use super::nodes::known;
use super::routes::network;
use super::services::ready;
use crate::world::{LIMIT, World, node_path, service_path};

pub(crate) const NOTHING_REFUSED: &str = "no request is refused with that role";

/// As with `--cloud-provider=external` in a cluster; it gives the nodes their ranges.
pub(crate) const CONTROLLER_MANAGER: &[&str] = &[
    "--cloud-provider=external",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=false",
    "--cluster-cidr=10.90.0.0/16",
];

/// The role of the documentation, with the leases, and with what delegated authentication and authorization need.
fn role() -> Value {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    json!([
        rule("", "events", &["create", "patch", "update"]),
        rule("", "nodes", &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule("", "nodes/status", &["patch", "update"]),
        rule("", "services", &["get", "list", "watch", "patch", "update"]),
        rule("", "services/status", &["patch", "update"]),
        rule("", "serviceaccounts", &["create"]),
        rule("", "persistentvolumes", &["get", "list", "watch", "update"]),
        rule("", "endpoints", &["create", "get", "list", "watch", "update"]),
        rule("coordination.k8s.io", "leases", &["get", "create", "update"]),
        rule("authentication.k8s.io", "tokenreviews", &["create"]),
        rule("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ])
}

/// Gives the role to the service account of the program.
pub(crate) async fn grant(world: &World) -> Result<()> {
    const API: &str = "rbac.authorization.k8s.io";
    let root = format!("/apis/{API}/v1");
    let metadata = json!({"name": "conformance"});
    let subjects = json!([{"kind": "User", "apiGroup": API, "name": CCM_USER}]);
    let to = |kind: &str, name: &str| json!({"apiGroup": API, "kind": kind, "name": name});
    world.create_at(&format!("{root}/clusterroles"), &json!({"metadata": metadata, "rules": role()})).await?;
    let all = json!({"metadata": metadata, "roleRef": to("ClusterRole", "conformance"), "subjects": subjects});
    world.create_at(&format!("{root}/clusterrolebindings"), &all).await?;
    let reader = to("Role", "extension-apiserver-authentication-reader");
    let own = json!({"metadata": metadata, "roleRef": reader, "subjects": subjects});
    world.create_at(&format!("{root}/namespaces/kube-system/rolebindings"), &own).await
}

pub(super) async fn leases(world: &World) -> Result<()> {
    let mut holders = Vec::new();
    for name in ["cloud-controller-manager", "kube-controller-manager"] {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
        let lease = world.until_so(&path, "held", |lease| !holder(lease).is_empty()).await?;
        holders.push(holder(&lease).to_owned());
    }
    ensure!(holders.first() != holders.last(), "both are held by {holders:?}");
    Ok(())
}

/// Whether nothing keeps pods away: a range with a route, and no taint.
fn is_usable(node: &Object) -> bool {
    let has_range = node.pointer("/spec/podCIDR").is_some();
    has_range && network(node).starts_with("False ") && node.taints().is_empty() && !node.provider_id().is_empty()
}

async fn until_usable(world: &World, name: &str, address: &str) -> Result<Object> {
    world.add_instance(name, address)?;
    world.create(node(name).uninitialized()).await?;
    world.until_so(&node_path(name), "usable for pods", is_usable).await
}

pub(super) async fn usable(world: &World) -> Result<()> {
    until_usable(world, "joined", "10.0.4.1").await.map(drop)
}

pub(super) async fn at_rest(world: &World) -> Result<()> {
    const REST: Duration = Duration::from_secs(4);
    let mut last = until_usable(world, "resting", "10.0.4.2").await?;
    let (began, mut since) = (Instant::now(), Instant::now());
    while since.elapsed() < REST {
        ensure!(began.elapsed() < LIMIT, "it is written again and again; its version is {}", last.version());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let node = world.until_so(&node_path("resting"), "there", |_| true).await?;
        if node.version() != last.version() {
            (last, since) = (node, Instant::now());
        }
    }
    Ok(())
}

pub(super) async fn gone(world: &World) -> Result<()> {
    world.create(known("gone").ready("Unknown")).await?;
    world.until_gone(&node_path("gone")).await
}

pub(super) async fn nodes(world: &World) -> Result<()> {
    world.add_instance("permitted", "10.0.4.3")?;
    world.create(node("permitted").uninitialized().pod_cidr("10.90.200.0/24")).await?;
    world.until_so(&node_path("permitted"), "usable for pods", is_usable).await?;
    world.until_event("permitted", "Normal Synced: ").await
}

pub(super) async fn services(world: &World) -> Result<()> {
    ready(world, service("permitted")).await?;
    world.delete(&service_path("permitted")).await?;
    world.until_gone(&service_path("permitted")).await
}

pub(super) async fn nothing_refused(world: &World) -> Result<()> {
    let all = world.bed.audit().read()?;
    let refused = all.iter().filter(|entry| entry.user == CCM_USER && entry.code == 403);
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    ensure!(all.iter().any(|entry| entry.user == CCM_USER), "the program sent no request as {CCM_USER}");
    ensure!(refused.is_empty(), "{}", refused.get(..refused.len().min(5)).unwrap_or_default().join("\n"));
    Ok(())
}
