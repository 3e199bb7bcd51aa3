use ccm_test_openstack::{OpenStack, Service, Tenant, ZONE};
use serde_json::{Value, json};

const BALANCERS: &str = "/v2.0/lbaas/loadbalancers";

/// A load balancer with a listener, a pool, two members and a monitor.
fn populated(tenant: &Tenant, name: &str) -> Value {
    let member = |address: &str| json!({"address": address, "protocol_port": 30080, "subnet_id": tenant.subnet_id});
    let monitor = json!({"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1});
    let pool = json!({"name": "pool", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "healthmonitor": monitor,
        "members": [member("10.50.0.11"), member("10.50.0.12")]});
    let listener = json!({"name": "listener", "protocol": "TCP", "protocol_port": 80, "default_pool": pool});
    json!({"name": name, "vip_subnet_id": tenant.subnet_id, "listeners": [listener]})
}

async fn create(tenant: &Tenant, name: &str) -> String {
    let balancer = populated(tenant, name);
    let made = tenant.create(Service::LoadBalancer, BALANCERS, "loadbalancer", &balancer).await.unwrap();
    made["id"].as_str().unwrap().to_owned()
}

async fn settled(tenant: &Tenant, id: &str) -> Option<String> {
    tenant.settled(id).await.unwrap()
}

#[tokio::test]
async fn a_tenant_with_a_load_balancer_leaves_nothing() {
    let Some(openstack) = OpenStack::start().await.unwrap() else { return };
    let tenant = openstack.tenant().await.unwrap();
    let project = tenant.project_id.clone();
    let id = create(&tenant, "web").await;
    assert_eq!(settled(&tenant, &id).await.as_deref(), Some("ACTIVE"));
    let pools = tenant.list(Service::LoadBalancer, &format!("/v2.0/lbaas/pools?loadbalancer_id={id}")).await.unwrap();
    assert_eq!(pools[0]["members"].as_array().map(Vec::len), Some(2), "{pools:?}");

    let path = format!("{BALANCERS}/{id}?cascade=true");
    assert_eq!(tenant.request("DELETE", Service::LoadBalancer, &path, None).await.unwrap().status, 204);
    assert_eq!(settled(&tenant, &id).await, None);
    let vips = tenant.list(Service::Network, "/v2.0/ports?device_owner=Octavia").await.unwrap();
    assert!(vips.is_empty(), "{vips:?}");

    assert!(!openstack.leftovers(&project).await.unwrap().is_empty());
    tenant.delete().await.unwrap();
    assert_eq!(openstack.leftovers(&project).await.unwrap(), Vec::<String>::new());
    let path = format!("/v3/projects/{project}");
    assert_eq!(openstack.request("GET", Service::Identity, &path, None).await.unwrap().status, 404);
}

#[tokio::test]
async fn dropping_a_tenant_deletes_its_servers_and_load_balancers() {
    let Some(openstack) = OpenStack::start().await.unwrap() else { return };
    let tenant = openstack.tenant().await.unwrap();
    let project = tenant.project_id.clone();
    let server = tenant.boot_server("node-1").await.unwrap();
    assert_eq!(server["OS-EXT-AZ:availability_zone"], ZONE);
    assert!(server["addresses"]["nodes"][0]["addr"].as_str().unwrap().starts_with("10.50.0."), "{server}");
    create(&tenant, "web").await;
    tokio::task::spawn_blocking(move || drop(tenant)).await.unwrap();
    assert_eq!(openstack.leftovers(&project).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn load_balancers_fail_and_stay_pending_on_demand() {
    let Some(openstack) = OpenStack::start().await.unwrap() else { return };
    let tenant = openstack.tenant().await.unwrap();
    let failing = tenant.fail_creations("bad").unwrap();
    let (bad, good) = (create(&tenant, "a-bad-one").await, create(&tenant, "good").await);
    assert_eq!(settled(&tenant, &bad).await.as_deref(), Some("ERROR"));
    assert_eq!(settled(&tenant, &good).await.as_deref(), Some("ACTIVE"));
    drop(failing);

    let paused = openstack.pause_worker().await.unwrap();
    let path = format!("{BALANCERS}/{good}");
    let body = json!({"loadbalancer": {"description": "x"}});
    let change = || tenant.request("PUT", Service::LoadBalancer, &path, Some(&body));
    assert_eq!(change().await.unwrap().status, 200);
    assert_eq!(change().await.unwrap().status, 409);
    drop(paused);
    assert_eq!(settled(&tenant, &good).await.as_deref(), Some("ACTIVE"));

    tenant.set_provisioning_status(&good, "ERROR").await.unwrap();
    assert_eq!(settled(&tenant, &good).await.as_deref(), Some("ERROR"));
    tenant.delete().await.unwrap();
}
