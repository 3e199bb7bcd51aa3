//! What the suite needs of a cloud, and the simulated one.

use async_trait::async_trait;
use bytes::Bytes;
use ccm_cloudsim::core::server::Answer;
use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_cloudsim::openstack::{OpenStack, Options};
use serde_json::{Value, json};

/// Where a tenant's nodes are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(crate) project: String,
    pub(crate) network: String,
    pub(crate) subnet: String,
    pub(crate) external: String,
}

/// Who sends a request by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Tenant,
    Admin,
}

/// A project in a cloud, for one test.
#[async_trait]
pub(crate) trait Cloud: Send + Sync {
    /// The section `[Global]` of a cloud.conf.
    fn login(&self) -> String;

    fn place(&self) -> &Place;

    /// One request: the path is that behind the endpoint of Neutron or, with `lbaas`, of Octavia. Answers status and body.
    async fn send(&self, who: Who, method: &str, path: &str, body: Option<&Value>) -> (u16, Value);

    /// Makes a port of a server in the subnet; answers it as Neutron shows it.
    async fn port(&self, server: &str) -> Value;

    /// Puts a balancer into a provisioning status.
    async fn set_status(&self, balancer: &str, status: &str);

    /// The simulation behind it, if it is one.
    fn simulation(&self) -> Option<&OpenStack>;

    /// Asserts what must hold at the end, and removes everything.
    async fn end(self: Box<Self>);
}

/// A simulated cloud.
pub(crate) struct Simulated {
    pub(crate) openstack: OpenStack,
    place: Place,
    tokens: [String; 2],
}

const DOMAIN: &str = "default";

impl Simulated {
    pub(crate) async fn start(options: Options) -> Self {
        let openstack = OpenStack::start(options).unwrap();
        let place = openstack.world(|world| {
            let admin = world.project("admin");
            world.user("admin", "secret", &admin, &["admin"]);
            let project = world.project("tenant");
            world.user("tenant", "s3cret-of-tenant", &project, &["member", "load-balancer_member"]);
            let network = world.network(&project, "nodes", json!({}));
            let seed = |network| SubnetSeed { network, name: "subnet", ..SubnetSeed::default() };
            let subnet = world.subnet(&SubnetSeed { cidr: "10.50.0.0/24", ..seed(&network) });
            let external = world.network(&admin, "public", json!({"router:external": true}));
            world.subnet(&SubnetSeed { cidr: "172.24.4.0/24", ..seed(&external) });
            world.router(&project, "nodes", Some(&external), &[&subnet]);
            Place { project, network, subnet, external }
        });
        let mut cloud = Self { openstack, place, tokens: Default::default() };
        cloud.tokens = [cloud.token("tenant", "s3cret-of-tenant").await, cloud.token("admin", "secret").await];
        cloud
    }

    async fn token(&self, name: &str, password: &str) -> String {
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
            "[Global]\nauth-url = {}/v3\nusername = tenant\npassword = s3cret-of-tenant\nuser-domain-id = {DOMAIN}\n\
             region = RegionOne\ntenant-id = {}\n",
            self.openstack.auth_url(),
            self.place.project
        )
    }

    fn place(&self) -> &Place {
        &self.place
    }

    async fn send(&self, who: Who, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let service = if path.contains("/lbaas/") { "/load-balancer" } else { "/network" };
        let token = &self.tokens[usize::from(who == Who::Admin)];
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
