//! The commands of the program; the first argument that is not a flag is the command's name.
//!
//! Without a command all arguments are flags, as in the Go programs, and every other word is an error. A command also
//! accepts the flags of the program, so that the arguments of the DaemonSet can be appended. It uses the tables, plans
//! and decisions of the controllers and duplicates none of them.

mod check;
mod complete;
mod completion;
mod explain;
mod kubeconfig;
mod lint;
mod migrate_check;
mod migrate_values;
mod orphans;
mod output;
mod page;
mod plan;
mod previewed;
mod progress;
mod snapshot;
mod target;
mod version;
mod world;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};

use ccm_kit::document::nearest;
use ccm_provider::Registry;
use ccm_provider::flag::{Flag, FlagValues, Kind};
use futures::future::BoxFuture;

use crate::exit::{Failure, Verdict};
use crate::logging::LoggingOptions;
use crate::options::{Options, help, parse};
use crate::program::Program;
use output::{Format, Output};

pub(crate) struct Command {
    name: &'static str,
    /// The positional arguments, for the usage text.
    words: &'static str,
    about: &'static str,
    /// The rest of its `--help`: examples, exit codes.
    details: &'static str,
    /// Its own flags, in addition to those of the program and [`OUTPUT`].
    flags: &'static [Flag],
    /// Its flag `-n`.
    namespace: &'static Flag,
    /// The values of `-o` besides `text`, `json` and `yaml`.
    formats: &'static [Format],
    /// Whether `kubectl ccm` takes the flags of the program that runs in the cluster.
    like_running: bool,
    run: fn(Call) -> BoxFuture<'static, Result<Verdict, Failure>>,
}

const COMMANDS: &[Command] = &[
    check::COMMAND,
    explain::COMMAND,
    plan::COMMAND,
    lint::COMMAND,
    migrate_check::COMMAND,
    migrate_values::COMMAND,
    orphans::COMMAND,
    snapshot::COMMAND,
    version::COMMAND,
    completion::COMMAND,
    complete::COMMAND,
];

const HELP: &str = "help";

const SECTION: &str = "Command flags";
const OUTPUT: Flag = Flag::new(
    SECTION,
    "output",
    Kind::Text,
    "text",
    "How the result is printed: text, json, yaml, or another of the command.",
)
.short('o');
const IN_CLUSTER: Flag = Flag::new(
    SECTION,
    "in-cluster",
    Kind::Bool,
    "false",
    "Run the command in the pod of the leader, by kubectl exec: with its flags, its configuration and its credentials.",
);
const COLOR: Flag = Flag::new(
    SECTION,
    "color",
    Kind::Text,
    "auto",
    "Whether text has colors: always, auto (on a terminal, by NO_COLOR and CLICOLOR_FORCE) or never.",
);

pub(crate) struct Call {
    pub(crate) program: Program,
    pub(crate) registry: Registry,
    /// Flags of the program and of the command.
    pub(crate) values: FlagValues,
    /// Positional arguments without the command's name.
    pub(crate) words: Vec<String>,
    pub(crate) output: Output,
    /// The configuration of the program that runs in the cluster, instead of a file.
    pub(crate) config: Option<migrate_check::ConfigOfPod>,
    /// Whether kubectl called this program.
    pub(crate) is_plugin: bool,
}

impl Call {
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        if self.values.text("cloud-provider").is_empty() {
            let names = self.registry.names().collect::<Vec<_>>().join(", ");
            let plugin = "; `kubectl ccm` takes it from the program in the cluster";
            let fix = if self.is_plugin { "" } else { plugin };
            return Err(Failure::error(format!("--cloud-provider=NAME is missing ({names}){fix}")));
        }
        Options::new(&self.values, &self.program)
    }

    /// No logs without `-v1`: a command prints its findings. Flag errors are reported later.
    pub(crate) fn logging(&self) -> LoggingOptions {
        let asked = crate::options::logging(&self.values);
        LoggingOptions { quiet: true, verbosity: asked.verbosity, vmodule: asked.vmodule, ..LoggingOptions::default() }
    }
}

pub(crate) enum Asked {
    Print(String),
    Run(&'static Command, FlagValues, Vec<String>, Output),
}

/// The command in the arguments (which start with the program's name) and its arguments; `None` without a command.
pub(crate) fn asked(program: &Program, args: &[OsString]) -> Option<Result<Asked, Failure>> {
    let (_, after) = args.split_first()?;
    let at = parse::first_word(&every_flag(program), after)?;
    let name = after.get(at)?.to_str()?;
    let (mut rest, words) = (after.to_vec(), after.get(at + 1..).unwrap_or_default());
    rest.remove(at);
    match name {
        HELP => {
            Some(help_of(program, words.iter().filter_map(|word| word.to_str()).find(|word| !word.starts_with('-'))))
        }
        _ if name == complete::COMMAND.name => Some(complete::asked(program, words)),
        _ => match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => Some(command.parse(program, &rest)),
            None => similar(name).map(|command| {
                let text = format!("unknown command {name:?} (did you mean {command:?}?)");
                Err(Failure::error(text).with_usage(format!("See `{} --help`.", program.name)))
            }),
        },
    }
}

/// What `kubectl ccm` without a command does: it runs no controllers.
pub(crate) fn without_command(program: &Program, args: &[OsString]) -> Result<Asked, Failure> {
    let words = args.get(1..).unwrap_or_default();
    let text = match parse::first_word(&every_flag(program), words).and_then(|at| words.get(at)) {
        Some(word) => format!("unknown command {:?}", word.to_string_lossy()),
        None if words.iter().all(|word| ["--help", "-h"].iter().any(|help| word == help)) => {
            return Ok(Asked::Print(help::commands(program, parse::width(std::io::stdout()))));
        }
        None => "which command? The controllers run in the cluster, or as `ccm` with these flags".to_owned(),
    };
    Err(Failure::error(text).with_usage(format!("See `{} --help`.", program.name)))
}

pub(crate) use complete::of_kubectl as completion_of_kubectl;

/// The flags of the program and of all commands, each once.
fn every_flag(program: &Program) -> Vec<Flag> {
    let mut seen = BTreeSet::new();
    let all = COMMANDS.iter().flat_map(|command| command.all_flags(program));
    all.filter(|flag| seen.insert(flag.name)).collect()
}

fn similar(name: &str) -> Option<&'static str> {
    nearest(name, &summaries().map(|(name, _)| name).collect::<Vec<_>>())
}

/// `help`, `help plan`
fn help_of(program: &Program, name: Option<&str>) -> Result<Asked, Failure> {
    let Some(name) = name.filter(|name| *name != HELP) else {
        let width = parse::width(std::io::stdout());
        let is_plugin = program.name.starts_with("kubectl ");
        let text = if is_plugin { help::commands(program, width) } else { help::text(program, width) };
        return Ok(Asked::Print(text));
    };
    let command = COMMANDS.iter().find(|command| command.name == name).ok_or_else(|| {
        let hint = similar(name).map_or_else(String::new, |command| format!(" (did you mean {command:?}?)"));
        Failure::error(format!("unknown command {name:?}{hint}; `{} --help` lists them", program.name))
    })?;
    Ok(Asked::Print(command.help(program, parse::width(std::io::stdout()))))
}

/// The help of a command in lines of this width, for the reference pages; `None` if there is no such command.
pub fn reference(name: &str, width: usize) -> Option<String> {
    let command = COMMANDS.iter().find(|command| command.name == name)?;
    Some(command.help(&Program::default(), Some(width)))
}

/// All commands except hidden ones, each with the first sentence of its description.
pub(crate) fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sentence = |about: &'static str| about.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let shown = COMMANDS.iter().filter(|command| !command.is_hidden());
    let own = shown.map(move |command| (command.name, sentence(command.about)));
    own.chain([(HELP, "Prints this text, or the help of a command.")])
}

impl Command {
    /// A hidden command is for scripts of this program.
    fn is_hidden(&self) -> bool {
        self.name.starts_with('_')
    }

    /// Its own flags, and those of every command.
    fn own_flags(&self) -> impl Iterator<Item = &'static Flag> {
        let in_cluster = self.like_running.then_some(&IN_CLUSTER);
        self.flags.iter().chain(&kubeconfig::FLAGS).chain([self.namespace]).chain(in_cluster).chain([&COLOR, &OUTPUT])
    }

    fn all_flags(&self, program: &Program) -> Vec<Flag> {
        program.flags.iter().copied().chain(self.own_flags().copied()).collect()
    }

    /// Runs it, here or in the cluster.
    pub(crate) async fn start(&self, mut call: Call) -> Result<Verdict, Failure> {
        // For the other commands, `-n` is that of Services.
        let is_of_pods = self.namespace.help == migrate_check::NAMESPACE.help;
        let namespace = kubeconfig::namespace_asked(&call.values).filter(|_| is_of_pods);
        if self.like_running && call.values.bool(IN_CLUSTER.name) {
            return migrate_check::run_inside(&call, self.name, namespace.as_deref()).await;
        }
        let knows = ["cloud-provider", "from-snapshot", "cluster-is-gone"].iter().any(|name| call.values.given(name));
        if self.like_running && call.is_plugin && !knows {
            migrate_check::take_flags(&mut call, namespace.as_deref()).await?;
        }
        (self.run)(call).await
    }

    fn usage(&self) -> String {
        let words = if self.words.is_empty() { String::new() } else { format!(" {}", self.words) };
        format!("{}{words} [flags]", self.name)
    }

    fn parse(&'static self, program: &Program, args: &[OsString]) -> Result<Asked, Failure> {
        let flags = self.all_flags(program);
        let failed = |message: String| {
            let hint =
                format!("Usage:\n  {} {}\nSee `{} {} --help`.", program.name, self.usage(), program.name, self.name);
            Failure::error(message).with_usage(hint)
        };
        let (values, words) = parse::read(&flags, args.iter().cloned()).map_err(failed)?;
        if values.bool("help") {
            return Ok(Asked::Print(self.help(program, parse::width(std::io::stdout()))));
        }
        if let Some(namespace) = kubeconfig::namespace_asked(&values).filter(|_| self.namespace.hidden) {
            let text = format!("--namespace={namespace}: {} is not about one namespace; leave it out", self.name);
            return Err(failed(text));
        }
        let format = Format::parse(&values.text(OUTPUT.name), self.formats).map_err(failed)?;
        let output = Output::new(format, &values.text(COLOR.name)).map_err(failed)?;
        Ok(Asked::Run(self, values, words, output))
    }

    fn help(&self, program: &Program, width: Option<usize>) -> String {
        let wrap = |text: &str| help::wrap(text, 0, width.unwrap_or_default());
        let mut flags: Vec<&Flag> = self.own_flags().filter(|flag| !flag.hidden).collect();
        flags.sort_by_key(|flag| flag.name);
        format!(
            "{}\n\nUsage:\n  {} {}\n\n{}\n\nValues of -o: {}\n\n{SECTION}:\n\n{}\nAll flags of `{} --help` too: those of the DaemonSet can be pasted as they are.\n",
            wrap(self.about),
            program.name,
            self.usage(),
            self.details,
            Format::words(self.formats).join(", "),
            help::lines(program, &flags, width),
            program.name,
        )
    }
}

/// Prints a result. A reader that closes the pipe early is not an error.
pub(crate) fn print(text: &str) {
    drop(deliver(text));
}

/// Prints a result that must be complete: a full disk is an error. A reader that closes the pipe early is not; the answer
/// is whether there still is a reader.
pub(crate) fn deliver(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::error(format!("the result could not be written to stdout: {error}"))),
    }
}

/// Prints a line on stderr. A write error cannot be reported.
pub(crate) fn eprint(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask reference` puts the help between the two markers.
    #[test]
    fn every_command_has_a_page_with_its_help() {
        for (name, _) in summaries().filter(|(name, _)| *name != HELP) {
            let path = format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(name == completion::NAME || page.contains("<!-- generated: help -->"), "{path}");
        }
    }
}
