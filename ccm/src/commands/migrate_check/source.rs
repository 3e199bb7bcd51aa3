//! Where a file or a variable of a container comes from: a key of a Secret or of a ConfigMap.

use std::io::{Error, ErrorKind};

use ccm_provider::{CloudConfig, SecretKey};
use ccm_runtime::Client;
use ccm_runtime::client::Call;

use super::objects::{ConfigMap, Container, Item, OfObject, Pod, ValueFrom};
use super::running;
use crate::exit::Failure;
use crate::providers;

/// The name of the object, and the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Secret(String, String),
    ConfigMap(String, String),
}

impl Source {
    /// What may hold a file of a container, first that which wins. None for a file of the node.
    pub(super) fn of_file(path: &str, pod: &Pod, container: &Container) -> Vec<Self> {
        let rest = |mount: &str| path.strip_prefix(mount).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let mounts = container.volume_mounts.iter();
        let inside = mounts.filter_map(|mount| Some((mount, rest(mount.mount_path.trim_end_matches('/'))?)));
        let Some((mount, rest)) = inside.max_by_key(|(mount, _)| mount.mount_path.len()) else { return Vec::new() };
        let file = format!("{}{rest}", mount.sub_path);
        let file = file.trim_start_matches('/');
        let item = |items: &[Item]| items.iter().find(|item| item.path == file).map(|item| item.key.clone());
        let key = |items: &[Item]| item(items).unwrap_or_else(|| file.to_owned());
        let has = |of: &&OfObject| of.items.is_empty() || item(&of.items).is_some();
        let Some(volume) = pod.spec.volumes.iter().find(|volume| volume.name == mount.name) else { return Vec::new() };
        let secret = volume.secret.iter().map(|of| Self::Secret(of.secret_name.clone(), key(&of.items)));
        let map = volume.config_map.iter().map(|of| Self::ConfigMap(of.name.clone(), key(&of.items)));
        // The kubelet writes the later ones over the earlier ones.
        let projected = volume.projected.iter().flat_map(|volume| volume.sources.iter().rev()).flat_map(|source| {
            let secret = source.secret.iter().filter(has).map(|of| Self::Secret(of.name.clone(), key(&of.items)));
            let map = source.config_map.iter().filter(has).map(|of| Self::ConfigMap(of.name.clone(), key(&of.items)));
            secret.chain(map)
        });
        secret.chain(map).chain(projected).collect()
    }

    /// `None` for a field of the pod.
    pub(super) fn of_variable(value: &ValueFrom) -> Option<Self> {
        let secret = value.secret_key_ref.as_ref().map(|of| Self::Secret(of.name.clone(), of.key.clone()));
        secret.or_else(|| value.config_map_key_ref.as_ref().map(|of| Self::ConfigMap(of.name.clone(), of.key.clone())))
    }

    fn secret(namespace: &str, name: &str, key: &str) -> SecretKey {
        SecretKey { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
    }

    fn label(&self, namespace: &str) -> String {
        match self {
            Self::Secret(name, key) => Self::secret(namespace, name, key).to_string(),
            Self::ConfigMap(name, key) => format!("ConfigMap {namespace}/{name}, key {key}"),
        }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidData`]: the object has no such key, or no text in it.
    async fn value(&self, client: &Client, namespace: &str) -> Result<String, Error> {
        let (name, key) = match self {
            Self::Secret(name, key) => return providers::secret(client, &Self::secret(namespace, name, key)).await,
            Self::ConfigMap(name, key) => (name, key),
        };
        let read = Call::get(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"));
        let mut map: ConfigMap = client.read(&read).await.map_err(Error::other)?;
        match (map.data.remove(key), map.binary_data.get(key)) {
            (Some(text), _) => Ok(text),
            (None, Some(binary)) => providers::decoded(binary, key),
            (None, None) => Err(Error::new(ErrorKind::InvalidData, "it has no such key")),
        }
    }

    /// The value; the error names the source.
    pub(super) async fn read(&self, client: &Client, namespace: &str) -> Result<String, Error> {
        let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", self.label(namespace)));
        self.value(client, namespace).await.map_err(named)
    }
}

/// Whether arguments of a component in this pod contain a variable whose value it does not hold.
pub(super) fn lacks_variables(pod: &Pod) -> bool {
    let running = pod.spec.containers.iter().filter_map(|container| running::of(pod, container));
    running.flat_map(|running| running.args).any(|arg| arg.contains('$'))
}

/// Reads the variables that arguments may need from Secrets and ConfigMaps. The answer: why others stay unknown.
pub(super) async fn read_variables(client: &Client, pod: &mut Pod) -> Vec<String> {
    let mut unread = Vec::new();
    if !lacks_variables(pod) {
        return unread;
    }
    for Container { command, args, env, .. } in &mut pod.spec.containers {
        let texts = command.iter().chain(&*args).chain(env.iter().map(|variable| &variable.value));
        let texts: Vec<String> = texts.cloned().collect();
        for variable in env.iter_mut().filter(|variable| texts.iter().any(|text| text.contains(&variable.name))) {
            let Some(source) = variable.value_from.as_ref().and_then(Source::of_variable) else { continue };
            match source.read(client, &pod.metadata.namespace).await {
                // The kubelet replaces nothing in such a value.
                Ok(value) => (variable.value, variable.value_from) = (value.replace('$', "$$"), None),
                Err(error) => unread.push(format!(" ({}: {error})", variable.name)),
            }
        }
    }
    unread
}

/// The configuration file of a program that runs in a pod.
#[derive(Debug, Clone)]
pub(crate) struct ConfigOfPod {
    namespace: String,
    pod: String,
    path: String,
    sources: Vec<Source>,
}

impl ConfigOfPod {
    pub(super) fn new(path: String, pod: &Pod, container: &Container) -> Self {
        let (meta, sources) = (&pod.metadata, Source::of_file(&path, pod, container));
        Self { namespace: meta.namespace.clone(), pod: meta.name.clone(), path, sources }
    }

    /// What the Secret or ConfigMap holds now.
    pub(crate) async fn read(&self, client: &Client) -> Result<CloudConfig, Failure> {
        let Self { namespace, pod, path, sources } = self;
        let mut failed = None;
        for source in sources {
            match source.read(client, namespace).await {
                Ok(text) => return Ok(CloudConfig { path: source.label(namespace).into(), text }),
                // Another source of the volume may have the file.
                Err(error) if error.kind() == ErrorKind::InvalidData => failed = failed.or(Some(error)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let node = || "it is a file of the node, or of an unknown kind of volume".to_owned();
        let reason = failed.map_or_else(node, |error| error.to_string());
        let fix = "add --cloud-config=FILE with the same content, or, once this program runs there, --in-cluster";
        Err(Failure::error(format!("the configuration {path} of pod {namespace}/{pod}: {reason}; {fix}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "spec": {
                "volumes": [
                    {"name": "c", "secret": {"secretName": "cloud", "items": [{"key": "k", "path": "cloud.conf"}]}},
                    {"name": "m", "configMap": {"name": "map"}},
                    {"name": "h", "hostPath": {"path": "/etc"}},
                    {"name": "p", "projected": {"sources": [
                        {"configMap": {"name": "all"}},
                        {"secret": {"name": "some", "items": [{"key": "k", "path": "cloud.conf"}]}},
                        {"serviceAccountToken": {"path": "token"}},
                    ]}},
                ],
                "containers": [{"volumeMounts": [
                    {"name": "c", "mountPath": "/etc/cloud/"},
                    {"name": "m", "mountPath": "/etc/one.conf", "subPath": "one"},
                    {"name": "h", "mountPath": "/etc/kubernetes"},
                    {"name": "p", "mountPath": "/etc/several"},
                ]}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_configuration_is_found_behind_the_mounts_of_the_container() {
        let pod = pod();
        let found = |path: &str| Source::of_file(path, &pod, &pod.spec.containers[0]);
        let secret = |name: &str, key: &str| Source::Secret(name.into(), key.into());
        let map = |name: &str, key: &str| Source::ConfigMap(name.into(), key.into());
        assert_eq!(found("/etc/cloud/cloud.conf"), [secret("cloud", "k")]);
        assert_eq!(found("/etc/cloud/other"), [secret("cloud", "other")]);
        assert_eq!(found("/etc/one.conf"), [map("map", "one")]);
        assert_eq!(found("/etc/several/cloud.conf"), [secret("some", "k"), map("all", "cloud.conf")]);
        assert_eq!(found("/etc/several/other"), [map("all", "other")]);
        assert_eq!(found("/etc/kubernetes/cloud.conf"), []);
        assert_eq!(found("/etc/cloudy"), []);
    }
}
