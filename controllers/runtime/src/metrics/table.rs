//! Every metric of the runtime and the process. Those of controllers are beside the controllers.
//!
//! Upstream: `k8s.io/component-base/metrics/prometheus`, `k8s.io/apiserver` (`pkg/endpoints/filters/metrics.go`,
//! `pkg/authentication/token/cache/stats.go`, `pkg/server/options/{authentication,authorization}.go`),
//! `k8s.io/cloud-provider/app/webhook_metrics.go`. Left out: what only Go has (`go_*`), the accounts of its own metrics
//! framework (`registered_metrics_total` and the like), of its transport cache (`rest_client_transport_*`), and what belongs to
//! API servers (`aggregator_*`, `apiserver_{audit,envelope,storage,validation,webhooks}_*`) and stays 0 for ever.

use super::Def;

/// 1e-8 × 10^0…9 seconds, with the digits that repeated multiplication gives upstream: a rule that adds up both programs
/// compares them as text.
const QUEUE: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// 64 bytes … 16 MiB.
const SIZE: &[f64] =
    &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
const DELEGATED: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// 1 ms × 2^0…14.
const ACCESS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const TOKEN_CACHE: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Now, half an hour … a year.
const CERTIFICATE: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

const NAME: &[&str] = &["name"];
const VERB_HOST: &[&str] = &["verb", "host"];
const RESULT: &[&str] = &["result"];
const CODE: &[&str] = &["code"];
const STATUS: &[&str] = &["status"];

macro_rules! table {
    ($($id:ident = $def:expr;)*) => {
        $(pub(super) const $id: Def = $def;)*
        /// All of them, sorted as here.
        pub(super) const ALL: &[&Def] = &[$(&$id),*];
    };
}

table! {
    DEPTH = Def::gauge("workqueue_depth", NAME, "[BETA] Current depth of workqueue");
    ADDS = Def::counter("workqueue_adds_total", NAME, "[BETA] Total number of adds handled by workqueue");
    RETRIES = Def::counter("workqueue_retries_total", NAME, "[BETA] Total number of retries handled by workqueue");
    WAITED = Def::histogram(
        "workqueue_queue_duration_seconds", NAME, QUEUE,
        "[BETA] How long in seconds an item stays in workqueue before being requested.",
    );
    WORKED = Def::histogram(
        "workqueue_work_duration_seconds", NAME, QUEUE,
        "[BETA] How long in seconds processing an item from workqueue takes.",
    );
    UNFINISHED = Def::gauge(
        "workqueue_unfinished_work_seconds", NAME,
        "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    );
    LONGEST = Def::gauge(
        "workqueue_longest_running_processor_seconds", NAME,
        "[BETA] How many seconds has the longest running processor for workqueue been running.",
    );
    REQUESTS = Def::counter(
        "rest_client_requests_total", &["code", "method", "host"],
        "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    );
    REQUEST_TIME = Def::histogram(
        "rest_client_request_duration_seconds", VERB_HOST, REQUEST,
        "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    );
    REQUEST_SIZE = Def::histogram(
        "rest_client_request_size_bytes", VERB_HOST, SIZE, "[ALPHA] Request size in bytes. Broken down by verb and host.",
    );
    RESPONSE_SIZE = Def::histogram(
        "rest_client_response_size_bytes", VERB_HOST, SIZE, "[ALPHA] Response size in bytes. Broken down by verb and host.",
    );
    RATE_LIMITED = Def::histogram(
        "rest_client_rate_limiter_duration_seconds", VERB_HOST, REQUEST,
        "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
    );
    REQUEST_RETRIES = Def::counter(
        "rest_client_request_retries_total", &["code", "verb", "host"],
        "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
    );
    LEADER = Def::gauge(
        "leader_election_master_status", NAME,
        "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
    );
    SLOW_PATH = Def::counter(
        "leader_election_slowpath_total", NAME,
        "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
    );
    RUNNING = Def::gauge(
        "running_managed_controllers", &["name", "manager"],
        "[BETA] Indicates where instances of a controller are currently running",
    );
    BUILD_INFO = Def::gauge(
        "kubernetes_build_info",
        &["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"],
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    );
    FEATURES = Def::gauge(
        "kubernetes_feature_enabled", &["name", "stage"],
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    );
    AUTHN_REQUESTS = Def::counter(
        "apiserver_delegated_authn_request_total", CODE, "[ALPHA] Number of HTTP requests partitioned by status code.",
    );
    AUTHN_TIME = Def::histogram(
        "apiserver_delegated_authn_request_duration_seconds", CODE, DELEGATED,
        "[ALPHA] Request latency in seconds. Broken down by status code.",
    );
    AUTHZ_REQUESTS = Def::counter(
        "apiserver_delegated_authz_request_total", CODE, "[ALPHA] Number of HTTP requests partitioned by status code.",
    );
    AUTHZ_TIME = Def::histogram(
        "apiserver_delegated_authz_request_duration_seconds", CODE, DELEGATED,
        "[ALPHA] Request latency in seconds. Broken down by status code.",
    );
    USERS = Def::counter(
        "authenticated_user_requests", &["username"], "[ALPHA] Counter of authenticated requests broken out by username.",
    );
    AUTHN_ATTEMPTS =
        Def::counter("authentication_attempts", RESULT, "[ALPHA] Counter of authenticated attempts.");
    AUTHN_DURATION = Def::histogram(
        "authentication_duration_seconds", RESULT, ACCESS,
        "[ALPHA] Authentication duration in seconds broken out by result.",
    );
    AUTHZ_ATTEMPTS = Def::counter(
        "authorization_attempts_total", RESULT,
        "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
    );
    AUTHZ_DURATION = Def::histogram(
        "authorization_duration_seconds", RESULT, ACCESS,
        "[ALPHA] Authorization duration in seconds broken out by result.",
    );
    TOKEN_CACHE_REQUESTS = Def::counter(
        "authentication_token_cache_request_total", STATUS, "[ALPHA] Tokens asked of the cache, by hit or miss.",
    );
    TOKEN_CACHE_TIME = Def::histogram(
        "authentication_token_cache_request_duration_seconds", STATUS, TOKEN_CACHE,
        "[ALPHA] How long an answer of the cache of tokens took, by hit or miss.",
    );
    TOKEN_FETCHES = Def::counter(
        "authentication_token_cache_fetch_total", STATUS, "[ALPHA] Tokens that were reviewed for the cache, by outcome.",
    );
    TOKEN_FETCHING = Def::gauge(
        "authentication_token_cache_active_fetch_count", STATUS,
        "[ALPHA] Reviews of tokens that are under way (in_flight), and requests that wait for one of another (blocked).",
    );
    CLIENT_CERTIFICATES = Def::histogram(
        "apiserver_client_certificate_expiration_seconds", &[], CERTIFICATE,
        "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
    );
    WEBHOOK_REQUESTS = Def::counter(
        "cloud_provider_webhook_request_total", &["code", "webhook"],
        "[ALPHA] Number of HTTP requests partitioned by status code.",
    );
    WEBHOOK_TIME = Def::histogram(
        "cloud_provider_webhook_request_duration_seconds", &["code", "webhook"], DELEGATED,
        "[ALPHA] Request latency in seconds. Broken down by status code.",
    );
    STEPS = Def::counter(
        "ccm_plan_steps_total", &["verb", "kind", "dry_run"],
        "Steps planned, by verb, kind of object, and whether it was a dry run.",
    );
    REFUSALS = Def::counter("ccm_guard_refusals_total", &["guard"], "Steps that a guard refused, by guard.");
    GATE = Def::counter(
        "ccm_gate_refusals_total", &["target", "reason"], "Writes that the gate refused, by target and reason.",
    );
    CALLS = Def::counter(
        "ccm_provider_calls_total", &["call", "outcome"],
        "Calls of the core to the provider, by call and outcome: ok, or the class of the error.",
    );
    CALL_TIME = Def::histogram(
        "ccm_provider_call_duration_seconds", &["call"], REQUEST, "Duration of the core's calls to the provider.",
    );
    THROTTLED = Def::counter(
        "ccm_provider_throttled_total", &["call"], "Calls to the provider that the cloud answered with a request for fewer calls.",
    );
    OBSERVED = Def::gauge(
        "ccm_observation_age_seconds", &["of"],
        "Time since the cloud was last seen completely, by what was looked at; absent until the first time.",
    );
    STORE_AGE = Def::gauge(
        "ccm_store_age_seconds", &["resource"],
        "Time since the API server last sent anything for the store of a watched resource: a page, an event or a bookmark, which comes once a minute; absent until the first time.",
    );
    OLDEST = Def::gauge("ccm_queue_oldest_seconds", NAME, "How long the oldest key of a queue has been ready and not taken.");
    LEASE = Def::gauge(
        "ccm_lease_state", &["state"], "1 for the state of this process: standby, leading, draining or lost; 0 for the others.",
    );
    PANICS = Def::counter("ccm_panics_total", &["place"], "Panics that were caught, by place.");
    EVENTS = Def::counter("ccm_events_total", &["outcome"], "Events by what became of them.");
    SYNC_ERRORS = Def::counter("ccm_sync_errors_total", &["controller"], "Failed syncs, by controller.");
}

/// What the kernel knows of the process.
pub(super) const PROCESS: &[&Def] = &[
    &Def::counter("process_cpu_seconds_total", &[], "Total user and system CPU time spent in seconds."),
    &Def::gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    &Def::counter(
        "process_network_receive_bytes_total",
        &[],
        "Number of bytes received by the process over the network.",
    ),
    &Def::counter("process_network_transmit_bytes_total", &[], "Number of bytes sent by the process over the network."),
    &Def::gauge("process_open_fds", &[], "Number of open file descriptors."),
    &Def::gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes."),
    &Def::gauge("process_start_time_seconds", &[], "Start time of the process since unix epoch in seconds."),
    &Def::gauge("process_virtual_memory_bytes", &[], "Virtual memory size in bytes."),
    &Def::gauge("process_virtual_memory_max_bytes", &[], "Maximum amount of virtual memory available in bytes."),
];

/// Of `/metrics/slis`.
pub(super) const SLIS: &[&Def] = &[&HEALTHCHECK, &HEALTHCHECKS];
pub(super) const HEALTHCHECK: Def = Def::gauge(
    "kubernetes_healthcheck",
    &["name", "type"],
    "[STABLE] This metric records the result of a single healthcheck.",
);
pub(super) const HEALTHCHECKS: Def = Def::counter(
    "kubernetes_healthchecks_total",
    &["name", "type", "status"],
    "[STABLE] This metric records the results of all healthcheck.",
);
