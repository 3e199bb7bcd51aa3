//! Runs a cloud-controller-manager on a real API server and compares what it does with what Kubernetes expects of one.
//! See the README.

mod arguments;
mod checks;
mod report;
mod run;
mod world;

use std::process::ExitCode;

use anyhow::Context as _;
use arguments::{Command, Output};
use tokio::signal::unix::{SignalKind, signal};

const NOT_RUN: u8 = 3;

fn main() -> ExitCode {
    let command = match arguments::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("ccm-conformance: {error:#}");
            return ExitCode::from(2);
        }
    };
    match carry_out(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ccm-conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    let options = match command {
        Command::Help => {
            println!("{}", arguments::HELP);
            return Ok(ExitCode::SUCCESS);
        }
        Command::List => {
            print!("{}", report::list());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Table(files) => {
            print!("{}", report::table(&files)?);
            return Ok(ExitCode::SUCCESS);
        }
        Command::Run(options) => options,
    };
    let output = options.output;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // A run that is dropped stops what it has started.
        tokio::select! {
            report = run::run(options) => report,
            _ = terminate.recv() => anyhow::bail!("stopped by SIGTERM"),
            _ = interrupt.recv() => anyhow::bail!("stopped by SIGINT"),
        }
    });
    drop(runtime);
    let Some(report) = report? else { return Ok(ExitCode::from(NOT_RUN)) };
    let text = match output {
        Output::Text => report.text(),
        Output::Json => serde_json::to_string_pretty(&report.json()).context("writing the report")? + "\n",
        Output::Junit => report.junit(),
    };
    print!("{text}");
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
