//! Tests with a kube-controller-manager.

use ccm_test_bed::{AuditEntry, Bed, Options};

use crate::real_apiserver::{node, until_entry};

#[tokio::test]
async fn a_controller_manager_allocates_pod_ranges_and_its_writes_are_in_the_audit_log() {
    let options = Options::default().audit_bodies();
    let Some(bed) = Bed::start_with(options).await.unwrap() else { return };
    let args = ["--allocate-node-cidrs=true", "--cluster-cidr=10.91.0.0/16", "--cloud-provider=external"];
    let args = [&args[..], &["--configure-cloud-routes=false"]].concat();
    let Some(mut controller_manager) = bed.start_controller_manager(&args).await.unwrap() else { return };
    let (status, body) = bed.request("POST", "/api/v1/nodes", &bed.token, Some(&node("ranged"))).await.unwrap();
    assert_eq!(status, 201, "{body}");
    let ranged = |entry: &AuditEntry| {
        let body = entry.body.as_ref().is_some_and(|body| body["spec"]["podCIDR"].is_string());
        entry.is_about("nodes") && entry.name == "ranged" && entry.is_write() && body
    };
    let entry = until_entry(&mut bed.audit(), ranged).await;
    assert_eq!(entry.user, "system:serviceaccount:kube-system:node-controller", "{entry}");
    assert_eq!(entry.body.unwrap()["spec"]["podCIDR"], "10.91.0.0/24");
    let (status, body) = controller_manager.get("/metrics").await.unwrap();
    assert!(status == 200 && body.contains("node_ipam"), "{status}");

    assert!(controller_manager.is_running().unwrap());
    let second = bed.start_controller_manager(&args).await.unwrap().unwrap();
    let (first_id, address) = (controller_manager.id(), controller_manager.url.replace("https://", ""));
    assert_ne!(second.id(), first_id);
    drop(controller_manager);
    assert!(std::net::TcpStream::connect(&address).is_err(), "{address} still answers");
    assert_eq!(second.get("/healthz").await.unwrap().0, 200);
    drop(second);
    assert!(bed.audit().read().unwrap().iter().all(|entry| entry.resource != "leases" || entry.body.is_none()));
    bed.stop().await;
}

#[tokio::test]
async fn a_flag_the_controller_manager_refuses_is_an_error_with_its_log() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let text = match bed.start_controller_manager(&["--no-such-flag"]).await {
        Ok(None) => return,
        started => format!("{:#}", started.unwrap_err()),
    };
    assert!(text.contains("kube-controller-manager ended") && text.contains("no-such-flag"), "{text}");
}
