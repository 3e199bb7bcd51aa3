//! A tenant of the real services, through the interface for both clouds.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use ccm_cloudsim::openstack::OpenStack as Simulation;
use serde_json::{Value, json};

use crate::cloud::{Cloud, Place, Who};
use crate::{OpenStack, Service, Tenant};

/// The time limit for a server to change its state.
const LIMIT: Duration = Duration::from_secs(90);

/// A tenant of the real services.
#[derive(Debug)]
pub struct Real {
    openstack: OpenStack,
    tenant: Tenant,
    place: Place,
}

impl Real {
    /// `None`: there are no real services.
    pub async fn start() -> Option<Self> {
        let openstack = OpenStack::start().await.unwrap()?;
        let tenant = openstack.tenant().await.unwrap();
        let place = Place {
            project: tenant.project_id.clone(),
            network: tenant.network_id.clone(),
            subnet: tenant.subnet_id.clone(),
            router: tenant.router_id.clone(),
            external: tenant.public_network_id.clone(),
        };
        Some(Self { openstack, tenant, place })
    }

    /// Waits until Nova's response for a server meets a condition.
    async fn until(&self, server: &str, is_so: impl Fn(u16, &Value) -> bool) {
        let (path, begin) = (format!("/v2.1/servers/{server}"), Instant::now());
        loop {
            let answer = self.tenant.request("GET", Service::Compute, &path, None).await.unwrap();
            if is_so(answer.status, &answer.body["server"]) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{}", answer.body);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[async_trait]
impl Cloud for Real {
    fn login(&self) -> String {
        self.tenant.cloud_conf("")
    }

    fn login_with_credential(&self) -> String {
        self.tenant.cloud_conf_with_application_credential("")
    }

    fn secrets(&self) -> Vec<String> {
        let Tenant { password, application_credential, .. } = &self.tenant;
        vec![password.clone(), application_credential.secret.clone(), super::TOKEN.to_owned()]
    }

    fn place(&self) -> &Place {
        &self.place
    }

    async fn send(&self, who: Who, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let service = if path.contains("/lbaas/") { Service::LoadBalancer } else { Service::Network };
        let answer = match who {
            Who::Tenant => self.tenant.request(method, service, path, body).await,
            Who::Admin => self.openstack.request(method, service, path, body).await,
        };
        let answer = answer.unwrap();
        (answer.status, answer.body)
    }

    async fn port(&self, server: &str) -> Value {
        let port = json!({"network_id": self.place.network, "device_id": server});
        self.tenant.create(Service::Network, "/v2.0/ports", "port", &port).await.unwrap()
    }

    async fn boot(&self, name: &str) -> (String, String) {
        let server = self.tenant.boot_server(name).await.unwrap();
        let address = server["addresses"]["nodes"][0]["addr"].as_str().unwrap();
        (server["id"].as_str().unwrap().to_owned(), address.to_owned())
    }

    async fn shut_off(&self, server: &str) {
        let (path, stop) = (format!("/v2.1/servers/{server}/action"), json!({"os-stop": null}));
        let answer = self.tenant.request("POST", Service::Compute, &path, Some(&stop)).await.unwrap();
        assert!(answer.is_success(), "{answer:?}");
        self.until(server, |_, server| server["status"] == "SHUTOFF").await;
    }

    async fn delete_server(&self, server: &str) {
        let path = format!("/v2.1/servers/{server}");
        let answer = self.tenant.request("DELETE", Service::Compute, &path, None).await.unwrap();
        assert!(answer.is_success(), "{answer:?}");
        self.until(server, |status, _| status == 404).await;
    }

    async fn set_status(&self, balancer: &str, status: &str) {
        self.tenant.set_provisioning_status(balancer, status).await.unwrap();
    }

    fn simulation(&self) -> Option<&Simulation> {
        None
    }

    async fn end(self: Box<Self>) {
        self.tenant.delete().await.unwrap();
    }
}
