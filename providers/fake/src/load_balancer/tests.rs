use ccm_provider::{FlagValues, LoadBalancerExt as _, ProviderFactory, ServiceAction};

use super::*;
use crate::tests::{Bed, balancers, ensure, node, service};

async fn get(cloud: &crate::Fake, key: &str) -> Json {
    let status = balancers(cloud).get("kubernetes", &service(key)).await.unwrap();
    json!(status.map(|status| status.ingress))
}

#[tokio::test]
async fn a_balancer_lives_from_ensure_to_deletion() {
    let bed = Bed::new("");
    let cloud = bed.cloud();
    assert_eq!(get(&cloud, "default/a").await, json!(null));
    assert_eq!(ensure(&cloud, "default/a").await.unwrap(), json!([{"ip": "203.0.113.1"}]));
    assert_eq!(get(&cloud, "default/a").await, json!([{"ip": "203.0.113.1"}]));
    let all = balancers(&cloud);
    all.update("kubernetes", &service("default/a"), &[node("n2", ""), node("n1", "")]).await.unwrap();
    all.ensure_deleted("kubernetes", &service("default/a")).await.unwrap();
    all.ensure_deleted("kubernetes", &service("default/a")).await.unwrap();
    assert_eq!(get(&cloud, "default/a").await, json!(null));
    let error = all.update("kubernetes", &service("default/a"), &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "load balancer not found");
    let ends = bed.ends();
    assert_eq!(ends[0]["result"], json!({"exists": false, "status": null}));
    assert_eq!(
        (&ends[1]["result"], &ends[1]["args"]["nodes"]),
        (&json!({"ingress": [{"ip": "203.0.113.1"}]}), &json!([]))
    );
    assert_eq!(ends[2]["result"], json!({"exists": true, "status": {"ingress": [{"ip": "203.0.113.1"}]}}));
    assert_eq!((&ends[3]["args"]["nodes"], ends[3].get("result")), (&json!(["n2", "n1"]), None));
    assert_eq!((&ends[7]["error"], &ends[7]["kind"]), (&json!("load balancer not found"), &json!("Other")));
}

#[tokio::test]
async fn the_lowest_free_host_address_is_given_and_kept() {
    let bed = Bed::new("loadBalancers: {pool: 192.0.2.0/29}");
    let cloud = bed.cloud();
    for (key, ip) in [("d/a", 1), ("d/b", 2), ("d/c", 3), ("d/b", 2)] {
        assert_eq!(ensure(&cloud, key).await.unwrap(), json!([{"ip": format!("192.0.2.{ip}")}]));
    }
    balancers(&cloud).ensure_deleted("kubernetes", &service("d/a")).await.unwrap();
    for (key, ip) in [("d/x", 1), ("d/y", 4), ("d/z", 5), ("d/last", 6)] {
        assert_eq!(ensure(&cloud, key).await.unwrap(), json!([{"ip": format!("192.0.2.{ip}")}]));
    }
    assert_eq!(ensure(&cloud, "d/more").await.unwrap_err().to_string(), "address pool exhausted");
    assert_eq!(get(&cloud, "d/more").await, json!(null));
    bed.write("loadBalancers: {pool: 198.51.100.0/24}");
    assert_eq!(ensure(&cloud, "d/x").await.unwrap(), json!([{"ip": "192.0.2.1"}]));
    assert_eq!(ensure(&cloud, "d/more").await.unwrap(), json!([{"ip": "198.51.100.1"}]));
}

#[test]
fn host_addresses_are_those_of_the_family() {
    let first = |pool: &str| free_address(pool.parse().unwrap(), &Tables::default()).unwrap().to_string();
    for (pool, ip) in [
        ("203.0.113.0/24", "203.0.113.1"),
        ("203.0.113.77/24", "203.0.113.1"),
        ("203.0.113.4/31", "203.0.113.4"),
        ("203.0.113.4/32", "203.0.113.4"),
        ("2001:db8::/64", "2001:db8::1"),
        ("2001:db8::5/128", "2001:db8::5"),
    ] {
        assert_eq!(first(pool), ip, "{pool}");
    }
}

#[tokio::test]
async fn ip_mode_and_ports_are_put_into_ingresses_from_the_pool_only() {
    let bed = Bed::new(
        "loadBalancers: {ipMode: Proxy, ports: true, statuses: [{service: 'd/named', ingress: [{hostname: h}]}]}",
    );
    let cloud = bed.cloud();
    assert_eq!(
        ensure(&cloud, "d/a").await.unwrap(),
        json!([{"ip": "203.0.113.1", "ipMode": "Proxy",
            "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}])
    );
    assert_eq!(ensure(&cloud, "d/named").await.unwrap(), json!([{"hostname": "h"}]));
}

#[tokio::test]
async fn the_first_status_that_matches_decides_at_every_ensure() {
    let bed = Bed::new(
        "loadBalancers: {statuses: [{service: 'd/no*', missing: true}, {service: 'd/empty', ingress: []}, \
         {service: 'd/*', ingress: [{ip: 192.0.2.9, ipMode: VIP, ports: [{port: 443, protocol: TCP, error: Bad}]}]}]}",
    );
    let cloud = bed.cloud();
    assert_eq!(ensure(&cloud, "d/none").await.unwrap(), json!(null));
    assert_eq!(get(&cloud, "d/none").await, json!([]));
    assert_eq!(ensure(&cloud, "d/empty").await.unwrap(), json!([]));
    assert_eq!(
        ensure(&cloud, "d/x").await.unwrap(),
        json!([{"ip": "192.0.2.9", "ipMode": "VIP", "ports": [{"port": 443, "protocol": "TCP", "error": "Bad"}]}])
    );
    assert_eq!(ensure(&cloud, "other/x").await.unwrap(), json!([{"ip": "203.0.113.1"}]));
    let ends = bed.ends();
    assert_eq!((&ends[0]["result"], &ends[2]["result"]), (&json!(null), &json!({"ingress": []})));
    bed.write("loadBalancers: {statuses: [{ingress: [{hostname: all}]}]}");
    assert_eq!(ensure(&cloud, "other/x").await.unwrap(), json!([{"hostname": "all"}]));
    assert_eq!(get(&cloud, "d/x").await[0]["ip"], "192.0.2.9");
}

#[tokio::test]
async fn initial_balancers_exist_at_start_and_are_replaced_when_the_list_changes() {
    let bed = Bed::new("loadBalancers: {initial: [{service: d/a, ingress: [{ip: 203.0.113.1}]}]}");
    let cloud = bed.cloud();
    assert_eq!(get(&cloud, "d/a").await, json!([{"ip": "203.0.113.1"}]));
    assert_eq!(ensure(&cloud, "d/b").await.unwrap(), json!([{"ip": "203.0.113.2"}]));
    assert_eq!(ensure(&cloud, "d/a").await.unwrap(), json!([{"ip": "203.0.113.1"}]));
    // Another key changes: the table stays unchanged.
    bed.write("loadBalancers: {ports: true, initial: [{service: d/a, ingress: [{ip: 203.0.113.1}]}]}");
    assert_eq!(get(&cloud, "d/b").await, json!([{"ip": "203.0.113.2"}]));
    bed.write("loadBalancers: {initial: [{service: d/c, ingress: [{hostname: c}]}]}");
    assert_eq!(get(&cloud, "d/b").await, json!(null));
    assert_eq!(get(&cloud, "d/a").await, json!(null));
    assert_eq!(get(&cloud, "d/c").await, json!([{"hostname": "c"}]));
}

#[tokio::test]
async fn faults_filter_by_service_and_replace_statuses() {
    let bed = Bed::new(
        "faults:\n- {call: [Ensure*, GetLoadBalancer], service: 'd/a', error: no}\n\
         - {call: EnsureLoadBalancer, service: 'd/b', result: {ingress: [{ip: 192.0.2.7}]}}\n\
         - {call: EnsureLoadBalancer, service: 'd/c', result: null}\n\
         - {call: GetLoadBalancer, service: 'd/c', result: {exists: true, status: {ingress: [{hostname: h}]}}}",
    );
    let cloud = bed.cloud();
    assert!(ensure(&cloud, "d/a").await.is_err());
    assert!(balancers(&cloud).ensure_deleted("kubernetes", &service("d/a")).await.is_err());
    balancers(&cloud).update("kubernetes", &service("d/b"), &[]).await.unwrap_err();
    assert_eq!(ensure(&cloud, "d/b").await.unwrap(), json!([{"ip": "192.0.2.7"}]));
    assert_eq!(get(&cloud, "d/b").await, json!([{"ip": "203.0.113.1"}]));
    assert_eq!(ensure(&cloud, "d/c").await.unwrap(), json!(null));
    assert_eq!(get(&cloud, "d/c").await, json!([{"hostname": "h"}]));
}

fn work(key: &str, hosts: &[&str], action: ServiceAction) -> ServiceWork {
    let nodes: Vec<NodeRef> = hosts.iter().map(|name| node(name, "")).collect();
    ServiceWork { service: service(key).into(), nodes: nodes.into(), action, namespace: None }
}

/// The plan as text, created here and from the observation alone.
async fn planned(cloud: &crate::Fake, item: &ServiceWork) -> String {
    let here = balancers(cloud).plan("kubernetes", item).await;
    let kept = balancers(cloud).observe("kubernetes", item).await.unwrap().to_string();
    let elsewhere = crate::Factory.replay(&Json::Null, &FlagValues::default()).unwrap().unwrap();
    let there = elsewhere.plan_observed("kubernetes", item, &serde_json::from_str(&kept).unwrap());
    match (here, there) {
        (Ok(here), Ok(there)) => {
            assert_eq!(json!(here), json!(there));
            here.to_string()
        }
        (here, there) => {
            let (here, there) = (here.unwrap_err().to_string(), there.unwrap_err().to_string());
            assert_eq!(here, there);
            here
        }
    }
}

#[tokio::test]
async fn plans_show_the_changes_of_a_call_and_only_read() {
    use ServiceAction::{Delete, Ensure, UpdateHosts};
    let bed = Bed::new("");
    let cloud = bed.cloud();
    let check = async |hosts: &[&str], action, expected: &str| {
        let expected = format!("service d/a:{expected}");
        assert_eq!(planned(&cloud, &work("d/a", hosts, action)).await, expected);
    };
    check(
        &["n1", "n2"],
        Ensure,
        "\n  1. create LoadBalancer auidofa: ingress = 203.0.113.1 or the next free address, \
        hosts = n1 n2 (because the Service wants a load balancer)",
    )
    .await;
    check(&[], Delete, " nothing to do").await;
    check(
        &["n1"],
        UpdateHosts,
        " nothing to do\n  note: load balancer: load balancer not found: an update fails, and an \
        ensure would make it",
    )
    .await;
    let nodes = [node("n2", ""), node("n1", "")];
    balancers(&cloud).ensure("kubernetes", &service("d/a"), &nodes).await.unwrap();
    check(&["n1", "n2"], Ensure, " nothing to do").await;
    check(&["n2", "n1"], UpdateHosts, " nothing to do").await;
    check(
        &["n1"],
        UpdateHosts,
        "\n  1. update LoadBalancer auidofa: hosts n1 n2 -> n1 (because the set of nodes \
        changed)",
    )
    .await;
    check(
        &[],
        Delete,
        "\n  1. delete LoadBalancer auidofa: ingress 203.0.113.1 removed (because the Service wants no load \
        balancer any more) [disruptive]",
    )
    .await;
    let calls: Vec<Json> = bed.ends().into_iter().map(|line| line["call"].clone()).collect();
    assert_eq!(calls.iter().filter(|call| **call == "EnsureLoadBalancer").count(), 1);
    assert_eq!(calls.iter().filter(|call| **call == "GetLoadBalancer").count(), calls.len() - 1);
}

#[tokio::test]
async fn a_plan_after_an_ensure_is_empty_and_one_after_an_edit_matches_the_next_ensure() {
    let files = [
        "",
        "loadBalancers: {ipMode: VIP}",
        "loadBalancers: {ports: true}",
        "loadBalancers: {statuses: [{service: d/a, ingress: [{hostname: h}]}]}",
        "loadBalancers: {statuses: [{service: d/a, missing: true}]}",
        "loadBalancers: {initial: [{service: d/a, ingress: [{ip: 192.0.2.9}]}]}",
    ];
    for before in files {
        for after in files {
            let bed = Bed::new(before);
            let cloud = bed.cloud();
            ensure(&cloud, "d/a").await.unwrap();
            let item = work("d/a", &[], ServiceAction::Ensure);
            assert!(planned(&cloud, &item).await.starts_with("service d/a: nothing to do"), "{before}");
            bed.write(after);
            let plan = planned(&cloud, &item).await;
            let old = get(&cloud, "d/a").await;
            ensure(&cloud, "d/a").await.unwrap();
            let new = get(&cloud, "d/a").await;
            assert!(old == new || !plan.contains("nothing to do"), "{before} -> {after}: {plan}");
            assert!(old != new || !plan.contains("ingress"), "{before} -> {after}: {plan}");
            assert!(planned(&cloud, &item).await.starts_with("service d/a: nothing to do"), "{before} -> {after}");
        }
    }
}

#[tokio::test]
async fn a_plan_has_the_refusals_of_an_ensure_and_faults_of_reads_count() {
    let bed = Bed::new(
        "loadBalancers: {pool: 192.0.2.1/32}\nfaults:\n- {call: GetLoadBalancer, service: d/down, error: down}\n\
         - {call: GetLoadBalancer, service: d/odd, result: {exists: true, status: {ingress: [{ip: 192.0.2.7}]}}}",
    );
    let cloud = bed.cloud();
    ensure(&cloud, "d/a").await.unwrap();
    assert_eq!(planned(&cloud, &work("d/b", &[], ServiceAction::Ensure)).await, "address pool exhausted");
    let error = balancers(&cloud).plan("kubernetes", &work("d/down", &[], ServiceAction::Ensure)).await.unwrap_err();
    assert_eq!(error.to_string(), "down");
    let plan = planned(&cloud, &work("d/odd", &[], ServiceAction::Delete)).await;
    assert!(plan.contains("ingress 192.0.2.7 removed"), "{plan}");
}

#[tokio::test]
async fn a_snapshot_has_no_cloud_and_names_unreadable_parts() {
    let elsewhere = crate::Factory.replay(&Json::Null, &FlagValues::default()).unwrap().unwrap();
    let item = work("d/a", &[], ServiceAction::Ensure);
    for odd in [json!(null), json!({"balancer": 3}), json!({"offer": 3})] {
        let error = elsewhere.plan_observed("kubernetes", &item, &odd).unwrap_err().to_string();
        assert!(error.starts_with("the observed state for the Service d/a cannot be read: "), "{error}");
    }
    let refused = "a snapshot has no connection to the cloud: plans are only possible from the observed state";
    assert_eq!(elsewhere.get("kubernetes", &item.service).await.unwrap_err().to_string(), refused);
    assert_eq!(elsewhere.ensure("kubernetes", &item.service, &[]).await.unwrap_err().to_string(), refused);
    assert_eq!(elsewhere.update("kubernetes", &item.service, &[]).await.unwrap_err().to_string(), refused);
    assert_eq!(elsewhere.ensure_deleted("kubernetes", &item.service).await.unwrap_err().to_string(), refused);
    assert_eq!(elsewhere.name("kubernetes", &item.service), "auidofa");
}
