//! Octavia: load balancers and their parts.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::models;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::operation::{
    LB_GET, LB_LIST, LB_VERSIONS, LISTENER_LIST, MEMBER_LIST, MONITOR_GET, MONITOR_LIST, Operation, POOL_LIST,
};
use super::session::Message;
use super::{ApiError, Client, Query, null};

/// `provisioning_status` of an object that can be changed.
pub(crate) const ACTIVE: &str = "ACTIVE";
/// `provisioning_status` of an object that is being created.
pub(crate) const PENDING_CREATE: &str = "PENDING_CREATE";
/// `provisioning_status` of an object whose last change failed.
pub(crate) const ERROR: &str = "ERROR";

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

models! {
    /// A reference to another object.
    pub(crate) struct Ref {
        pub(crate) id: String,
    }

    /// A load balancer.
    pub(crate) struct LoadBalancer {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) provisioning_status: String,
        pub(crate) operating_status: String,
        pub(crate) vip_address: String,
        pub(crate) vip_port_id: String,
        pub(crate) vip_subnet_id: String,
        pub(crate) vip_network_id: String,
        pub(crate) provider: String,
        pub(crate) tags: Vec<String>,
        pub(crate) updated_at: String,
        pub(crate) created_at: String,
        pub(crate) flavor_id: String,
        pub(crate) availability_zone: String,
    }

    /// A listener.
    pub(crate) struct Listener {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) admin_state_up: Option<bool>,
        pub(crate) protocol: String,
        pub(crate) protocol_port: i32,
        pub(crate) connection_limit: i64,
        pub(crate) insert_headers: BTreeMap<String, String>,
        pub(crate) default_tls_container_ref: String,
        pub(crate) sni_container_refs: Vec<String>,
        pub(crate) client_ca_tls_container_ref: String,
        pub(crate) client_authentication: String,
        pub(crate) client_crl_container_ref: String,
        pub(crate) tls_ciphers: String,
        pub(crate) tls_versions: Vec<String>,
        pub(crate) alpn_protocols: Vec<String>,
        pub(crate) hsts_max_age: Option<i64>,
        pub(crate) hsts_include_subdomains: bool,
        pub(crate) hsts_preload: bool,
        pub(crate) timeout_client_data: Option<i64>,
        pub(crate) timeout_member_connect: Option<i64>,
        pub(crate) timeout_member_data: Option<i64>,
        pub(crate) timeout_tcp_inspect: Option<i64>,
        pub(crate) allowed_cidrs: Vec<String>,
        pub(crate) default_pool_id: String,
        pub(crate) tags: Vec<String>,
        pub(crate) provisioning_status: String,
        pub(crate) created_at: String,
        pub(crate) loadbalancers: Vec<Ref>,
    }

    /// A pool.
    pub(crate) struct Pool {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) protocol: String,
        pub(crate) lb_algorithm: String,
        pub(crate) session_persistence: Option<SessionPersistence>,
        pub(crate) healthmonitor_id: String,
        pub(crate) listeners: Vec<Ref>,
        pub(crate) members: Vec<Ref>,
        pub(crate) tags: Vec<String>,
        pub(crate) provisioning_status: String,
    }

    /// The session persistence of a pool.
    pub(crate) struct SessionPersistence {
        #[serde(rename = "type")]
        pub(crate) kind: String,
    }

    /// A member of a pool.
    #[derive(PartialOrd, Ord)]
    pub(crate) struct Member {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) address: String,
        pub(crate) protocol_port: i32,
        /// Also `None` in the status tree.
        pub(crate) monitor_port: Option<i32>,
        pub(crate) subnet_id: String,
        pub(crate) operating_status: String,
        pub(crate) provisioning_status: String,
    }

    /// A health monitor.
    pub(crate) struct Monitor {
        pub(crate) id: String,
        pub(crate) name: String,
        #[serde(rename = "type")]
        pub(crate) kind: String,
        pub(crate) delay: i64,
        pub(crate) timeout: i64,
        pub(crate) max_retries: i64,
        pub(crate) max_retries_down: i64,
        pub(crate) pools: Vec<Ref>,
        pub(crate) provisioning_status: String,
    }
}

/// The status tree of a load balancer; only the fields that are read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Tree {
    loadbalancer: TreeBalancer,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct TreeBalancer {
    #[serde(deserialize_with = "null")]
    listeners: Vec<TreeListener>,
    #[serde(deserialize_with = "null")]
    pools: Vec<TreePool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct TreeListener {
    #[serde(flatten)]
    part: TreePart,
    #[serde(deserialize_with = "null")]
    pools: Vec<TreePool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct TreePool {
    #[serde(flatten)]
    part: TreePart,
    #[serde(deserialize_with = "null")]
    members: Vec<Member>,
    health_monitor: Option<TreePart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct TreePart {
    #[serde(deserialize_with = "null")]
    id: String,
    #[serde(deserialize_with = "null")]
    name: String,
    #[serde(deserialize_with = "null")]
    provisioning_status: String,
}

impl Tree {
    /// The members by pool ID: only name, address and port.
    pub(crate) fn members(self) -> BTreeMap<String, Vec<Member>> {
        let TreeBalancer { listeners, pools } = self.loadbalancer;
        let pools = listeners.into_iter().flat_map(|listener| listener.pools).chain(pools);
        pools.map(|pool| (pool.part.id, pool.members)).collect()
    }

    /// The listeners, pools and monitors with these IDs, and members of these pools, whose last change failed.
    pub(crate) fn failed_among(&self, ids: &BTreeSet<String>) -> Vec<String> {
        let TreeBalancer { listeners, pools } = &self.loadbalancer;
        let is_failed = |part: &&TreePart| part.provisioning_status == ERROR && ids.contains(&part.id);
        let named = |kind: &'static str| move |part: &TreePart| format!("{kind} {}", part.name);
        let of_listeners = listeners.iter().map(|listener| &listener.part).filter(is_failed).map(named("listener"));
        let pools = listeners.iter().flat_map(|listener| &listener.pools).chain(pools);
        let of_pools = pools.flat_map(|pool| {
            let members = pool.members.iter().filter(|_| ids.contains(&pool.part.id));
            let members = members.filter(|member| member.provisioning_status == ERROR);
            let of_pool = Some(&pool.part).filter(is_failed).map(named("pool"));
            let monitor = pool.health_monitor.as_ref().filter(is_failed).map(named("health monitor"));
            of_pool.into_iter().chain(monitor).chain(members.map(|member| format!("member {}", member.name)))
        });
        of_listeners.chain(of_pools).collect()
    }
}

impl LoadBalancer {
    /// Whether no change of it is in progress.
    pub(crate) fn is_changeable(&self) -> bool {
        [ACTIVE, ERROR].contains(&&*self.provisioning_status)
    }
}

impl Version {
    /// `v2.16`; `None`: not a version.
    fn parse(id: &str) -> Option<Self> {
        let (major, minor) = id.trim_start_matches('v').split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The current version of a document: the one with the status CURRENT, else the largest.
fn current(document: &Value) -> Option<Version> {
    let versions = document.get("versions")?.as_array()?;
    let version = |entry: &Value| Version::parse(entry.get("id")?.as_str()?);
    let is_current = |entry: &&Value| entry.get("status").and_then(Value::as_str) == Some("CURRENT");
    let current = versions.iter().filter(is_current).filter_map(version).max();
    current.or_else(|| versions.iter().filter_map(version).max())
}

impl Client {
    /// The version of Octavia's API.
    pub(crate) async fn octavia_version(&self) -> Result<Version, ApiError> {
        let document: Value = self.get(LB_VERSIONS, String::new(), "").await?;
        current(&document).ok_or_else(|| {
            let why = "the list of versions has none";
            ApiError::of_kind(LB_VERSIONS, ccm_kit::call::ErrorKind::NoAnswer, why)
        })
    }

    /// The load balancers of the project that match.
    pub(crate) async fn load_balancers(&self, query: Query) -> Result<Vec<LoadBalancer>, ApiError> {
        self.list(LB_LIST, "lbaas/loadbalancers", self.of_project(query).await, "loadbalancers").await
    }

    /// A load balancer; `None` if Octavia reports that it does not exist.
    pub(crate) async fn load_balancer(&self, id: &str) -> Result<Option<LoadBalancer>, ApiError> {
        let found: Option<LoadBalancer> = self.find_by_id(LB_GET, ("lbaas/loadbalancers", id), "loadbalancer").await?;
        Ok(found.filter(|found| found.provisioning_status != "DELETED"))
    }

    /// The members of all pools of a load balancer, without monitor ports and subnets; `None` if the call is refused.
    pub(crate) async fn status_tree(&self, id: &str) -> Result<Option<Tree>, ApiError> {
        let read = async {
            let tree = self.get(LB_GET, format!("lbaas/loadbalancers/{id}/status"), "statuses").await;
            match tree {
                Err(error) if error.status == Some(404) => match self.load_balancer(id).await {
                    Ok(Some(_)) => Err(error),
                    // A load balancer that is gone or cannot be read has none: that is no refusal of the call.
                    unread => Ok(Err(unread.err().unwrap_or(error))),
                },
                tree => tree.map(Ok),
            }
        };
        self.optional("loadbalancer_status", read).await?.transpose()
    }

    pub(crate) async fn listeners(&self, balancer: &str) -> Result<Vec<Listener>, ApiError> {
        let query = Query::default().with("loadbalancer_id", balancer);
        self.list(LISTENER_LIST, "lbaas/listeners", query, "listeners").await
    }

    pub(crate) async fn pools(&self, balancer: &str) -> Result<Vec<Pool>, ApiError> {
        let query = Query::default().with("loadbalancer_id", balancer);
        self.list(POOL_LIST, "lbaas/pools", query, "pools").await
    }

    pub(crate) async fn members(&self, pool: &str) -> Result<Vec<Member>, ApiError> {
        self.list(MEMBER_LIST, &format!("lbaas/pools/{pool}/members"), Query::default(), "members").await
    }

    /// All health monitors of the project.
    pub(crate) async fn monitors(&self) -> Result<Vec<Monitor>, ApiError> {
        self.list(MONITOR_LIST, "lbaas/healthmonitors", self.of_project(Query::default()).await, "healthmonitors").await
    }

    /// A health monitor of any project that is visible.
    pub(crate) async fn monitor(&self, id: &str) -> Result<Option<Monitor>, ApiError> {
        self.find_by_id(MONITOR_GET, ("lbaas/healthmonitors", id), "healthmonitor").await
    }

    /// Sends a write below `lbaas/`.
    pub(crate) async fn write_octavia(
        &self,
        operation: Operation,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, ApiError> {
        let message = Message { path: format!("lbaas/{path}"), body, revision: None };
        let answer = self.write(operation, &message).await;
        // Also after an error: the answer may be lost.
        *self.balancers_written.lock() = Some(Instant::now());
        answer
    }
}

#[cfg(test)]
mod tests {
    use ccm_cloudsim::core::faults::{Fault, Rule};
    use serde_json::json;

    use super::*;
    use crate::world::World;

    #[tokio::test]
    async fn the_missing_status_of_a_missing_balancer_is_no_refusal() {
        let world = World::with(0).await;
        for _ in 0..2 {
            world.client.status_tree("0badbad0-1111-4222-8333-444455556666").await.unwrap_err();
            let calls = world.calls();
            assert_eq!(calls, ["load-balancer:loadbalancer_status_get", "load-balancer:loadbalancer_get"]);
        }
    }

    #[tokio::test]
    async fn the_missing_status_of_a_balancer_that_a_gateway_hides_is_no_refusal() {
        let world = World::with(0).await;
        for action in ["loadbalancer_status_get", "loadbalancer_get"] {
            let fault = Fault::Status { status: 404, body: r#"{"error_code": "APIGW.0101"}"#.to_owned() };
            world.cloud.fault(Rule::every(fault).on("load-balancer", action));
        }
        for _ in 0..2 {
            world.client.status_tree("0badbad0-1111-4222-8333-444455556666").await.unwrap_err();
            assert_eq!(world.calls().len(), 2);
        }
    }

    #[test]
    fn versions_compare_as_numbers_in_any_order() {
        let document = |entries: &[(&str, &str)]| {
            let list: Vec<Value> = entries.iter().map(|(id, status)| json!({"id": id, "status": status})).collect();
            json!({ "versions": list })
        };
        for (entries, expected) in [
            (&[("v2.30", "SUPPORTED"), ("v2.5", "SUPPORTED"), ("v2.16", "SUPPORTED")][..], Some(Version(2, 30))),
            (&[("v2.5", "SUPPORTED"), ("v2.16", "CURRENT"), ("v2.30", "EXPERIMENTAL")], Some(Version(2, 16))),
            (&[("v2.5", "CURRENT")], Some(Version(2, 5))),
            (&[("latest", "CURRENT")], None),
        ] {
            assert_eq!(current(&document(entries)), expected, "{entries:?}");
        }
        assert!(Version(2, 16) > Version(2, 5));
    }

    #[test]
    fn members_of_the_tree_are_those_of_listeners_and_of_loose_pools() {
        let tree: Tree = serde_json::from_value(json!({"loadbalancer": {
            "listeners": [{"id": "l", "name": "web", "provisioning_status": "ERROR", "pools": [
                {"id": "p", "name": "web", "provisioning_status": "ERROR", "members": [{"id": "m", "address": "10.0.0.1",
                    "protocol_port": 30080, "name": "n", "provisioning_status": "ERROR", "later": {}}],
                 "health_monitor": {"id": "h", "name": "web", "provisioning_status": "ERROR"}}]}],
            "pools": [{"id": "q", "members": null}]}}))
        .unwrap();
        let members = tree.clone().members();
        assert_eq!(members["p"][0].address, "10.0.0.1");
        assert!(members["q"].is_empty());
        assert_eq!(tree.failed_among(&["l".to_owned()].into()), ["listener web"]);
        assert_eq!(tree.failed_among(&["p".to_owned()].into()), ["pool web", "member n"]);
        assert_eq!(tree.failed_among(&["h".to_owned(), "q".to_owned()].into()), ["health monitor web"]);
    }
}
