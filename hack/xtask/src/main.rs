//! Automation of this workspace, in Rust so that it needs only cargo: `cargo xtask <command>`.

mod bench;
mod dashboard;
mod deps;
mod docs;
mod each;
mod manifests;
mod metadata;
mod pictures;
mod reference;
mod tree;

use std::process::ExitCode;

use anyhow::bail;

/// A new command needs one line here and one module.
const COMMANDS: &[Command] = &[
    Command { name: "bench", about: "benchmarks on a real API server, in release mode", run: bench::command },
    Command { name: "check-deps", about: "who may depend on whom: fails on a forbidden edge", run: deps::command },
    Command {
        name: "check-each",
        about: "cargo check of each crate and feature that people use alone",
        run: each::command,
    },
    Command {
        name: "check-tree",
        about: "crates that must not be in the program, even indirectly",
        run: tree::command,
    },
    Command {
        name: "dashboard",
        about: "an incident in a real Prometheus: each panel has data, alerts fire; --out FOLDER draws the panels",
        run: dashboard::command,
    },
    Command { name: "docs", about: "the pages: style, tables, links, each event and alert", run: docs::command },
    Command {
        name: "manifests",
        about: "writes the generated parts of manifests/; with --check fails when one is stale",
        run: manifests::command,
    },
    Command {
        name: "pictures",
        about: "draws the pictures of the pages; with --check fails when one is stale",
        run: pictures::command,
    },
    Command {
        name: "reference",
        about: "writes the generated parts of the pages; with --check fails when they are stale",
        run: reference::command,
    },
];

struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> anyhow::Result<()> {
    let Some((name, rest)) = arguments.split_first() else { bail!("which command?\n{}", usage()) };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        println!("{}", usage());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => bail!("unknown command {name}\n{}", usage()),
    }
}

fn usage() -> String {
    let lines: Vec<String> = COMMANDS.iter().map(|c| format!("  cargo xtask {:<12} {}", c.name, c.about)).collect();
    lines.join("\n")
}

/// For the commands without arguments.
fn no_arguments(arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.is_empty() {
        bail!("unexpected arguments: {}", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_names_the_known_ones() {
        let error = dispatch(&["chek-deps".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("chek-deps") && error.contains("check-deps"), "{error}");
        assert!(dispatch(&[]).is_err());
    }
}
