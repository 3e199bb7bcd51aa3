//! The commands of the program; the first argument is the command's name.
//!
//! Without a command all arguments are flags, as in the Go programs, and every other word is an error. A command also
//! accepts the flags of the program, so that the arguments of the DaemonSet can be appended. It uses the tables, plans
//! and decisions of the controllers and duplicates none of them.

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

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};

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
    /// The values of `-o` besides `text` and `json`.
    formats: &'static [Format],
    pub(crate) run: fn(Call) -> BoxFuture<'static, Result<Verdict, Failure>>,
}

/// All commands except `completion`, which needs neither a runtime nor a cluster.
const COMMANDS: &[Command] = &[
    plan::COMMAND,
    explain::COMMAND,
    lint::COMMAND,
    migrate_check::COMMAND,
    migrate_values::COMMAND,
    orphans::COMMAND,
    snapshot::COMMAND,
    version::COMMAND,
];

const SECTION: &str = "Command flags";
const OUTPUT: Flag = Flag::new(SECTION, "output", Kind::Text, "text", "How the result is printed.").short('o');

pub(crate) struct Call {
    pub(crate) program: Program,
    pub(crate) registry: Registry,
    /// Flags of the program and of the command.
    pub(crate) values: FlagValues,
    /// Positional arguments without the command's name.
    pub(crate) words: Vec<String>,
    pub(crate) output: Output,
}

impl Call {
    pub(crate) fn options(&self) -> Result<Options, Failure> {
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
    let name = args.get(1)?.to_str()?;
    if name == completion::NAME {
        return Some(completion::run(program, args).map(Asked::Print));
    }
    let command = COMMANDS.iter().find(|command| command.name == name)?;
    Some(command.parse(program, args.get(2..).unwrap_or_default()))
}

/// The usage of each command, without the program's name.
pub(crate) fn usages() -> impl Iterator<Item = String> {
    COMMANDS.iter().map(Command::usage).chain([format!("{} <shell>", completion::NAME)])
}

impl Command {
    fn usage(&self) -> String {
        let words = if self.words.is_empty() { String::new() } else { format!(" {}", self.words) };
        format!("{}{words} [flags]", self.name)
    }

    fn parse(&'static self, program: &Program, args: &[OsString]) -> Result<Asked, Failure> {
        let flags: Vec<Flag> = program.flags.iter().chain(self.flags).chain([&OUTPUT]).copied().collect();
        let failed = |message: String| {
            let hint =
                format!("Usage:\n  {} {}\nSee `{} {} --help`.", program.name, self.usage(), program.name, self.name);
            Failure::error(message).with_usage(hint)
        };
        let (values, words) = parse::read(&flags, args.iter().cloned()).map_err(failed)?;
        if values.bool("help") {
            return Ok(Asked::Print(self.help(program)));
        }
        let format = Format::parse(&values.text(OUTPUT.name), self.formats).map_err(failed)?;
        Ok(Asked::Run(self, values, words, Output::new(format)))
    }

    fn help(&self, program: &Program) -> String {
        let width = parse::width(std::io::stdout());
        let wrap = |text: &str| help::wrap(text, 0, width.unwrap_or_default());
        let mut flags: Vec<&Flag> = self.flags.iter().chain([&OUTPUT]).collect();
        flags.sort_by_key(|flag| flag.name);
        format!(
            "{}\n\nUsage:\n  {} {}\n\n{}\n\n{SECTION}:\n\n{}\nAll flags of `{} --help` too: those of the DaemonSet can be pasted as they are.\n",
            wrap(self.about),
            program.name,
            self.usage(),
            self.details,
            help::lines(program, &flags, width),
            program.name,
        )
    }
}

/// Prints a result. A reader that closes the pipe early is not an error.
pub(crate) fn print(text: &str) {
    drop(deliver(text));
}

/// Prints a result that must be complete: a full disk is an error. A reader that closes the pipe early is not.
pub(crate) fn deliver(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::error(format!("the result could not be written to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line on stderr. A write error cannot be reported.
pub(crate) fn eprint(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
