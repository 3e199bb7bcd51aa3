//! The command line.

use std::time::Duration;

use clap::{Arg, ArgAction, Command, value_parser};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) nodes: usize,
    pub(crate) fast: bool,
    pub(crate) keep: bool,
    pub(crate) plain: bool,
    pub(crate) cloud: CloudName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloudName {
    Fake,
    Aws,
    Azure,
    Gce,
    OpenStack,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) read: Duration,
    /// Interval at which the kubelets check their machines.
    pub(crate) tick: Duration,
    /// The time from the last heartbeat of a kubelet to Ready=Unknown; 40 s in a real cluster.
    pub(crate) grace: Duration,
    /// `--node-monitor-period` and `--route-reconciliation-period`.
    pub(crate) period: &'static str,
    /// The number of "unknown" answers to wait for.
    pub(crate) doubts: u64,
    /// The time for which an idle manager is observed: a few periods.
    pub(crate) quiet: Duration,
}

impl Args {
    pub(crate) fn pace(self) -> Pace {
        let ms = Duration::from_millis;
        match self.fast {
            false => Pace { read: ms(3500), tick: ms(100), grace: ms(1500), period: "2s", doubts: 3, quiet: ms(6500) },
            true => {
                Pace { read: Duration::ZERO, tick: ms(25), grace: ms(100), period: "300ms", doubts: 2, quiet: ms(1000) }
            }
        }
    }
}

const ABOUT: &str = "\
A guided tour of the cloud-controller-manager in about half a minute. It needs no account, no cluster and no root: it starts an \
in-memory Kubernetes API on 127.0.0.1 and a simulated cloud, runs the real manager against them, and shows what happens and why.";

const AFTER: &str = "\
Exit codes: 0 the tour went as described; 1 something did not happen in time, and the reason is printed; 2 wrong arguments; 130 Ctrl-C \
before the end.";

/// The values of `--cloud-provider`.
const CLOUDS: [(&str, CloudName); 5] = [
    ("fake", CloudName::Fake),
    ("aws", CloudName::Aws),
    ("azure", CloudName::Azure),
    ("gce", CloudName::Gce),
    ("openstack", CloudName::OpenStack),
];
/// On some clouds each node has a route and other objects, and a provider writes at the rate that its cloud allows.
const MOST_WITH_PACE: usize = 200;

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("cargo demo")
        .bin_name("cargo demo")
        .about(ABOUT)
        .after_help(AFTER)
        .disable_version_flag(true)
        .arg(
            Arg::new("nodes")
                .long("nodes")
                .value_name("N")
                .value_parser(value_parser!(u16).range(3..=5000))
                .default_value("12")
                .help("How many nodes join, 3 to 5000"),
        )
        .arg(flag("keep", "Stay up after the tour, until Ctrl-C: for kubectl, and for your own changes to the cloud"))
        .arg(flag("fast", "Do not pause for reading, and use shorter periods"))
        .arg(flag("plain", "Print a plain log, as when the output is not a terminal"))
        .arg(
            Arg::new("cloud-provider")
                .long("cloud-provider")
                .value_name("NAME")
                .default_value("fake")
                .value_parser(cloud)
                .help("The simulated cloud: fake, azure, openstack, gce, or aws, whose SDK takes minutes to compile for the first time"),
        )
}

fn cloud(name: &str) -> Result<CloudName, String> {
    CLOUDS.iter().find(|(known, _)| *known == name).map(|(_, cloud)| *cloud).ok_or_else(|| {
        let known = CLOUDS.map(|(known, _)| known).join(", ");
        format!("there is no simulated cloud of this name; there is: {known}")
    })
}

/// Parses the arguments; the error prints itself. `--help` is also an error.
pub(crate) fn parse(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Args, clap::Error> {
    let matches = command().try_get_matches_from(words)?;
    let args = Args {
        nodes: matches.get_one::<u16>("nodes").copied().map_or(12, usize::from),
        fast: matches.get_flag("fast"),
        keep: matches.get_flag("keep"),
        plain: matches.get_flag("plain"),
        cloud: matches.get_one::<CloudName>("cloud-provider").copied().unwrap_or(CloudName::Fake),
    };
    if args.cloud != CloudName::Fake && args.nodes > MOST_WITH_PACE {
        let text = format!(
            "--nodes={} is too many for this cloud, whose provider writes at the pace that such a cloud grants; at most \
             {MOST_WITH_PACE}",
            args.nodes
        );
        return Err(command().error(clap::error::ErrorKind::ValueValidation, text));
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Args, String> {
        parse(std::iter::once("demo").chain(words.iter().copied()).map(Into::into)).map_err(|error| error.to_string())
    }

    #[test]
    fn twelve_nodes_by_default() {
        let cloud = CloudName::Fake;
        assert_eq!(read(&[]), Ok(Args { nodes: 12, fast: false, keep: false, plain: false, cloud }));
        assert_eq!(read(&["--cloud-provider=aws"]).map(|args| args.cloud), Ok(CloudName::Aws));
        assert_eq!(read(&["--nodes", "500", "--cloud-provider=fake"]).map(|args| args.nodes), Ok(500));
    }

    #[test]
    fn another_cloud_is_refused_with_the_names_of_those_that_exist() {
        let error = read(&["--cloud-provider=hetzner"]).unwrap_err();
        assert!(error.contains("there is: fake, aws, azure, gce, openstack"), "{error}");
        for cloud in
            ["--cloud-provider=aws", "--cloud-provider=azure", "--cloud-provider=gce", "--cloud-provider=openstack"]
        {
            assert!(read(&[cloud, "--nodes=201"]).unwrap_err().contains("at most 200"));
        }
        assert!(read(&["--nodes=2"]).unwrap_err().contains("3..=5000"));
    }
}
