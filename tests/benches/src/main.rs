//! Benchmarks of the whole program: the real process, a real API server, a cloud with configurable latency.
//!
//! ```text
//! cargo xtask bench startup [--nodes 5000]        a burst of tainted nodes: time to the last taint, calls, writes
//! cargo xtask bench memory  [--nodes 100,1000,…]  RSS at rest and peak
//! cargo xtask bench idle    [--nodes 5000] [--minutes 15]
//! cargo xtask bench                               all three
//! cargo xtask bench aws --ccm <program> [burst] [burst-by-name] [handover] [quiet] [partial] [throttle] [balancers]
//!                       [--nodes 5000] [--services 500] [--minutes 10]
//!                                                 that program, built with feature aws, on the simulated AWS
//! cargo xtask bench aws --ccm <program> --former <another build> takeover
//!                                                 one takes over the objects of the other, and back: neither writes
//! cargo xtask bench openstack --ccm <program> [nodes] [ports] [member] [restart] [quiet]
//!                       [--nodes 1000] [--services 100] [--minutes 10] [--busy 1,2,5,20]
//!                                                 the same with feature openstack, on the simulated OpenStack
//! cargo xtask bench azure --ccm <program> [interfaces] [addresses] [replaced] [members] [nodes] [sets] [routes] [quiet]
//!                       [memory] [--nodes 5000] [--services 500] [--minutes 10]
//!                                                 the same with feature azure, on the simulated Azure
//! cargo xtask bench gce --ccm <program> [looks] [hosts] [external] [internal] [nodes] [quiet]
//!                       [takeover --former <program>] [--nodes 5000] [--services 500] [--minutes 10]
//!                                                 the same with feature gce, on the simulated Compute Engine
//! ```
//! Prints a table and writes `startup.svg` and `memory.svg` to `--out` (default: the current folder). Times depend on
//! the machine; no limits are enforced.

mod aws;
mod azure;
mod cluster;
mod figures;
mod gce;
mod measures;
mod openstack;
mod plot;
mod process;
mod provider;
mod runs;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

// The allocator of the program.
#[global_allocator]
static ALLOCATOR: ccm::Allocator = ccm::Allocator;

/// The benchmarks to run.
#[derive(Debug, Clone)]
struct Settings {
    which: String,
    // The runs of `aws`, `azure`, `gce` and `openstack`; if empty, all of them.
    runs: Vec<String>,
    nodes: Vec<usize>,
    services: usize,
    minutes: u64,
    // The duration of a change in Octavia, in seconds: one run of `ports` and `member` for each.
    busy: Vec<u64>,
    program: Option<PathBuf>,
    /// The program from which `program` takes over.
    former: Option<PathBuf>,
    out: PathBuf,
}

impl Settings {
    /// The program to run on this simulated cloud.
    fn program(&self, cloud: &str) -> anyhow::Result<PathBuf> {
        self.program.clone().with_context(|| {
            format!(
                "which program? `cargo build --release -p ccm --features {cloud}`, then --ccm target/release/ccm (or \
                 CCM_BENCH_PROGRAM)"
            )
        })
    }

    fn wants(&self, run: &str) -> bool {
        self.runs.is_empty() || self.runs.iter().any(|wanted| wanted == run || wanted == "all")
    }

    fn most_nodes(&self, default: usize) -> usize {
        self.nodes.iter().max().copied().unwrap_or(default)
    }
}

fn main() -> ExitCode {
    // The measured process is this program, as a cloud-controller-manager with the provider of the benchmark.
    if std::env::var_os(process::ROLE).is_some() {
        return ccm::App::new().register(provider::Factory).run(std::env::args_os());
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> anyhow::Result<()> {
    let settings = settings(std::env::args().skip(1))?;
    ccm::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if settings.which == "aws" {
            return aws::run(&settings).await;
        }
        if settings.which == "azure" {
            return azure::run(&settings).await;
        }
        if settings.which == "gce" {
            return gce::run(&settings).await;
        }
        if settings.which == "openstack" {
            return openstack::run(&settings).await;
        }
        if matches!(&*settings.which, "all" | "startup") {
            runs::startup(settings.most_nodes(5000), &settings.out).await.context("startup")?;
        }
        if matches!(&*settings.which, "all" | "memory") {
            runs::memory(&settings.nodes, &settings.out).await.context("memory")?;
        }
        if matches!(&*settings.which, "all" | "idle") {
            runs::idle(settings.most_nodes(5000), settings.minutes).await.context("idle")?;
        }
        Ok(())
    })
}

fn settings(mut args: impl Iterator<Item = String>) -> anyhow::Result<Settings> {
    let mut settings = Settings {
        which: "all".into(),
        runs: Vec::new(),
        nodes: vec![0, 100, 1000, 5000],
        services: 500,
        minutes: 15,
        busy: vec![5],
        program: std::env::var_os("CCM_BENCH_PROGRAM").map(PathBuf::from),
        former: None,
        out: PathBuf::from("."),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match &*arg {
            run if settings.which == "aws" && aws::RUNS.contains(&run) => settings.runs.push(arg),
            run if settings.which == "azure" && azure::RUNS.contains(&run) => settings.runs.push(arg),
            run if settings.which == "gce" && gce::RUNS.contains(&run) => settings.runs.push(arg),
            run if settings.which == "openstack" && openstack::RUNS.contains(&run) => settings.runs.push(arg),
            "all" | "startup" | "memory" | "idle" | "aws" | "azure" | "gce" | "openstack" => settings.which = arg,
            "--ccm" => settings.program = Some(value()?.into()),
            "--former" => settings.former = Some(value()?.into()),
            "--services" => {
                let services = value()?;
                settings.services =
                    services.parse().with_context(|| format!("--services {services:?} is no number"))?;
            }
            "--nodes" => {
                let numbers = value()?;
                let parsed: Result<Vec<usize>, _> = numbers.split(',').map(str::parse).collect();
                settings.nodes = parsed.with_context(|| format!("--nodes {numbers:?} is no list of numbers"))?;
            }
            "--minutes" => {
                let minutes = value()?;
                settings.minutes = minutes.parse().with_context(|| format!("--minutes {minutes:?} is no number"))?;
            }
            "--busy" => {
                let numbers = value()?;
                let parsed: Result<Vec<u64>, _> = numbers.split(',').map(str::parse).collect();
                settings.busy = parsed.with_context(|| format!("--busy {numbers:?} is no list of seconds"))?;
            }
            "--out" => settings.out = value()?.into(),
            other => {
                bail!(
                    "unknown argument {other:?}; known are startup, memory, idle, all, aws, azure, gce, openstack, --ccm, --former, \
                     --nodes, --services, --minutes, --busy, --out"
                )
            }
        }
    }
    Ok(settings)
}
