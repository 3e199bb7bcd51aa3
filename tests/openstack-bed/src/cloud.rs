//! The interface of a cloud for tests, implemented by the real services and the simulation.

use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ccm_cloudsim::openstack::OpenStack;
use serde_json::{Value, json};

/// The time limit of waits; real clouds are slow.
const LIMIT: Duration = Duration::from_secs(120);

/// Load balancers.
pub const LBS: &str = "/v2.0/lbaas/loadbalancers";
/// Floating IPs.
pub const FIPS: &str = "/v2.0/floatingips";
/// Security groups.
pub const GROUPS: &str = "/v2.0/security-groups";

/// The network of a tenant's nodes.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The project.
    pub project: String,
    /// Its network.
    pub network: String,
    /// The subnet of the network, `10.50.0.0/24`.
    pub subnet: String,
    /// The router between the subnet and the external network.
    pub router: String,
    /// The external network.
    pub external: String,
}

/// The sender of a direct request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user of the tenant.
    Tenant,
    /// The administrator of the cloud.
    Admin,
}

/// A project in a cloud, for one test. Any error fails the test.
#[async_trait]
pub trait Cloud: fmt::Debug + Send + Sync {
    /// The section `[Global]` of a cloud.conf.
    fn login(&self) -> String;

    /// The same with an application credential.
    fn login_with_credential(&self) -> String;

    /// Secrets that no log may contain: passwords, and the prefix of tokens.
    fn secrets(&self) -> Vec<String>;

    /// The network of the nodes.
    fn place(&self) -> &Place;

    /// One request: the path is relative to the endpoint of Neutron or, with `lbaas`, of Octavia. Returns status and
    /// body.
    async fn send(&self, who: Who, method: &str, path: &str, body: Option<&Value>) -> (u16, Value);

    /// Creates a port of a server in the subnet; returns it in Neutron's form.
    async fn port(&self, server: &str) -> Value;

    /// Boots a server in the subnet, of flavor `small` in zone `zone-1`; returns its ID and address.
    async fn boot(&self, name: &str) -> (String, String);

    /// Shuts a server down.
    async fn shut_off(&self, server: &str);

    /// Deletes a server, and waits until it no longer exists.
    async fn delete_server(&self, server: &str);

    /// Sets the provisioning status of a load balancer.
    async fn set_status(&self, balancer: &str, status: &str);

    /// The simulation, if this cloud is one.
    fn simulation(&self) -> Option<&OpenStack>;

    /// Checks the assertions for the end of each test, and deletes everything.
    async fn end(self: Box<Self>);
}

impl dyn Cloud {
    /// The body of a successful `GET`.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Who::Tenant, "GET", path, None).await;
        assert!(status == 200, "GET {path}: {status} {body}");
        body
    }

    /// The objects of a list.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        let body = self.get(path).await;
        let lists = body.as_object().unwrap().iter().filter(|(key, _)| !key.ends_with("links"));
        lists.filter_map(|(_, value)| value.as_array()).next().unwrap().clone()
    }

    /// Sends a write, and waits for the load balancer if it changes one.
    pub async fn write(&self, method: &str, path: &str, body: Value) -> Value {
        let body = Some(&body).filter(|body| !body.is_null());
        let (status, answer) = self.send(Who::Tenant, method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        if path.contains("/lbaas/") {
            self.settle().await;
        }
        answer
    }

    /// Creates an object; `kind` is the key around it. Returns its ID.
    pub async fn make(&self, path: &str, kind: &str, object: Value) -> String {
        let answer = self.write("POST", path, json!({ kind: object })).await;
        answer[kind]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until no load balancer has a pending change.
    pub async fn settle(&self) {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            let pending = |lb: &Value| lb["provisioning_status"].as_str().unwrap().starts_with("PENDING");
            if !self.list(LBS).await.iter().any(pending) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("a balancer stays pending");
    }

    /// All load balancers.
    pub async fn balancers(&self) -> Vec<Value> {
        self.list(LBS).await
    }

    /// The only load balancer.
    pub async fn balancer(&self) -> Value {
        let mut all = self.balancers().await;
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// Listeners by port.
    pub async fn listeners(&self) -> Vec<Value> {
        let mut all = self.list("/v2.0/lbaas/listeners").await;
        all.sort_by_key(|listener| listener["protocol_port"].as_i64());
        all
    }

    /// The listener with the lowest port.
    pub async fn listener(&self) -> Value {
        self.listeners().await.remove(0)
    }

    /// Pools by name.
    pub async fn pools(&self) -> Vec<Value> {
        let mut all = self.list("/v2.0/lbaas/pools").await;
        all.sort_by_key(|pool| pool["name"].to_string());
        all
    }

    /// The first pool.
    pub async fn pool(&self) -> Value {
        self.pools().await.remove(0)
    }

    /// Health monitors.
    pub async fn monitors(&self) -> Vec<Value> {
        self.list("/v2.0/lbaas/healthmonitors").await
    }

    /// The members of all pools, `<name> <port>`, sorted.
    pub async fn members(&self) -> Vec<String> {
        let mut names = Vec::new();
        for member in self.whole_members().await {
            names.push(format!("{} {}", member["name"].as_str().unwrap(), member["protocol_port"]));
        }
        names.sort();
        names
    }

    /// The members of all pools in Octavia's form. A pool that is deleted between the two reads has none.
    pub async fn whole_members(&self) -> Vec<Value> {
        let mut members = Vec::new();
        for pool in self.pools().await {
            let path = format!("/v2.0/lbaas/pools/{}/members", id(&pool));
            match self.send(Who::Tenant, "GET", &path, None).await {
                (404, _) => {}
                (200, body) => members.extend(body["members"].as_array().unwrap().iter().cloned()),
                (status, body) => panic!("GET {path}: {status} {body}"),
            }
        }
        members
    }

    /// Floating IPs.
    pub async fn floating_ips(&self) -> Vec<Value> {
        self.list(FIPS).await
    }

    /// The groups that tests or the provider created. Neutron returns their rules in any order; here they are sorted.
    pub async fn groups(&self) -> Vec<Value> {
        let mut all = self.list(GROUPS).await;
        all.retain(|group| group["name"] != "default");
        for group in &mut all {
            let rules = group["security_group_rules"].as_array_mut();
            rules.into_iter().for_each(|rules| rules.sort_by_key(|rule| rule["id"].as_str().map(str::to_owned)));
        }
        all
    }

    /// The rules of the only group: `tcp 30080 10.50.0.0/24`.
    pub async fn rules(&self) -> Vec<String> {
        let groups = self.groups().await;
        assert_eq!(groups.len(), 1, "{groups:?}");
        let text = |rule: &Value| {
            assert_eq!((&rule["direction"], &rule["ethertype"]), (&json!("ingress"), &json!("IPv4")));
            let [protocol, prefix] = ["protocol", "remote_ip_prefix"].map(|key| rule[key].as_str().unwrap());
            format!("{protocol} {} {prefix}", rule["port_range_min"])
        };
        let mut rules: Vec<String> = groups[0]["security_group_rules"].as_array().unwrap().iter().map(text).collect();
        rules.sort();
        rules
    }

    /// Asserts that no object of a Service remains.
    pub async fn is_empty(&self) {
        let left = (self.balancers().await, self.floating_ips().await, self.groups().await);
        assert_eq!(left, (Vec::new(), Vec::new(), Vec::new()));
        let vips = self.list("/v2.0/ports?device_owner=Octavia").await;
        assert_eq!(vips, Vec::<Value>::new());
    }
}

/// The ID of an object.
pub fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

/// The texts of a list, sorted: tags have no order in OpenStack.
pub fn texts(list: &Value) -> Vec<&str> {
    let mut texts: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts
}
