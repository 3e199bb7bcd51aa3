//! service-lb-controller
/// Canonical name.
pub const NAME: &str = "service-lb-controller";
/// Settings of the controller.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// `--concurrent-service-syncs`; `None`: bounded only by the provider.
    pub concurrent_syncs: Option<usize>,
    /// `--allow-emptying-load-balancers`
    pub allow_emptying: bool,
}
