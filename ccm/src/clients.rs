//! Who speaks with the API server: one identity for all, or one for each controller.
//!
//! Names of clients end the `User-Agent`; `client-go`'s `rest.AddUserAgent` and `controller-manager/pkg/clientbuilder`.

use std::collections::HashMap;
use std::sync::Arc;

use ccm_provider::Clock;
use ccm_provider::flag::FlagValues;
use ccm_runtime::Client;
use ccm_runtime::client::Rate;
use tokio::sync::Mutex;

use crate::exit::Failure;
use crate::version;

/// The namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";

/// Makes the clients of a process. All share one pool of connections, unless their credentials forbid it.
pub(crate) struct Clients {
    base: Client,
    /// `--use-service-account-credentials`
    accounts: bool,
    clock: Arc<dyn Clock>,
    /// By account: two controllers of one name share its token.
    known: Mutex<HashMap<&'static str, Client>>,
}

impl Clients {
    /// `base` has the credentials of this process.
    pub(crate) fn new(base: &Client, values: &FlagValues, dry_run: bool, clock: Arc<dyn Clock>) -> Self {
        let asked = values.bool("use-service-account-credentials");
        if asked && dry_run {
            tracing::info!(
                "--use-service-account-credentials has no effect with --dry-run: no service account is made, and nothing written with it"
            );
        }
        if values.given("kube-api-content-type") && values.text("kube-api-content-type").contains("protobuf") {
            tracing::info!("--kube-api-content-type: requests are JSON, not protobuf");
        }
        Self { base: base.with_rate(rate(values)), accounts: asked && !dry_run, clock, known: Mutex::default() }
    }

    /// With the credentials of this process, for what belongs to no part of it.
    pub(crate) fn general(&self) -> Client {
        self.base.clone()
    }

    /// With the credentials of this process, for a part of it: `leader-election`, `shared-informers`.
    pub(crate) fn named(&self, name: &str) -> Client {
        self.base.with_user_agent(&user_agent(name))
    }

    /// For the controller with this name of a client.
    pub(crate) async fn for_controller(&self, name: &'static str) -> Result<Client, Failure> {
        if !self.accounts {
            return Ok(self.named(name));
        }
        let agent = user_agent(&format!("system:serviceaccount:{NAMESPACE}:{name}"));
        let mut known = self.known.lock().await;
        let account = match known.get(name) {
            Some(account) => account.clone(),
            None => {
                let made = self.base.for_account(NAMESPACE, name, Arc::clone(&self.clock)).await;
                let made = made.map_err(|error| Failure::fatal(error.to_string()))?;
                known.insert(name, made.clone());
                made
            }
        };
        Ok(account.with_user_agent(&agent))
    }
}

/// `--kube-api-qps` and `--kube-api-burst`; without them the API server's priority and fairness decides.
fn rate(values: &FlagValues) -> Option<Rate> {
    if !values.given("kube-api-qps") && !values.given("kube-api-burst") {
        return None;
    }
    // The values are what one flag means when only the other one is given: those of the Go program.
    let qps = values.text("kube-api-qps").parse().unwrap_or(20.0);
    let burst = values.int("kube-api-burst").and_then(|burst| i32::try_from(burst).ok()).unwrap_or(30);
    Rate::new(qps, burst)
}

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<name>`, as `rest.DefaultKubernetesUserAgent` makes it.
pub(crate) fn user_agent(name: &str) -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let program = program.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("unknown");
    let info = version::info(None);
    // Without what follows the first dash, and of the commit what tells it apart.
    let version = info.git_version.split('-').next().unwrap_or_default();
    let commit = info.git_commit.get(..7).unwrap_or(info.git_commit);
    format!("{program}/{version} ({}) kubernetes/{commit}/{name}", info.platform)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(given: &[(&'static str, &str)]) -> FlagValues {
        let mut values = FlagValues::default();
        for (name, value) in given {
            values.insert(name, vec![(*value).to_owned()], true);
        }
        values
    }

    #[test]
    fn only_flags_that_are_given_limit_the_rate() {
        assert_eq!(rate(&values(&[])), None);
        assert_eq!(rate(&values(&[("kube-api-qps", "50")])), Rate::new(50.0, 30));
        assert_eq!(rate(&values(&[("kube-api-burst", "7")])), Rate::new(20.0, 7));
        assert_eq!(rate(&values(&[("kube-api-qps", "-1"), ("kube-api-burst", "7")])), None);
    }

    #[test]
    fn the_user_agent_has_the_form_of_the_go_programs() {
        let agent = user_agent("leader-election");
        let (program, rest) = agent.split_once('/').unwrap();
        assert!(!program.is_empty());
        let expected = format!("{} ({}) kubernetes/", version::VERSION, version::platform());
        assert!(rest.starts_with(&expected) && rest.ends_with("/leader-election"), "{agent}");
    }
}
