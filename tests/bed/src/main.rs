//! `cargo run -p ccm-test-bed`: a real API server for manual tests, until Ctrl-C.

use std::process::ExitCode;

use anyhow::Context as _;
use ccm_test_bed::{Audit, Bed, Options};

const HELP: &str = "\
ccm-bed [FLAG ...]

Starts etcd and kube-apiserver (with RBAC) on 127.0.0.1, until Ctrl-C.

  --audit                 write an audit log
  --audit-bodies          the same with the bodies of writes of nodes and Services
  --kcm                   start a kube-controller-manager too
  --kcm-arg=<flag>        one more flag for it, as in --kcm-arg=--cloud-provider=external
  --<flag>=<value>        one more flag for kube-apiserver";

#[derive(Default)]
struct Wanted {
    options: Options,
    /// Flags of the kube-controller-manager, if one is started.
    controller_manager: Option<Vec<String>>,
}

fn main() -> anyhow::Result<ExitCode> {
    let mut wanted = Wanted::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--audit" => wanted.options = wanted.options.audit(),
            "--audit-bodies" => wanted.options = wanted.options.audit_bodies(),
            "--kcm" => {
                wanted.controller_manager.get_or_insert_default();
            }
            "-h" | "--help" => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            flag => match flag.strip_prefix("--kcm-arg=") {
                Some(flag) => wanted.controller_manager.get_or_insert_default().push(flag.to_owned()),
                None => wanted.options = wanted.options.apiserver_arg(flag),
            },
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(wanted))
}

async fn run(wanted: Wanted) -> anyhow::Result<ExitCode> {
    let audit = wanted.options.audit;
    let Some(bed) = Bed::start_with(wanted.options).await? else { return Ok(ExitCode::FAILURE) };
    let own = bed.kubeconfig_with(&bed.ccm_token)?;
    println!("API server   {}", bed.url);
    println!("As the cloud-controller-manager's service account: {}", own.display());
    if audit != Audit::Off {
        println!("Audit log    {}", bed.audit_log().display());
    }
    println!("Logs         {}", bed.folder().display());
    if let Some(kubectl) = ccm_test_bed::kubectl()? {
        println!("kubectl      {}", kubectl.display());
    }
    let controller_manager = match &wanted.controller_manager {
        None => None,
        Some(args) => {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let Some(started) = bed.start_controller_manager(&args).await? else { return Ok(ExitCode::FAILURE) };
            println!("kube-controller-manager {}, log {}", started.url, started.log().display());
            Some(started)
        }
    };
    println!("\nexport KUBECONFIG={}\n", bed.kubeconfig().display());
    println!("Ctrl-C stops it and deletes its data.");
    wait_for_signal().await?;
    drop(controller_manager);
    bed.stop().await;
    Ok(ExitCode::SUCCESS)
}

async fn wait_for_signal() -> anyhow::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("waiting for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
