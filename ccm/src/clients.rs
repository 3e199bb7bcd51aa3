//! Clients of the API server: one identity for all, or one for each controller.
//!
//! The `User-Agent` ends with the client's name, as in `client-go`'s `rest.AddUserAgent` and
//! `controller-manager/pkg/clientbuilder`.

use std::collections::HashMap;
use std::sync::Arc;

use ccm_provider::Clock;
use ccm_runtime::Client;
use ccm_runtime::client::ConnectError;
use tokio::sync::Mutex;

use crate::{options, version};

/// The namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";

/// Creates the clients of a process. All share one connection pool, unless their credentials prevent that.
pub(crate) struct Clients {
    base: Client,
    /// `--use-service-account-credentials`
    accounts: bool,
    clock: Arc<dyn Clock>,
    /// By account: two controllers with the same client name share its token.
    known: Mutex<HashMap<&'static str, Client>>,
}

impl Clients {
    /// `base` has the credentials of this process.
    pub(crate) fn new(base: Client, options: &options::Clients, dry_run: bool, clock: Arc<dyn Clock>) -> Self {
        let asked = options.use_service_account_credentials;
        if asked && dry_run {
            tracing::info!(
                "--use-service-account-credentials has no effect with --dry-run: no service account is made, and nothing written with it"
            );
        }
        Self { base: base.with_rate(options.rate), accounts: asked && !dry_run, clock, known: Mutex::default() }
    }

    /// A client with the credentials of this process, for general use.
    pub(crate) fn general(&self) -> Client {
        self.base.clone()
    }

    /// A client with the credentials of this process, for one of its parts: `leader-election`, `shared-informers`.
    pub(crate) fn named(&self, name: &str) -> Client {
        self.base.with_user_agent(&user_agent(name))
    }

    /// `optional`: without a token for its account the controller does not run.
    pub(crate) async fn for_controller(&self, name: &'static str, optional: bool) -> Result<Client, ConnectError> {
        if !self.accounts {
            return Ok(self.named(name));
        }
        let agent = user_agent(&format!("system:serviceaccount:{NAMESPACE}:{name}"));
        let mut known = self.known.lock().await;
        let account = match known.get(name) {
            Some(account) => account.clone(),
            None => {
                let clock = Arc::clone(&self.clock);
                let made = match optional {
                    true => self.base.for_optional_account(NAMESPACE, name, clock).await?,
                    false => self.base.for_account(NAMESPACE, name, clock).await?,
                };
                known.insert(name, made.clone());
                made
            }
        };
        Ok(account.with_user_agent(&agent))
    }
}

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<name>`, as in `rest.DefaultKubernetesUserAgent`.
pub(crate) fn user_agent(name: &str) -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let program = program.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("unknown");
    let info = version::info(None);
    // The version without its suffix, and the abbreviated commit.
    let version = info.git_version.split('-').next().unwrap_or_default();
    let commit = info.git_commit.get(..7).unwrap_or(info.git_commit);
    format!("{program}/{version} ({}) kubernetes/{commit}/{name}", info.platform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_agent_has_the_form_of_the_go_programs() {
        let agent = user_agent("leader-election");
        let (program, rest) = agent.split_once('/').unwrap();
        assert!(!program.is_empty());
        let expected = format!("{} ({}) kubernetes/", version::VERSION, version::platform());
        assert!(rest.starts_with(&expected) && rest.ends_with("/leader-election"), "{agent}");
    }
}
