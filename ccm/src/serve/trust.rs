//! The trusted authorities for client certificates: from files and from the cluster's ConfigMap
//! `extension-apiserver-authentication`. Both are watched while the process runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ccm_runtime::client::Call;
use ccm_runtime::store::{Cached, FieldFilter, Reflector};
use ccm_runtime::{Client, Store};
use rustls::crypto::CryptoProvider;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use super::config::{Authentication, HeaderNames};
use super::identity::Authorities;

/// The ConfigMap in which every API server publishes its authorities, for servers that delegate authentication to it.
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Pause between two attempts to watch it without the permission.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Trust {
    pub(super) client: Option<Authorities>,
    pub(super) proxy: Option<Proxy>,
}

/// Front proxies and their headers.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) authorities: Authorities,
    pub(super) headers: HeaderNames,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Text {
    client: Option<Vec<u8>>,
    proxy: Option<(Vec<u8>, HeaderNames)>,
}

pub(super) struct Source {
    client_file: Option<PathBuf>,
    proxy_file: Option<(PathBuf, HeaderNames)>,
    /// The cluster whose ConfigMap supplies the authorities for which no file was given.
    cluster: Option<Client>,
    provider: Arc<CryptoProvider>,
    text: Text,
    refused: Option<Text>,
    refused_file: bool,
    refused_map: Option<String>,
    trust: watch::Sender<Arc<Trust>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct ConfigMap {
    metadata: Meta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    resource_version: String,
}

impl Cached for ConfigMap {
    type Key = &'static str;
    const PATH: &'static str = "/api/v1/namespaces/kube-system/configmaps";
    const SELECTOR: Option<&'static str> = Some("fieldSelector=metadata.name%3Dextension-apiserver-authentication");
    const NAME: &'static str = "configmaps";

    fn parse(json: &str, _: &FieldFilter) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    // The selector matches only this object.
    fn key(&self) -> Self::Key {
        Self::key_of("", "")
    }

    fn key_of(_: &str, _: &str) -> Self::Key {
        "kube-system/extension-apiserver-authentication"
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Source {
    /// Reads all sources for the first time. `client` is the one of `--authentication-kubeconfig`.
    ///
    /// # Errors
    ///
    /// Upstream's texts: a file that cannot be used; a lookup that failed, unless that is tolerated.
    pub(super) async fn open(
        config: &Authentication,
        client: Option<&Client>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let proxy_file = config.proxy_ca.clone().map(|path| (path, config.proxy_headers.clone()));
        let missing = config.client_ca.is_none() || proxy_file.is_none();
        let mut source = Self {
            client_file: config.client_ca.clone(),
            proxy_file,
            cluster: client.filter(|_| missing && !config.skip_lookup).cloned(),
            provider,
            text: Text::default(),
            refused: None,
            refused_file: false,
            refused_map: None,
            trust: watch::Sender::new(Arc::default()),
        };
        let mut text = source.read_files()?;
        if let Some(client) = &source.cluster {
            let found = get(client).await.and_then(|found| found.map_or(Ok(Text::default()), |map| from_map(&map)));
            match found {
                Ok(found) => source.fill(&mut text, found),
                Err(error) => source.lookup_failed(config, &error)?,
            }
        } else if missing && !config.skip_lookup {
            tracing::warn!(
                "No authentication-kubeconfig provided in order to lookup client-ca-file and requestheader-client-ca-file in configmap/extension-apiserver-authentication in kube-system, so authentication by client certificates from the cluster won't work."
            );
        }
        let trust = source.parse(&text)?;
        source.text = text;
        source.trust.send_replace(Arc::new(trust));
        Ok(source)
    }

    fn lookup_failed(&self, config: &Authentication, error: &str) -> Result<(), String> {
        if self.proxy_file.is_some() {
            // As upstream, only the front proxy needs the ConfigMap at the start.
            tracing::warn!(error, "the authorities of clients could not be looked up in the cluster yet");
            return Ok(());
        }
        if !config.tolerate_lookup_failure {
            return Err(format!(
                "unable to load configmap based request-header-client-ca-file: {error} (allow the role extension-apiserver-authentication-reader in kube-system, or give --authentication-tolerate-lookup-failure or --authentication-skip-lookup)"
            ));
        }
        tracing::warn!("Error looking up in-cluster authentication configuration: {error}");
        tracing::warn!("Continuing without authentication configuration. This may treat all requests as anonymous.");
        tracing::warn!(
            "To require authentication configuration lookup to succeed, set --authentication-tolerate-lookup-failure=false"
        );
        Ok(())
    }

    /// The trusted authorities, and their changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Trust>> {
        self.trust.subscribe()
    }

    /// Whether any authority is trusted, or may be later.
    pub(super) fn wants_certificates(&self) -> bool {
        self.client_file.is_some() || self.proxy_file.is_some() || self.cluster.is_some()
    }

    /// Watches the sources until it is dropped; rereads the files once per period.
    pub(super) async fn follow(self, period: Duration) {
        let changed = Arc::new(Notify::new());
        let Some(client) = self.cluster.clone() else { return self.apply_changes(&changed, None, period).await };
        let store = Store::new(FieldFilter::default());
        let changes = changed.clone();
        store.on_change(move |_| changes.notify_one());
        let reflector = Reflector::new(store.clone(), client, rand::random())
            .optional(FORBIDDEN_PAUSE, "allow the role extension-apiserver-authentication-reader in kube-system");
        tokio::select! {
            () = reflector.run() => {}
            () = self.apply_changes(&changed, Some(&store), period) => {}
        }
    }

    /// Rereads the files once per period and after each change of the ConfigMap.
    async fn apply_changes(mut self, changed: &Notify, map: Option<&Store<ConfigMap>>, period: Duration) {
        let mut cluster = Text { client: self.text.client.clone(), proxy: self.text.proxy.clone() };
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = changed.notified() => {}
            }
            // After a deletion the last content stays in effect, as upstream.
            let found = map.and_then(|store| store.get(&ConfigMap::key_of("", "")));
            match found.map(|map| from_map(&map)) {
                Some(Ok(text)) => {
                    cluster = text;
                    self.refused_map = None;
                }
                Some(Err(error)) if self.refused_map.as_ref() != Some(&error) => {
                    tracing::error!(
                        error,
                        "configmap kube-system/extension-apiserver-authentication cannot be used, the last content stays in force"
                    );
                    self.refused_map = Some(error);
                }
                Some(Err(_)) | None => {}
            }
            match self.read_files() {
                Ok(mut text) => {
                    self.refused_file = false;
                    self.fill(&mut text, cluster.clone());
                    self.take(text);
                }
                Err(error) if !self.refused_file => {
                    self.refused_file = true;
                    tracing::error!(error, "the authorities of clients stay as they were");
                }
                Err(_) => {}
            }
        }
    }

    fn take(&mut self, text: Text) {
        if text == self.text || self.refused.as_ref() == Some(&text) {
            return;
        }
        match self.parse(&text) {
            Ok(trust) => {
                tracing::info!("Loaded a new client CA bundle");
                self.text = text;
                self.refused = None;
                self.trust.send_replace(Arc::new(trust));
            }
            Err(error) => {
                tracing::error!(error, "the authorities of clients stay as they were");
                self.refused = Some(text);
            }
        }
    }

    fn read_files(&self) -> Result<Text, String> {
        let read = |path: &PathBuf, what: &str| {
            std::fs::read(path).map_err(|error| format!("{what}: open {}: {error}", path.display()))
        };
        let client = self.client_file.as_ref().map(|path| read(path, "unable to load client CA provider"));
        let proxy = self.proxy_file.as_ref().map(|(path, headers)| {
            let text = read(path, "unable to create request header authentication config")?;
            Ok::<_, String>((text, headers.clone()))
        });
        Ok(Text { client: client.transpose()?, proxy: proxy.transpose()? })
    }

    /// Adds the cluster's authorities where no file was given.
    fn fill(&self, text: &mut Text, cluster: Text) {
        if self.client_file.is_none() {
            text.client = cluster.client;
        }
        if self.proxy_file.is_none() {
            text.proxy = cluster.proxy;
        }
    }

    fn parse(&self, text: &Text) -> Result<Trust, String> {
        let read = |pem: &[u8], flag: &str, file: Option<&PathBuf>| {
            let from =
                file.map_or_else(|| format!("{flag} of the cluster"), |path| format!("--{flag} {}", path.display()));
            Authorities::parse(pem, &self.provider).map_err(|error| format!("{from}: {error}"))
        };
        let client = text.client.as_ref().map(|pem| read(pem, "client-ca-file", self.client_file.as_ref()));
        let proxy = text.proxy.as_ref().map(|(pem, headers)| {
            let file = self.proxy_file.as_ref().map(|(path, _)| path);
            let authorities = read(pem, "requestheader-client-ca-file", file)?;
            Ok::<_, String>(Proxy { authorities, headers: headers.clone() })
        });
        Ok(Trust { client: client.transpose()?, proxy: proxy.transpose()? })
    }
}

/// `None` when there is none.
async fn get(client: &Client) -> Result<Option<ConfigMap>, String> {
    match client.read(&Call::get(CONFIG_MAP).within(Duration::from_secs(10))).await {
        Ok(map) => Ok(Some(map)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn from_map(map: &ConfigMap) -> Result<Text, String> {
    let text = |key: &str| map.data.get(key).filter(|text| !text.is_empty());
    let list = |key: &str| -> Result<Vec<String>, String> {
        text(key).map_or(Ok(Vec::new()), |text| {
            serde_json::from_str(text).map_err(|error| format!("key {key}: not a JSON list of texts: {error}"))
        })
    };
    let headers = HeaderNames {
        allowed: list("requestheader-allowed-names")?,
        user: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefix: list("requestheader-extra-headers-prefix")?,
    };
    Ok(Text {
        client: text("client-ca-file").map(|pem| pem.clone().into_bytes()),
        proxy: text("requestheader-client-ca-file").map(|pem| (pem.clone().into_bytes(), headers)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> ConfigMap {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConfigMap { metadata: Meta { resource_version: "1".into() }, data }
    }

    #[test]
    fn the_config_map_names_authorities_and_headers() {
        let text = from_map(&map(&[
            ("client-ca-file", "A"),
            ("requestheader-client-ca-file", "B"),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ]))
        .unwrap();
        let (pem, headers) = text.proxy.unwrap();
        assert_eq!((text.client.unwrap(), pem), (b"A".to_vec(), b"B".to_vec()));
        assert_eq!((headers.allowed, headers.user), (vec!["front-proxy-client".into()], vec!["X-Remote-User".into()]));
        assert!(headers.group.is_empty());
    }

    #[test]
    fn an_empty_config_map_trusts_no_authority_and_a_bad_one_is_refused() {
        assert_eq!(from_map(&map(&[("client-ca-file", "")])).unwrap(), Text::default());
        let error = from_map(&map(&[("requestheader-allowed-names", "x")])).unwrap_err();
        assert!(error.starts_with("key requestheader-allowed-names: "), "{error}");
    }
}
