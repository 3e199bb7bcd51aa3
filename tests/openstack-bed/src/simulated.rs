//! A simulated cloud.

use async_trait::async_trait;
use bytes::Bytes;
use ccm_cloudsim::core::server::Answer;
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options};
use serde_json::{Value, json};

use crate::ZONE;
use crate::cloud::{Cloud, Place, Who};

const DOMAIN: &str = "default";
const PASSWORD: &str = "s3cret-of-tenant";
const CREDENTIAL: &str = "s3cret-of-credential";

/// A tenant of a separate simulation.
#[derive(Debug)]
pub struct Simulated {
    /// The simulation.
    pub openstack: OpenStack,
    place: Place,
    credential: String,
}

impl Simulated {
    /// Starts the simulation.
    pub fn start(options: Options) -> Self {
        let openstack = OpenStack::start(options).unwrap();
        let (place, credential) = openstack.world(|world| {
            let admin = world.project("admin");
            world.user("admin", "secret", &admin, &["admin"]);
            let project = world.project("tenant");
            let user = world.user("tenant", PASSWORD, &project, &["member", "load-balancer_member"]);
            let credential = world.application_credential(&user, &project, "ccm", CREDENTIAL);
            world.flavor("f-1", "small");
            let network = world.network(&project, "nodes", json!({}));
            let seed = |network| SubnetSeed { network, name: "subnet", ..SubnetSeed::default() };
            let subnet = world.subnet(&SubnetSeed { cidr: "10.50.0.0/24", ..seed(&network) });
            let external = world.network(&admin, "public", json!({"router:external": true}));
            world.subnet(&SubnetSeed { cidr: "172.24.4.0/24", ..seed(&external) });
            let router = world.router(&project, "nodes", Some(&external), &[&subnet]);
            (Place { project, network, subnet, router, external }, credential)
        });
        Self { openstack, place, credential }
    }

    /// A new token for each request, because tests let tokens expire.
    async fn token(&self, who: Who) -> String {
        let (name, password) = match who {
            Who::Tenant => ("tenant", PASSWORD),
            Who::Admin => ("admin", "secret"),
        };
        let user = json!({"name": name, "password": password, "domain": {"id": DOMAIN}});
        let scope = json!({"project": {"name": name, "domain": {"id": DOMAIN}}});
        let body = json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}});
        let request = http::Request::post("/identity/v3/auth/tokens").body(Bytes::from(body.to_string())).unwrap();
        let Answer::Reply(reply) = self.openstack.answer(request).await else { panic!("no answer") };
        reply.headers()["x-subject-token"].to_str().unwrap().to_owned()
    }
}

#[async_trait]
impl Cloud for Simulated {
    fn login(&self) -> String {
        format!(
            "[Global]\nauth-url = {}/v3\nusername = tenant\npassword = {PASSWORD}\nuser-domain-id = {DOMAIN}\n\
             region = RegionOne\ntenant-id = {}\n",
            self.openstack.auth_url(),
            self.place.project
        )
    }

    fn login_with_credential(&self) -> String {
        format!(
            "[Global]\nauth-url = {}/v3\nregion = RegionOne\napplication-credential-id = {}\n\
             application-credential-secret = {CREDENTIAL}\n",
            self.openstack.auth_url(),
            self.credential
        )
    }

    fn secrets(&self) -> Vec<String> {
        [PASSWORD, CREDENTIAL, super::TOKEN].map(str::to_owned).into()
    }

    fn place(&self) -> &Place {
        &self.place
    }

    async fn send(&self, who: Who, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let service = if path.contains("/lbaas/") { "/load-balancer" } else { "/network" };
        let token = self.token(who).await;
        let request = http::Request::builder().method(method).uri(format!("{service}{path}"));
        let body = Bytes::from(body.map(Value::to_string).unwrap_or_default());
        let request = request.header("x-auth-token", token).body(body).unwrap();
        let Answer::Reply(reply) = self.openstack.answer(request).await else { panic!("no answer to {path}") };
        let (head, body) = reply.into_parts();
        (head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn port(&self, server: &str) -> Value {
        let Place { project, subnet, .. } = &self.place;
        let fields = json!({"device_id": server, "device_owner": "compute:nova", "status": "ACTIVE"});
        self.openstack.world(|world| {
            let id = world.port(project, &[subnet], fields).unwrap();
            Value::Object(world.row("port", &id).unwrap().fields.clone())
        })
    }

    async fn boot(&self, name: &str) -> (String, String) {
        let Place { project, subnet, .. } = &self.place;
        let (flavor, zone) = ("f-1", ZONE);
        let seed = ServerSeed { project, name, flavor, subnets: &[subnet], zone, ..ServerSeed::default() };
        self.openstack.world(|world| {
            let id = world.server(&seed);
            let port = world.table("port").values().find(|port| port.text("device_id") == id).unwrap();
            (id, port.list("fixed_ips")[0]["ip_address"].as_str().unwrap().to_owned())
        })
    }

    async fn shut_off(&self, server: &str) {
        self.openstack.world(|world| world.row_mut("server", server).unwrap().set("status", "SHUTOFF"));
    }

    async fn delete_server(&self, server: &str) {
        self.openstack.world(|world| world.delete_server(server));
    }

    async fn set_status(&self, balancer: &str, status: &str) {
        self.openstack.set_balancer_status(balancer, status);
    }

    fn simulation(&self) -> Option<&OpenStack> {
        Some(&self.openstack)
    }

    async fn end(self: Box<Self>) {
        assert_eq!(self.openstack.violations(), Vec::<String>::new());
    }
}
