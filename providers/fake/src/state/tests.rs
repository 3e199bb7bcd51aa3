use super::*;
use crate::tests::{Bed, balancers, ensure, node, service};
use ccm_provider::{CloudProvider, LoadBalancerExt as _, NewRoute, Route};

fn saved(bed: &Bed) -> Json {
    serde_json::from_str(&std::fs::read_to_string(bed.path("state.json")).unwrap()).unwrap()
}

#[tokio::test]
async fn tables_are_kept_over_a_restart() {
    let text = "stateFile: state.json\ninterfaces: {routes: true}\nroutes: {nodeAddresses: true}";
    let bed = Bed::new(text);
    let cloud = bed.cloud();
    assert!(!bed.path("state.json").exists());
    let status = balancers(&cloud).ensure("kubernetes", &service("d/a"), &[node("n1", ""), node("n2", "")]).await;
    status.unwrap();
    assert_eq!(
        saved(&bed),
        json!({"loadBalancers": {"d/a": {"service": "d/a", "name": "auidofa", "ingress": [{"ip": "203.0.113.1"}],
            "nodes": ["n1", "n2"]}}, "routes": []})
    );
    let route = Route { target_node: Some("n1".into()), destination_cidr: "10.1.0.0/24".into(), ..Route::default() };
    cloud.routes().unwrap().create("c", &[NewRoute { name_hint: "h".into(), route }]).await;
    assert_eq!(
        saved(&bed)["routes"],
        json!([{"name": "c-h-10.1.0.0/24", "cluster": "c", "targetNode": "n1", "targetNodeAddresses": [],
            "destinationCIDR": "10.1.0.0/24", "blackhole": false}])
    );
    balancers(&cloud).update("kubernetes", &service("d/a"), &[]).await.unwrap();
    assert_eq!(saved(&bed)["loadBalancers"]["d/a"]["nodes"], json!([]));

    let again = bed.cloud();
    let status = balancers(&again).get("kubernetes", &service("d/a")).await.unwrap().unwrap();
    assert_eq!(status.ingress[0].ip, "203.0.113.1");
    assert_eq!(again.routes().unwrap().list("c").await.unwrap().len(), 1);
    balancers(&again).ensure_deleted("kubernetes", &service("d/a")).await.unwrap();
    assert_eq!(saved(&bed)["loadBalancers"], json!({}));
}

#[tokio::test]
async fn a_state_file_wins_over_the_initial_lists_at_start_but_not_over_later_changes() {
    let text = |service: &str| format!("stateFile: state.json\nloadBalancers: {{initial: [{{service: {service}}}]}}");
    let bed = Bed::new(&text("d/initial"));
    std::fs::write(bed.path("state.json"), r#"{"loadBalancers": {"d/kept": {"ingress": [{"ip": "192.0.2.1"}]}}}"#)
        .unwrap();
    let cloud = bed.cloud();
    let exists = async |key: &str| balancers(&cloud).get("kubernetes", &service(key)).await.unwrap().is_some();
    assert!(exists("d/kept").await && !exists("d/initial").await);
    bed.write(&text("d/new"));
    assert!(!exists("d/kept").await && exists("d/new").await);
    assert_eq!(saved(&bed)["loadBalancers"]["d/new"]["service"], "d/new");
}

#[tokio::test]
async fn a_call_that_changes_nothing_or_fails_writes_nothing() {
    let bed = Bed::new("stateFile: state.json\nfaults: [{call: EnsureLoadBalancer, error: no}]");
    let cloud = bed.cloud();
    ensure(&cloud, "d/a").await.unwrap_err();
    balancers(&cloud).ensure_deleted("kubernetes", &service("d/a")).await.unwrap();
    assert!(!bed.path("state.json").exists());
}

#[test]
fn a_broken_state_file_stops_the_start() {
    let bed = Bed::new("stateFile: state.json");
    for (text, problem) in
        [("{", "state.json"), (r#"{"loadBalancer": {}}"#, "loadBalancer: unknown key"), ("[]", "state.json")]
    {
        std::fs::write(bed.path("state.json"), text).unwrap();
        let error = bed.refused();
        assert!(error.contains("stateFile: ") && error.contains(problem), "{error}");
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_kept_is_an_error_of_the_call() {
    let bed = Bed::new("stateFile: folder/state.json");
    let cloud = bed.cloud();
    let error = ensure(&cloud, "d/a").await.unwrap_err().to_string();
    assert!(error.starts_with("stateFile: cannot write "), "{error}");
}
