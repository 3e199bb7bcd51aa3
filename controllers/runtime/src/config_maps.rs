//! The ConfigMaps of a provider, through the API server.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ccm_provider::{Clock, ConfigMapData, ConfigMapSpec, ConfigMaps, ErrorClass, ProviderError};
use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::client::or_default;
use crate::client::{ApiError, Call};
use crate::gate::{Gate, GateError};
use crate::permission::SYSTEM_NAMESPACE;

/// The account with which cloud-provider-gcp, the only Go program with ConfigMaps of its own, creates them: its roles may
/// grant that to no other.
pub const ACCOUNT: &str = "cloud-provider";

/// Reads through the client of a gate, and writes through the gate.
#[derive(Clone)]
pub struct ApiConfigMaps {
    gate: Gate,
    /// The clock of tokens, where each controller has an account.
    accounts: Option<Arc<dyn Clock>>,
}

#[derive(Debug, Deserialize)]
struct ConfigMap {
    #[serde(default, deserialize_with = "or_default")]
    data: ConfigMapData,
}

impl ApiConfigMaps {
    /// ConfigMaps that are read and written with this gate.
    pub fn new(gate: Gate) -> Self {
        Self { gate, accounts: None }
    }

    /// The same where each controller has an account.
    #[must_use]
    pub fn with_accounts(self, clock: Arc<dyn Clock>) -> Self {
        Self { accounts: Some(clock), ..self }
    }

    /// Sends a creation with [`ACCOUNT`]; `None` if that is of no use.
    async fn create_as_account(&self, call: &Call<'_>) -> Option<Result<Bytes, GateError>> {
        let client = self.gate.client().for_optional_account(SYSTEM_NAMESPACE, ACCOUNT, self.accounts.clone()?).await;
        Some(self.gate.with_client(client.ok()?).write(call).await)
    }
}

impl std::fmt::Debug for ApiConfigMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiConfigMaps").field("gate", &self.gate).finish_non_exhaustive()
    }
}

#[async_trait]
impl ConfigMaps for ApiConfigMaps {
    async fn get(&self, spec: &ConfigMapSpec) -> Result<Option<ConfigMapData>, ProviderError> {
        match self.gate.client().read_named::<ConfigMap>(&collection(spec), spec.name).await {
            Ok(map) => Ok(map.map(|map| map.data)),
            Err(error) => Err(failure("read", spec, &error)),
        }
    }

    async fn create(&self, spec: &ConfigMapSpec, data: ConfigMapData) -> Result<ConfigMapData, ProviderError> {
        let ConfigMapSpec { namespace, name, .. } = spec;
        let metadata = json!({"namespace": namespace, "name": name});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let call = Call::json(Method::POST, collection(spec), &body);
        let mut written = self.gate.write(&call).await;
        if let Err(GateError::Api(error)) = &written
            && error.is_forbidden()
            && let Some(second) = self.create_as_account(&call).await
        {
            written = second;
        }
        match written {
            Ok(_) | Err(GateError::DryRun) => Ok(data),
            // Another replica created it meanwhile, or the answer to an earlier attempt was lost.
            Err(GateError::Api(ApiError::Status { code: 409, .. })) => {
                let gone =
                    || ProviderError::new(ErrorClass::Conflict, format!("{} was deleted meanwhile", named(spec)));
                self.get(spec).await?.ok_or_else(gone)
            }
            Err(GateError::Api(error)) => Err(failure("create", spec, &error)),
            Err(error) => Err(ProviderError::unknown(format!("{}: {error}", named(spec)))),
        }
    }
}

fn collection(spec: &ConfigMapSpec) -> String {
    format!("/api/v1/namespaces/{}/configmaps", spec.namespace)
}

fn named(spec: &ConfigMapSpec) -> String {
    format!("ConfigMap {}/{}", spec.namespace, spec.name)
}

fn failure(verb: &str, spec: &ConfigMapSpec, error: &ApiError) -> ProviderError {
    let text = format!("cannot {verb} the {}: {error}", named(spec));
    if !error.is_forbidden() {
        return ProviderError::unknown(text);
    }
    let fix = "the RBAC in manifests/ of the provider grants it";
    ProviderError::unknown(format!("{text} ({fix})"))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::{Client, Leadership, Metrics, SystemClock};

    const UID: ConfigMapSpec = ConfigMapSpec { namespace: "kube-system", name: "ingress-uid", why: "a test" };

    /// Answers reads with the stored data, and accepts one creation.
    fn config_maps(stored: Option<&str>, refuses: bool, dry_run: bool) -> (ApiConfigMaps, Arc<Mutex<Option<String>>>) {
        let stored = Arc::new(Mutex::new(stored.map(str::to_owned)));
        let server = stored.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let mut stored = server.lock();
            let (code, uid) = match (refuses, request.method().clone(), stored.clone()) {
                (true, ..) => (403, None),
                (false, Method::GET, Some(uid)) => (200, Some(uid)),
                (false, Method::GET, None) => (404, None),
                (false, _, Some(_)) => (409, None),
                (false, ..) => {
                    *stored = Some("ours".to_owned());
                    (201, Some("ours".to_owned()))
                }
            };
            let body = match uid {
                Some(uid) => json!({"metadata": {"name": UID.name}, "data": {"uid": uid}}),
                None => {
                    let reason = if code == 404 { "NotFound" } else { "x" };
                    json!({"kind": "Status", "code": code, "message": "no", "reason": reason})
                }
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { answer }
        });
        let (metrics, leadership) = (Metrics::new(), Leadership::new(Arc::new(SystemClock)));
        leadership.lead(None);
        let client = Client::over(kube::Client::new(service, "default"), metrics.clone());
        (ApiConfigMaps::new(Gate::new(client, leadership, dry_run, metrics)), stored)
    }

    fn data(uid: &str) -> ConfigMapData {
        ConfigMapData::from([("uid".to_owned(), uid.to_owned())])
    }

    #[tokio::test]
    async fn a_missing_config_map_is_created_once() {
        let (maps, _) = config_maps(None, false, false);
        assert_eq!(maps.get(&UID).await.unwrap(), None);
        assert_eq!(maps.create(&UID, data("ours")).await.unwrap(), data("ours"));
        assert_eq!(maps.get(&UID).await.unwrap(), Some(data("ours")));
    }

    #[tokio::test]
    async fn the_second_of_two_processes_gets_the_data_of_the_first() {
        let (maps, stored) = config_maps(Some("theirs"), false, false);
        assert_eq!(maps.create(&UID, data("ours")).await.unwrap(), data("theirs"));
        assert_eq!(stored.lock().as_deref(), Some("theirs"));
    }

    #[tokio::test]
    async fn a_dry_run_creates_nothing() {
        let (maps, stored) = config_maps(None, false, true);
        assert_eq!(maps.create(&UID, data("ours")).await.unwrap(), data("ours"));
        assert_eq!(*stored.lock(), None::<String>);
    }

    #[tokio::test]
    async fn a_refusal_is_not_absence_and_names_the_config_map() {
        let (maps, _) = config_maps(None, true, false);
        let error = maps.get(&UID).await.unwrap_err().to_string();
        assert!(error.contains("ConfigMap kube-system/ingress-uid") && error.contains("manifests/"), "{error}");
    }
}
