//! `ccm-cloudsim aws`: a simulated cloud as a process of its own, until Ctrl-C.

use ccm_cloudsim::aws::ec2::seed::{InstanceSeed, NetworkSeed, instances, network};
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options};
use std::io::Read;
use std::process::ExitCode;

const HELP: &str = "\
ccm-cloudsim aws [FLAG ...]

Serves a simulated AWS on 127.0.0.1 (EC2, ELB, ELBv2, STS on one port, the admin API on another) and prints one line
of JSON with its URLs. Ctrl-C stops it.

  --port=<n>              port of the services (0, the default: any free one)
  --admin-port=<n>        port of the admin API
  --options=<file>        behaviour as JSON: latency, throttle, lag, limits, delays, pages, clock; GET /options of the
                          admin API shows all of it
  --load=<file>           start from a dump (GET /dump of the admin API)
  --nodes=<n>             make a network and that many running instances in it
  --cluster=<id>          tag the network and the instances with this cluster ID
  --imds                  start the metadata service of the first instance
  --until-eof             stop when standard input ends, so that it can't outlive its starter";

#[derive(Debug, Default)]
struct Wanted {
    options: Options,
    load: Option<String>,
    nodes: usize,
    cluster: Option<String>,
    imds: bool,
    until_eof: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match read(&arguments).and_then(|wanted| run(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ccm-cloudsim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Result<Wanted, String> {
    let Some(("aws", flags)) = arguments.split_first().map(|(cloud, flags)| (cloud.as_str(), flags)) else {
        return Err("the first argument is the cloud, and there is only: aws".to_owned());
    };
    let mut wanted = Wanted::default();
    let (mut port, mut admin_port) = (None, None);
    for flag in flags {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let number = || value.parse::<u16>().map_err(|_| format!("{flag}: not a port number"));
        match name {
            "--port" => port = Some(number()?),
            "--admin-port" => admin_port = Some(number()?),
            "--options" => {
                let text = file(value)?;
                wanted.options = serde_json::from_str(&text).map_err(|error| format!("{value}: {error}"))?;
            }
            "--load" => wanted.load = Some(file(value)?),
            "--nodes" => wanted.nodes = value.parse().map_err(|_| format!("{flag}: not a number"))?,
            "--cluster" => wanted.cluster = Some(value.to_owned()),
            "--imds" => wanted.imds = true,
            "--until-eof" => wanted.until_eof = true,
            _ => return Err(format!("unknown flag {flag}; --help shows what there is")),
        }
    }
    wanted.options.port = port.unwrap_or(wanted.options.port);
    wanted.options.admin_port = admin_port.unwrap_or(wanted.options.admin_port);
    Ok(wanted)
}

fn file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn run(wanted: &Wanted) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| text(&error))?;
    let aws = Aws::start(wanted.options.clone()).map_err(|error| text(&error))?;
    if let Some(dump) = &wanted.load {
        aws.load(dump).map_err(|error| format!("--load: {error}"))?;
    }
    if wanted.nodes > 0 {
        seed(&aws, wanted)?;
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
    runtime.block_on(stopped(wanted.until_eof)).map_err(|error| text(&error))
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

async fn stopped(until_eof: bool) -> std::io::Result<()> {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    if until_eof {
        std::thread::spawn(move || {
            // Both the end and an error mean that nobody is there any more.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(ended);
        });
    } else {
        // Kept for ever, so that `end` never comes.
        std::mem::forget(ended);
    }
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
        _ = end => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wanted, String> {
        read(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        let wanted = parsed(&["aws", "--port=81", "--admin-port=82", "--nodes=5", "--cluster=c1", "--imds"]).unwrap();
        assert_eq!((wanted.options.port, wanted.options.admin_port, wanted.nodes), (81, 82, 5));
        assert!(wanted.imds && !wanted.until_eof && wanted.cluster.as_deref() == Some("c1"));
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, word) in [
            (vec!["gce"], "there is only: aws"),
            (vec!["aws", "--prot=1"], "--prot=1"),
            (vec!["aws", "--port=x"], "not a port number"),
            (vec!["aws", "--options=/nowhere/x.json"], "/nowhere/x.json"),
        ] {
            let error = parsed(&arguments).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
