//! The registry of the providers that are compiled into a program.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::cloud::CloudProvider;
use crate::cloud_config::{CloudConfig, ConfigSource, SecretSpec};
use crate::config_map::ConfigMapSpec;
use crate::error::ProviderError;
use crate::flag::{Flag, FlagValues};
use crate::inspect::Lint;
use crate::load_balancer::LoadBalancer;
use crate::node_task::NodeTaskSpec;
use crate::service_controller::ServiceControllerSpec;

/// Builds a provider from its configuration.
#[async_trait]
pub trait ProviderFactory: Send + Sync {
    /// The value of `--cloud-provider`.
    fn name(&self) -> &'static str;

    /// Flags of this provider, besides the program's. They are parsed, checked and listed whichever provider is
    /// selected; a name that the program or another provider already uses is a start-up error.
    fn flags(&self) -> &'static [Flag] {
        &[]
    }

    /// This provider's own node controllers. They are listed whichever provider is selected; their names must differ
    /// from those of the program and of other providers.
    fn node_tasks(&self) -> &'static [NodeTaskSpec] {
        &[]
    }

    /// ConfigMaps that this provider reads and creates through [`crate::ProviderContext::config_maps`].
    fn config_maps(&self) -> &'static [ConfigMapSpec] {
        &[]
    }

    /// The source of the configuration, and whether changes take effect while the program runs. By default the file of
    /// `--cloud-config`, read once. `flags` contains all flags of the program.
    fn config_source(&self, flags: &FlagValues) -> ConfigSource {
        let _ = flags;
        ConfigSource::default()
    }

    /// The default Secrets of [`ProviderFactory::config_source`], for the shipped RBAC.
    fn secrets(&self) -> &'static [SecretSpec] {
        &[]
    }

    /// This provider's own service controllers, for Services of certain classes. Listed and named like
    /// [`ProviderFactory::node_tasks`].
    fn service_controllers(&self) -> &'static [ServiceControllerSpec] {
        &[]
    }

    /// Controllers of the program, by canonical name, that are off by default and that `*` in `--controllers` includes
    /// with this provider, for example `node-ipam-controller`.
    fn on_by_default(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names and aliases of controllers that the replaced program has and this one has not. `--controllers` accepts
    /// them; enabling one is a warning.
    fn absent_controllers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks of Services and configuration files without a cloud, for `ccm lint`; `None`: this provider has none.
    fn lint(&self) -> Option<&dyn Lint> {
        None
    }

    /// The load balancers for a process without access to this cloud: only [`LoadBalancer::plan_observed`],
    /// [`LoadBalancer::name`] and [`LoadBalancer::groups`] are called, none of which may do I/O. `facts` is the result
    /// of [`CloudProvider::facts`] in the snapshot. `None`: plans for Services cannot be replayed.
    ///
    /// # Errors
    ///
    /// The facts cannot be parsed.
    fn replay(&self, facts: &Value, flags: &FlagValues) -> Result<Option<Arc<dyn LoadBalancer>>, ProviderError> {
        let _ = (facts, flags);
        Ok(None)
    }

    /// Builds the provider; `config` is `None` if `--cloud-config` was not given, which differs from an empty file.
    ///
    /// Called on every replica, before leader election; with [`ConfigSource::reload`] again for each change, while the
    /// previous provider still runs. Should detect configuration errors, so that a bad change interrupts nothing, and
    /// make no cloud call that can wait. `flags` contains all flags of the program.
    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError>;
}

/// The providers of a program, by name.
#[derive(Default, Clone)]
pub struct Registry {
    factories: Vec<Arc<dyn ProviderFactory>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The reason why the registry built no provider. All end the process with code 255.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Two providers use the same name.
    #[error("Cloud provider {0:?} was registered twice")]
    Twice(String),
    /// The configuration cannot be read.
    #[error("Couldn't open cloud provider configuration {origin}: {source}")]
    Config {
        /// The file or the Secret.
        origin: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The factory failed.
    #[error("Cloud provider could not be initialized: could not init cloud provider {name:?}: {source}")]
    Init {
        /// Name of the provider.
        name: String,
        /// The cause.
        source: ProviderError,
    },
    /// A provider of this project that is not compiled into the program.
    #[error(
        "Cloud provider could not be initialized: unknown cloud provider {0:?}: it exists but was not compiled in; build with `cargo build --features {0}`"
    )]
    NotCompiledIn(String),
    /// There is no such provider.
    #[error("Cloud provider could not be initialized: unknown cloud provider {name:?} (compiled in: {known})")]
    Unknown {
        /// The given value.
        name: String,
        /// The accepted values.
        known: String,
    },
    /// `--cloud-provider=external` is for the other Kubernetes components.
    #[error("Cloud provider is nil")]
    Nil,
}

impl CloudConfig {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not UTF-8.
    pub fn read(path: &str) -> Result<Self, RegistryError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| RegistryError::Config { origin: path.to_owned(), source })?;
        Ok(Self { path: path.into(), text })
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider; a duplicate name is an error.
    pub fn register(&mut self, factory: Arc<dyn ProviderFactory>) -> Result<(), RegistryError> {
        if self.is_registered(factory.name()) {
            return Err(RegistryError::Twice(factory.name().to_owned()));
        }
        self.factories.push(factory);
        Ok(())
    }

    /// The flags of all providers.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.factories.iter().flat_map(|factory| factory.flags())
    }

    /// The controllers of all providers, each with the name of its provider.
    pub fn node_tasks(&self) -> impl Iterator<Item = (&'static str, &'static NodeTaskSpec)> {
        self.factories.iter().flat_map(|factory| factory.node_tasks().iter().map(|task| (factory.name(), task)))
    }

    /// The service controllers of all providers, each with the name of its provider.
    pub fn service_controllers(&self) -> impl Iterator<Item = (&'static str, &'static ServiceControllerSpec)> {
        let of = |factory: &Arc<dyn ProviderFactory>| (factory.name(), factory.service_controllers());
        self.factories.iter().map(of).flat_map(|(name, specs)| specs.iter().map(move |spec| (name, spec)))
    }

    /// The controllers that are on by default only with certain providers, each with the name of its provider.
    pub fn on_by_default(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let of = |factory: &Arc<dyn ProviderFactory>| (factory.name(), factory.on_by_default());
        self.factories.iter().map(of).flat_map(|(name, controllers)| controllers.iter().map(move |on| (name, *on)))
    }

    /// The controllers that the programs replaced by all providers have and this one has not.
    pub fn absent_controllers(&self) -> impl Iterator<Item = &'static str> {
        self.factories.iter().flat_map(|factory| factory.absent_controllers()).copied()
    }

    /// Whether a provider with this name exists.
    pub fn is_registered(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The factory with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn ProviderFactory>> {
        self.factories.iter().find(|factory| factory.name() == name)
    }

    /// The names in the order of registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.factories.iter().map(|factory| factory.name())
    }

    /// Whether the name means "provided elsewhere".
    pub fn is_external(name: &str) -> bool {
        name == "external"
    }

    /// The factory with this name.
    ///
    /// `optional` lists the providers of this project that may be omitted from a build.
    ///
    /// # Errors
    ///
    /// No factory has this name.
    pub fn choose(&self, name: &str, optional: &[&str]) -> Result<&Arc<dyn ProviderFactory>, RegistryError> {
        if name.is_empty() || Self::is_external(name) {
            return Err(RegistryError::Nil);
        }
        self.get(name).ok_or_else(|| {
            // A program with other providers has no such features.
            if optional.contains(&name) && self.names().all(|known| optional.contains(&known)) {
                return RegistryError::NotCompiledIn(name.to_owned());
            }
            let known = self.names().collect::<Vec<_>>().join(", ");
            RegistryError::Unknown { name: name.to_owned(), known }
        })
    }

    /// Builds a provider with this configuration.
    ///
    /// # Errors
    ///
    /// The factory failed.
    pub async fn build(
        factory: &dyn ProviderFactory,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, RegistryError> {
        let name = || factory.name().to_owned();
        factory.build(config, flags).await.map_err(|source| RegistryError::Init { name: name(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;

    struct Cloud(&'static str);

    impl CloudProvider for Cloud {
        fn name(&self) -> &str {
            self.0
        }
    }

    /// Records the configuration that it receives.
    struct Factory {
        name: &'static str,
        fails: bool,
        config: Mutex<Option<Option<CloudConfig>>>,
    }

    #[async_trait]
    impl ProviderFactory for Factory {
        fn name(&self) -> &'static str {
            self.name
        }

        async fn build(
            &self,
            config: Option<CloudConfig>,
            _: &FlagValues,
        ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
            *self.config.lock().unwrap() = Some(config);
            if self.fails { Err(ProviderError::unknown("no credentials")) } else { Ok(Arc::new(Cloud(self.name))) }
        }
    }

    fn factory(name: &'static str, fails: bool) -> Arc<Factory> {
        Arc::new(Factory { name, fails, config: Mutex::default() })
    }

    fn registry(names: &[&'static str]) -> Registry {
        let mut registry = Registry::new();
        for &name in names {
            registry.register(factory(name, false)).unwrap();
        }
        registry
    }

    /// Builds a provider as the program does.
    async fn init(registry: &Registry, name: &str, path: &str) -> Result<Arc<dyn CloudProvider>, RegistryError> {
        let factory = registry.choose(name, &["aws", "gce"])?;
        let config = if path.is_empty() { None } else { Some(CloudConfig::read(path)?) };
        Registry::build(&**factory, config, &FlagValues::default()).await
    }

    async fn error(registry: &Registry, name: &str, path: &str) -> RegistryError {
        init(registry, name, path).await.err().unwrap()
    }

    /// A file that certainly exists.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

    #[test]
    fn a_name_is_registered_once() {
        let mut registry = registry(&["fake"]);
        let error = registry.register(factory("fake", false)).unwrap_err();
        assert_eq!(error.to_string(), r#"Cloud provider "fake" was registered twice"#);
        registry.register(factory("other", false)).unwrap();
        assert_eq!(registry.names().collect::<Vec<_>>(), ["fake", "other"]);
        assert!(registry.is_registered("fake") && !registry.is_registered("Fake"));
        assert_eq!(format!("{registry:?}"), r#"["fake", "other"]"#);
    }

    #[tokio::test]
    async fn an_unknown_provider_is_an_error_that_lists_the_known_ones() {
        assert_eq!(
            error(&registry(&["fake", "other"]), "foo", "").await.to_string(),
            "Cloud provider could not be initialized: unknown cloud provider \"foo\" (compiled in: fake, other)"
        );
    }

    #[tokio::test]
    async fn a_program_with_providers_of_its_own_has_no_features_for_others() {
        let error = error(&registry(&["mine"]), "aws", "").await;
        assert!(matches!(error, RegistryError::Unknown { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_known_provider_that_was_left_out_names_its_feature() {
        let error = error(&registry(&["gce"]), "aws", "").await;
        assert!(matches!(error, RegistryError::NotCompiledIn(_)));
        assert_eq!(
            error.to_string(),
            "Cloud provider could not be initialized: unknown cloud provider \"aws\": it exists but was not compiled in; \
             build with `cargo build --features aws`"
        );
        let compiled_in = init(&registry(&["aws"]), "aws", "").await.ok().unwrap();
        assert_eq!(compiled_in.name(), "aws");
    }

    #[tokio::test]
    async fn external_is_exactly_that_word_and_gives_no_provider() {
        for name in ["external", ""] {
            // The file is not read.
            let error = error(&registry(&["fake"]), name, "/does/not/exist").await;
            assert!(matches!(error, RegistryError::Nil));
            assert_eq!(error.to_string(), "Cloud provider is nil");
        }
        assert!(matches!(error(&registry(&["fake"]), "External", "").await, RegistryError::Unknown { .. }));
    }

    #[tokio::test]
    async fn a_missing_config_file_is_an_error_that_names_it() {
        let error = error(&registry(&["fake"]), "fake", "/does/not/exist").await;
        assert!(matches!(error, RegistryError::Config { .. }));
        let text = error.to_string();
        assert!(text.starts_with("Couldn't open cloud provider configuration /does/not/exist: No such file"), "{text}");
        assert!(error.source().is_some());
    }

    #[tokio::test]
    async fn an_empty_path_means_no_config_and_a_file_its_text() {
        let factory = factory("fake", false);
        let mut registry = Registry::new();
        registry.register(factory.clone()).unwrap();
        init(&registry, "fake", "").await.ok().unwrap();
        assert!(factory.config.lock().unwrap().take().unwrap().is_none());
        init(&registry, "fake", FILE).await.ok().unwrap();
        let config = factory.config.lock().unwrap().take().unwrap().unwrap();
        assert_eq!(config.path, PathBuf::from(FILE));
        assert!(config.text.contains("ccm-provider"));
        assert!(!format!("{config:?}").contains("ccm-provider\""), "the text may hold secrets");
    }

    #[tokio::test]
    async fn a_failing_factory_is_named() {
        let mut registry = Registry::new();
        registry.register(factory("fake", true)).unwrap();
        assert_eq!(
            error(&registry, "fake", "").await.to_string(),
            "Cloud provider could not be initialized: could not init cloud provider \"fake\": no credentials"
        );
    }
}
