//! All flags: one entry each. The parser, `--help`, the log of the values and the typed options come from here.

use ccm_provider::flag::{Flag, Kind};

const GENERIC: &str = "Generic flags";
const NODE: &str = "Cloud-node-controller flags";
const LIFECYCLE: &str = "Cloud-node-lifecycle-controller flags";
const SERVICE: &str = "Service-lb-controller flags";
const SERVING: &str = "Secure serving flags";
const MISC: &str = "Misc flags";
const GLOBAL: &str = "Global flags";

/// The flags, by section.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    Flag::new(GENERIC, "cloud-provider", Kind::Text, "", "The provider for cloud services. Cannot be empty."),
    Flag::new(GENERIC, "cloud-config", Kind::Text, "", "The path to the cloud provider configuration file. Empty string for no configuration file."),
    Flag::new(GENERIC, "allow-untagged-cloud", Kind::Bool, "false", "Allow the cluster to run without the cluster-id on cloud instances. This is a legacy mode of operation and a cluster-id will be required in the future."),
    Flag::new(GENERIC, "route-reconciliation-period", Kind::Duration, "10s", "The period for reconciling routes created for Nodes by cloud provider."),
    Flag::new(GENERIC, "node-monitor-period", Kind::Duration, "5s", "The period for syncing NodeStatus in CloudNodeLifecycleController."),
    Flag::new(GENERIC, "cluster-name", Kind::Text, "kubernetes", "The instance prefix for the cluster."),
    Flag::new(GENERIC, "cluster-cidr", Kind::Text, "", "CIDR Range for Pods in cluster. Two comma-separated ranges, one of each IP family, for dual-stack clusters."),
    Flag::new(GENERIC, "configure-cloud-routes", Kind::Bool, "true", "Should CIDRs allocated by allocate-node-cidrs be configured on the cloud provider."),
    Flag::new(GENERIC, "min-resync-period", Kind::Duration, "12h0m0s", "The resync period in reflectors will be random between MinResyncPeriod and 2*MinResyncPeriod."),
    Flag::new(GENERIC, "controllers", Kind::List, "*", "A list of controllers to enable. '*' enables all on-by-default controllers, 'foo' enables the controller named 'foo', '-foo' disables the controller named 'foo'."),
    Flag::new(GENERIC, "feature-gates", Kind::List, "", "A set of key=value pairs that describe feature gates for alpha/experimental features. Options are: CloudControllerManagerWatchBasedRoutesReconciliation=true|false (ALPHA - default=false)."),
    Flag::new(GENERIC, "leader-elect", Kind::Bool, "true", "Start a leader election client and gain leadership before executing the main loop. Enable this when running replicated components for high availability."),
    Flag::new(GENERIC, "leader-elect-lease-duration", Kind::Duration, "15s", "The duration that non-leader candidates will wait after observing a leadership renewal until attempting to acquire leadership of a led but unrenewed leader slot."),
    Flag::new(GENERIC, "leader-elect-renew-deadline", Kind::Duration, "10s", "The interval between attempts by the acting master to renew a leadership slot before it stops leading. This must be less than the lease duration."),
    Flag::new(GENERIC, "leader-elect-retry-period", Kind::Duration, "2s", "The duration the clients should wait between attempting acquisition and renewal of a leadership."),
    Flag::new(GENERIC, "leader-elect-resource-lock", Kind::Text, "leases", "The type of resource object that is used for locking during leader election. Supported options are 'leases'."),
    Flag::new(GENERIC, "leader-elect-resource-name", Kind::Text, "cloud-controller-manager", "The name of resource object that is used for locking during leader election."),
    Flag::new(GENERIC, "leader-elect-resource-namespace", Kind::Text, "kube-system", "The namespace of resource object that is used for locking during leader election."),
    Flag::new(GENERIC, "dry-run", Kind::Bool, "false", "Write nothing, neither to the cluster nor to the cloud: log the plan of every change, and tell it in an event on the object."),
    Flag::new(NODE, "concurrent-node-syncs", Kind::Int, "", "The number of nodes that are initialized concurrently. When not given, the API server's pace decides."),
    Flag::new(NODE, "concurrent-node-status-updates", Kind::Int, "", "The number of nodes whose addresses are updated concurrently. When not given or 0, as many as concurrent-node-syncs."),
    Flag::new(LIFECYCLE, "node-deletion-budget", Kind::Int, "10", "Nodes that one pass of the lifecycle controller may delete; what exceeds it and the share below waits for the next pass."),
    Flag::new(LIFECYCLE, "node-deletion-budget-percent", Kind::Int, "10", "Share of the cluster, in percent, that one pass of the lifecycle controller may delete, where that is more than the number above."),
    Flag::new(SERVICE, "concurrent-service-syncs", Kind::Int, "", "The number of Services, or groups of Services that share cloud objects, that are synced concurrently. When not given, the provider's pace decides."),
    Flag::new(SERVICE, "allow-emptying-load-balancers", Kind::Bool, "false", "Take the last host out of a load balancer also when the cloud still shows its instance, or cannot tell."),
    Flag::new(SERVING, "bind-address", Kind::Text, "0.0.0.0", "The IP address on which to listen for the --secure-port port."),
    Flag::new(SERVING, "secure-port", Kind::Int, "10258", "The port on which to serve HTTPS. If 0, don't serve HTTPS at all."),
    Flag::new(MISC, "master", Kind::Text, "", "The address of the Kubernetes API server (overrides any value in kubeconfig)."),
    Flag::new(MISC, "kubeconfig", Kind::Text, "", "Path to kubeconfig file with authorization and master location information (the master location can be overridden by the master flag)."),
    Flag::new(MISC, "node-status-update-frequency", Kind::Duration, "5m0s", "Specifies how often the controller updates nodes' status."),
    Flag::new(GLOBAL, "v", Kind::Int, "0", "Number for the log level verbosity.").short('v'),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_flag_is_listed_once_with_a_help_text_and_a_default_that_parses() {
        let names: BTreeSet<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), FLAGS.len());
        for flag in FLAGS {
            assert!(flag.help.ends_with('.'), "{}", flag.name);
            match flag.kind {
                Kind::Bool => assert!(matches!(flag.default, "true" | "false"), "{}", flag.name),
                Kind::Int => assert!(flag.default.is_empty() || flag.default.parse::<i64>().is_ok(), "{}", flag.name),
                Kind::Duration => assert!(ccm_provider::duration::parse(flag.default).is_ok(), "{}", flag.name),
                Kind::Float => assert!(flag.default.is_empty() || flag.default.parse::<f64>().is_ok(), "{}", flag.name),
                Kind::Text | Kind::List | Kind::Repeated | Kind::Switches => {}
            }
        }
    }
}
