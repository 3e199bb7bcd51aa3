//! A tenant of the real services.

use async_trait::async_trait;
use ccm_cloudsim::openstack::OpenStack as Simulation;
use ccm_test_openstack::{OpenStack, Service, Tenant};
use serde_json::{Value, json};

use crate::cloud::{Cloud, Place, Who};

pub(crate) struct Real {
    openstack: OpenStack,
    tenant: Tenant,
    place: Place,
}

impl Real {
    /// `None`: there are no real services.
    pub(crate) async fn start() -> Option<Self> {
        let openstack = OpenStack::start().await.unwrap()?;
        let tenant = openstack.tenant().await.unwrap();
        let place = Place {
            project: tenant.project_id.clone(),
            network: tenant.network_id.clone(),
            subnet: tenant.subnet_id.clone(),
            external: tenant.public_network_id.clone(),
        };
        Some(Self { openstack, tenant, place })
    }
}

#[async_trait]
impl Cloud for Real {
    fn login(&self) -> String {
        self.tenant.cloud_conf("")
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
