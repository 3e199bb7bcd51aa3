//! The table of controllers: those of the program and added ones.

use std::sync::Arc;
use std::time::Duration;

use ccm_controllers::preview;
pub use ccm_controllers::preview::{Scope, Unplanned};
pub use ccm_controllers::{NotStarted, Shared};
use ccm_controllers::{cluster_cidrs, ipam, lifecycle, node, node_task as task, persistent_volume, route, service};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::{CloudProvider, EventSink, NodeTaskSpec, PersistentVolume, PodRanges, ServiceControllerSpec};
use ccm_runtime::events::Recorder;
use ccm_runtime::{Client, Permission, Store, SyncError};
use futures::future::BoxFuture;

pub use crate::flags::Check;
use crate::flags::table::NODE_IPAM_FLAGS;

/// A controller that the program can run.
#[derive(Clone)]
pub struct Controller {
    /// Canonical name, for `--controllers` and the health check.
    pub name: &'static str,
    /// Other names that `--controllers` accepts.
    pub aliases: &'static [&'static str],
    /// Label of `running_managed_controllers`.
    pub label: &'static str,
    /// Name of its client: of its service account with `--use-service-account-credentials`, and in its `User-Agent`.
    pub client_name: &'static str,
    /// The permissions that it needs with that client, except those for events and the shared stores; the RBAC is
    /// generated from them.
    pub permissions: &'static [Permission],
    /// Whether `*` in `--controllers` includes it.
    pub on_by_default: bool,
    /// Its own flags.
    pub flags: &'static [Flag],
    /// Parses its settings. Errors end the program, unless the controller is disabled and has its own flags.
    pub parse: Arc<dyn Fn(&mut Check<'_>) -> Configured + Send + Sync>,
    /// Whether the controller has work with this provider. Called before anything, such as a service account, is
    /// created for it.
    pub applies: fn(&dyn CloudProvider) -> Result<(), NotStarted>,
}

opaque_debug!(Controller, this, "name" = &this.name);

/// Starts a pass of a controller without writes.
pub type PreviewFn = Arc<dyn Fn(&Preview<'_>) -> Previewed + Send + Sync>;

/// A controller with its settings.
#[derive(Clone)]
pub struct Configured {
    /// Creates it, after the process becomes leader and the provider is initialized.
    pub start: Arc<dyn Fn(&Start<'_>) -> Started + Send + Sync>,
    /// Starts a pass without writes, for `ccm plan`; `None`: there is none.
    pub preview: Option<PreviewFn>,
}

opaque_debug!(Configured, this);

impl Configured {
    /// `concerns`: whether the scope of a pass concerns the controller.
    fn new<F: Future<Output = ()> + Send + 'static, E: Into<Refused>>(
        start: impl Fn(&Start<'_>) -> Result<F, E> + Send + Sync + 'static,
        concerns: impl Fn(&Scope) -> bool + Send + Sync + 'static,
        preview: impl Fn(&Preview<'_>) -> Result<preview::Preview, E> + Send + Sync + 'static,
    ) -> Self {
        let start = move |with: &Start<'_>| start(with).map(|running| Box::pin(running) as _).map_err(Into::into);
        let preview = move |with: &Preview<'_>| match concerns(with.scope) {
            true => preview(with).map(Some).map_err(Into::into),
            false => Ok(None),
        };
        Self { start: Arc::new(start), preview: Some(Arc::new(preview)) }
    }
}

/// The reason why a controller does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The process continues without it.
    NotStarted(NotStarted),
    /// The process ends, with code 255.
    Fatal(String),
}

impl From<NotStarted> for Refused {
    fn from(reason: NotStarted) -> Self {
        Self::NotStarted(reason)
    }
}

/// A running controller.
pub type Started = Result<BoxFuture<'static, ()>, Refused>;

/// A pass without writes; `None` if the scope does not concern the controller.
pub type Previewed = Result<Option<preview::Preview>, Refused>;

/// The inputs of such a pass.
pub struct Preview<'a> {
    /// Stores that were filled once, and a gate that collects plans.
    pub shared: Shared,
    /// The initialized provider.
    pub provider: &'a Arc<dyn CloudProvider>,
    /// All flags.
    pub values: &'a FlagValues,
    /// Receives the events that would be emitted.
    pub events: Arc<dyn EventSink>,
    /// The objects to plan.
    pub scope: &'a Scope,
    /// The volumes, or the reason why they cannot be listed; `None`: the controller that needs them lists them.
    pub volumes: Option<&'a Result<Arc<Store<PersistentVolume>>, String>>,
    /// Likewise the objects besides nodes and Services that the provider's load balancers depend on.
    pub related: Option<&'a Result<service::RelatedObjects, String>>,
}

opaque_debug!(Preview<'_>, this, "scope" = &this.scope);

/// The inputs of a controller.
pub struct Start<'a> {
    /// Stores, gate, clock, metrics. The gate writes with the credentials of this controller.
    pub shared: Shared,
    /// The initialized provider.
    pub provider: &'a Arc<dyn CloudProvider>,
    /// All flags.
    pub values: &'a FlagValues,
    pub(crate) recorder: &'a Recorder,
    /// The client of the process.
    pub(crate) client: &'a Client,
}

opaque_debug!(Start<'_>, this, "provider" = &this.provider.name());

impl Start<'_> {
    /// The events of this component; they are written with the credentials of this controller.
    pub fn events(&self, component: &str) -> Arc<dyn EventSink> {
        Arc::new(self.recorder.for_component(component).through(self.shared.gate.clone()))
    }
}

/// The controllers of every program.
pub fn builtin() -> Vec<Controller> {
    vec![cloud_node(), cloud_node_lifecycle(), service_lb(), node_route(), persistent_volume_label(), node_ipam()]
}

fn entry(
    name: &'static str,
    aliases: &'static [&'static str],
    client_name: &'static str,
    permissions: &'static [Permission],
    parse: impl Fn(&mut Check<'_>) -> Configured + Send + Sync + 'static,
) -> Controller {
    // As in upstream, which kept the short name as label when it introduced the long ones.
    let label = aliases.first().copied().unwrap_or(name);
    Controller {
        name,
        aliases,
        label,
        client_name,
        permissions,
        on_by_default: true,
        flags: &[],
        parse: Arc::new(parse),
        applies: |_| Ok(()),
    }
}

fn cloud_node() -> Controller {
    entry(node::NAME, &["cloud-node"], "node-controller", node::PERMISSIONS, |check| {
        let config = node::Config {
            concurrent_syncs: check.at_least_one("concurrent-node-syncs"),
            concurrent_status_updates: check.workers_or_none("concurrent-node-status-updates"),
            status_update_period: check.period("node-status-update-frequency"),
            reconcile_labels: check.gates.additional_labels,
        };
        Configured::new(
            move |start| node::start(start.shared.clone(), start.events(node::COMPONENT), config),
            Scope::has_nodes,
            move |preview| {
                let (shared, events) = (preview.shared.clone(), preview.events.clone());
                node::preview(shared, events, preview.scope, config.reconcile_labels)
            },
        )
    })
}

fn cloud_node_lifecycle() -> Controller {
    entry(lifecycle::NAME, &["cloud-node-lifecycle"], "node-controller", lifecycle::PERMISSIONS, |check| {
        let config = lifecycle::Config {
            period: check.period("node-monitor-period"),
            budget: lifecycle::decide::Budget {
                nodes: check.not_negative("node-deletion-budget"),
                percent: check.not_negative("node-deletion-budget-percent").min(100),
            },
            concurrent_syncs: lifecycle_workers(check),
            wait_timeout: lifecycle_wait(check),
        };
        Configured::new(
            move |start| lifecycle::start(start.shared.clone(), start.events(lifecycle::COMPONENT), config),
            Scope::has_nodes,
            move |preview| lifecycle::preview(preview.shared.clone(), preview.events.clone(), config),
        )
    })
}

/// Unlike other numbers of workers, 0 is not "not given".
fn lifecycle_workers(check: &mut Check<'_>) -> Option<usize> {
    let number = check.values.int("concurrent-node-lifecycle-syncs")?;
    let workers = usize::try_from(number).ok().filter(|workers| *workers > 0);
    if workers.is_none() {
        check.error(format!("concurrent-node-lifecycle-syncs must be at least 1, but got {number}"));
    }
    workers
}

fn lifecycle_wait(check: &Check<'_>) -> Option<Duration> {
    let name = "node-lifecycle-wait-timeout";
    check.values.given(name).then(|| check.values.duration(name))
}

fn service_lb() -> Controller {
    entry(service::NAME, &["service"], "service-controller", service::PERMISSIONS, |check| {
        let role = service::Role::standard(check.classes.iter().map(|(class, _)| *class));
        configured_service(check, role, |_| Ok(()))
    })
}

/// A provider's own service controller; it runs only with that provider.
pub(crate) fn service_of_classes(provider: &'static str, spec: &'static ServiceControllerSpec) -> Controller {
    let parse = move |check: &mut Check<'_>| {
        configured_service(check, service::Role::of(spec), move |values| belongs_to(provider, spec.name, values))
    };
    let controller = entry(spec.name, spec.aliases, spec.client_name, service::PERMISSIONS, parse);
    Controller { on_by_default: false, ..controller }
}

fn configured_service(
    check: &mut Check<'_>,
    role: service::Role,
    allowed: impl Fn(&FlagValues) -> Result<(), Refused> + Clone + Send + Sync + 'static,
) -> Configured {
    let config = service::Config {
        role,
        concurrent_syncs: check.at_least_one("concurrent-service-syncs"),
        allow_emptying: check.values.bool("allow-emptying-load-balancers"),
        drift_check_period: check.values.duration("drift-check-period"),
        drift_repair: check.values.bool("drift-repair"),
        conditions: check.gates.service_conditions,
    };
    if config.drift_repair && config.drift_check_period.is_zero() {
        check.error("--drift-repair needs --drift-check-period, which is 0: give the time between two checks");
    }
    let (same, same_allowed) = (config.clone(), allowed.clone());
    Configured::new(
        move |start| {
            allowed(start.values)?;
            let (balancer, events) = (start.provider.load_balancer(), start.events(service::COMPONENT));
            let (shared, client) = (start.shared.clone(), start.client.clone());
            service::start(shared, client, balancer, events, config.clone()).map_err(Refused::from)
        },
        Scope::has_services,
        move |preview| {
            let Preview { shared, events, scope, provider, values, related, .. } = preview;
            same_allowed(values)?;
            let (balancer, related) = (provider.load_balancer(), related.cloned());
            Ok(service::preview(shared.clone(), balancer, events.clone(), same.clone(), scope, related)?)
        },
    )
}

/// A controller of one provider does not run with another.
fn belongs_to(provider: &str, name: &str, values: &FlagValues) -> Result<(), Refused> {
    let chosen = values.text("cloud-provider");
    if chosen == provider {
        return Ok(());
    }
    let reason = format!("the controller {name:?} belongs to --cloud-provider={provider}, and this is {chosen:?}");
    Err(NotStarted(reason).into())
}

fn node_route() -> Controller {
    entry(route::NAME, &["route"], "route-controller", route::PERMISSIONS, |check| {
        let configure = check.values.bool("configure-cloud-routes");
        let cidrs = cluster_cidrs::parse_cluster_cidrs(&check.values.text("cluster-cidr"));
        let (period, watch_based) = (check.period("route-reconciliation-period"), check.gates.watch_based_routes);
        // The range must be valid only if the provider has routes.
        let config = move |has_routes: bool| {
            if !configure {
                return Err(Refused::NotStarted(NotStarted("--configure-cloud-routes=false".into())));
            }
            let cluster_cidrs = if has_routes { cidrs.clone().map_err(Refused::Fatal)? } else { Vec::new() };
            Ok(route::Config { cluster_cidrs, period, watch_based })
        };
        let same = config.clone();
        Configured::new(
            move |start| {
                let routes = start.provider.routes();
                let (config, events) = (config(routes.is_some())?, start.events("route_controller"));
                route::start(start.shared.clone(), routes, events, config).map_err(Refused::from)
            },
            Scope::has_routes,
            move |preview| {
                let routes = preview.provider.routes();
                let config = same(routes.is_some())?;
                Ok(route::preview(preview.shared.clone(), routes, preview.events.clone(), config)?)
            },
        )
    })
}

/// Clusters have no default role for its account, and roles of other programs may not allow it to read volumes: it
/// then logs this and retries.
fn persistent_volume_label() -> Controller {
    let (name, permissions) = (persistent_volume::NAME, persistent_volume::PERMISSIONS);
    let controller = entry(name, &["pvlabel"], "pvl-controller", permissions, |_| {
        Configured::new(
            |start| {
                let (labeler, events) = (start.provider.volumes(), start.events("persistentvolume-label-controller"));
                persistent_volume::start(start.shared.clone(), labeler, events)
            },
            |scope| *scope == Scope::All,
            preview_volumes,
        )
    });
    Controller { applies: persistent_volume::applies, ..controller }
}

fn preview_volumes(preview: &Preview<'_>) -> Result<preview::Preview, NotStarted> {
    let Preview { shared, events, provider, volumes, .. } = preview;
    let listed = match volumes {
        Some(Err(error)) => {
            let (subject, error) = (persistent_volume::LIST.into(), SyncError::Retry(error.clone()));
            return Ok(Box::pin(std::future::ready(vec![Unplanned { subject, error }])));
        }
        Some(Ok(listed)) => Some(listed.clone()),
        None => None,
    };
    persistent_volume::preview(shared.clone(), listed, provider.volumes(), events.clone())
}

/// Off by default unless the provider enables it, as its Go program does. To the other Go programs, which have no such
/// controller, several installers pass `--allocate-node-cidrs=true` while kube-controller-manager allocates. The second
/// alias is the name in the Go program for Azure.
fn node_ipam() -> Controller {
    let controller = entry(ipam::NAME, &["nodeipam", "node-ipam"], "node-controller", ipam::PERMISSIONS, |check| {
        let config = ipam_config(check.values).unwrap_or_else(|errors| {
            check.errors.extend(errors);
            None
        });
        let same = config.clone();
        Configured::new(
            move |start| {
                let (cloud, events) = (ipam_cloud(config.as_ref(), &**start.provider)?, start.events(ipam::COMPONENT));
                ipam::start(start.shared.clone(), events, config.as_ref(), cloud).map_err(Refused::from)
            },
            Scope::has_nodes,
            move |preview| {
                let cloud = ipam_cloud(same.as_ref(), &**preview.provider)?;
                let (shared, events) = (preview.shared.clone(), preview.events.clone());
                Ok(ipam::preview(shared, events, same.as_ref(), cloud, preview.scope)?)
            },
        )
    });
    Controller { on_by_default: false, flags: NODE_IPAM_FLAGS, ..controller }
}

/// The provider's pod ranges, if the flags select them.
fn ipam_cloud(
    config: Option<&ipam::Config>,
    provider: &dyn CloudProvider,
) -> Result<Option<Arc<dyn PodRanges>>, Refused> {
    let Some(ipam::Config::Cloud(_)) = config else { return Ok(None) };
    let Some(ranges) = provider.pod_ranges() else {
        return Err(Refused::Fatal(format!(
            "cloudCIDRAllocator does not support {} provider: it gives instances no pod ranges; use --cidr-allocator-type={}",
            provider.name(),
            ipam::RANGE_ALLOCATOR
        )));
    };
    Ok(Some(ranges))
}

fn ipam_config(values: &FlagValues) -> Result<Option<ipam::Config>, Vec<String>> {
    let size = |name| values.int(name).unwrap_or_default();
    ipam::validate(&ipam::Flags {
        allocate_node_cidrs: values.bool("allocate-node-cidrs"),
        cidr_allocator_type: &values.text("cidr-allocator-type"),
        cluster_cidr: &values.text("cluster-cidr"),
        service_cluster_ip_range: &values.text("service-cluster-ip-range"),
        node_cidr_mask_size: size("node-cidr-mask-size"),
        node_cidr_mask_size_ipv4: size("node-cidr-mask-size-ipv4"),
        node_cidr_mask_size_ipv6: size("node-cidr-mask-size-ipv6"),
    })
}

/// A provider's own controller; it runs only with that provider.
pub(crate) fn node_task(provider: &'static str, spec: &'static NodeTaskSpec) -> Controller {
    let allowed = move |values: &FlagValues| {
        belongs_to(provider, spec.name, values)?;
        let errors = (spec.check)(values);
        if errors.is_empty() { Ok(()) } else { Err(Refused::Fatal(errors.join("; "))) }
    };
    let parse = move |_: &mut Check<'_>| {
        Configured::new(
            move |start| {
                allowed(start.values)?;
                task::start(start.shared.clone(), start.provider.node_task(spec.name), spec).map_err(Refused::from)
            },
            Scope::has_nodes,
            move |preview| {
                allowed(preview.values)?;
                let task = preview.provider.node_task(spec.name);
                Ok(task::preview(preview.shared.clone(), task, spec, preview.scope)?)
            },
        )
    };
    let controller = entry(spec.name, spec.aliases, "node-controller", task::PERMISSIONS, parse);
    // On by default with its provider only: `Program::complete`.
    Controller { label: spec.name, on_by_default: false, ..controller }
}
