//! `completion bash|zsh|fish|powershell`: a shell script that completes the program's flags and commands.
//!
//! clap only generates the scripts. It does not parse the arguments, because commands also accept the program's flags,
//! with the syntax and the error texts of pflag, which clap does not support.

use std::ffi::OsString;

use ccm_provider::flag::{Flag, Kind};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;

use crate::exit::Failure;
use crate::options::summary;
use crate::program::Program;

/// The name of the command.
pub(super) const NAME: &str = "completion";
const SHELL: &str = "shell";
const SHELLS: [(&str, Shell); 4] =
    [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish), ("powershell", Shell::PowerShell)];

/// The script, or the help of this command.
pub(super) fn run(program: &Program, args: &[OsString]) -> Result<String, Failure> {
    let matches = match command(program).try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(error.to_string()),
        Err(error) => return Err(Failure::error(error.to_string().trim_start_matches("error: ").trim_end())),
    };
    let asked = matches.subcommand_matches(NAME).and_then(|matches| matches.get_one::<String>(SHELL));
    let shell = SHELLS.iter().find(|(name, _)| asked.is_some_and(|asked| asked == name)).map(|(_, shell)| *shell);
    let Some(shell) = shell else { return Err(Failure::error("completion: want the name of a shell")) };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_flags(program), program.name, &mut script);
    String::from_utf8(script).map_err(|error| Failure::error(format!("completion: {error}")))
}

fn command(program: &Program) -> Command {
    let shell = Arg::new(SHELL)
        .required(true)
        .value_parser(PossibleValuesParser::new(SHELLS.map(|(name, _)| name)))
        .help("The shell");
    let completion = Command::new(NAME)
        .about("Prints a script that completes the flags in a shell: source it, for example from ~/.bashrc")
        .arg(shell);
    Command::new(program.name).disable_help_subcommand(true).subcommand(completion)
}

/// The flags in the form that the generator needs; `options` parses them.
fn with_flags(program: &Program) -> Command {
    let shown = program.flags.iter().filter(|flag| !flag.hidden);
    let own = |command: &super::Command| command.flags.iter().chain([&super::OUTPUT]).map(arg).collect::<Vec<_>>();
    let commands =
        super::COMMANDS.iter().map(|command| Command::new(command.name).about(command.about).args(own(command)));
    command(program).disable_help_flag(true).subcommands(commands).args(shown.map(arg))
}

fn arg(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(summary(flag));
    let arg = if let Some(short) = flag.short { arg.short(short) } else { arg };
    match flag.kind {
        Kind::Bool | Kind::Version => arg.action(ArgAction::SetTrue),
        _ => arg.num_args(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<String, Failure> {
        run(
            &Program::default(),
            &std::iter::once("ccm").chain(args.iter().copied()).map(OsString::from).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn every_shell_gets_a_script_with_every_flag() {
        for (shell, _) in SHELLS {
            let script = asked(&["completion", shell]).unwrap();
            for flag in Program::default().flags.iter().filter(|flag| !flag.hidden) {
                assert!(script.contains(flag.name), "{shell}: {}", flag.name);
            }
            assert!(!script.contains("node-sync-period"), "{shell}");
            for command in super::super::COMMANDS {
                assert!(script.contains(command.name), "{shell}: {}", command.name);
                for flag in command.flags {
                    assert!(script.contains(flag.name), "{shell}: {} --{}", command.name, flag.name);
                }
            }
        }
    }

    #[test]
    fn another_word_is_an_error_that_names_the_shells() {
        let text = asked(&["completion", "tcsh"]).unwrap_err().message;
        assert!(text.contains("tcsh") && text.contains("bash, zsh, fish, powershell"), "{text}");
        assert!(asked(&["completion"]).is_err());
        assert!(asked(&["completion", "--help"]).unwrap().contains("Usage: ccm completion <shell>"));
    }
}
