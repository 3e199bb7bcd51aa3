//! Reads the inputs of the checks besides nodes and Services, page by page. All of them are optional: a failed read is
//! a finding.

use std::collections::BTreeMap;

use ccm_provider::Check;
use ccm_runtime::Client;
use ccm_runtime::client::ApiError;

use super::objects::{Lease, Namespace, Pod, WebhookConfiguration};
use super::running::{Found, Running};
use super::source;
use crate::commands::page::{all, each};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) running: Option<Vec<Running>>,
    pub(super) leases: Option<Vec<Lease>>,
    /// With the resource, `validatingwebhook` or `mutatingwebhook`.
    pub(super) webhooks: Vec<(&'static str, WebhookConfiguration)>,
    /// Whether both kinds of webhooks could be read.
    pub(super) all_webhooks: bool,
    /// Labels by name.
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Findings for failed reads.
    pub(super) unread: Vec<Check>,
}

/// The pods of a namespace, or of all.
pub(super) fn pods(namespace: &str) -> String {
    match namespace {
        "" => "/api/v1/pods".to_owned(),
        name => format!("/api/v1/namespaces/{name}/pods"),
    }
}

/// Reads all inputs. `namespace`: the namespace of pods, empty for all; `leases`: the namespace of Leases.
pub(super) async fn cluster(client: &Client, namespace: &str, leases: &str) -> Cluster {
    let pods = pods(namespace);
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{leases}/leases");
    let [validating, mutating] =
        ["validatingwebhook", "mutatingwebhook"].map(|kind| (kind, format!("{REGISTRATION}/{kind}configurations")));
    let (mut found, mut lacking) = (Found::default(), Vec::new());
    let (running, leases, validated, mutated, namespaces) = futures::join!(
        each(client, &pods, |pod: Pod| match source::lacks_variables(&pod) {
            true => lacking.push(pod),
            false => found.add(&pod),
        }),
        all::<Lease>(client, &leases),
        all::<WebhookConfiguration>(client, &validating.1),
        all::<WebhookConfiguration>(client, &mutating.1),
        all::<Namespace>(client, "/api/v1/namespaces"),
    );
    for mut pod in lacking {
        // A variable that is still unknown is shown by its name.
        drop(source::read_variables(client, &mut pod).await);
        found.add(&pod);
    }
    let mut cluster = Cluster { all_webhooks: validated.is_ok() && mutated.is_ok(), ..Cluster::default() };
    let unread = &mut cluster.unread;
    cluster.running = read(unread, "pods", "flags of what runs now are not checked", running).map(|()| found.finish());
    cluster.leases = read(unread, "leases.coordination.k8s.io", "the active process is not checked", leases);
    for (kind, read_of) in [(validating.0, validated), (mutating.0, mutated)] {
        let resource = format!("{kind}configurations.admissionregistration.k8s.io");
        let webhooks = read(unread, &resource, "webhooks are not checked", read_of).unwrap_or_default();
        cluster.webhooks.extend(webhooks.into_iter().map(|webhook| (kind, webhook)));
    }
    let namespaces = read(unread, "namespaces", "their labels are not known to selectors of webhooks", namespaces);
    let labels = |namespace: Namespace| (namespace.metadata.name, namespace.metadata.labels);
    cluster.namespaces = namespaces.unwrap_or_default().into_iter().map(labels).collect();
    cluster
}

/// The result of a read; an error becomes a finding.
fn read<T>(unread: &mut Vec<Check>, resource: &str, effect: &str, result: Result<T, ApiError>) -> Option<T> {
    result.map_err(|error| unread.push(unreadable(resource, effect, &error))).ok()
}

fn unreadable(resource: &str, effect: &str, error: &ApiError) -> Check {
    let fix = match error.is_forbidden() {
        true => format!(
            "run it as somebody who may list {resource}: kubectl create clusterrole ccm-migrate-check --verb=list \
             --resource={resource}, and bind it"
        ),
        false => again(error).to_owned(),
    };
    Check::warning("unread", resource, format!("cannot be listed, so that {effect}: {error}"), fix)
}

/// What to do after an error of the API server that is no refusal.
pub(super) fn again(error: &ApiError) -> &'static str {
    match error {
        ApiError::Status { code: 404 | 405, .. } => {
            "nothing, if this is an API server in memory, such as that of cargo demo: it does not serve this"
        }
        _ => "try again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_try_is_no_advice_for_what_the_server_does_not_serve() {
        let fix = |code| {
            let (reason, message) = (String::new(), "method not allowed".to_owned());
            let error = ApiError::Status { code, reason, message, retry_after: None };
            unreadable("leases.coordination.k8s.io", "x", &error).fix
        };
        for code in [404, 405] {
            assert!(fix(code).contains("does not serve this"), "{code}");
        }
        assert_eq!(fix(500), "try again");
    }
}
