//! `ccm-cloudsim azure`.

use super::{Common, file};
use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};

#[derive(Debug)]
struct Wanted {
    options: Options,
    subscription: String,
    group: String,
    location: String,
    nodes: usize,
    kind: Kind,
    dual: bool,
    load: Option<String>,
}

/// The kind of the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Uniform,
    Flexible,
    Standard,
}

fn read(flags: &[String]) -> Result<(Wanted, Common), String> {
    let mut wanted = Wanted {
        options: Options::default(),
        subscription: "sub".to_owned(),
        group: "rg".to_owned(),
        location: "eastus".to_owned(),
        nodes: 0,
        kind: Kind::Uniform,
        dual: false,
        load: None,
    };
    let mut common = Common::default();
    for flag in flags {
        if common.takes(flag, &mut wanted.options)? {
            continue;
        }
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "--subscription" => wanted.subscription = value.to_owned(),
            "--resource-group" => wanted.group = value.to_owned(),
            "--location" => wanted.location = value.to_owned(),
            "--load" => wanted.load = Some(file(value)?),
            "--dual" => wanted.dual = true,
            "--nodes" => wanted.nodes = value.parse().map_err(|_| format!("{flag}: not a number"))?,
            "--vm-type" => {
                wanted.kind = match value {
                    "vmss" => Kind::Uniform,
                    "vmssflex" => Kind::Flexible,
                    "standard" => Kind::Standard,
                    _ => return Err(format!("{flag}: there are only vmss, vmssflex and standard")),
                }
            }
            _ => return Err(format!("unknown flag {flag}; --help shows what there is")),
        }
    }
    wanted.options.port = common.port.unwrap_or(wanted.options.port);
    wanted.options.admin_port = common.admin_port.unwrap_or(wanted.options.admin_port);
    Ok((wanted, common))
}

/// Serves until the process is stopped.
pub(crate) fn run(flags: &[String]) -> Result<(), String> {
    let (wanted, common) = read(flags)?;
    let azure = Azure::start(wanted.options.clone()).map_err(|error| error.to_string())?;
    let (subscription, group, location) =
        (wanted.subscription.as_str(), wanted.group.as_str(), wanted.location.as_str());
    let machines = if wanted.kind == Kind::Standard { wanted.nodes } else { 0 };
    let range_v6 = if wanted.dual { "fd00:240::/64" } else { "" };
    let seed = ClusterSeed { subscription, group, location, machines, range_v6, ..ClusterSeed::default() };
    let cluster = azure.world(|world| world.cluster(&seed));
    if wanted.kind != Kind::Standard {
        let (flexible, instances, subnet) = (wanted.kind == Kind::Flexible, wanted.nodes, cluster.subnet.as_str());
        let dual = wanted.dual;
        let seed = SetSeed { subscription, group, location, subnet, flexible, instances, dual, ..SetSeed::default() };
        azure.world(|world| world.scale_set(&seed));
    }
    if let Some(dump) = &wanted.load {
        let dump = serde_json::from_str(dump).map_err(|error| format!("--load: {error}"))?;
        azure.world(|world| world.restore(&dump));
    }
    let urls = serde_json::json!({
        "endpoint": azure.root(),
        "admin": azure.admin_url(),
        "tenant": "tenant",
        "client": "client",
        "secret": "secret",
        "subscription": subscription,
        "resourceGroup": group,
        "network": cluster.network,
        "subnet": cluster.subnet,
        "securityGroup": cluster.security_group,
        "routeTable": cluster.route_table,
    });
    println!("{urls}");
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
        let flags =
            ["--port=81", "--subscription=s", "--resource-group=g", "--nodes=5", "--vm-type=vmssflex", "--dual"];
        let (wanted, _) = parsed(&flags).unwrap();
        assert_eq!((wanted.options.port, wanted.nodes, wanted.kind), (81, 5, Kind::Flexible));
        assert_eq!((wanted.subscription.as_str(), wanted.group.as_str(), wanted.dual), ("s", "g", true));
    }

    #[test]
    fn mistakes_are_named() {
        for (flag, word) in [
            ("--imds", "unknown flag --imds"),
            ("--vm-type=basic", "there are only vmss"),
            ("--load=/nowhere/x.json", "/nowhere/x.json"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
