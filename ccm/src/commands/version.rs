//! `version`: what this program is, for bug reports. `--version` prints the line of the Go programs.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use super::output::{self, Format};
use super::{Call, Command, kubeconfig};
use crate::exit::{Failure, Verdict};
use crate::version;

pub(super) const COMMAND: Command = Command {
    name: "version",
    words: "",
    about: "Prints version, commit, date, providers, and tested versions of Kubernetes.",
    details: "  ccm version\n  ccm version -o json",
    flags: &[],
    namespace: &kubeconfig::NO_NAMESPACE,
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
        let [commit, state, date] = info.build();
        super::deliver(&match call.output.format {
            Format::Json | Format::Yaml => call.output.document(
                "Version",
                json!({
                    "programVersion": info.git_version,
                    "commit": commit,
                    "treeState": state,
                    "buildDate": date,
                    "platform": info.platform,
                    "providers": providers,
                    "testedKubernetes": TESTED,
                }),
            ),
            _ => {
                let mut rows = vec![vec!["version".into(), info.git_version]];
                rows.extend(commit.map(|commit| {
                    let build: Vec<&str> = [Some(commit), state, date].into_iter().flatten().collect();
                    vec!["commit".into(), build.join(", ")]
                }));
                rows.push(vec!["platform".into(), info.platform]);
                rows.push(vec!["providers".into(), providers.join(", ")]);
                rows.push(vec!["tested with".into(), format!("Kubernetes {}", TESTED.join(", "))]);
                output::table(&rows)
            }
        })?;
        Ok(Verdict::Clean)
    }
    .boxed()
}
