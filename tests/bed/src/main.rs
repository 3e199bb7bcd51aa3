//! `cargo run -p ccm-test-bed`: a real API server to try things by hand, until Ctrl-C.

use std::process::ExitCode;

use anyhow::Context as _;
use ccm_test_bed::{Bed, Options};

fn main() -> anyhow::Result<ExitCode> {
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--audit" => options = options.audit(),
            "-h" | "--help" => {
                println!("ccm-bed [--audit] [--<flag of kube-apiserver>=<value> ...]");
                return Ok(ExitCode::SUCCESS);
            }
            flag => options = options.apiserver_arg(flag),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(options))
}

async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let audit = options.audit;
    let Some(bed) = Bed::start_with(options).await? else { return Ok(ExitCode::FAILURE) };
    let own = bed.kubeconfig_with(&bed.ccm_token)?;
    println!("API server   {}", bed.url);
    println!("As the cloud-controller-manager's service account: {}", own.display());
    if audit {
        println!("Audit log    {}", bed.audit_log().display());
    }
    println!("Logs         {}", bed.folder().display());
    if let Some(kubectl) = bed.kubectl() {
        println!("kubectl      {}", kubectl.display());
    }
    println!("\nexport KUBECONFIG={}\n", bed.kubeconfig().display());
    println!("Ctrl-C stops it and deletes its data.");
    wait_for_signal().await?;
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
