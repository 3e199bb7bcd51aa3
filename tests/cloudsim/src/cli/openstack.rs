//! `ccm-cloudsim openstack`.

use super::{Common, file};
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The password of both users, and the secret of the application credential.
const SECRET: &str = "not-a-secret";

#[derive(Debug)]
struct Wanted {
    options: Options,
    nodes: usize,
    dual: bool,
    load: Option<String>,
}

fn read(flags: &[String]) -> Result<(Wanted, Common), String> {
    let mut wanted = Wanted { options: Options::default(), nodes: 0, dual: false, load: None };
    let mut common = Common::default();
    for flag in flags {
        if common.takes(flag, &mut wanted.options)? {
            continue;
        }
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "--nodes" => wanted.nodes = value.parse().map_err(|_| format!("{flag}: not a number"))?,
            "--dual" => wanted.dual = true,
            "--load" => wanted.load = Some(file(value)?),
            _ => return Err(format!("unknown flag {flag}; --help shows what there is")),
        }
    }
    wanted.options.port = common.port.unwrap_or(wanted.options.port);
    wanted.options.admin_port = common.admin_port.unwrap_or(wanted.options.admin_port);
    Ok((wanted, common))
}

/// Makes a project with a network of servers, and a router to the external network. Returns what the caller needs of it.
fn seed(world: &mut World, wanted: &Wanted) -> Value {
    let operator = world.project("admin");
    world.user("admin", SECRET, &operator, &["admin"]);
    let external = world.network(&operator, "public", json!({"router:external": true}));
    let public = SubnetSeed { network: &external, name: "public", cidr: "203.0.113.0/24", ..SubnetSeed::default() };
    world.subnet(&public);
    let project = world.project("demo");
    let user = world.user("demo", SECRET, &project, &["member"]);
    let credential = world.application_credential(&user, &project, "demo", SECRET);
    let network = world.network(&project, "nodes", json!({}));
    let ranges = ["10.0.0.0/16", "fd00:240::/64"].into_iter().take(if wanted.dual { 2 } else { 1 });
    let subnets: Vec<String> = ranges
        .map(|cidr| world.subnet(&SubnetSeed { network: &network, name: "nodes", cidr, ..SubnetSeed::default() }))
        .collect();
    let subnets: Vec<&str> = subnets.iter().map(String::as_str).collect();
    let router = world.router(&project, "nodes", Some(&external), &subnets);
    world.flavor("1", "m1.large");
    for (number, zone) in (1..=wanted.nodes).zip(["az-1", "az-2", "az-3"].into_iter().cycle()) {
        let (name, project, subnets) = (format!("node-{number}"), project.as_str(), subnets.as_slice());
        world.server(&ServerSeed { project, name: &name, flavor: "1", subnets, zone, fields: Value::Null });
    }
    json!({
        "project": project, "credential": credential, "secret": SECRET, "external": external, "network": network,
        "subnets": subnets, "router": router,
    })
}

/// Serves until the process is stopped.
pub(crate) fn run(flags: &[String]) -> Result<(), String> {
    let (wanted, common) = read(flags)?;
    let openstack = OpenStack::start(wanted.options.clone()).map_err(|error| error.to_string())?;
    let objects = openstack.world(|world| seed(world, &wanted));
    if let Some(dump) = &wanted.load {
        let dump = serde_json::from_str(dump).map_err(|error| format!("--load: {error}"))?;
        openstack.world(|world| world.load(&dump)).map_err(|error| format!("--load: {error}"))?;
    }
    let urls = json!({
        "endpoint": openstack.url(),
        "auth_url": format!("{}/v3", openstack.auth_url()),
        "admin": openstack.admin_url(),
    });
    let all = [&objects, &urls].into_iter().filter_map(Value::as_object).flatten();
    let shown: BTreeMap<&String, &Value> = all.collect();
    println!("{}", json!(shown));
    common.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(flags: &[&str]) -> Result<(Wanted, Common), String> {
        read(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        let (wanted, common) = parsed(&["--port=81", "--nodes=5", "--dual", "--until-eof"]).unwrap();
        assert_eq!((wanted.options.port, wanted.nodes, wanted.dual), (81, 5, true));
        assert!(common.until_eof);
    }

    #[test]
    fn mistakes_are_named() {
        for (flag, word) in [
            ("--imds", "unknown flag --imds"),
            ("--nodes=x", "not a number"),
            ("--load=/nowhere/x.json", "/nowhere/x.json"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_the_admin_api_shows_can_be_loaded() {
        let (wanted, _) = parsed(&["--nodes=2", "--dual"]).unwrap();
        let mut world = World::new(Options::default());
        seed(&mut world, &wanted);
        let shown = world.resources();
        assert_eq!(shown["server"].as_array().map(Vec::len), Some(2));
        let mut other = World::new(Options::default());
        other.load(&shown).unwrap();
        assert_eq!(other.resources(), shown);
        assert_eq!(other.load(&json!({"planet": []})).unwrap_err(), "there is no kind planet");
    }
}
