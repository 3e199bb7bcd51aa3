//! Parses arguments with the syntax of `github.com/spf13/pflag`, which the Go program uses.
//!
//! `--name=value`, `--name value`, `-v4`, `-v=4`, `-v 4`; booleans take a value only after `=`; `_` equals `-` in
//! names; no flags after `--`. Texts of errors are those of pflag, followed by a hint if there is one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;

use ccm_kit::document::did_you_mean;
use ccm_provider::flag::{Flag, FlagValues, Kind};

use super::{help, obsolete};
use crate::exit::Failure;
use crate::flags::{gates, value};
use crate::program::Program;
use crate::version;

/// The action that the arguments request.
#[derive(Debug)]
pub enum Asked {
    Run(FlagValues),
    Print(String),
}

/// The name of upstream's program in argument errors.
const PROGRAM: &str = "cloud-controller-manager";

/// Parses the arguments, starting with the program's name.
///
/// # Errors
///
/// The first invalid argument; for a flag, with the usage as printed by the Go program.
pub fn parse(program: &Program, args: impl IntoIterator<Item = OsString>) -> Result<Asked, Failure> {
    let (args, skipped) = without_path(args.into_iter().skip(1).collect());
    let (values, words) = read(&program.flags, args)
        .map_err(|message| Failure::error(message).with_usage(help::usage(program, width(std::io::stderr()))))?;
    if values.bool("help") {
        return Ok(Asked::Print(help::text(program, width(std::io::stdout()))));
    }
    if !words.is_empty() {
        return Err(Failure::error(format!("{PROGRAM:?} does not take any arguments, got {}", go_list(&words))));
    }
    Ok(match values.text("version").as_str() {
        "true" => Asked::Print(format!("Kubernetes {}\n", version::VERSION)),
        "raw" => Asked::Print(format!("{}\n", version::info(None).raw())),
        _ => {
            for flag in skipped {
                let flag = flag.display();
                eprintln!("{flag} is a flag of go-runner and has no effect: this program logs to stderr; leave it out");
            }
            Asked::Run(values)
        }
    })
}

/// The values of these flags, and the other words.
pub(crate) fn read(
    flags: &[Flag],
    args: impl IntoIterator<Item = OsString>,
) -> Result<(FlagValues, Vec<String>), String> {
    let mut line = Line { flags, uses: BTreeMap::new(), words: Vec::new() };
    line.read(args.into_iter(), Err)?;
    Ok(line.finish())
}

/// The index of the first word that is neither a flag nor the value of one: the name of a command. Unknown flags count
/// as flags without a value.
pub(crate) fn first_word(flags: &[Flag], args: &[OsString]) -> Option<usize> {
    let takes_value = |flag: Option<&Flag>| flag.is_some_and(|flag| bare(flag.kind).is_none());
    let mut skip = false;
    for (at, arg) in args.iter().enumerate() {
        let arg = arg.to_str()?;
        if std::mem::take(&mut skip) || arg.is_empty() {
            continue;
        }
        if arg == "--" {
            return None;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let name = long.replace('_', "-");
            skip = !long.contains('=') && takes_value(flags.iter().find(|flag| flag.name == name));
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // Only the last letter can take the next argument.
            let of = |letter: char| flags.iter().find(|flag| flag.short == Some(letter));
            let valued = letters.char_indices().find(|(_, letter)| takes_value(of(*letter)));
            skip = valued.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len());
        } else {
            return Some(at);
        }
    }
    None
}

/// [`read`] for the arguments of another program: invalid arguments are skipped, and all errors are returned.
pub(crate) fn read_on(flags: &[Flag], args: impl IntoIterator<Item = OsString>) -> (FlagValues, Vec<String>) {
    let mut line = Line { flags, uses: BTreeMap::new(), words: Vec::new() };
    let mut wrong = Vec::new();
    let read = line.read(without_path(args.into_iter().collect()).0, |mistake| {
        wrong.push(mistake);
        Ok(())
    });
    wrong.extend(read.err());
    (line.finish().0, wrong)
}

/// The arguments after the path of the Go program, which stands first in manifests of images without an entry point, and
/// the flags of go-runner before that path, where it is the entry point: `k8s.io/component-base/logs/kube-log-runner`.
fn without_path(mut args: Vec<OsString>) -> (std::vec::IntoIter<OsString>, Vec<OsString>) {
    const RUNNER: [&str; 6] =
        ["log-file", "log-file-size", "log-file-age", "also-stdout", "redirect-stderr", "flush-interval"];
    let is_path = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.starts_with('/') && arg.ends_with(PROGRAM));
    let is_of_runner = |arg: &&OsString| {
        let name = arg.to_str().and_then(|arg| arg.strip_prefix('-')).map(|arg| arg.strip_prefix('-').unwrap_or(arg));
        name.and_then(|name| name.split('=').next()).is_some_and(|name| RUNNER.contains(&name))
    };
    let before = args.iter().take_while(is_of_runner).count();
    if !args.get(before).is_some_and(is_path) {
        return (args.into_iter(), Vec::new());
    }
    let rest = args.split_off(before + 1);
    args.truncate(before);
    (rest.into_iter(), args)
}

/// `--name="value"` of every flag, in alphabetical order.
pub fn lines(program: &Program, values: &FlagValues) -> Vec<String> {
    let kind = |name: &str| program.flags.iter().find(|flag| flag.name == name).map_or(Kind::Text, |flag| flag.kind);
    values.iter().map(|(name, values)| format!("--{name}={:?}", value::display(kind(name), values))).collect()
}

/// One line for each deprecated flag that was given.
pub fn deprecations(program: &Program, values: &FlagValues) -> Vec<String> {
    let given = program.flags.iter().filter(|flag| values.given(flag.name));
    given.filter_map(|flag| Some(format!("Flag --{} has been deprecated, {}", flag.name, flag.deprecated?))).collect()
}

/// The arguments parsed so far.
struct Line<'a> {
    flags: &'a [Flag],
    /// The values of the given flags.
    uses: BTreeMap<&'static str, Vec<String>>,
    words: Vec<String>,
}

impl<'a> Line<'a> {
    /// Stops at the first error that `wrong` returns.
    fn read(
        &mut self,
        args: impl Iterator<Item = OsString>,
        mut wrong: impl FnMut(String) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut args = args;
        let text = |arg: OsString| arg.into_string().map_err(|raw| format!("the argument {raw:?} is not valid UTF-8"));
        while let Some(arg) = args.next() {
            let arg = text(arg)?;
            if arg == "--" {
                for word in args {
                    self.words.push(text(word)?);
                }
                return Ok(());
            }
            let mut next = || args.next().map(text).transpose();
            if let Some(long) = arg.strip_prefix("--") {
                self.long(&arg, long, &mut next).or_else(&mut wrong)?;
            } else if let Some(short) = arg.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                self.short(short, &mut next).or_else(&mut wrong)?;
            } else {
                self.words.push(arg);
            }
        }
        Ok(())
    }

    fn long(&mut self, arg: &str, long: &str, next: &mut Next<'_>) -> Result<(), String> {
        if long.is_empty() || long.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {arg}"));
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let dashed = name.replace('_', "-");
        let flag = self.flags.iter().find(|flag| flag.name == dashed).ok_or_else(|| self.unknown(name, &dashed))?;
        let value = match (value, bare(flag.kind)) {
            (Some(value), _) => value,
            (None, Some(bare)) => bare.to_owned(),
            (None, None) => next()?.ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        self.set(flag, &value)
    }

    /// Letters after one dash: flags without a value may precede one that takes the rest as its value.
    fn short(&mut self, letters: &str, next: &mut Next<'_>) -> Result<(), String> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            let flag = self.flags.iter().find(|flag| flag.short == Some(letter));
            let flag = flag.ok_or_else(|| format!("unknown shorthand flag: {letter:?} in -{letters}"))?;
            // A single `=` is a value, as in pflag.
            if let Some(value) = rest.strip_prefix('=').filter(|value| !value.is_empty()) {
                return self.set(flag, value);
            }
            match bare(flag.kind) {
                Some(bare) => self.set(flag, bare)?,
                None if !rest.is_empty() => return self.set(flag, rest),
                None => {
                    let value = next()?.ok_or_else(|| format!("flag needs an argument: {letter:?} in -{letters}"))?;
                    return self.set(flag, &value);
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, flag: &Flag, text: &str) -> Result<(), String> {
        let checked = value::normalize(flag.kind, text).and_then(|values| {
            if flag.name == "feature-gates" {
                gates::check(&values)?;
            }
            Ok(values)
        });
        let values = checked.map_err(|reason| {
            let name = flag.short.map_or_else(String::new, |short| format!("-{short}, ")) + "--" + flag.name;
            format!("invalid argument {text:?} for {name:?} flag: {reason}")
        })?;
        match self.uses.get_mut(flag.name) {
            Some(earlier) if value::adds_up(flag.kind) => earlier.extend(values),
            // An empty address sets nothing.
            Some(_) if values.is_empty() => {}
            Some(earlier) => *earlier = values,
            None => drop(self.uses.insert(flag.name, values)),
        }
        Ok(())
    }

    fn unknown(&self, name: &str, dashed: &str) -> String {
        if let Some(instead) = obsolete::replacement(dashed) {
            return format!("unknown flag: --{name} ({instead})");
        }
        let names: Vec<String> =
            self.flags.iter().filter(|f| !f.hidden).map(|flag| format!("--{}", flag.name)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = did_you_mean(&format!("--{dashed}"), &names).map(|hint| hint.replace(['"', ';'], ""));
        hint.map_or_else(
            || format!("unknown flag: --{name}"),
            |hint| format!("unknown flag: --{name} ({})", hint.trim()),
        )
    }

    /// The value of every flag, and the other nonempty words.
    fn finish(mut self) -> (FlagValues, Vec<String>) {
        let mut values = FlagValues::default();
        for flag in self.flags {
            // Tests check the defaults of the table; an invalid default of a provider is treated as not set.
            let default = || value::normalize(flag.kind, flag.default).unwrap_or_default();
            let given = self.uses.remove(flag.name);
            let is_given = given.is_some();
            let value = match given {
                Some(value) if !value.is_empty() || value::adds_up(flag.kind) => value,
                _ => default(),
            };
            values.insert(flag.name, value, is_given);
        }
        self.words.retain(|word| !word.is_empty());
        (values, self.words)
    }
}

/// Returns the next argument.
type Next<'a> = dyn FnMut() -> Result<Option<String>, String> + 'a;

/// The value of a flag given without one; `None` if it requires one.
pub(crate) fn bare(kind: Kind) -> Option<&'static str> {
    matches!(kind, Kind::Bool | Kind::Version).then_some("true")
}

/// `["a" "b"]`
fn go_list(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "))
}

/// The width of the terminal of a stream; `None` if it is not a terminal.
pub(crate) fn width(stream: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_text(args: &[&str]) -> Result<Asked, Failure> {
        parse(&Program::default(), std::iter::once("ccm").chain(args.iter().copied()).map(OsString::from))
    }

    fn run(args: &[&str]) -> FlagValues {
        match parse_text(args) {
            Ok(Asked::Run(values)) => values,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    fn error(args: &[&str]) -> String {
        parse_text(args).unwrap_err().message
    }

    #[test]
    fn lenient_parsing_reports_all_errors_and_keeps_valid_flags() {
        let args = [
            "/usr/bin/aws-cloud-controller-manager",
            "--port=0",
            "--v=x",
            "--cluster-name=a",
            "--vmodul=b",
            "--master",
        ];
        let (values, wrong) = read_on(&Program::default().flags, args.map(OsString::from));
        assert_eq!(values.text("cluster-name"), "a");
        assert!(wrong[0].starts_with("unknown flag: --port (removed in Kubernetes 1.24"), "{wrong:?}");
        assert!(wrong[1].starts_with("invalid argument \"x\" for \"-v, --v\" flag"), "{wrong:?}");
        assert!(wrong[2].starts_with("unknown flag: --vmodul (did you mean --vmodule"), "{wrong:?}");
        assert_eq!(wrong[3..], ["flag needs an argument: --master"]);
    }

    #[test]
    fn the_first_word_is_not_the_value_of_a_flag() {
        let at =
            |args: &[&str]| first_word(&Program::default().flags, &args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(at(&["plan", "--v=2"]), Some(0));
        assert_eq!(at(&["--cluster-name", "plan", "lint"]), Some(2));
        assert_eq!(at(&["--cluster_name=a", "-v", "2", "-v3", "--leader-elect", "lint"]), Some(5));
        assert_eq!(at(&["", "--no-such", "lint"]), Some(2));
        assert_eq!(at(&["--", "lint"]), None);
        assert_eq!(at(&["--cluster-name", "lint"]), None);
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
        assert_eq!(
            error(&["--leader-elect=no"]),
            "invalid argument \"no\" for \"--leader-elect\" flag: strconv.ParseBool: parsing \"no\": invalid syntax"
        );
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
    fn an_empty_value_clears_a_list_and_a_later_one_adds_to_nothing() {
        let paths = "authorization-always-allow-paths";
        assert_eq!(run(&[]).list(paths), ["/healthz", "/readyz", "/livez"]);
        assert_eq!(run(&["--authorization-always-allow-paths="]).list(paths), [""; 0]);
        let added = run(&["--authorization-always-allow-paths=", "--authorization-always-allow-paths=/a"]);
        assert_eq!(added.list(paths), ["/a"]);
        let values = run(&["--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d:x", "--tls-curve-preferences=23,0x18"]);
        assert_eq!(values.list("tls-sni-cert-key"), ["a,b", "c,d:x"]);
        assert_eq!(values.list("tls-curve-preferences"), ["23", "24"]);
    }

    #[test]
    fn an_empty_address_sets_nothing() {
        assert_eq!(run(&["--bind-address="]).text("bind-address"), "0.0.0.0");
        assert_eq!(run(&["--bind-address=::1", "--bind-address="]).text("bind-address"), "::1");
        assert_eq!(run(&["--bind-address", "127.0.0.1"]).text("bind-address"), "127.0.0.1");
    }

    #[test]
    fn errors_have_the_texts_of_the_go_program() {
        let port = "invalid argument \"x\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax";
        let rows: [(&[&str], &str); 17] = [
            (&["--no-such-flag"], "unknown flag: --no-such-flag"),
            (&["--cluster-nam=x"], "unknown flag: --cluster-nam (did you mean --cluster-name?)"),
            (&["--cluster_nam=x"], "unknown flag: --cluster_nam (did you mean --cluster-name?)"),
            (&["--secure-port=x"], port),
            (&["--secure-port", "x"], port),
            (&["--cluster-name"], "flag needs an argument: --cluster-name"),
            (&["-v"], "flag needs an argument: 'v' in -v"),
            (&["-x"], "unknown shorthand flag: 'x' in -x"),
            (&["-="], "unknown shorthand flag: '=' in -="),
            (&["-vx"], "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax"),
            (&["-v="], "invalid argument \"=\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"=\": invalid syntax"),
            (&["--=x"], "bad flag syntax: --=x"),
            (&["---x"], "bad flag syntax: ---x"),
            (
                &["--feature-gates=Nobody=true"],
                "invalid argument \"Nobody=true\" for \"--feature-gates\" flag: unrecognized feature gate: Nobody",
            ),
            (&["x", "y"], "\"cloud-controller-manager\" does not take any arguments, got [\"x\" \"y\"]"),
            (&["--", "--v=4"], "\"cloud-controller-manager\" does not take any arguments, got [\"--v=4\"]"),
            (&["-"], "\"cloud-controller-manager\" does not take any arguments, got [\"-\"]"),
        ];
        for (args, expected) in rows {
            assert_eq!(error(args), expected, "{args:?}");
        }
    }

    #[test]
    fn the_path_of_the_go_program_may_stand_first_and_nowhere_else() {
        let path = "/bin/openstack-cloud-controller-manager";
        assert_eq!(run(&[path, "--v=1"]).int("v"), Some(1));
        let runner = ["--log-file=/var/log/ccm.log", "--also-stdout=false", "--redirect-stderr=true"];
        assert_eq!(run(&[&runner[..], &["/cloud-controller-manager", "--v=1"]].concat()).int("v"), Some(1));
        let rotated = ["--log-file-size=10Mi", "--log-file-age=24h", "-flush-interval=5s", "/cloud-controller-manager"];
        assert_eq!(run(&[&rotated[..], &["--v=1"]].concat()).int("v"), Some(1));
        assert!(error(&runner).contains("unknown flag: --log-file"));
        assert!(error(&["--v=1", path]).contains("does not take any arguments"));
        assert!(error(&["/bin/sh"]).contains("does not take any arguments"));
    }

    #[test]
    fn flags_of_old_manifests_are_refused_with_the_fix() {
        for flag in ["--port=0", "--address=0.0.0.0", "--logtostderr=true", "--concurrent-serviceaccount-token-syncs=5"]
        {
            let text = error(&[flag]);
            assert!(text.starts_with("unknown flag: --") && text.contains("leave it out"), "{text}");
        }
        assert!(error(&["--cloud-provider-gce-lb-src-cidrs=10.0.0.0/8"]).contains("cargo feature \"gce\""));
    }

    #[test]
    fn verbosity_is_given_in_all_usual_ways() {
        for args in [&["-v=4"][..], &["-v", "4"], &["-v4"], &["--v=4"], &["--v", "4"]] {
            assert_eq!(run(args).int("v"), Some(4), "{args:?}");
        }
    }

    #[test]
    fn empty_words_are_no_arguments_and_two_dashes_end_the_flags() {
        run(&["", "--v=1", "", "--"]);
    }

    #[test]
    fn help_is_answered_only_if_every_flag_is_right() {
        for args in [&["--help"][..], &["-h"], &["--v=1", "-h", "x"], &["--version", "--help"]] {
            assert!(matches!(parse_text(args), Ok(Asked::Print(text)) if text.contains("Usage:")), "{args:?}");
        }
        assert_eq!(error(&["--help", "--no-such-flag"]), "unknown flag: --no-such-flag");
        run(&["--help=false", "--version=false"]);
        assert!(error(&["--version", "x"]).contains("does not take any arguments"));
    }

    #[test]
    fn values_are_logged_as_the_go_program_logs_them() {
        let values =
            run(&["--node-monitor-period=300s", "--feature-gates=WatchList=true,AllAlpha=false", "--kube-api-qps=1e1"]);
        let lines = lines(&Program::default(), &values);
        for expected in [
            "--node-monitor-period=\"5m0s\"",
            "--feature-gates=\"AllAlpha=false,WatchList=true\"",
            "--controllers=\"[*]\"",
            "--kube-api-qps=\"10\"",
            "--tls-cipher-suites=\"[]\"",
            "--v=\"0\"",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is missing: {lines:#?}");
        }
        assert!(lines.iter().map(|line| line.split('=').next()).is_sorted());
    }

    proptest! {
        #[test]
        fn no_arguments_make_the_parser_panic(
            args in proptest::collection::vec(prop_oneof!["-{0,3}[a-z_=,]{0,6}", "--[a-z-]{1,12}=[ -~]{0,6}", ".{0,8}"], 0..5),
            flag in proptest::sample::select(Program::default().flags.iter().map(|flag| flag.name).collect::<Vec<_>>()),
            value in "[-+0-9a-z,=\"\\\\]{0,8}",
        ) {
            let known = format!("--{flag}={value}");
            let args: Vec<&str> = std::iter::once(&*known).chain(args.iter().map(String::as_str)).collect();
            // The validation must not panic either.
            if let Ok(Asked::Run(values)) = parse_text(&args) {
                drop(lines(&Program::default(), &values));
                drop(crate::options::Options::new(&values, &Program::default()));
            }
        }
    }
}
