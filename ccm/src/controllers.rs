//! The table of controllers: those of the program, and what an author adds.

use std::sync::Arc;

use ccm_controllers::{NotStarted, Shared, ipam, lifecycle, node, node_task as task, route, service};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::{CloudProvider, EventSink, NodeTaskSpec};
use ccm_runtime::Permission;
use ccm_runtime::events::Recorder;
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
    /// Makes it, once the process leads and the provider is initialized.
    pub start: Arc<dyn Fn(&Start<'_>) -> Started + Send + Sync>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A running controller, or why the process goes on without it. A failure ends the process.
pub type Started = Result<Result<BoxFuture<'static, ()>, NotStarted>, Failure>;

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
    vec![cloud_node(), cloud_node_lifecycle(), service_lb(), node_route(), node_ipam()]
}

fn entry(
    name: &'static str,
    aliases: &'static [&'static str],
    client_name: &'static str,
    permissions: &'static [Permission],
    start: fn(&Start<'_>) -> Started,
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
        start: Arc::new(start),
    }
}

fn cloud_node() -> Controller {
    entry(node::NAME, &["cloud-node"], "node-controller", node::PERMISSIONS, |start| {
        let events = start.events("cloud-node-controller");
        Ok(node::start(start.shared.clone(), events, start.options.node).map(boxed))
    })
}

fn cloud_node_lifecycle() -> Controller {
    entry(lifecycle::NAME, &["cloud-node-lifecycle"], "node-controller", lifecycle::PERMISSIONS, |start| {
        let events = start.events("cloud-node-lifecycle-controller");
        Ok(lifecycle::start(start.shared.clone(), events, start.options.lifecycle).map(boxed))
    })
}

fn service_lb() -> Controller {
    entry(service::NAME, &["service"], "service-controller", service::PERMISSIONS, |start| {
        let events = start.events("service-controller");
        let balancer = start.provider.load_balancer();
        Ok(service::start(start.shared.clone(), balancer, events, start.options.service).map(boxed))
    })
}

fn node_route() -> Controller {
    entry(route::NAME, &["route"], "route-controller", route::PERMISSIONS, |start| {
        let options = start.options;
        if !options.configure_cloud_routes {
            return Ok(Err(NotStarted("--configure-cloud-routes=false".into())));
        }
        let routes = start.provider.routes();
        let cluster_cidrs = match routes {
            // Only now does it matter whether the range is right.
            Some(_) => options.cluster_cidrs().map_err(Failure::fatal)?,
            None => Vec::new(),
        };
        let config = route::Config {
            cluster_cidrs,
            period: options.route_period,
            watch_based: options.gates.watch_based_routes,
        };
        let events = start.events("route_controller");
        Ok(route::start(start.shared.clone(), routes, start.provider.name(), events, config).map(boxed))
    })
}

/// Off by default: several installers give `--allocate-node-cidrs=true` to this program while kube-controller-manager
/// allocates.
fn node_ipam() -> Controller {
    let controller = entry(ipam::NAME, &["nodeipam"], "node-controller", ipam::PERMISSIONS, |start| {
        let config = ipam_config(&start.options.values).map_err(|errors| Failure::fatal(errors.join("; ")))?;
        Ok(ipam::start(start.shared.clone(), start.events(ipam::COMPONENT), config.as_ref()).map(boxed))
    });
    let check = |values: &FlagValues| ipam_config(values).err().unwrap_or_default();
    Controller { on_by_default: false, flags: NODE_IPAM_FLAGS, check, ..controller }
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
    let start = move |start: &Start<'_>| {
        let options = start.options;
        if options.cloud_provider != provider {
            let (name, chosen) = (spec.name, &options.cloud_provider);
            let reason =
                format!("the controller {name:?} belongs to --cloud-provider={provider}, and this is {chosen:?}");
            return Ok(Err(NotStarted(reason)));
        }
        let errors = (spec.check)(&options.values);
        if !errors.is_empty() {
            return Err(Failure::fatal(errors.join("; ")));
        }
        let events = start.events(spec.name);
        Ok(task::start(start.shared.clone(), start.provider.node_task(spec.name), spec, events).map(boxed))
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
        start: Arc::new(start),
    }
}

fn boxed(future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
    Box::pin(future)
}
