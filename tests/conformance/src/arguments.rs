//! The command line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

pub(crate) const HELP: &str = "\
ccm-conformance --program PATH [FLAG ...] [-- ARGUMENT ...]
ccm-conformance --list
ccm-conformance --table FILE ...

Starts etcd and kube-apiserver on 127.0.0.1, runs a cloud-controller-manager on them, and reports which expectations
of Kubernetes it meets. KUBEBUILDER_ASSETS names the folder with the two programs; with kube-controller-manager in it,
the checks of both together run too.

  --program PATH        the cloud-controller-manager
  --provider NAME       its --cloud-provider; default fake. With another one, only the checks run that need no cloud:
                        those of flags, serving and election
  --cloud-config FILE   its --cloud-config, with another provider than fake
  --only GROUP,...      only these groups
  --reference           PATH is the upstream program itself: a failure is a mistake of the expectation, and the report
                        says so
  --output FORMAT       text (default), json or junit
  -- ARGUMENT ...       further arguments of the program, for each start
  --list                prints the checks with their sources
  --table FILE ...      prints a Markdown table of the runs in these files, which --output json wrote

Exit status: 0 every check that ran passed; 1 a check or the run failed; 2 a mistake in the arguments; 3 etcd or
kube-apiserver is missing.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Output {
    #[default]
    Text,
    Json,
    Junit,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) program: PathBuf,
    pub(crate) provider: String,
    pub(crate) cloud_config: Option<String>,
    /// Empty: all.
    pub(crate) only: Vec<String>,
    pub(crate) reference: bool,
    pub(crate) output: Output,
    pub(crate) more: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Help,
    List,
    Table(Vec<PathBuf>),
    Run(Options),
}

pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> anyhow::Result<Command> {
    let mut program = None;
    let mut options = Options {
        program: PathBuf::new(),
        provider: "fake".to_owned(),
        cloud_config: None,
        only: Vec::new(),
        reference: false,
        output: Output::default(),
        more: Vec::new(),
    };
    while let Some(argument) = given.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value = || inline.clone().or_else(|| given.next()).with_context(|| format!("{name} needs a value"));
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--table" => return Ok(Command::Table(inline.into_iter().chain(given).map(PathBuf::from).collect())),
            "--program" => program = Some(PathBuf::from(value()?)),
            "--provider" => options.provider = value()?,
            "--cloud-config" => options.cloud_config = Some(value()?),
            "--only" => options.only = groups(&value()?)?,
            "--reference" => options.reference = true,
            "--output" => options.output = output(&value()?)?,
            "--" => {
                options.more = given.collect();
                break;
            }
            _ => bail!("unknown argument {name:?}; --help lists the known ones"),
        }
    }
    options.program = program.context("--program is missing: the path of a cloud-controller-manager")?;
    if !options.program.is_file() {
        bail!("--program={}: there is no such file", options.program.display());
    }
    if options.program.metadata()?.permissions().mode() & 0o111 == 0 {
        bail!("--program={}: it is not executable: chmod +x", options.program.display());
    }
    // A bare name would be searched for in PATH.
    options.program = std::path::absolute(&options.program)?;
    if options.provider == "fake" && options.cloud_config.is_some() {
        bail!("--cloud-config: the checks write the file of the provider fake themselves; leave it out");
    }
    Ok(Command::Run(options))
}

fn groups(text: &str) -> anyhow::Result<Vec<String>> {
    let known = crate::checks::groups();
    let wanted: Vec<String> = text.split(',').map(str::to_owned).collect();
    match wanted.iter().find(|group| !known.contains(&group.as_str())) {
        Some(unknown) => bail!("--only={unknown}: the groups are {}", known.join(", ")),
        None => Ok(wanted),
    }
}

fn output(text: &str) -> anyhow::Result<Output> {
    match text {
        "text" => Ok(Output::Text),
        "json" => Ok(Output::Json),
        "junit" => Ok(Output::Junit),
        _ => bail!("--output={text}: it is text, json or junit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn values_follow_or_are_inline_and_the_rest_is_the_programs() {
        let Ok(Command::Run(options)) = of("--program=/bin/sh --only flags,node --output json -- --v=9") else {
            panic!("not a run");
        };
        assert_eq!(options.program, PathBuf::from("/bin/sh"));
        assert_eq!((options.only, options.output), (vec!["flags".into(), "node".into()], Output::Json));
        assert_eq!((options.provider.as_str(), options.more), ("fake", vec!["--v=9".into()]));
    }

    #[test]
    fn a_bare_name_is_a_file_of_the_folder() {
        let file =
            tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempfile_in(".").unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        let Ok(Command::Run(options)) = of(&format!("--program={name}")) else { panic!("not a run") };
        assert_eq!(options.program, std::env::current_dir().unwrap().join(name));
    }

    #[test]
    fn mistakes_name_the_argument() {
        for (line, wanted) in [
            ("", "--program is missing"),
            ("--program", "--program needs a value"),
            ("--program=/no/such", "--program=/no/such: there is no such file"),
            ("--program=Cargo.toml", "--program=Cargo.toml: it is not executable"),
            ("--program=/bin/sh --colour", "unknown argument \"--colour\""),
            ("--program=/bin/sh --only=nodes", "--only=nodes: the groups are flags, "),
            ("--program=/bin/sh --output=xml", "--output=xml: it is text, json or junit"),
            ("--program=/bin/sh --cloud-config=a", "--cloud-config: "),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.starts_with(wanted), "{line}: {error}");
        }
    }
}
