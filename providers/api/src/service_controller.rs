//! A provider's own service controllers, for Services of certain classes.

/// A second service controller, as listed by `--controllers`; off unless named there.
///
/// It works like `service-lb-controller`, with the same [`crate::LoadBalancer`], flags, events and permissions. While
/// it is enabled, it alone handles Services of its classes, including their deletion. `service-lb-controller` ensures
/// no Service with a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceControllerSpec {
    /// Canonical name, for `--controllers` and the health check.
    pub name: &'static str,
    /// Other names that `--controllers` accepts. The first is the label of `running_managed_controllers`.
    pub aliases: &'static [&'static str],
    /// Name of its client, and of its service account with `--use-service-account-credentials`.
    pub client_name: &'static str,
    /// The values of `spec.loadBalancerClass` that it handles.
    pub classes: &'static [&'static str],
    /// Prefix of the names of its metrics and work queues, without the underscore: `gke` produces
    /// `gke_service_controller_loadbalancer_sync_total`.
    pub metrics_prefix: &'static str,
}
