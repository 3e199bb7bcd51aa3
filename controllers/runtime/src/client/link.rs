//! The connection to the API server with this process's own credentials, which may change while it runs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::client::ConfigExt;
use kube::config::AuthInfo;
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tower::{BoxError, ServiceBuilder};

use super::config::{ConnectOptions, Proxy, RemoteServer, Setup, load};
use super::connection::{Pool, Server, pool};
use super::error::{ConnectError, Peer, explain};

/// The interval at which files are read again: tokens, certificates, keys, the kubeconfig.
const LOOK: Duration = Duration::from_secs(60);
/// Minimum time between two reads after a 401. A credential plugin must not run for each request.
const LOOK_AFTER_401: Duration = Duration::from_secs(5);

/// A client for one state of the credentials.
pub(super) struct Session {
    /// The client with the credentials of this process.
    pub(super) own: kube::Client,
    /// A client without credentials: no client certificate, no token, no impersonation. For callers with their own.
    pub(super) bare: kube::Client,
    fingerprint: u64,
}

/// A server, and the source of the sessions with it.
pub(super) struct Link {
    source: Source,
    pub(super) peer: Peer,
}

enum Source {
    /// Created once: in the process, in tests, or for a few requests.
    Given(Arc<Session>),
    Files(Box<Files>),
}

struct Files {
    options: ConnectOptions,
    address: http::Uri,
    current: RwLock<Arc<Session>>,
    /// The last time the files were read; locked during a read.
    looked: Mutex<Instant>,
}

impl Link {
    pub(super) async fn new(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let setup = load(options).await?;
        let address = setup.config.cluster_url.clone();
        let host = address.authority().map_or("", |a| a.as_str().rsplit('@').next().unwrap_or_default()).to_owned();
        let peer = Peer { host, trust: setup.trust.clone(), proxy: setup.proxy.as_ref().map(Proxy::label) };
        let session = Arc::new(build(setup).await?);
        let (options, looked) = (options.clone(), Mutex::new(Instant::now()));
        let files = Files { options, address, current: RwLock::new(session), looked };
        Ok(Self { source: Source::Files(Box::new(files)), peer })
    }

    /// A client for another server with the current credentials: for a few requests.
    pub(super) async fn to_server(options: &ConnectOptions, server: &RemoteServer) -> Result<Self, ConnectError> {
        let setup = load(options).await?.for_server(server)?;
        let host = server.address.authority().map_or("", |address| address.as_str()).to_owned();
        let peer = Peer { host, trust: setup.trust.clone(), proxy: setup.proxy.as_ref().map(Proxy::label) };
        Ok(Self { source: Source::Given(Arc::new(build(setup).await?)), peer })
    }

    pub(super) fn given(client: kube::Client) -> Self {
        let session = Session { own: client.clone(), bare: client, fingerprint: 0 };
        let peer = Peer { host: "in-process".into(), trust: String::new(), proxy: None };
        Self { source: Source::Given(Arc::new(session)), peer }
    }

    /// The session for a request; reads the files again from time to time.
    pub(super) async fn session(&self) -> Arc<Session> {
        match &self.source {
            Source::Given(session) => Arc::clone(session),
            Source::Files(files) => {
                // While another request reads the files, use the current session.
                if let Ok(mut looked) = files.looked.try_lock()
                    && looked.elapsed() >= LOOK
                {
                    *looked = Instant::now();
                    files.look(false).await;
                }
                files.current()
            }
        }
    }

    /// Sends later requests over new connections.
    pub(super) async fn reconnect(&self) {
        if let Source::Files(files) = &self.source {
            let mut looked = files.looked.lock().await;
            *looked = Instant::now();
            files.look(true).await;
        }
    }

    /// Whether there are other credentials to try after a 401 to a request of this session.
    pub(super) async fn refused(&self, seen: &Arc<Session>) -> bool {
        let Source::Files(files) = &self.source else { return false };
        let mut looked = files.looked.lock().await;
        let changed = || !Arc::ptr_eq(seen, &files.current());
        if !changed() && looked.elapsed() >= LOOK_AFTER_401 {
            *looked = Instant::now();
            files.look(true).await;
        }
        changed()
    }
}

impl Files {
    fn current(&self) -> Arc<Session> {
        Arc::clone(&self.current.read())
    }

    /// Reads the files, and makes a session of them if they differ; with `force` in any case.
    async fn look(&self, force: bool) {
        // Credentials that cannot be read, perhaps only briefly, do not replace the current ones:
        // kubernetes/kubernetes#68164.
        let setup = match load(&self.options).await {
            Ok(setup) => setup,
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again; the old ones stay in use");
                return;
            }
        };
        if setup.config.cluster_url != self.address {
            tracing::warn!("the kubeconfig names another API server now; the one from the start stays in use");
            return;
        }
        // A plugin may have a new token although nothing else has changed.
        if fingerprint(&setup) == self.current().fingerprint && !force {
            return;
        }
        match build(setup).await {
            Ok(session) => {
                tracing::info!("credentials for the API server were read again");
                *self.current.write() = Arc::new(session);
            }
            Err(error) => tracing::warn!(%error, "the credentials cannot be used; the old ones stay in use"),
        }
    }
}

async fn build(setup: Setup) -> Result<Session, ConnectError> {
    // This runs the credential plugin and waits for it.
    let built = tokio::task::spawn_blocking(move || session(&setup)).await;
    built.unwrap_or_else(|error| Err(ConnectError::Setup(error.to_string())))
}

fn session(setup: &Setup) -> Result<Session, ConnectError> {
    let Setup { config, identity, proxy, .. } = setup;
    let fail = |error: kube::Error| ConnectError::Setup(explain(&error));
    let own_pool = pool(&Server { config, identity: identity.as_ref() }, proxy.as_ref())?;
    // Connections carry the client certificate, which a plugin may provide: an identity without it must not share them.
    let bare_pool = if identity.is_some() || config.auth_info.exec.is_some() {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        pool(&Server { config: &bare, identity: None }, proxy.as_ref())?
    } else {
        own_pool.clone()
    };
    let own = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(fail)?)
        .layer(config.extra_headers_layer().map_err(fail)?)
        .map_err(BoxError::from)
        .service(own_pool);
    Ok(Session {
        own: kube::Client::new(own, ""),
        bare: bare_client(config, bare_pool),
        fingerprint: fingerprint(setup),
    })
}

fn bare_client(config: &kube::Config, pool: Pool) -> kube::Client {
    let service = ServiceBuilder::new().layer(config.base_uri_layer()).map_err(BoxError::from).service(pool);
    kube::Client::new(service, "")
}

/// A fingerprint of everything that a session is made of. Holds no secret.
fn fingerprint(setup: &Setup) -> u64 {
    let config = &setup.config;
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(&config.auth_info).unwrap_or_default().hash(&mut hasher);
    setup.identity.hash(&mut hasher);
    config.root_cert.hash(&mut hasher);
    (config.accept_invalid_certs, &config.tls_server_name).hash(&mut hasher);
    setup.proxy.as_ref().map(|proxy| proxy.address.to_string()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_at_the_files_replaces_the_session_only_when_they_can_be_used_and_differ() {
        let path = std::env::temp_dir().join(format!("ccm-look-{}", std::process::id()));
        let write = |port: u16, token: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
                 users: [{{name: u, user: {{token: {token}}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
        };
        write(1, "first");
        let options = ConnectOptions { kubeconfig: path.display().to_string(), ..ConnectOptions::default() };
        let link = Link::new(&options).await.unwrap();
        let Source::Files(files) = &link.source else { panic!("it was made of files") };
        let first = files.current();
        files.look(false).await;
        assert!(Arc::ptr_eq(&first, &files.current()), "nothing has changed");
        std::fs::write(&path, "half of a").unwrap();
        files.look(false).await;
        assert!(Arc::ptr_eq(&first, &files.current()), "a file that is being written is no configuration");
        write(2, "second");
        files.look(false).await;
        assert!(Arc::ptr_eq(&first, &files.current()), "another cluster is not a matter of credentials");
        write(1, "second");
        files.look(false).await;
        let second = files.current();
        assert!(!Arc::ptr_eq(&first, &second));
        link.reconnect().await;
        assert!(!Arc::ptr_eq(&second, &files.current()), "its connections may be dead");
        std::fs::remove_file(&path).unwrap();
    }
}
