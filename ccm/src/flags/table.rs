//! All flags, one entry each: the source of the parser, `--help`, the log of the values, the typed options, the
//! reference in `README.md` and shell completions.
//!
//! Names, types, defaults, sections and most help texts are those of `k8s.io/cloud-provider` `options`, which users
//! know. A number with an empty default is not set.

use ccm_provider::flag::{Flag, Kind};

const DEBUGGING: &str = "Debugging flags";
const MIGRATION: &str = "Leader-migration flags";
const GENERIC: &str = "Generic flags";
const NODE: &str = "Cloud-node-controller flags";
const LIFECYCLE: &str = "Cloud-node-lifecycle-controller flags";
const SERVICE: &str = "Service-lb-controller flags";
pub(crate) const WEBHOOK: &str = "Webhook flags";
const WEBHOOK_SERVING: &str = "Webhook serving flags";
const SERVING: &str = "Secure serving flags";
const AUTHENTICATION: &str = "Authentication flags";
const AUTHORIZATION: &str = "Authorization flags";
const MISC: &str = "Misc flags";
const GLOBAL: &str = "Global flags";

/// The flags, by section.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    Flag::new(DEBUGGING, "contention-profiling", Kind::Bool, "false", "Enable block profiling, if profiling is enabled. Accepted and not used."),
    Flag::new(DEBUGGING, "profiling", Kind::Bool, "true", "Serve /debug/flags/v."),
    Flag::new(MIGRATION, "enable-leader-migration", Kind::Bool, "false", "Whether to enable controller leader migration."),
    Flag::new(MIGRATION, "leader-migration-config", Kind::Text, "", "Path to the config file for controller leader migration, or empty to use the value that reflects default configuration of the controller manager. The config file should be of type LeaderMigrationConfiguration, group controllermanager.config.k8s.io, version v1, v1beta1 or v1alpha1."),
    Flag::new(GENERIC, "allocate-node-cidrs", Kind::Bool, "false", "Should CIDRs for Pods be allocated and set on the cloud provider. Requires --cluster-cidr."),
    Flag::new(GENERIC, "allow-untagged-cloud", Kind::Bool, "false", "Allow the cluster to run without the cluster-id on cloud instances. This is a legacy mode of operation and a cluster-id will be required in the future.").deprecated("This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud instances."),
    Flag::new(GENERIC, "cidr-allocator-type", Kind::Text, "RangeAllocator", "Type of CIDR allocator to use: RangeAllocator cuts --cluster-cidr into blocks, CloudAllocator takes the ranges that the cloud gave the instances, where the provider knows them."),
    Flag::new(GENERIC, "cloud-config", Kind::Text, "", "The path to the cloud provider configuration file. Empty string for no configuration file."),
    Flag::new(GENERIC, "cloud-provider", Kind::Text, "", "The provider for cloud services. Cannot be empty."),
    Flag::new(GENERIC, "cloud-provider-platforms", Kind::List, "", "The schemes of the provider IDs of the nodes that this program owns, if several cloud controller managers share the cluster, instead of those of the provider. '*' stands for all. Requires the feature gate CloudProviderNodeOwnership."),
    Flag::new(GENERIC, "cluster-cidr", Kind::Text, "", "CIDR Range for Pods in cluster. Two comma-separated ranges, one of each IP family, for dual-stack clusters."),
    Flag::new(GENERIC, "cluster-name", Kind::Text, "kubernetes", "The instance prefix for the cluster."),
    Flag::new(GENERIC, "configure-cloud-routes", Kind::Bool, "true", "Should CIDRs allocated by allocate-node-cidrs be configured on the cloud provider."),
    Flag::new(GENERIC, "controller-start-interval", Kind::Duration, "0s", "Interval between starting controller managers."),
    Flag::new(GENERIC, "controllers", Kind::List, "*", "A list of controllers to enable. '*' enables all on-by-default controllers, 'foo' enables the controller named 'foo', '-foo' disables the controller named 'foo'."),
    Flag::new(GENERIC, "dry-run", Kind::Bool, "false", "Write nothing, neither to the cluster nor to the cloud: log the plan of every change, and every event that would be written. It takes part in no election, so it may run beside a leader."),
    Flag::new(GENERIC, "external-cloud-volume-plugin", Kind::Text, "", "The plugin to use when cloud provider is set to external. Accepted and not used."),
    Flag::new(GENERIC, "feature-gates", Kind::Switches, "", "A set of key=value pairs that describe feature gates for alpha/experimental features."),
    Flag::new(GENERIC, "kube-api-burst", Kind::Int32, "", "Requests that a client may send at once beyond kube-api-qps. When not given, 30 if kube-api-qps is given."),
    Flag::new(GENERIC, "kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", "Content type of requests sent to apiserver. Requests are JSON whatever is given."),
    Flag::new(GENERIC, "kube-api-qps", Kind::Float, "", "Requests per second to the API server, for each client. When not given, the API server's priority and fairness decides."),
    Flag::new(GENERIC, "leader-elect", Kind::Bool, "true", "Start a leader election client and gain leadership before executing the main loop. Enable this when running replicated components for high availability."),
    Flag::new(GENERIC, "leader-elect-lease-duration", Kind::Duration, "15s", "The duration that non-leader candidates will wait after observing a leadership renewal until attempting to acquire leadership of a led but unrenewed leader slot. This is effectively the maximum duration that a leader can be stopped before it is replaced by another candidate. This is only applicable if leader election is enabled."),
    Flag::new(GENERIC, "leader-elect-renew-deadline", Kind::Duration, "10s", "The interval between attempts by the acting master to renew a leadership slot before it stops leading. This must be less than the lease duration. This is only applicable if leader election is enabled."),
    Flag::new(GENERIC, "leader-elect-resource-lock", Kind::Text, "leases", "The type of resource object that is used for locking during leader election. Supported options are 'leases'."),
    Flag::new(GENERIC, "leader-elect-resource-name", Kind::Text, "cloud-controller-manager", "The name of resource object that is used for locking during leader election."),
    Flag::new(GENERIC, "leader-elect-resource-namespace", Kind::Text, "kube-system", "The namespace of resource object that is used for locking during leader election."),
    Flag::new(GENERIC, "leader-elect-retry-period", Kind::Duration, "2s", "The duration the clients should wait between attempting acquisition and renewal of a leadership. This is only applicable if leader election is enabled."),
    Flag::new(GENERIC, "min-resync-period", Kind::Duration, "12h0m0s", "The resync period in reflectors will be random between MinResyncPeriod and 2*MinResyncPeriod."),
    Flag::new(GENERIC, "node-sync-period", Kind::Duration, "0s", "The period for syncing nodes from cloudprovider. Longer periods will result in fewer calls to cloud provider, but may delay addition of new nodes to cluster.").deprecated("This flag is currently no-op and will be deleted."),
    Flag::new(GENERIC, "route-reconciliation-period", Kind::Duration, "10s", "The period for reconciling routes created for Nodes by cloud provider."),
    Flag::new(GENERIC, "use-service-account-credentials", Kind::Bool, "false", "If true, use individual service account credentials for each controller."),
    Flag::new(NODE, "concurrent-node-status-updates", Kind::Int32, "0", "Number of workers concurrently updating node statuses. If unspecified or 0, --concurrent-node-syncs is used instead."),
    Flag::new(NODE, "concurrent-node-syncs", Kind::Int32, "", "Number of workers concurrently synchronizing nodes. When not given, the API server's pace decides."),
    Flag::new(LIFECYCLE, "concurrent-node-lifecycle-syncs", Kind::Int32, "", "Number of nodes that one pass of the lifecycle controller deletes or taints at once. When not given, 32; the cloud is asked about all nodes at once in any case."),
    Flag::new(LIFECYCLE, "node-deletion-budget", Kind::Int, "10", "Nodes that one pass of the lifecycle controller may delete; what exceeds it and the share below waits for the next pass."),
    Flag::new(LIFECYCLE, "node-deletion-budget-percent", Kind::Int, "10", "Share of the cluster, in percent, that one pass of the lifecycle controller may delete, where that is more than the number above."),
    Flag::new(LIFECYCLE, "node-lifecycle-wait-timeout", Kind::Duration, "", "How long after its creation a node without provider ID is left alone, so that its own cloud controller manager can initialize it. When not given, 30s with the feature gate CloudProviderNodeOwnership, else 0s."),
    Flag::new(LIFECYCLE, "node-monitor-period", Kind::Duration, "5s", "The period for syncing NodeStatus in cloud-node-lifecycle-controller."),
    Flag::new(SERVICE, "allow-emptying-load-balancers", Kind::Bool, "false", "Remove the last host from a load balancer even if the cloud still shows its instance, or gives no answer about it."),
    Flag::new(SERVICE, "concurrent-service-syncs", Kind::Int32, "", "The number of services, or of groups of services that share cloud objects, that are allowed to sync concurrently. When not given, the provider's pace decides."),
    Flag::new(SERVICE, "drift-check-period", Kind::Duration, "0s", "How often to compare the load balancers of unchanged Services with the cloud, and to report what differs in the metric ccm_drift_steps and an event. Reads only; costs reads for each Service. 0 is never."),
    Flag::new(SERVICE, "drift-repair", Kind::Bool, "false", "Sync each Service whose load balancer a check of --drift-check-period finds different, so that what another client changed in the cloud is corrected. Otherwise the next change of the Service or restart corrects it."),
    Flag::new(WEBHOOK, "webhooks", Kind::List, "", "A list of webhooks to enable. '*' enables all on-by-default webhooks, 'foo' enables the webhook named 'foo', '-foo' disables the webhook named 'foo'."),
    Flag::new(WEBHOOK_SERVING, "webhook-bind-address", Kind::Ip, "0.0.0.0", "The IP address on which to listen for the --webhook-secure-port port. The associated interface(s) must be reachable by the rest of the cluster, and by CLI/web clients. If set to an unspecified address (0.0.0.0 or ::), all interfaces will be used. If unset, defaults to 0.0.0.0."),
    Flag::new(WEBHOOK_SERVING, "webhook-cert-dir", Kind::Text, "", "The directory where the TLS certs are located. If --webhook-tls-cert-file and --webhook-tls-private-key-file are provided, this flag will be ignored."),
    Flag::new(WEBHOOK_SERVING, "webhook-disable-http2-serving", Kind::Bool, "false", "If true, HTTP2 serving will be disabled for the webhook server."),
    Flag::new(WEBHOOK_SERVING, "webhook-secure-port", Kind::Int, "10260", "Secure port to serve cloud provider webhooks. If 0, don't serve webhooks at all."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-cert-file", Kind::Text, "", "File containing the default x509 Certificate for HTTPS. (CA cert, if any, concatenated after server cert). If HTTPS serving is enabled, and --webhook-tls-cert-file and --webhook-tls-private-key-file are not provided, a self-signed certificate and key are generated for the public address and saved to the directory specified by --webhook-cert-dir."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-cipher-suites", Kind::List, "", "Comma-separated list of cipher suites for the webhook server, by their IANA names. If omitted, all that the server has, see --tls-cipher-suites."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-curve-preferences", Kind::Ints, "", "Comma-separated list of the numbers of the key exchange mechanisms that the webhook server allows, as Go's crypto/tls CurveID numbers them: 23 (P-256), 24 (P-384), 25 (P-521), 29 (X25519), 4588 (X25519MLKEM768). The order of the list is ignored. If omitted, all that the server has."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-min-version", Kind::Text, "", "Minimum TLS version supported for the webhook server. Possible values: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-private-key-file", Kind::Text, "", "File containing the default x509 private key matching --webhook-tls-cert-file."),
    Flag::new(WEBHOOK_SERVING, "webhook-tls-sni-cert-key", Kind::CertKey, "", "A pair of x509 certificate and private key file paths, optionally suffixed with a list of domain patterns which are fully qualified domain names, possibly with prefixed wildcard segments. The domain patterns also allow IP addresses, but IPs should only be used if the webhook server has visibility to the IP address requested by a client. If no domain patterns are provided, the names of the certificate are extracted. Non-wildcard matches trump over wildcard matches, explicit domain patterns trump over extracted names. For multiple key/certificate pairs, use the --webhook-tls-sni-cert-key multiple times. Examples: \"example.crt,example.key\" or \"foo.crt,foo.key:*.foo.com,foo.com\"."),
    Flag::new(SERVING, "bind-address", Kind::Ip, "0.0.0.0", "The IP address on which to listen for the --secure-port port. The associated interface(s) must be reachable by the rest of the cluster, and by CLI/web clients. If blank or an unspecified address (0.0.0.0 or ::), all interfaces and IP address families will be used."),
    Flag::new(SERVING, "cert-dir", Kind::Text, "", "The directory where the TLS certs are located. If --tls-cert-file and --tls-private-key-file are provided, this flag will be ignored."),
    Flag::new(SERVING, "disable-http2-serving", Kind::Bool, "false", "If true, HTTP2 serving will be disabled."),
    Flag::new(SERVING, "http2-max-streams-per-connection", Kind::Int, "0", "The limit that the server gives to clients for the maximum number of streams in an HTTP/2 connection. Zero means to use the server's default."),
    Flag::new(SERVING, "permit-address-sharing", Kind::Bool, "false", "If true, SO_REUSEADDR will be used when binding the port. This allows binding to wildcard IPs like 0.0.0.0 and specific IPs in parallel, and it avoids waiting for the kernel to release sockets in TIME_WAIT state."),
    Flag::new(SERVING, "permit-port-sharing", Kind::Bool, "false", "If true, SO_REUSEPORT will be used when binding the port, which allows more than one instance to bind on the same address and port."),
    Flag::new(SERVING, "secure-port", Kind::Int, "10258", "The port on which to serve HTTPS with authentication and authorization. If 0, don't serve HTTPS at all."),
    Flag::new(SERVING, "tls-cert-file", Kind::Text, "", "File containing the default x509 Certificate for HTTPS. (CA cert, if any, concatenated after server cert). If HTTPS serving is enabled, and --tls-cert-file and --tls-private-key-file are not provided, a self-signed certificate and key are generated for the public address and saved to the directory specified by --cert-dir."),
    Flag::new(SERVING, "tls-cipher-suites", Kind::List, "", "Comma-separated list of cipher suites for the server, by their IANA names. If omitted, all that the server has: TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256."),
    Flag::new(SERVING, "tls-curve-preferences", Kind::Ints, "", "Comma-separated list of the numbers of the key exchange mechanisms that the server allows, as Go's crypto/tls CurveID numbers them: 23 (P-256), 24 (P-384), 25 (P-521), 29 (X25519), 4588 (X25519MLKEM768). The order of the list is ignored. If omitted, all that the server has."),
    Flag::new(SERVING, "tls-min-version", Kind::Text, "", "Minimum TLS version supported. Possible values: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13."),
    Flag::new(SERVING, "tls-private-key-file", Kind::Text, "", "File containing the default x509 private key matching --tls-cert-file."),
    Flag::new(SERVING, "tls-sni-cert-key", Kind::CertKey, "", "A pair of x509 certificate and private key file paths, optionally suffixed with a list of domain patterns which are fully qualified domain names, possibly with prefixed wildcard segments. The domain patterns also allow IP addresses, but IPs should only be used if the apiserver has visibility to the IP address requested by a client. If no domain patterns are provided, the names of the certificate are extracted. Non-wildcard matches trump over wildcard matches, explicit domain patterns trump over extracted names. For multiple key/certificate pairs, use the --tls-sni-cert-key multiple times. Examples: \"example.crt,example.key\" or \"foo.crt,foo.key:*.foo.com,foo.com\"."),
    Flag::new(AUTHENTICATION, "authentication-kubeconfig", Kind::Text, "", "Kubeconfig file pointing at the 'core' kubernetes server with enough rights to create tokenreviews.authentication.k8s.io. This is optional. If empty, all token requests are considered to be anonymous and no client CA is looked up in the cluster."),
    Flag::new(AUTHENTICATION, "authentication-skip-lookup", Kind::Bool, "false", "If false, the authentication-kubeconfig will be used to lookup missing authentication configuration from the cluster."),
    Flag::new(AUTHENTICATION, "authentication-token-webhook-cache-ttl", Kind::Duration, "10s", "The duration to cache responses from the webhook token authenticator."),
    Flag::new(AUTHENTICATION, "authentication-tolerate-lookup-failure", Kind::Bool, "false", "If true, failures to look up missing authentication configuration from the cluster are not considered fatal. Note that this can result in authentication that treats all requests as anonymous."),
    Flag::new(AUTHENTICATION, "client-ca-file", Kind::Text, "", "If set, any request presenting a client certificate signed by one of the authorities in the client-ca-file is authenticated with an identity corresponding to the CommonName of the client certificate."),
    Flag::new(AUTHENTICATION, "requestheader-allowed-names", Kind::List, "", "List of client certificate common names to allow to provide usernames in headers specified by --requestheader-username-headers. If empty, any client certificate validated by the authorities in --requestheader-client-ca-file is allowed."),
    Flag::new(AUTHENTICATION, "requestheader-client-ca-file", Kind::Text, "", "Root certificate bundle to use to verify client certificates on incoming requests before trusting usernames in headers specified by --requestheader-username-headers. WARNING: generally do not depend on authorization being already done for incoming requests."),
    Flag::new(AUTHENTICATION, "requestheader-extra-headers-prefix", Kind::List, "x-remote-extra-", "List of request header prefixes to inspect. X-Remote-Extra- is suggested."),
    Flag::new(AUTHENTICATION, "requestheader-group-headers", Kind::List, "x-remote-group", "List of request headers to inspect for groups. X-Remote-Group is suggested."),
    Flag::new(AUTHENTICATION, "requestheader-uid-headers", Kind::List, "", "List of request headers to inspect for UIDs. X-Remote-Uid is suggested."),
    Flag::new(AUTHENTICATION, "requestheader-username-headers", Kind::List, "x-remote-user", "List of request headers to inspect for usernames. X-Remote-User is common."),
    Flag::new(AUTHORIZATION, "authorization-always-allow-paths", Kind::List, "/healthz,/readyz,/livez", "A list of HTTP paths to skip during authorization, i.e. these are authorized without contacting the 'core' kubernetes server."),
    Flag::new(AUTHORIZATION, "authorization-kubeconfig", Kind::Text, "", "Kubeconfig file pointing at the 'core' kubernetes server with enough rights to create subjectaccessreviews.authorization.k8s.io. This is optional. If empty, all requests not skipped by authorization are forbidden."),
    Flag::new(AUTHORIZATION, "authorization-webhook-cache-authorized-ttl", Kind::Duration, "10s", "The duration to cache 'authorized' responses from the webhook authorizer."),
    Flag::new(AUTHORIZATION, "authorization-webhook-cache-unauthorized-ttl", Kind::Duration, "10s", "The duration to cache 'unauthorized' responses from the webhook authorizer."),
    Flag::new(MISC, "kubeconfig", Kind::Text, "", "Path to kubeconfig file with authorization and master location information (the master location can be overridden by the master flag)."),
    Flag::new(MISC, "master", Kind::Text, "", "The address of the Kubernetes API server (overrides any value in kubeconfig)."),
    Flag::new(MISC, "node-status-update-frequency", Kind::Duration, "5m0s", "Specifies how often the controller updates nodes' status."),
    Flag::new(GLOBAL, "help", Kind::Bool, "false", "Print this text.").short('h'),
    Flag::new(GLOBAL, "log-flush-frequency", Kind::Duration, "5s", "Maximum number of seconds between log flushes."),
    Flag::new(GLOBAL, "log-json-info-buffer-size", Kind::Quantity, "0", "[Alpha] In JSON format with split output streams, the info messages can be buffered for a while to increase performance. The default value of zero bytes disables buffering. The size can be specified as number of bytes (512), multiples of 1000 (1K), multiples of 1024 (2Ki), or powers of those (3M, 4G, 5Mi, 6Gi). Enable the LoggingAlphaOptions feature gate to use this."),
    Flag::new(GLOBAL, "log-json-split-stream", Kind::Bool, "false", "[Alpha] In JSON format, write error messages to stderr and info messages to stdout. The default is to write a single stream to stdout. Enable the LoggingAlphaOptions feature gate to use this."),
    Flag::new(GLOBAL, "log-text-info-buffer-size", Kind::Quantity, "0", "[Alpha] In text format with split output streams, the info messages can be buffered for a while to increase performance. The default value of zero bytes disables buffering. The size can be specified as number of bytes (512), multiples of 1000 (1K), multiples of 1024 (2Ki), or powers of those (3M, 4G, 5Mi, 6Gi). Enable the LoggingAlphaOptions feature gate to use this."),
    Flag::new(GLOBAL, "log-text-split-stream", Kind::Bool, "false", "[Alpha] In text format, write error messages to stderr and info messages to stdout. The default is to write a single stream to stdout. Enable the LoggingAlphaOptions feature gate to use this."),
    Flag::new(GLOBAL, "logging-format", Kind::Text, "text", "Sets the log format. Permitted formats: \"json\" (gated by LoggingBetaOptions), \"text\"."),
    Flag::new(GLOBAL, "v", Kind::Level, "0", "Number for the log level verbosity.").short('v'),
    Flag::new(GLOBAL, "version", Kind::Version, "false", "--version, --version=raw prints version information and quits; --version=vX.Y.Z... sets the reported version."),
    Flag::new(GLOBAL, "vmodule", Kind::Vmodule, "", "Comma-separated list of pattern=N settings for file-filtered logging (only works for text log format)."),
];

const NODE_IPAM: &str = "Node-ipam-controller flags";

/// The flags of the controller that allocates pod ranges to nodes.
#[rustfmt::skip]
pub const NODE_IPAM_FLAGS: &[Flag] = &[
    Flag::new(NODE_IPAM, "node-cidr-mask-size", Kind::Int32, "0", "Mask size for node cidr in cluster. Default is 24 for IPv4 and 64 for IPv6."),
    Flag::new(NODE_IPAM, "node-cidr-mask-size-ipv4", Kind::Int32, "0", "Mask size for IPv4 node cidr in dual-stack cluster. Default is 24."),
    Flag::new(NODE_IPAM, "node-cidr-mask-size-ipv6", Kind::Int32, "0", "Mask size for IPv6 node cidr in dual-stack cluster. Default is 64."),
    Flag::new(NODE_IPAM, "service-cluster-ip-range", Kind::Text, "", "CIDR Range for Services in cluster. Only used when --allocate-node-cidrs=true; if false, this option will be ignored."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::flags::value;

    #[test]
    fn every_flag_is_listed_once_with_a_help_text_and_a_default_that_parses() {
        let all = || FLAGS.iter().chain(NODE_IPAM_FLAGS);
        let names: BTreeSet<&str> = all().map(|flag| flag.name).collect();
        assert_eq!(names.len(), all().count());
        for flag in all() {
            assert!(flag.help.ends_with('.'), "{}", flag.name);
            let default = value::normalize(flag.kind, flag.default);
            assert!(flag.default.is_empty() || default.is_ok(), "{}", flag.name);
        }
    }
}
