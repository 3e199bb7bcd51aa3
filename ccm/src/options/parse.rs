//! From arguments to values: pflag's syntax on top of clap.

use std::ffi::OsString;

use ccm_provider::duration;
use ccm_provider::flag::{Flag, FlagValues, Kind, go_bool};
use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::exit::Failure;
use crate::program::Program;

/// What the arguments ask for.
#[derive(Debug)]
pub enum Asked {
    /// Run, with these values.
    Run(FlagValues),
    /// Print this and exit with 0.
    Print(String),
}

/// The name under which upstream's program complains about arguments.
const PROGRAM: &str = "cloud-controller-manager";

/// Parses the arguments, the program's name first.
pub fn parse(program: &Program, args: impl IntoIterator<Item = OsString>) -> Result<Asked, Failure> {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_default();
    let args = std::iter::once(name).chain(dashes(args));
    let matches = match command(program).try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Asked::Print(error.to_string()));
        }
        Err(error) => return Err(Failure::error(explain(&error))),
    };
    let words: Vec<&String> =
        matches.get_many::<String>("args").unwrap_or_default().filter(|word| !word.is_empty()).collect();
    if !words.is_empty() {
        return Err(Failure::error(format!("{PROGRAM:?} does not take any arguments, got {words:?}")));
    }
    let mut values = FlagValues::default();
    for flag in program.flags.iter().filter(|flag| !matches!(flag.name, "help" | "version")) {
        read(&mut values, flag, &matches);
    }
    Ok(Asked::Run(values))
}

/// `--cloud_provider=x` is `--cloud-provider=x`; after `--` nothing is touched.
fn dashes(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut ended = false;
    args.map(move |arg| {
        ended |= arg == "--";
        match arg.to_str() {
            Some(text) if !ended && text.starts_with("--") => {
                let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                format!("{}{value}", name.replace('_', "-")).into()
            }
            _ => arg,
        }
    })
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(program.name)
        .version(concat!("v", env!("CARGO_PKG_VERSION")))
        .about(program.about)
        .args_override_self(true)
        .arg(Arg::new("args").num_args(0..).hide(true));
    for flag in program.flags.iter().filter(|flag| !matches!(flag.name, "help" | "version")) {
        let mut arg = Arg::new(flag.name).long(flag.name).help(flag.help).help_heading(flag.section).hide(flag.hidden);
        if let Some(short) = flag.short {
            arg = arg.short(short);
        }
        if !flag.default.is_empty() {
            arg = arg.default_value(flag.default);
        }
        command = command.arg(match flag.kind {
            Kind::Bool => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(parser(|text| go_bool(text).map(|value| value.to_string()))),
            Kind::Int | Kind::Int32 | Kind::Level => {
                arg.num_args(1).allow_hyphen_values(true).value_parser(parser(|text| {
                    text.parse::<i64>().map(|n| n.to_string()).map_err(|_| format!("{text:?} is not a whole number"))
                }))
            }
            Kind::Duration => arg
                .num_args(1)
                .allow_hyphen_values(true)
                .value_parser(parser(|text| duration::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string()))),
            Kind::Float => arg.num_args(1).allow_hyphen_values(true).value_parser(parser(|text| {
                text.parse::<f64>().map(|_| text.to_owned()).map_err(|_| format!("{text:?} is not a number"))
            })),
            Kind::Text | Kind::Ip | Kind::Quantity | Kind::Vmodule | Kind::Version => {
                arg.num_args(1).allow_hyphen_values(true)
            }
            Kind::List | Kind::Ints | Kind::Repeated | Kind::Switches => {
                arg.num_args(1).allow_hyphen_values(true).action(ArgAction::Append)
            }
        });
    }
    command
}

fn parser(check: fn(&str) -> Result<String, String>) -> ValueParser {
    ValueParser::new(check)
}

/// One line that names the flag, the value and the way out.
fn explain(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg).unwrap_or_default();
    let name = flag.split([' ', '=']).next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => match text(ContextKind::SuggestedArg) {
            Some(near) => format!("unknown flag: {name} (did you mean {near}?)"),
            None => format!("unknown flag: {name}"),
        },
        ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("invalid argument {value:?} for {name:?} flag: {reason}")
        }
        ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("flag needs an argument: {name}")
        }
        _ => error.to_string().trim().trim_start_matches("error: ").lines().next().unwrap_or_default().to_owned(),
    }
}

fn read(values: &mut FlagValues, flag: &Flag, matches: &ArgMatches) {
    let mut texts: Vec<String> = matches.get_many::<String>(flag.name).unwrap_or_default().cloned().collect();
    if matches!(flag.kind, Kind::List | Kind::Ints | Kind::Switches) {
        texts = texts.iter().flat_map(|v| v.split(',')).map(str::to_owned).filter(|v| !v.is_empty()).collect();
    }
    let given = matches.value_source(flag.name) == Some(clap::parser::ValueSource::CommandLine);
    values.insert(flag.name, texts, given);
}

/// `--name="value"` of every flag, in alphabetical order.
pub fn lines(values: &FlagValues) -> impl Iterator<Item = String> {
    values.iter().map(|(name, values)| format!("--{name}={:?}", values.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> FlagValues {
        match parse(&Program::default(), std::iter::once("ccm").chain(args.iter().copied()).map(OsString::from)) {
            Ok(Asked::Run(values)) => values,
            other => panic!("{other:?}"),
        }
    }

    fn error(args: &[&str]) -> String {
        parse(&Program::default(), std::iter::once("ccm").chain(args.iter().copied()).map(OsString::from))
            .unwrap_err()
            .message
    }

    #[test]
    fn underscores_are_dashes_in_names_and_stay_in_values() {
        let values = run(&["--cloud_provider=my_cloud", "--cluster_name", "a_b"]);
        assert_eq!((values.text("cloud-provider"), values.text("cluster-name")), ("my_cloud".into(), "a_b".into()));
    }

    #[test]
    fn booleans_take_values_only_behind_an_equals_sign() {
        assert!(run(&["--leader-elect"]).bool("leader-elect"));
        assert!(!run(&["--leader-elect=F"]).bool("leader-elect"));
        assert!(error(&["--leader-elect", "false"]).contains("does not take any arguments, got [\"false\"]"));
        assert!(error(&["--leader-elect=no"]).contains("\"no\" is neither true nor false"));
    }

    #[test]
    fn the_last_of_repeated_flags_counts_and_lists_append() {
        let values = run(&["--cluster-name=a", "--cluster-name=b", "--controllers=*,-route", "--controllers=-service"]);
        assert_eq!(values.text("cluster-name"), "b");
        assert_eq!(values.list("controllers"), ["*", "-route", "-service"]);
        assert_eq!(run(&[]).list("controllers"), ["*"]);
        assert!(values.given("controllers") && !values.given("v"));
    }

    #[test]
    fn errors_name_the_flag_and_the_value() {
        assert_eq!(error(&["--no-such-flag"]), "unknown flag: --no-such-flag");
        assert_eq!(error(&["--cluster-nam=x"]), "unknown flag: --cluster-nam (did you mean --cluster-name?)");
        let text = error(&["--node-monitor-period=5"]);
        assert!(text.contains("--node-monitor-period") && text.contains("missing unit in duration \"5\""), "{text}");
        let text = error(&["--secure-port=x"]);
        assert_eq!(text, "invalid argument \"x\" for \"--secure-port\" flag: \"x\" is not a whole number");
    }

    #[test]
    fn verbosity_is_given_in_all_usual_ways() {
        for args in [&["-v=4"][..], &["-v", "4"], &["--v=4"], &["--v", "4"]] {
            assert_eq!(run(args).int("v"), Some(4), "{args:?}");
        }
    }
}
