//! `ccm-cloudsim gce`.

use super::{Common, file};
use ccm_cloudsim::gce::seed::ClusterSeed;
use ccm_cloudsim::gce::{Gce, Metadata, Options};

#[derive(Debug)]
struct Wanted {
    options: Options,
    project: String,
    network_project: String,
    zones: Vec<String>,
    nodes: usize,
    metadata: bool,
    load: Option<String>,
}

fn read(flags: &[String]) -> Result<(Wanted, Common), String> {
    let mut wanted = Wanted {
        options: Options::default(),
        project: "p".to_owned(),
        network_project: String::new(),
        zones: vec!["us-central1-b".to_owned()],
        nodes: 0,
        metadata: false,
        load: None,
    };
    let mut common = Common::default();
    for flag in flags {
        if common.takes(flag, &mut wanted.options)? {
            continue;
        }
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "--project" => wanted.project = value.to_owned(),
            "--network-project" => wanted.network_project = value.to_owned(),
            "--zones" => wanted.zones = value.split(',').map(str::to_owned).collect(),
            "--nodes" => wanted.nodes = value.parse().map_err(|_| format!("{flag}: not a number"))?,
            "--metadata" => wanted.metadata = true,
            "--load" => wanted.load = Some(file(value)?),
            _ => return Err(format!("unknown flag {flag}; --help shows what there is")),
        }
    }
    wanted.options.port = common.port.unwrap_or(wanted.options.port);
    wanted.options.admin_port = common.admin_port.unwrap_or(wanted.options.admin_port);
    let known = |zone: &&String| wanted.options.regions.values().flatten().any(|known| known == *zone);
    if let Some(unknown) = wanted.zones.iter().find(|zone| !known(zone)) {
        return Err(format!("--zones: there is no zone {unknown}; regions of --options names them"));
    }
    Ok((wanted, common))
}

/// Serves until the process is stopped.
pub(crate) fn run(flags: &[String]) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (wanted, common) = read(flags)?;
    let gce = Gce::start(wanted.options.clone()).map_err(|error| text(&error))?;
    let zones: Vec<&str> = wanted.zones.iter().map(String::as_str).collect();
    let seed = ClusterSeed {
        project: &wanted.project,
        network_project: &wanted.network_project,
        zones: &zones,
        nodes: wanted.nodes,
        ..ClusterSeed::default()
    };
    let cluster = gce.world(|world| world.cluster(&seed));
    if let Some(objects) = &wanted.load {
        let objects: serde_json::Value = serde_json::from_str(objects).map_err(|error| format!("--load: {error}"))?;
        gce.world(|world| world.restore(&serde_json::json!({ "objects": objects })));
    }
    let metadata = match (cluster.instances.first(), wanted.metadata) {
        (Some(instance), true) => Some(gce.metadata(instance, 0).map_err(|error| text(&error))?),
        (None, true) => return Err("--metadata: there is no instance; --nodes makes some".to_owned()),
        (_, false) => None,
    };
    let urls = serde_json::json!({
        "endpoint": gce.url(),
        "admin": gce.admin_url(),
        "token": gce.token_url(),
        "metadata": metadata.as_ref().map(Metadata::host),
        "network": cluster.network,
        "subnetwork": cluster.subnetwork,
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
            ["--port=81", "--project=q", "--zones=us-east1-b,us-east1-c", "--nodes=5", "--metadata", "--until-eof"];
        let (wanted, common) = parsed(&flags).unwrap();
        assert_eq!((wanted.options.port, wanted.nodes, wanted.project.as_str()), (81, 5, "q"));
        assert_eq!(wanted.zones, ["us-east1-b", "us-east1-c"]);
        assert!(wanted.metadata && common.until_eof);
    }

    #[test]
    fn mistakes_are_named() {
        for (flag, word) in [
            ("--imds", "unknown flag --imds"),
            ("--zones=nosuch", "no zone nosuch"),
            ("--load=/nowhere/x.json", "/nowhere/x.json"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
