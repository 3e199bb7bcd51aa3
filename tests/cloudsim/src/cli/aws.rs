//! `ccm-cloudsim aws`.

use super::{Common, file};
use ccm_cloudsim::aws::ec2::seed::{InstanceSeed, NetworkSeed, instances, network};
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options};

#[derive(Debug, Default)]
struct Wanted {
    options: Options,
    load: Option<String>,
    nodes: usize,
    cluster: Option<String>,
    imds: bool,
}

fn read(flags: &[String]) -> Result<(Wanted, Common), String> {
    let (mut wanted, mut common) = (Wanted::default(), Common::default());
    for flag in flags {
        if common.takes(flag, &mut wanted.options)? {
            continue;
        }
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "--load" => wanted.load = Some(file(value)?),
            "--nodes" => wanted.nodes = value.parse().map_err(|_| format!("{flag}: not a number"))?,
            "--cluster" => wanted.cluster = Some(value.to_owned()),
            "--imds" => wanted.imds = true,
            _ => return Err(format!("unknown flag {flag}; --help shows what there is")),
        }
    }
    wanted.options.port = common.port.unwrap_or(wanted.options.port);
    wanted.options.admin_port = common.admin_port.unwrap_or(wanted.options.admin_port);
    Ok((wanted, common))
}

/// Serves until the process is stopped.
pub(crate) fn run(flags: &[String]) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (wanted, common) = read(flags)?;
    let aws = Aws::start(wanted.options.clone()).map_err(|error| text(&error))?;
    if let Some(dump) = &wanted.load {
        aws.load(dump).map_err(|error| format!("--load: {error}"))?;
    }
    if wanted.nodes > 0 {
        seed(&aws, &wanted)?;
    }
    let first = aws.world(|world| world.ec2.instances.keys().next().cloned());
    let imds: Option<Imds> = match (&first, wanted.imds) {
        (Some(id), true) => Some(aws.imds(id, ImdsOptions::default()).map_err(|error| text(&error))?),
        (None, true) => return Err("--imds: there is no instance; --nodes or --load make some".to_owned()),
        (_, false) => None,
    };
    let urls = serde_json::json!({
        "endpoint": aws.url(),
        "admin": aws.admin_url(),
        "imds": imds.as_ref().map(Imds::url),
        "region": wanted.options.region,
    });
    println!("{urls}");
    common.wait()
}

fn seed(aws: &Aws, wanted: &Wanted) -> Result<(), String> {
    aws.world(|world| {
        let net = network(world, &NetworkSeed { cluster: wanted.cluster.clone(), ..NetworkSeed::default() })?;
        let tag = |id: &String| (format!("kubernetes.io/cluster/{id}"), "owned".to_owned());
        let seed = InstanceSeed {
            count: wanted.nodes,
            subnets: net.private,
            groups: vec![net.node_group],
            tags: wanted.cluster.iter().map(tag).collect(),
            ..InstanceSeed::default()
        };
        instances(world, &seed).map(|_| ())
    })
    .map_err(|error| format!("--nodes: {}: {}", error.code, error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(flags: &[&str]) -> Result<(Wanted, Common), String> {
        read(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        let (wanted, common) =
            parsed(&["--port=81", "--admin-port=82", "--nodes=5", "--cluster=c1", "--imds"]).unwrap();
        assert_eq!((wanted.options.port, wanted.options.admin_port, wanted.nodes), (81, 82, 5));
        assert!(wanted.imds && !common.until_eof && wanted.cluster.as_deref() == Some("c1"));
    }

    #[test]
    fn mistakes_are_named() {
        for (flag, word) in [
            ("--prot=1", "--prot=1"),
            ("--port=x", "not a port number"),
            ("--options=/nowhere/x.json", "/nowhere/x.json"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
