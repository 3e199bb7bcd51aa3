//! The input of a command: the cluster, listed once, and the cloud. No watch, no leader election, no writes.

use std::sync::Arc;

use ccm_controllers::preview::{Scope, Unplanned};
use ccm_controllers::service::{Owners, RelatedObjects};
use ccm_controllers::{Shared, Unmanaged, persistent_volume};
use ccm_provider::{
    Claims, Clock, CloudProvider, EventSink, EventType, Node, PersistentVolume, ProviderContext, Service, Subject,
};
use ccm_runtime::client::ApiError;
use ccm_runtime::config_maps::ApiConfigMaps;
use ccm_runtime::store::{Cached, FieldFilter, Reflector};
use ccm_runtime::{Client, Gate, InstanceView, Leadership, Metrics, Store, SyncError, SystemClock};
use parking_lot::Mutex;

use super::previewed::{Previewed, Warning};
use super::progress::Progress;
use super::{Call, kubeconfig};
use crate::controllers::{Preview, Refused};
use crate::exit::Failure;
use crate::manager;
use crate::options::{Chosen, Options};
use crate::providers::Configuration;

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) client: Client,
    pub(crate) provider: Arc<dyn CloudProvider>,
    pub(crate) shared: Shared,
    /// The events that the controllers would have emitted.
    pub(crate) warnings: Arc<Warnings>,
    /// The volumes, or the reason why they cannot be listed; `None`: the controller that needs them lists them.
    pub(crate) volumes: Option<Result<Arc<Store<PersistentVolume>>, String>>,
    /// Likewise the objects besides nodes and Services that the provider's load balancers depend on.
    pub(crate) related: Option<Result<RelatedObjects, String>>,
}

/// Keeps the warnings instead of writing them.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<Warning>>);

impl Warnings {
    pub(crate) fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl EventSink for Warnings {
    fn event(&self, subject: &Subject, kind: EventType, reason: &str, message: &str) {
        if kind != EventType::Warning {
            return;
        }
        let name = match subject.namespace.is_empty() {
            true => subject.name.to_string(),
            false => format!("{}/{}", subject.namespace, subject.name),
        };
        let subject = format!("{} {name}", subject.kind.to_lowercase());
        let warning = Warning { subject, reason: reason.to_owned(), message: message.to_owned() };
        let mut all = self.0.lock();
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
}

pub(crate) struct Objects {
    pub(crate) nodes: Arc<Store<Node>>,
    pub(crate) services: Arc<Store<Service>>,
}

impl Objects {
    pub(crate) async fn list(client: &Client, provider: &dyn CloudProvider) -> Result<Self, Failure> {
        let keep = FieldFilter::of_nodes(provider);
        // Waits for both: the reported error must not depend on the order of the answers.
        let (nodes, services) = futures::join!(list(client, keep), list(client, FieldFilter::default()));
        Ok(Self { nodes: nodes?, services: services? })
    }
}

pub(crate) async fn connect(options: &Options) -> Result<Client, Failure> {
    manager::connect(options, &Metrics::new()).await
}

/// Lists all objects of one kind.
pub(crate) async fn list<T: Cached>(client: &Client, keep: FieldFilter) -> Result<Arc<Store<T>>, Failure> {
    let store = Store::new(keep);
    let filled = Reflector::new(store.clone(), client.clone(), 0).fill().await;
    filled.map_err(|error| unlisted(T::NAME, &error))?;
    Ok(store)
}

pub(crate) fn unlisted(what: &str, error: &ApiError) -> Failure {
    let hint = match (error.is_unauthorized(), error.is_forbidden()) {
        (true, _) => {
            " (the API server does not know this user: the credentials of the kubeconfig are wrong, or have expired)"
        }
        (_, true) => " (this command needs `get` and `list`; see the RBAC in manifests/)",
        _ => "",
    };
    Failure::error(format!("cannot list {what}: {error}{hint}"))
}

impl World {
    /// Connects, lists, and initializes the provider. A provider that cannot be built ends with 255, as in a run.
    pub(crate) async fn open(call: &Call, progress: &Progress) -> Result<Self, Failure> {
        Self::open_through(call, progress, |provider| provider).await
    }

    /// The options with the kubeconfig of the user, and the client.
    pub(crate) async fn reach(call: &Call, progress: &Progress) -> Result<(Options, Client), Failure> {
        let options = kubeconfig::or_of_user(call.options()?, &call.values)?;
        progress.go_on("connecting to the API server");
        let client = connect(&options).await?;
        Ok((options, client))
    }

    /// Like [`World::open`], with a wrapper around the provider that records its answers from the start.
    pub(crate) async fn open_through(
        call: &Call,
        progress: &Progress,
        wrap: impl FnOnce(Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider>,
    ) -> Result<Self, Failure> {
        let (options, client) = Self::reach(call, progress).await?;
        progress.go_on(format!("starting the provider {}", options.cloud_provider));
        let configuration = Configuration::of(&call.registry, &options, &client)?;
        let loaded = match &call.config {
            Some(config) => configuration.build(Some(config.read(&client).await?)).await?,
            None => configuration.load().await?,
        };
        let provider = wrap(loaded.provider);
        progress.go_on("listing nodes and Services");
        let objects = Objects::list(&client, &*provider).await?;
        Self::of(options, client, provider, objects, Arc::new(SystemClock)).await
    }

    /// With the cloud only, for a cluster that does not exist (any more).
    pub(crate) async fn without_cluster(call: &Call, progress: &Progress) -> Result<Self, Failure> {
        let options = call.options()?;
        progress.go_on(format!("starting the provider {}", options.cloud_provider));
        let client = Client::without_server("this command runs without a cluster", Metrics::new());
        let provider = Configuration::of(&call.registry, &options, &client)?.load().await?.provider;
        let objects =
            Objects { nodes: Store::new(FieldFilter::default()), services: Store::new(FieldFilter::default()) };
        Self::of(options, client, provider, objects, Arc::new(SystemClock)).await
    }

    /// For objects that are already listed. The provider is initialized.
    pub(crate) async fn of(
        options: Options,
        client: Client,
        provider: Arc<dyn CloudProvider>,
        objects: Objects,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let metrics = Metrics::new();
        let leadership = Leadership::new(clock.clone());
        leadership.lead(None);
        let gate = Gate::collecting(client.clone(), leadership.clone(), metrics.clone());
        let Objects { nodes, services } = objects;
        let warnings = Arc::new(Warnings::default());
        let cluster: Arc<str> = options.cluster_name.as_str().into();
        let context = ProviderContext::new(
            cluster.clone(),
            nodes.clone(),
            services.clone(),
            warnings.clone(),
            clock.clone(),
            Arc::new(leadership.clone()),
            Arc::new(ApiConfigMaps::new(gate.clone())),
        );
        let initialized = provider.initialize(context).await;
        initialized.map_err(|error| Failure::error(format!("the cloud provider could not be initialized: {error}")))?;
        let schemes = options.schemes(&*provider);
        let view = manager::instances(&*provider)
            .map(|instances| InstanceView::new(instances, schemes.clone(), metrics.clone()));
        let (unmanaged, owners) = (Unmanaged::of(&*provider), Owners::default());
        let shared =
            Shared { gate, nodes, services, view, leadership, clock, metrics, cluster, schemes, unmanaged, owners };
        Ok(Self { options, client, provider, shared, warnings, volumes: None, related: None })
    }

    /// All objects that may claim a cloud object.
    pub(crate) fn claims(&self) -> Claims {
        Claims { nodes: self.shared.nodes.list(), services: self.shared.services.list() }
    }

    /// Returns an error that names the object if it does not exist.
    pub(crate) fn check(&self, scope: &Scope) -> Result<(), Failure> {
        let missing = match scope {
            Scope::Node(name) => self.shared.nodes.get(name).is_none().then(|| format!("node {name:?}")),
            Scope::Service(key) => self.shared.services.get(key).is_none().then(|| format!("service \"{key}\"")),
            Scope::All | Scope::Routes => None,
        };
        missing.map_or(Ok(()), |missing| Err(Failure::error(format!("{missing} is not in the cluster"))))
    }

    /// The inputs of one controller's pass.
    fn of_controllers<'a>(&'a self, scope: &'a Scope) -> Preview<'a> {
        Preview {
            shared: self.shared.clone(),
            provider: &self.provider,
            values: &self.options.values,
            events: self.warnings.clone(),
            scope,
            volumes: self.volumes.as_ref(),
            related: self.related.as_ref(),
        }
    }

    /// [`World::preview`] for a plan; also reports controllers that would write but are disabled by the flags.
    pub(crate) async fn plan(&self, scope: &Scope, progress: &Progress) -> Result<Previewed, Failure> {
        let (mut previewed, refused) = self.passes(scope, progress).await;
        // Flags with which one controller does not start do not affect the others.
        previewed.unplanned.extend(refused.into_iter().map(|(name, reason)| Unplanned {
            subject: name.to_owned(),
            error: SyncError::Terminal(format!("it does not start: {reason}")),
        }));
        let off = self.options.controllers.iter().filter(|known| !known.on && known.controller.on_by_default);
        let concerned = off.filter(|known| {
            let begun = known.configured.preview.as_ref().map(|begin| begin(&self.of_controllers(scope)));
            matches!(begun, Some(Ok(Some(_)) | Err(Refused::Fatal(_))))
        });
        let skipped = concerned.map(|known| (known.controller.name, "disabled by --controllers".into()));
        previewed.skipped.extend(skipped);
        Ok(previewed)
    }

    /// One pass of the enabled controllers that the scope concerns.
    pub(crate) async fn preview(&self, scope: &Scope, progress: &Progress) -> Result<Previewed, Failure> {
        let (previewed, refused) = self.passes(scope, progress).await;
        refused.into_iter().next().map_or(Ok(previewed), |(_, reason)| Err(Failure::fatal(reason)))
    }

    /// The results, and the controllers that do not start with these flags.
    async fn passes(&self, scope: &Scope, progress: &Progress) -> (Previewed, Vec<(&'static str, String)>) {
        let (mut previewed, mut refused) = (Previewed::default(), Vec::new());
        for Chosen { controller, configured, .. } in self.options.controllers.iter().filter(|known| known.on) {
            let Some(begin) = &configured.preview else {
                previewed.skipped.push((controller.name, "it cannot be asked for plans".into()));
                continue;
            };
            match begin(&self.of_controllers(scope)) {
                Ok(Some(pass)) => {
                    progress.go_on(format!("asking {}", controller.name));
                    // The controller may have another account than this command, and works without this permission.
                    let is_refused =
                        |failed: &Unplanned| failed.error.to_string().starts_with(persistent_volume::REFUSED);
                    let (skipped, failed): (Vec<_>, Vec<_>) = pass.await.into_iter().partition(is_refused);
                    previewed.skipped.extend(skipped.into_iter().map(|of| (controller.name, of.error.to_string())));
                    previewed.unplanned.extend(failed);
                }
                Ok(None) => {}
                Err(Refused::NotStarted(reason)) => previewed.skipped.push((controller.name, reason.to_string())),
                Err(Refused::Fatal(reason)) => refused.push((controller.name, reason)),
            }
        }
        previewed.plans = self.shared.gate.collected();
        previewed.warnings = self.warnings.take();
        (previewed.within(scope), refused)
    }
}
