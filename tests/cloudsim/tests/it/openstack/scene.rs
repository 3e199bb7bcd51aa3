//! The initial state of each case, simulated or real: a project with a network, ports, servers and an external network.

use super::client::{Client, password};
use crate::values::Values;
use ccm_cloudsim::core::clock::Mode;
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options};
use serde_json::{Value, json};
use std::time::Duration;

const NAMES: [&str; 3] = ["node1", "Node1", "other"];

/// A simulation with a stopped clock; [`later`] advances it.
pub(crate) fn cloud() -> OpenStack {
    let clock = Mode::Stepped { start: "2026-01-01T00:00:00Z".parse().unwrap() };
    OpenStack::start(Options { clock, provisioning: Duration::from_secs(2), ..Options::default() }).unwrap()
}

/// Completes all provisioning.
pub(crate) fn later(cloud: &OpenStack) {
    cloud.clock().step(Duration::from_secs(2));
}

/// Creates the initial state in a simulation.
pub(crate) fn simulated(cloud: &OpenStack) -> (Client, Values) {
    let mut values = Values::new();
    cloud.world(|world| {
        let mut keep = |name: &str, id: &String| values.insert(name.to_owned(), id.clone());
        let admin = world.project("admin");
        world.user("admin", "secret", &admin, &["admin"]);
        let project = world.project("tenant");
        let user = world.user("tenant", "secret", &project, &["reader", "member", "load-balancer_member"]);
        let credential = world.application_credential(&user, &project, "ac", "s3");
        let trust = world.trust(&user, &project);
        for (name, id) in [("project", &project), ("user", &user), ("credential", &credential), ("trust", &trust)] {
            keep(name, id);
        }
        let network = world.network(&project, "net", Value::Null);
        let subnet =
            world.subnet(&SubnetSeed { network: &network, name: "sub", cidr: "10.77.0.0/24", ..SubnetSeed::default() });
        let other = world.network(&project, "net2", Value::Null);
        let far =
            world.subnet(&SubnetSeed { network: &other, name: "far", cidr: "10.78.0.0/24", ..SubnetSeed::default() });
        let external = world.network(&admin, "ext", json!({"router:external": true}));
        world.subnet(&SubnetSeed {
            network: &external,
            name: "extsub",
            cidr: "203.0.113.0/29",
            ..SubnetSeed::default()
        });
        let router = world.router(&project, "router", Some(&external), &[&subnet]);
        for (name, id) in [("net", &network), ("sub", &subnet), ("far", &far), ("ext", &external), ("router", &router)]
        {
            keep(name, id);
        }
        for (name, device) in [("port1", "dev1"), ("port2", "dev2")] {
            let port = world.port(&project, &[&subnet], json!({"name": name, "device_id": device})).unwrap();
            let address =
                world.row("port", &port).unwrap().fields["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
            keep(name, &port);
            keep(&format!("{name}_ip"), &address);
        }
        let port = world.port(&project, &[&far], json!({"name": "far"})).unwrap();
        keep("far_port", &port);
        world.flavor("1", "m1.tiny");
        for name in NAMES {
            let fields = json!({"metadata": {"k": "v"}});
            let seed = ServerSeed {
                project: &project,
                name,
                flavor: "1",
                subnets: &[&subnet],
                fields,
                ..ServerSeed::default()
            };
            let server = world.server(&seed);
            keep(name, &server);
        }
    });
    let client = Client::login(&format!("{}/v3", cloud.auth_url()), &password("tenant", "secret", "tenant"));
    own_group(&client, &mut values);
    (client, values)
}

fn own_group(client: &Client, values: &mut Values) {
    let answer = client.call("network GET /security-groups?name=default", &[], "");
    values.insert("default_group".to_owned(), answer.json["security_groups"][0]["id"].as_str().unwrap().to_owned());
}

/// Creates the initial state in a new project of a real cloud.
pub(crate) fn real(admin: &Client) -> (Client, Values) {
    let mut values = Values::new();
    let mut keep = |name: &str, id: &str| values.insert(name.to_owned(), id.to_owned());
    let name = format!("ccm-cases-{}", std::process::id());
    let project = admin.make("identity POST /projects", "project", &json!({"name": name, "domain_id": "default"}));
    let user = json!({"name": name, "domain_id": "default", "password": "secret"});
    let user = admin.make("identity POST /users", "user", &user);
    for role in admin.call("identity GET /roles", &[], "").json["roles"].as_array().unwrap() {
        if ["reader", "member", "load-balancer_member"].iter().any(|name| role["name"] == *name) {
            let id = role["id"].as_str().unwrap();
            admin.call(&format!("identity PUT /projects/{project}/users/{user}/roles/{id}"), &[], "");
        }
    }
    let client = Client::login(&admin.urls["identity"], &password(&name, "secret", &name));
    let credential = json!({"name": "ac", "secret": "s3"});
    let path = format!("identity POST /users/{user}/application_credentials");
    keep("credential", &client.make(&path, "application_credential", &credential));
    let trust = json!({
        "trustor_user_id": user, "trustee_user_id": user, "project_id": project, "impersonation": true,
        "roles": [{"name": "member"}],
    });
    keep("trust", &client.make("identity POST /OS-TRUST/trusts", "trust", &trust));
    keep("project", &project);
    keep("user", &user);
    let network = |client: &Client, name: &str, fields: Value| {
        let mut body = json!({ "name": name });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        client.make("network POST /networks", "network", &body)
    };
    let subnet = |client: &Client, network: &str, name: &str, cidr: &str| {
        let body = json!({"network_id": network, "name": name, "cidr": cidr, "ip_version": 4});
        client.make("network POST /subnets", "subnet", &body)
    };
    let (net, other) = (network(&client, "net", json!({})), network(&client, "net2", json!({})));
    let external = network(admin, "ext", json!({"router:external": true}));
    let (sub, far) = (subnet(&client, &net, "sub", "10.77.0.0/24"), subnet(&client, &other, "far", "10.78.0.0/24"));
    subnet(admin, &external, "extsub", "203.0.113.0/29");
    let gateway = json!({"name": "router", "external_gateway_info": {"network_id": external}});
    let router = client.make("network POST /routers", "router", &gateway);
    let body = json!({ "subnet_id": sub }).to_string();
    client.call(&format!("network PUT /routers/{router}/add_router_interface"), &[], &body);
    for (name, id) in
        [("net", &net), ("sub", &sub), ("far", &far), ("ext", &external), ("router", &router), ("net2", &other)]
    {
        keep(name, id);
    }
    for (name, device) in [("port1", "dev1"), ("port2", "dev2")] {
        let body = json!({"network_id": net, "name": name, "device_id": device});
        let port = client.make("network POST /ports", "port", &body);
        let shown = client.call(&format!("network GET /ports/{port}"), &[], "").json;
        keep(name, &port);
        keep(&format!("{name}_ip"), shown["port"]["fixed_ips"][0]["ip_address"].as_str().unwrap());
    }
    keep("far_port", &client.make("network POST /ports", "port", &json!({"network_id": other, "name": "far"})));
    let image = client.call("image GET /v2/images", &[], "").json["images"][0]["id"].clone();
    for name in NAMES {
        let body = json!({
            "name": name, "flavorRef": "1", "imageRef": image, "networks": [{"uuid": net}], "metadata": {"k": "v"},
        });
        let server = client.make("compute POST /servers", "server", &body);
        let path = format!("compute GET /servers/{server}");
        let ready = || client.call(&path, &[], "").json["server"]["status"] == "ACTIVE";
        while !ready() {
            std::thread::sleep(Duration::from_millis(200));
        }
        keep(name, &server);
    }
    own_group(&client, &mut values);
    (client, values)
}

/// Deletes the objects of the cases and the initial state in a real cloud, as far as possible.
pub(crate) fn remove(admin: &Client, client: &Client, values: &Values) {
    let project = &values["project"];
    let ids = |path: &str, list: &str| -> Vec<String> {
        let found = admin.call(&format!("{path}?project_id={project}"), &[], "").json;
        found[list].as_array().into_iter().flatten().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let delete = |service: &str, path: &str| admin.call(&format!("{service} DELETE {path}"), &[], "");
    for server in NAMES {
        client.call(&format!("compute DELETE /servers/{}", values[server]), &[], "");
    }
    for balancer in ids("load-balancer GET /loadbalancers", "loadbalancers") {
        delete("load-balancer", &format!("/loadbalancers/{balancer}?cascade=true"));
        while client.call(&format!("load-balancer GET /loadbalancers/{balancer}"), &[], "").status == 200 {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    for floating in ids("network GET /floatingips", "floatingips") {
        delete("network", &format!("/floatingips/{floating}"));
    }
    let router = &values["router"];
    client.call(&format!("network PUT /routers/{router}"), &[], r#"{"router":{"routes":[]}}"#);
    let body = json!({"subnet_id": values["sub"]}).to_string();
    client.call(&format!("network PUT /routers/{router}/remove_router_interface"), &[], &body);
    delete("network", &format!("/routers/{router}"));
    std::thread::sleep(Duration::from_secs(2));
    for port in ids("network GET /ports", "ports") {
        delete("network", &format!("/ports/{port}"));
    }
    for name in ["net", "net2", "ext"] {
        delete("network", &format!("/networks/{}", values[name]));
    }
    for group in ids("network GET /security-groups", "security_groups") {
        delete("network", &format!("/security-groups/{group}"));
    }
    delete("identity", &format!("/users/{}", values["user"]));
    delete("identity", &format!("/projects/{project}"));
}
