//! A running simulated OpenStack.

use super::metadata::{Metadata, Service};
use super::octavia::balancers::whole;
use super::{Options, Who, World};
use crate::core::rest::Problem;
use crate::core::routes;
use crate::core::rows::Row;
use crate::core::running::{Running, Setup};
use serde_json::Value;
use std::io;
use std::sync::Arc;

/// A simulated OpenStack that listens on loopback until it is dropped. Each service has its own path.
pub type OpenStack = Running<World>;

impl Running<World> {
    /// Starts the simulation.
    pub fn start(options: Options) -> io::Result<Self> {
        let Options { port, admin_port, ledger_entries, .. } = options;
        let setup = Setup { name: "cloudsim-openstack", port, admin_port, ledger_entries };
        Running::serve(World::new(options), &setup)
    }

    /// The URL of Keystone, without a version.
    pub fn auth_url(&self) -> String {
        format!("{}/identity", self.url())
    }

    /// Starts the metadata service of a server, on this port or any free one.
    pub fn metadata(&self, server: &str, port: u16) -> io::Result<Metadata> {
        if self.world(|world| world.row("server", server).is_none()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no server {server}")));
        }
        let service = Service { endpoint: self.endpoint.clone(), server: server.to_owned() };
        Ok(Metadata { server: self.runtime.spawner().serve(port, Arc::new(service))? })
    }

    /// Executes a call as an administrator of a project: without token, latency, faults and ledger. For changes in the
    /// cloud that are not made by the caller under test.
    pub fn by_hand(&self, project: &str, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
        self.world(|world| {
            world.who = Who { user: String::new(), project: project.to_owned(), admin: true };
            routes::by_hand(world, method, path, body)
        })
    }

    /// All load balancers with all their parts, in the order of creation.
    pub fn balancers(&self) -> Vec<Value> {
        self.world(|world| {
            let mut rows: Vec<_> = world.table("loadbalancer").values().collect();
            rows.sort_by_key(|row| row.seq);
            rows.into_iter().map(|row| whole(world, row)).collect()
        })
    }

    /// All resources of a kind in the format of their service, in the order of creation: `floatingip`, `port`,
    /// `server`, …
    pub fn resources(&self, kind: &str) -> Vec<Value> {
        self.world(|world| {
            let mut rows: Vec<_> = world.table(kind).values().collect();
            rows.sort_by_key(|row| row.seq);
            rows.into_iter().map(Row::shown).map(Value::Object).collect()
        })
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&self) {
        self.world(|world| world.identity.expire_tokens());
    }

    /// Suspends or resumes the provisioning of load balancers.
    pub fn freeze_provisioning(&self, frozen: bool) {
        self.world(|world| world.frozen = frozen);
    }

    /// Lets the next changes of load balancers end in ERROR: a failed creation affects the whole load balancer, a
    /// failed change only the changed part.
    pub fn fail_provisioning(&self, times: u32) {
        self.world(|world| world.failing = times);
    }

    /// Sets the provisioning status of a load balancer.
    pub fn set_balancer_status(&self, id: &str, status: &str) {
        self.world(|world| {
            if let Some(row) = world.row_mut("loadbalancer", id) {
                row.set("provisioning_status", status);
            }
        });
    }
}
