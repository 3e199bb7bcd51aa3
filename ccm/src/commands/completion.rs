//! `completion bash|zsh|fish|powershell`: a shell script that completes commands, flags, their values, and objects.
//!
//! clap only generates the scripts. It does not parse the arguments, because commands also accept the program's flags,
//! with the syntax and the error texts of pflag, which clap does not support.

use std::ffi::OsString;

use ccm_provider::flag::{Flag, Kind};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;

use super::output::Format;
use crate::exit::Failure;
use crate::options::summary;
use crate::program::Program;

/// The name of the command.
pub(super) const NAME: &str = "completion";
pub(super) const ABOUT: &str = "Prints a script that completes commands, flags and objects in a shell.";
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
    // `kubectl ccm` is the program kubectl-ccm.
    let name = program.name.replace(' ', "-");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_flags(program), &*name, &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::error(format!("completion: {error}")))?;
    // The generator names its function for bash so.
    let function = if shell == Shell::Bash { name.replace('-', "__") } else { name.clone() };
    Ok(script + &objects(shell).replace("FUNCTION", &format!("_{function}")).replace("PROGRAM", &name))
}

/// Completes objects by asking the program, which asks the cluster of `$KUBECONFIG`, and leaves the rest to the script.
fn objects(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    }
}

const BASH: &str = r#"
_PROGRAM_objects() {
    local word=${COMP_WORDS[COMP_CWORD]}
    case $word in
        node/* | service/* | svc/*) mapfile -t COMPREPLY < <(PROGRAM __complete "$word" 2>/dev/null) ;;
        *) FUNCTION "$@" ;;
    esac
}
complete -F _PROGRAM_objects -o bashdefault -o default PROGRAM
"#;
const ZSH: &str = r#"
_PROGRAM_objects() {
    case $PREFIX in
        node/* | service/* | svc/*) compadd -- ${(f)"$(PROGRAM __complete "$PREFIX" 2>/dev/null)"} ;;
        *) FUNCTION "$@" ;;
    esac
}
compdef _PROGRAM_objects PROGRAM
"#;
const FISH: &str = r#"
complete -c PROGRAM -n "__fish_seen_subcommand_from explain plan" -f -a "(PROGRAM __complete (commandline -ct) 2>/dev/null)"
"#;

fn command(program: &Program) -> Command {
    let shell = Arg::new(SHELL)
        .required(true)
        .value_parser(PossibleValuesParser::new(SHELLS.map(|(name, _)| name)))
        .help("The shell");
    let completion = Command::new(NAME)
        .about(ABOUT)
        .after_help("Source it, for example from ~/.bashrc: source <(ccm completion bash)")
        .arg(shell);
    Command::new(program.name).disable_help_subcommand(true).subcommand(completion)
}

/// The flags in the form that the generator needs; `options` parses them.
fn with_flags(program: &Program) -> Command {
    let shown = program.flags.iter().filter(|flag| !flag.hidden);
    let own = |command: &'static super::Command| {
        command.own_flags().map(move |flag| arg(flag, values(program, flag, command.formats)))
    };
    let commands = super::COMMANDS.iter().filter(|command| !command.is_hidden());
    let commands = commands.map(|command| Command::new(command.name).about(command.about).args(own(command)));
    // The commands accept the flags of the program too.
    let global = |flag: &Flag| arg(flag, values(program, flag, &[])).global(flag.name != "help");
    let names = super::summaries().map(|(name, _)| name).filter(|name| ![NAME, super::HELP].contains(name));
    let help = Command::new(super::HELP)
        .about("Prints the help of a command")
        .arg(Arg::new("command").value_parser(PossibleValuesParser::new(names)));
    command(program).disable_help_flag(true).subcommands(commands).subcommand(help).args(shown.map(global))
}

/// The known values of a flag; empty for any.
pub(super) fn values(program: &Program, flag: &Flag, formats: &[Format]) -> Vec<&'static str> {
    match flag.name {
        "cloud-provider" => program.providers.clone(),
        "output" => Format::words(formats),
        "color" => vec!["always", "auto", "never"],
        "fail-on" => vec!["error", "warning", "never"],
        "logging-format" => vec!["json", "text"],
        _ => Vec::new(),
    }
}

fn arg(flag: &Flag, values: Vec<&'static str>) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(summary(flag));
    let arg = if values.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(values)) };
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
            for command in super::super::COMMANDS.iter().filter(|command| !command.is_hidden()) {
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
