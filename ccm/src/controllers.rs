//! The table of controllers: those of the program, and what an author adds.

use std::sync::Arc;

use ccm_controllers::survey;
pub use ccm_controllers::survey::{Scope, Unplanned};
pub use ccm_controllers::{NotStarted, Shared};
use ccm_controllers::{ipam, lifecycle, node, node_task as task, persistent_volume, route, service};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::{CloudProvider, EventSink, NodeTaskSpec, PersistentVolume};
use ccm_runtime::events::Recorder;
use ccm_runtime::{Permission, Store, SyncError};
use futures::future::BoxFuture;

use crate::exit::Failure;
use crate::options::Options;
use crate::options::table::NODE_IPAM_FLAGS;

/// A controller that the program can run.
#[derive(Clone)]
pub struct Controller {
    /// Canonical name, as `--controllers` and the health check have it.
    pub name: &'static str,
    /// Other names that `--controllers` takes.
    pub aliases: &'static [&'static str],
    /// Label of `running_managed_controllers`.
    pub label: &'static str,
    /// Name of its client: of its service account with `--use-service-account-credentials`, and in its `User-Agent`.
    pub client_name: &'static str,
    /// What it asks of the API server with that client, events and the shared stores aside; the RBAC is made of it.
    pub permissions: &'static [Permission],
    /// Whether `*` in `--controllers` means it.
    pub on_by_default: bool,
    /// Flags of its own.
    pub flags: &'static [Flag],
    /// What is wrong with the flags. Asked only when the controller is switched on.
    pub check: fn(&FlagValues) -> Vec<String>,
    /// Whether it has anything to do with this provider, asked before anything is made for it, such as a service account.
    pub applies: fn(&dyn CloudProvider) -> Result<(), NotStarted>,
    /// Makes it, once the process leads and the provider is initialized.
    pub start: Arc<dyn Fn(&Start<'_>) -> Started + Send + Sync>,
    /// Tells what one pass of it would do, for `ccm plan`; `None`: it cannot be asked.
    pub survey: Option<BeginSurvey>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A running controller, or why the process goes on without it. A failure ends the process.
pub type Started = Result<Result<BoxFuture<'static, ()>, NotStarted>, Failure>;

/// Begins a pass that only tells.
pub type BeginSurvey = Arc<dyn Fn(&Survey<'_>) -> Surveyed + Send + Sync>;

/// A pass that only tells, why the controller would not run, or `None` where the scope does not concern it.
pub type Surveyed = Result<Option<Result<survey::Survey, NotStarted>>, Failure>;

/// What such a pass is made of.
pub struct Survey<'a> {
    /// Stores that were filled once, and a gate that collects plans.
    pub shared: Shared,
    /// The initialized provider.
    pub provider: &'a Arc<dyn CloudProvider>,
    /// All flags.
    pub options: &'a Options,
    /// What would be told on objects.
    pub events: Arc<dyn EventSink>,
    /// What is looked at.
    pub scope: &'a Scope,
    /// The volumes, or why they cannot be listed; `None`: whoever needs them lists them.
    pub volumes: Option<&'a Result<Arc<Store<PersistentVolume>>, String>>,
}

impl std::fmt::Debug for Survey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// What a controller is made of.
pub struct Start<'a> {
    /// Stores, gate, clock, metrics. The gate writes with the credentials of this controller.
    pub shared: Shared,
    /// The initialized provider.
    pub provider: &'a Arc<dyn CloudProvider>,
    /// All flags.
    pub options: &'a Options,
    pub(crate) recorder: &'a Recorder,
}

impl std::fmt::Debug for Start<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("provider", &self.provider.name()).finish_non_exhaustive()
    }
}

impl Start<'_> {
    /// Where events of this component go; they are written with the credentials of this controller.
    pub fn events(&self, component: &str) -> Arc<dyn EventSink> {
        Arc::new(self.recorder.for_component(component).through(self.shared.gate.clone()))
    }
}

/// The controllers that every program has.
pub fn builtin() -> Vec<Controller> {
    vec![cloud_node(), cloud_node_lifecycle(), service_lb(), node_route(), persistent_volume_label(), node_ipam()]
}

fn entry(
    name: &'static str,
    aliases: &'static [&'static str],
    client_name: &'static str,
    permissions: &'static [Permission],
    start: fn(&Start<'_>) -> Started,
    survey: fn(&Survey<'_>) -> Surveyed,
) -> Controller {
    // The label has been the short name ever since the long names exist.
    let label = aliases.first().copied().unwrap_or(name);
    Controller {
        name,
        aliases,
        label,
        client_name,
        permissions,
        on_by_default: true,
        flags: &[],
        check: |_| Vec::new(),
        applies: |_| Ok(()),
        start: Arc::new(start),
        survey: Some(Arc::new(survey)),
    }
}

fn cloud_node() -> Controller {
    let start = |start: &Start<'_>| {
        let events = start.events(node::COMPONENT);
        Ok(node::start(start.shared.clone(), events, start.options.node).map(boxed))
    };
    entry(node::NAME, &["cloud-node"], "node-controller", node::PERMISSIONS, start, |survey| {
        let Survey { shared, events, scope, .. } = survey;
        Ok(scope.has_nodes().then(|| node::survey(shared.clone(), events.clone(), scope)))
    })
}

fn cloud_node_lifecycle() -> Controller {
    let start = |start: &Start<'_>| {
        let events = start.events(lifecycle::COMPONENT);
        Ok(lifecycle::start(start.shared.clone(), events, start.options.lifecycle).map(boxed))
    };
    entry(lifecycle::NAME, &["cloud-node-lifecycle"], "node-controller", lifecycle::PERMISSIONS, start, |survey| {
        let Survey { shared, events, scope, options, .. } = survey;
        Ok(scope.has_nodes().then(|| lifecycle::survey(shared.clone(), events.clone(), options.lifecycle.budget)))
    })
}

fn service_lb() -> Controller {
    let start = |start: &Start<'_>| {
        let events = start.events(service::COMPONENT);
        let balancer = start.provider.load_balancer();
        Ok(service::start(start.shared.clone(), balancer, events, start.options.service).map(boxed))
    };
    entry(service::NAME, &["service"], "service-controller", service::PERMISSIONS, start, |survey| {
        let Survey { shared, events, scope, options, provider, .. } = survey;
        let begin =
            || service::survey(shared.clone(), provider.load_balancer(), events.clone(), options.service, scope);
        Ok(scope.has_services().then(begin))
    })
}

fn node_route() -> Controller {
    let start = |start: &Start<'_>| {
        let routes = start.provider.routes();
        let config = match route_config(start.options, routes.is_some())? {
            Ok(config) => config,
            Err(not_started) => return Ok(Err(not_started)),
        };
        let events = start.events("route_controller");
        Ok(route::start(start.shared.clone(), routes, start.provider.name(), events, config).map(boxed))
    };
    entry(route::NAME, &["route"], "route-controller", route::PERMISSIONS, start, |survey| {
        let Survey { shared, events, scope, options, provider, .. } = survey;
        if !scope.has_routes() {
            return Ok(None);
        }
        let routes = provider.routes();
        Ok(Some(
            route_config(options, routes.is_some())?
                .and_then(|config| route::survey(shared.clone(), routes, provider.name(), events.clone(), config)),
        ))
    })
}

/// The settings, or why the controller does not run. Only with a provider of routes does it matter whether the range is right.
fn route_config(options: &Options, has_routes: bool) -> Result<Result<route::Config, NotStarted>, Failure> {
    if !options.configure_cloud_routes {
        return Ok(Err(NotStarted("--configure-cloud-routes=false".into())));
    }
    Ok(Ok(route::Config {
        cluster_cidrs: if has_routes { options.cluster_cidrs().map_err(Failure::fatal)? } else { Vec::new() },
        period: options.route_period,
        watch_based: options.gates.watch_based_routes,
    }))
}

/// Clusters are not born with a role for its account, and those of other programs may not let it read volumes: it then says so
/// and goes on trying.
fn persistent_volume_label() -> Controller {
    const EVENTS: &str = "persistentvolume-label-controller";
    let start = |start: &Start<'_>| {
        let (labeller, events) = (start.provider.volumes(), start.events(EVENTS));
        Ok(persistent_volume::start(start.shared.clone(), labeller, events).map(boxed))
    };
    let (name, permissions) = (persistent_volume::NAME, persistent_volume::PERMISSIONS);
    let controller = entry(name, &["pvlabel"], "pvl-controller", permissions, start, |survey| {
        let Survey { shared, events, scope, provider, volumes, .. } = survey;
        if **scope != Scope::All {
            return Ok(None);
        }
        let listed = match volumes {
            Some(Err(error)) => {
                return Ok(Some(Ok(Box::pin(std::future::ready(vec![Unplanned {
                    subject: persistent_volume::LIST.into(),
                    error: SyncError::Retry(error.clone()),
                }])))));
            }
            Some(Ok(listed)) => Some(listed.clone()),
            None => None,
        };
        Ok(Some(persistent_volume::survey(shared.clone(), listed, provider.volumes(), events.clone())))
    });
    Controller { applies: persistent_volume::applies, ..controller }
}

/// Off by default: several installers give `--allocate-node-cidrs=true` to this program while kube-controller-manager
/// allocates.
fn node_ipam() -> Controller {
    let start = |start: &Start<'_>| {
        let config = ipam_settings(start.options)?;
        Ok(ipam::start(start.shared.clone(), start.events(ipam::COMPONENT), config.as_ref()).map(boxed))
    };
    let controller = entry(ipam::NAME, &["nodeipam"], "node-controller", ipam::PERMISSIONS, start, |survey| {
        let Survey { shared, events, scope, options, .. } = survey;
        let config = ipam_settings(options)?;
        Ok(scope.has_nodes().then(|| ipam::survey(shared.clone(), events.clone(), config.as_ref(), scope)))
    });
    let check = |values: &FlagValues| ipam_config(values).err().unwrap_or_default();
    Controller { on_by_default: false, flags: NODE_IPAM_FLAGS, check, ..controller }
}

fn ipam_settings(options: &Options) -> Result<Option<ipam::Config>, Failure> {
    ipam_config(&options.values).map_err(|errors| Failure::fatal(errors.join("; ")))
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

/// A controller that a provider brings along; it runs with that provider only.
pub(crate) fn node_task(provider: &'static str, spec: &'static NodeTaskSpec) -> Controller {
    let allowed = move |options: &Options| {
        if options.cloud_provider != provider {
            let (name, chosen) = (spec.name, &options.cloud_provider);
            let reason =
                format!("the controller {name:?} belongs to --cloud-provider={provider}, and this is {chosen:?}");
            return Ok(Err(NotStarted(reason)));
        }
        let errors = (spec.check)(&options.values);
        if errors.is_empty() { Ok(Ok(())) } else { Err(Failure::fatal(errors.join("; "))) }
    };
    let survey = move |survey: &Survey<'_>| {
        let Survey { shared, scope, options, provider, .. } = survey;
        let begin = |()| task::survey(shared.clone(), provider.node_task(spec.name), spec, scope);
        let allowed = allowed(options)?;
        Ok(scope.has_nodes().then(|| allowed.and_then(begin)))
    };
    let start = move |start: &Start<'_>| {
        if let Err(not_started) = allowed(start.options)? {
            return Ok(Err(not_started));
        }
        Ok(task::start(start.shared.clone(), start.provider.node_task(spec.name), spec).map(boxed))
    };
    Controller {
        name: spec.name,
        aliases: spec.aliases,
        label: spec.name,
        client_name: "node-controller",
        permissions: task::PERMISSIONS,
        on_by_default: spec.on_by_default,
        flags: &[],
        check: |_| Vec::new(),
        applies: |_| Ok(()),
        start: Arc::new(start),
        survey: Some(Arc::new(survey)),
    }
}

fn boxed(future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
    Box::pin(future)
}
