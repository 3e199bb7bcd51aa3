//! A provider for machines in a rack: `--cloud-provider=example`.
//!
//! The cloud is a folder. The operator of the rack maintains a file per machine in `machines/`; the provider writes a
//! file per load balancer to `balancers/` and one per route to `routes/`, from which the configuration of a proxy and
//! of a router is generated. It is small but implements the whole contract; see `providers/api/README.md` for the
//! purpose of each part.

mod balancers;
mod machines;
mod maintenance;
mod rack;
mod routes;
mod simple;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_provider::flag::Kind;
use ccm_provider::{
    CloudConfig, CloudProvider, ErrorClass, Flag, FlagValues, InstancesV2, LoadBalancer, OneByOne, OneByOneBalancers,
    ProviderError, ProviderFactory, Routes,
};

use crate::rack::Rack;

/// Scheme of the provider IDs, and value of `--cloud-provider`.
pub const NAME: &str = "example";

/// The program with all its parts.
pub fn app() -> ccm::App {
    let factory = Factory::default();
    let controller = maintenance::controller(Arc::clone(&factory.rack));
    ccm::App::new()
        .named("example-ccm", "Runs Kubernetes on the machines of a rack.")
        .register(factory)
        .controller(controller)
}

/// Builds the provider.
#[derive(Debug, Default)]
pub struct Factory {
    /// For the controller of this crate, which needs more than the provider API offers.
    rack: Arc<OnceLock<Arc<rack::Rack>>>,
    /// Whether the load balancers are those of `simple.rs`.
    simple: bool,
}

impl Factory {
    /// With load balancers that have nothing but ensure, update and delete.
    pub fn simple() -> Self {
        Self { simple: true, ..Self::default() }
    }
}

const DIRECTORY: &str = "example-directory";
const FLAGS: [Flag; 1] = [Flag::new(
    "Example flags",
    DIRECTORY,
    Kind::Text,
    "",
    "Folder of the rack. Overrides the key directory of --cloud-config.",
)];

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let Some(config) = config else {
            return Err(ProviderError::unknown(
                "--cloud-config is needed: a file with the keys directory and addresses",
            ));
        };
        let rack = Rack::new(&config, &flags.text(DIRECTORY)).map_err(|error| {
            let text = format!("{}: {error}", config.path.display());
            ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
        })?;
        let rack = Arc::new(rack);
        self.rack.get_or_init(|| Arc::clone(&rack));
        Ok(Arc::new(Example { rack, simple: self.simple }))
    }
}

/// The provider; its interfaces determine the controllers that run.
#[derive(Debug)]
struct Example {
    rack: Arc<Rack>,
    simple: bool,
}

impl CloudProvider for Example {
    fn name(&self) -> &str {
        NAME
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(OneByOne::new(machines::Machines(Arc::clone(&self.rack)), 8)))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        let rack = Arc::clone(&self.rack);
        if self.simple {
            return Some(Arc::new(OneByOneBalancers(simple::Simple(rack))));
        }
        Some(Arc::new(Engine::new(balancers::Balancers(rack))))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(OneByOne::new(routes::RackRoutes(Arc::clone(&self.rack)), 8)))
    }
}
