//! The settings as the versioned object of `/configz`.
//!
//! Group, version, kind and field names are those of `k8s.io/cloud-provider` `config/v1alpha1`; most fields have no
//! tag there, hence the capitals. The form is that of 1.37: older versions have `NodeMonitorPeriod` in
//! `KubeCloudShared`. There is no file of this kind: flags are the only source.

use ccm_provider::duration;
use serde_json::{Value, json};

use super::Options;
use super::migration::Migration;

/// The group, which is also the key of the object in the response of `/configz`.
pub const GROUP: &str = "cloudcontrollermanager.config.k8s.io";

/// The object. A number without a default (`--concurrent-*-syncs` not given) is 0; an unlimited rate is -1, as in
/// client-go.
pub fn componentconfig(options: &Options) -> Value {
    let values = &options.values;
    let int = |name: &str| values.int(name).unwrap_or_default();
    json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "Generic": generic(options),
        "KubeCloudShared": shared(options),
        "NodeController": {
            "ConcurrentNodeSyncs": int("concurrent-node-syncs"),
            "ConcurrentNodeStatusUpdates": match int("concurrent-node-status-updates") {
                0 => int("concurrent-node-syncs"),
                given => given,
            },
        },
        "NodeLifecycleController": {
            "NodeMonitorPeriod": period(options, "node-monitor-period"),
            "ConcurrentNodeLifecycleSyncs": int("concurrent-node-lifecycle-syncs"),
        },
        "ServiceController": { "ConcurrentServiceSyncs": int("concurrent-service-syncs") },
        "NodeStatusUpdateFrequency": period(options, "node-status-update-frequency"),
        "Webhook": { "Webhooks": values.given("webhooks").then(|| values.list("webhooks")) },
    })
}

fn period(options: &Options, name: &str) -> String {
    duration::format(options.values.duration(name))
}

fn generic(options: &Options) -> Value {
    let values = &options.values;
    json!({
        // Port and address remain from insecure serving, which was removed.
        "Port": 0,
        "Address": "0.0.0.0",
        "MinResyncPeriod": period(options, "min-resync-period"),
        "ClientConnection": {
            "kubeconfig": options.kubeconfig,
            "acceptContentTypes": "",
            "contentType": values.text("kube-api-content-type"),
            "qps": options.clients.rate.map_or(-1.0, |rate| rate.qps),
            "burst": options.clients.rate.map_or(0, |rate| rate.burst),
        },
        "ControllerStartInterval": period(options, "controller-start-interval"),
        "LeaderElection": {
            "leaderElect": values.bool("leader-elect"),
            "leaseDuration": period(options, "leader-elect-lease-duration"),
            "renewDeadline": period(options, "leader-elect-renew-deadline"),
            "retryPeriod": period(options, "leader-elect-retry-period"),
            "resourceLock": values.text("leader-elect-resource-lock"),
            "resourceName": values.text("leader-elect-resource-name"),
            "resourceNamespace": values.text("leader-elect-resource-namespace"),
        },
        "Controllers": controllers(options),
        "Debugging": {
            "enableProfiling": options.profiling,
            "enableContentionProfiling": values.bool("contention-profiling"),
        },
        "LeaderMigrationEnabled": values.bool("enable-leader-migration"),
        "LeaderMigration": migration(options.migration.as_ref()),
    })
}

/// The list as given, with canonical names instead of aliases.
fn controllers(options: &Options) -> Vec<String> {
    let canonical = |entry: String| {
        let (sign, word) = entry.strip_prefix('-').map_or(("", entry.as_str()), |word| ("-", word));
        let found = options.controllers.iter().find(|known| known.controller.aliases.contains(&word));
        found.map(|known| format!("{sign}{}", known.controller.name)).unwrap_or(entry)
    };
    options.values.list("controllers").into_iter().map(canonical).collect()
}

fn migration(migration: Option<&Migration>) -> Value {
    let Some(migration) = migration else {
        return json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
    };
    let leader = |entry: &super::migration::Entry| json!({ "name": entry.name, "component": entry.component });
    json!({
        "leaderName": migration.lease_name,
        "resourceLock": "leases",
        "controllerLeaders": migration.entries.iter().map(leader).collect::<Vec<_>>(),
    })
}

fn shared(options: &Options) -> Value {
    let values = &options.values;
    json!({
        "CloudProvider": { "Name": options.cloud_provider, "CloudConfigFile": options.cloud_config },
        "ExternalCloudVolumePlugin": values.text("external-cloud-volume-plugin"),
        "UseServiceAccountCredentials": options.clients.use_service_account_credentials,
        "AllowUntaggedCloud": options.allow_untagged_cloud,
        "RouteReconciliationPeriod": period(options, "route-reconciliation-period"),
        "ClusterName": options.cluster_name,
        "ClusterCIDR": values.text("cluster-cidr"),
        "AllocateNodeCIDRs": values.bool("allocate-node-cidrs"),
        "CIDRAllocatorType": values.text("cidr-allocator-type"),
        "ConfigureCloudRoutes": values.bool("configure-cloud-routes"),
        "NodeSyncPeriod": period(options, "node-sync-period"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response of the Go program (`k8s.io/cloud-provider` v0.37.2) started with these flags.
    #[test]
    fn the_object_is_that_of_the_go_program() {
        let options = Options::from_args([
            "--cloud-provider=fake",
            "--cloud-config=/etc/cloud.yaml",
            "--kubeconfig=/etc/kubeconfig",
            "--configure-cloud-routes=false",
            "--controllers=*,-route,-service",
            "--enable-leader-migration",
            "--concurrent-node-syncs=7",
            "--concurrent-node-lifecycle-syncs=3",
            "--concurrent-service-syncs=1",
            "--webhooks=",
            "--kube-api-qps=50",
            "--leader-elect-resource-name=c-x",
            "--cluster-cidr=10.0.0.0/16",
            "--allow-untagged-cloud",
            "--use-service-account-credentials",
            "--external-cloud-volume-plugin=x",
            "--contention-profiling",
        ]);
        let expected = json!({
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "Generic": {
                "Port": 0,
                "Address": "0.0.0.0",
                "MinResyncPeriod": "12h0m0s",
                "ClientConnection": {
                    "kubeconfig": "/etc/kubeconfig",
                    "acceptContentTypes": "",
                    "contentType": "application/vnd.kubernetes.protobuf",
                    "qps": 50.0,
                    "burst": 30
                },
                "ControllerStartInterval": "0s",
                "LeaderElection": {
                    "leaderElect": true,
                    "leaseDuration": "15s",
                    "renewDeadline": "10s",
                    "retryPeriod": "2s",
                    "resourceLock": "leases",
                    "resourceName": "c-x",
                    "resourceNamespace": "kube-system"
                },
                "Controllers": ["*", "-node-route-controller", "-service-lb-controller"],
                "Debugging": { "enableProfiling": true, "enableContentionProfiling": true },
                "LeaderMigrationEnabled": true,
                "LeaderMigration": {
                    "leaderName": "cloud-provider-extraction-migration",
                    "resourceLock": "leases",
                    "controllerLeaders": [
                        { "name": "route-controller", "component": "*" },
                        { "name": "service-controller", "component": "*" },
                        { "name": "cloud-node-lifecycle-controller", "component": "*" }
                    ]
                }
            },
            "KubeCloudShared": {
                "CloudProvider": { "Name": "fake", "CloudConfigFile": "/etc/cloud.yaml" },
                "ExternalCloudVolumePlugin": "x",
                "UseServiceAccountCredentials": true,
                "AllowUntaggedCloud": true,
                "RouteReconciliationPeriod": "10s",
                "ClusterName": "kubernetes",
                "ClusterCIDR": "10.0.0.0/16",
                "AllocateNodeCIDRs": false,
                "CIDRAllocatorType": "RangeAllocator",
                "ConfigureCloudRoutes": false,
                "NodeSyncPeriod": "0s"
            },
            "NodeController": { "ConcurrentNodeSyncs": 7, "ConcurrentNodeStatusUpdates": 7 },
            "NodeLifecycleController": { "NodeMonitorPeriod": "5s", "ConcurrentNodeLifecycleSyncs": 3 },
            "ServiceController": { "ConcurrentServiceSyncs": 1 },
            "NodeStatusUpdateFrequency": "5m0s",
            "Webhook": { "Webhooks": [] }
        });
        assert_eq!(componentconfig(&options.unwrap()), expected);
    }

    #[test]
    fn values_that_are_not_given_are_null_zero_or_unlimited() {
        let object = componentconfig(&Options::from_args(["--cloud-provider=fake"]).unwrap());
        assert_eq!(object["Webhook"], json!({ "Webhooks": null }));
        assert_eq!(object["NodeController"], json!({ "ConcurrentNodeSyncs": 0, "ConcurrentNodeStatusUpdates": 0 }));
        assert_eq!(object["Generic"]["ClientConnection"]["qps"], json!(-1.0));
        let none = json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
        assert_eq!(object["Generic"]["LeaderMigration"], none);
    }
}
