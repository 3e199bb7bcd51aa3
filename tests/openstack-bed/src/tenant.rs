//! A project with a user, for one test.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::http::{Answer, Service, Session, text};
use crate::{AUTH_URL, OpenStack, cleanup, folder, sql};

/// Poll interval for a state.
const POLL: Duration = Duration::from_millis(50);
/// The time limit for a server or a load balancer to change its state.
const SETTLE: Duration = Duration::from_secs(90);

/// The IDs and secret of an application credential of a user.
#[derive(Clone, Debug)]
pub struct ApplicationCredential {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its secret.
    pub secret: String,
}

/// A new project with one user, who may use networks, servers and load balancers, and a network with a router to the
/// external network. [`Tenant::delete`] deletes all of it, and dropping it tries to.
#[derive(Debug)]
pub struct Tenant {
    /// The name of the project and of the user.
    pub name: String,
    /// The password of the user.
    pub password: String,
    /// The project.
    pub project_id: String,
    /// The user, in the domain `default`.
    pub user_id: String,
    /// An application credential of the user, with all the user's roles.
    pub application_credential: ApplicationCredential,
    /// The network of the tenant.
    pub network_id: String,
    /// Its subnet, `10.50.0.0/24`.
    pub subnet_id: String,
    /// The router between this subnet and the external network.
    pub router_id: String,
    /// The external network `public`, which belongs to the administrator.
    pub public_network_id: String,
    session: Session,
    /// `None` after everything is deleted.
    admin: Option<Session>,
}

impl Tenant {
    pub(crate) async fn new(openstack: &OpenStack) -> anyhow::Result<Self> {
        let admin = &openstack.admin;
        let name = format!("test-{}", uuid::Uuid::new_v4().simple());
        let password = uuid::Uuid::new_v4().to_string();
        let id = |object: Value| text(&object, "id").to_owned();

        let project = json!({"name": name, "domain_id": "default"});
        let project_id = id(admin.create(Service::Identity, "/v3/projects", "project", &project).await?);
        let user = json!({"name": name, "domain_id": "default", "password": password});
        let user_id = id(admin.create(Service::Identity, "/v3/users", "user", &user).await?);
        for role in admin.list(Service::Identity, "/v3/roles").await? {
            if matches!(text(&role, "name"), "member" | "load-balancer_member") {
                let path = format!("/v3/projects/{project_id}/users/{user_id}/roles/{}", text(&role, "id"));
                admin.call("PUT", Service::Identity, &path, None).await?;
            }
        }
        let session = Session::with_password(&name, &password, &name).await?;
        let path = format!("/v3/users/{user_id}/application_credentials");
        let body = json!({ "name": name });
        // Keystone does not always find a role that it has just assigned.
        let mut tries = 0;
        let credential = loop {
            match session.create(Service::Identity, &path, "application_credential", &body).await {
                Err(error) if tries < 20 && error.to_string().contains("role assignment") => {
                    tries += 1;
                    sleep(Duration::from_millis(250)).await;
                }
                answer => break answer?,
            }
        };
        let mut tenant = Self {
            name: name.clone(),
            password,
            project_id,
            user_id,
            application_credential: ApplicationCredential {
                id: text(&credential, "id").to_owned(),
                secret: text(&credential, "secret").to_owned(),
                name,
            },
            network_id: String::new(),
            subnet_id: String::new(),
            router_id: String::new(),
            public_network_id: String::new(),
            session,
            // From here on, dropping the tenant deletes its objects.
            admin: Some(admin.clone()),
        };
        tenant.make_network().await?;
        Ok(tenant)
    }

    async fn make_network(&mut self) -> anyhow::Result<()> {
        let id = |object: &Value| text(object, "id").to_owned();
        let public = self.list(Service::Network, "/v2.0/networks?name=public&router:external=true").await?;
        self.public_network_id = id(public.first().context("there is no external network")?);
        let network = json!({"name": "nodes"});
        self.network_id = id(&self.create(Service::Network, "/v2.0/networks", "network", &network).await?);
        let subnet = json!({"name": "nodes", "network_id": self.network_id, "ip_version": 4, "cidr": "10.50.0.0/24"});
        self.subnet_id = id(&self.create(Service::Network, "/v2.0/subnets", "subnet", &subnet).await?);
        let router = json!({"name": "nodes", "external_gateway_info": {"network_id": self.public_network_id}});
        self.router_id = id(&self.create(Service::Network, "/v2.0/routers", "router", &router).await?);
        let path = format!("/v2.0/routers/{}/add_router_interface", self.router_id);
        self.session.call("PUT", Service::Network, &path, Some(&json!({"subnet_id": self.subnet_id}))).await?;
        Ok(())
    }

    /// A cloud.conf with the password; `more` is appended, for example further sections.
    pub fn cloud_conf(&self, more: &str) -> String {
        let Self { name, password, project_id, .. } = self;
        format!(
            "[Global]\nauth-url = \"{AUTH_URL}\"\nregion = RegionOne\nusername = \"{name}\"\npassword = \"{password}\"\n\
             user-domain-id = default\ntenant-id = {project_id}\n{more}"
        )
    }

    /// The same with the application credential.
    pub fn cloud_conf_with_application_credential(&self, more: &str) -> String {
        let ApplicationCredential { id, secret, .. } = &self.application_credential;
        format!(
            "[Global]\nauth-url = \"{AUTH_URL}\"\nregion = RegionOne\napplication-credential-id = {id}\n\
             application-credential-secret = \"{secret}\"\n{more}"
        )
    }

    /// A token of the user, valid for an hour.
    pub fn token(&self) -> &str {
        &self.session.token
    }

    /// One request as the user.
    pub async fn request(
        &self,
        method: &str,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        self.session.send(method, service, path, body).await
    }

    /// The body of a successful `GET`.
    pub async fn get(&self, service: Service, path: &str) -> anyhow::Result<Value> {
        self.session.call("GET", service, path, None).await
    }

    /// The objects of a list.
    pub async fn list(&self, service: Service, path: &str) -> anyhow::Result<Vec<Value>> {
        self.session.list(service, path).await
    }

    /// Creates an object; `kind` is the key around it in request and response.
    pub async fn create(&self, service: Service, path: &str, kind: &str, object: &Value) -> anyhow::Result<Value> {
        self.session.create(service, path, kind, object).await
    }

    /// Boots a server in the network and waits until it is ACTIVE. Returns Nova's response for it.
    pub async fn boot_server(&self, name: &str) -> anyhow::Result<Value> {
        let images = self.list(Service::Image, "/v2/images?name=image").await?;
        let image = text(images.first().context("there is no image")?, "id");
        let server =
            json!({"name": name, "imageRef": image, "flavorRef": "1", "networks": [{"uuid": self.network_id}]});
        let made = self.create(Service::Compute, "/v2.1/servers", "server", &server).await?;
        let path = format!("/v2.1/servers/{}", text(&made, "id"));
        let end = Instant::now() + SETTLE;
        loop {
            let mut answer = self.get(Service::Compute, &path).await?;
            let server = answer.get_mut("server").map(Value::take).unwrap_or_default();
            match text(&server, "status") {
                "ACTIVE" => return Ok(server),
                "BUILD" if Instant::now() < end => sleep(POLL).await,
                status => anyhow::bail!("server {name} is {status}: {server}"),
            }
        }
    }

    /// Waits until a load balancer has no pending change, and returns its provisioning status; `None` if it is deleted.
    pub async fn settled(&self, balancer_id: &str) -> anyhow::Result<Option<String>> {
        let path = format!("/v2.0/lbaas/loadbalancers/{balancer_id}");
        let end = Instant::now() + SETTLE;
        loop {
            let answer = self.request("GET", Service::LoadBalancer, &path, None).await?;
            if answer.status == 404 {
                return Ok(None);
            }
            let status = text(answer.body.get("loadbalancer").unwrap_or(&Value::Null), "provisioning_status");
            anyhow::ensure!(!status.is_empty(), "GET {path}: {} {}", answer.status, answer.body);
            if !status.starts_with("PENDING") {
                return Ok(Some(status.to_owned()));
            }
            anyhow::ensure!(Instant::now() < end, "load balancer {balancer_id} stays {status}");
            sleep(POLL).await;
        }
    }

    /// Sets the provisioning status of a load balancer of the tenant in the database.
    pub async fn set_provisioning_status(&self, balancer_id: &str, status: &str) -> anyhow::Result<()> {
        let project = &self.project_id;
        let changed = sql(&format!(
            "UPDATE octavia.load_balancer SET provisioning_status = '{status}' \
             WHERE id = '{balancer_id}' AND project_id = '{project}'; SELECT ROW_COUNT()"
        ))
        .await?;
        anyhow::ensure!(changed.trim() == "1", "no load balancer {balancer_id} whose status could change to {status}");
        Ok(())
    }

    /// Makes creations of load balancers of the tenant whose name contains this text end in ERROR, until the returned
    /// guard is dropped.
    pub fn fail_creations(&self, text: &str) -> anyhow::Result<FailingCreations> {
        let path = folder()?.join("run/fail").join(&self.project_id);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(FailingCreations(path))
    }

    /// Deletes everything of the project, then the user and the project. An error lists the remaining objects.
    pub async fn delete(mut self) -> anyhow::Result<()> {
        let Some(admin) = self.admin.take() else { return Ok(()) };
        cleanup::delete(&admin, &self.project_id, &self.user_id).await
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let Some(admin) = self.admin.take() else { return };
        let (project, user) = (self.project_id.clone(), self.user_id.clone());
        // A separate runtime, because the one of the test may be shutting down.
        let done = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(cleanup::delete(&admin, &project, &user))
        });
        if let Ok(Err(error)) = done.join() {
            eprintln!("tenant {} is not deleted: {error:#}", self.name);
        }
    }
}

/// Stops the failures when dropped.
#[derive(Debug)]
pub struct FailingCreations(PathBuf);

impl Drop for FailingCreations {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
