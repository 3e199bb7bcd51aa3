//! The harness of the in-memory cloud.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::flag::Kind;
use ccm_provider::{
    AddressType, CloudConfig, CloudProvider, ErrorClass, Flag, FlagValues, NodeAddress, ProviderError, ProviderFactory,
    Service,
};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Outage};

use crate::cloud::{Address, Balancer, Cloud, Defect, Machine, StoredRoute};
use crate::provider::{Memorial, SHARED};

/// See [`Cloud`].
#[derive(Debug, Default)]
pub(crate) struct Memory {
    cloud: Arc<Cloud>,
    defect: Option<Defect>,
    deviates: bool,
}

impl Memory {
    pub(crate) fn new(defect: Option<Defect>) -> Self {
        Self { defect, ..Self::default() }
    }

    /// Addresses take a minute to be reserved and released, and the provider does not wait for them.
    pub(crate) fn slow(self) -> Self {
        self.cloud.change(|tables| tables.delay = Duration::from_secs(60));
        self
    }

    /// Declares a clause as intentionally broken.
    pub(crate) fn deviating(self) -> Self {
        Self { deviates: true, ..self }
    }
}

struct Factory {
    cloud: Arc<Cloud>,
    defect: Option<Defect>,
}

fn config(text: &str) -> CloudConfig {
    CloudConfig { path: "memory.conf".into(), text: text.to_owned() }
}

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn flags(&self) -> &'static [Flag] {
        const FLAGS: [Flag; 1] = [Flag::new("Memory", "memory-patience", Kind::Duration, "5s", "How long to wait.")];
        &FLAGS
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        _: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let Some(config) = config else {
            assert_ne!(self.defect, Some(Defect::PanicsWithoutConfig));
            return Err(ProviderError::unknown("--cloud-config is needed"));
        };
        let good = config.text.lines().all(|line| line.split_once('=').is_some_and(|(key, _)| key == "region"));
        if !good && self.defect != Some(Defect::TakesAnyConfig) {
            let secret = if self.defect == Some(Defect::TellsSecret) { &*config.text } else { "" };
            let text = format!("only the key region is known, not regoin {secret}");
            return Err(ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text));
        }
        Ok(Arc::new(Memorial::new(Arc::clone(&self.cloud), self.defect)))
    }
}

#[async_trait]
impl Harness for Memory {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(Factory { cloud: Arc::clone(&self.cloud), defect: self.defect })
    }

    fn config(&self) -> Option<CloudConfig> {
        Some(config("region=here"))
    }

    async fn add_instance(&self, name: &str) -> Made {
        self.cloud.change(|tables| {
            let number = tables.machines.len() + 1;
            let address = |kind, net| NodeAddress { kind, address: format!("{net}.{number}").into() };
            let addresses =
                vec![address(AddressType::InternalIp, "10.0.0"), address(AddressType::ExternalIp, "198.51.100")];
            let id = format!("i-{number}");
            let machine = Machine { id: id.clone(), addresses: addresses.clone(), stopped: false };
            tables.machines.insert(name.to_owned(), machine);
            Made { provider_id: format!("memory:///{id}"), addresses }
        })
    }

    async fn stop_instance(&self, name: &str) -> bool {
        self.cloud.change(|tables| tables.machines.get_mut(name).unwrap().stopped = true);
        true
    }

    async fn remove_instance(&self, name: &str) {
        self.cloud.change(|tables| tables.machines.remove(name).unwrap());
    }

    async fn contents(&self) -> BTreeSet<String> {
        self.cloud.contents()
    }

    async fn writes(&self) -> u64 {
        self.cloud.writes()
    }

    async fn disrupt(&self, outage: Outage) -> bool {
        self.cloud.set_outage(outage);
        true
    }

    async fn pass(&self, time: Duration) {
        self.cloud.change(|tables| tables.now += time);
    }

    fn share(&self, service: &mut Service) -> bool {
        service.metadata.annotations.insert(SHARED.into(), "the-one".into());
        true
    }

    fn refuse(&self, service: &mut Service) -> bool {
        service.spec.load_balancer_source_ranges = Some(vec!["nowhere".into()]);
        true
    }

    async fn add_objects_of_others(&self, _: Option<&Service>) -> bool {
        self.cloud.change(|tables| {
            tables.addresses.insert(900, Address { owner: "somebody".into(), busy_until: Duration::ZERO });
            // The name of the balancer that the suite will create.
            let name = crate::provider::balancer_name("contract", "web");
            let theirs = Balancer { owner: "somebody".into(), address: 900, ..Balancer::default() };
            tables.balancers.insert(name, theirs);
            let route = StoredRoute { cluster: "theirs".into(), node: "x".into(), blackhole: false };
            tables.routes.insert("10.244.99.0/24".into(), route);
        });
        true
    }

    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        self.cloud.change(|tables| tables.routes.get_mut(destination_cidr).unwrap().blackhole = true);
        true
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let config = config("regoin=here\npassword=hunter2");
        vec![BrokenConfig { config, names: "regoin", secret: Some("hunter2") }]
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        vec!["memory://".into(), "memory:///".into(), "memory:///x-1".into()]
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    fn deviations(&self) -> &'static [Deviation] {
        const DEVIATION: [Deviation; 1] = [Deviation { clause: "deleted_routes_are_gone", why: "so it was decided" }];
        if self.deviates { &DEVIATION } else { &[] }
    }
}
