//! `version`: what this program is, for bug reports. `--version` prints the line of the Go programs.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use super::output::{self, Format};
use super::{Call, Command};
use crate::exit::{Failure, Verdict};
use crate::version;

pub(super) const COMMAND: Command = Command {
    name: "version",
    words: "",
    about: "Prints version, commit, date, providers, and tested versions of Kubernetes.",
    details: "\
  ccm version
  ccm version -o json",
    flags: &[],
    formats: &[],
    like_running: false,
    run,
};

/// The Kubernetes versions on which the tests run.
const TESTED: [&str; 3] = ["1.33", "1.36", "1.37"];

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        if let Some(word) = call.words.first() {
            return Err(Failure::error(format!("version takes no arguments, got {word:?}")));
        }
        let info = version::info(None);
        let providers: Vec<&str> = call.registry.names().collect();
        super::deliver(&match call.output.format {
            Format::Json | Format::Yaml => call.output.document(
                "Version",
                json!({
                    "programVersion": info.git_version,
                    "commit": info.git_commit,
                    "buildDate": info.build_date,
                    "platform": info.platform,
                    "providers": providers,
                    "testedKubernetes": TESTED,
                }),
            ),
            _ => output::table(&[
                vec!["version".into(), info.git_version],
                vec!["commit".into(), format!("{} ({})", info.git_commit, info.build_date)],
                vec!["platform".into(), info.platform],
                vec!["providers".into(), providers.join(", ")],
                vec!["tested with".into(), format!("Kubernetes {}", TESTED.join(", "))],
            ]),
        })?;
        Ok(Verdict::Clean)
    }
    .boxed()
}
