use std::sync::Arc;

use ccm_controllers::lifecycle;
use ccm_provider::well_known::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use ccm_provider::{
    CloudConfig, CloudProvider, NodeTaskSpec, ProviderError, ProviderFactory, ServiceControllerSpec, TaintEffect,
    TaintId,
};

use super::*;
use crate::webhook::{AdmissionHandler, AdmissionRequest, AdmissionResponse};

fn options(args: &[&str]) -> Result<Options, String> {
    Options::from_args(["--cloud-provider=fake"].iter().chain(args)).map_err(|failure| failure.message)
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_go_program() {
    let wrong = [
        "--cloud-provider=",
        "--webhooks=x",
        "--webhook-secure-port=80",
        "--secure-port=80",
        "--controllers=-foo,bar,-*",
        "--leader-elect-resource-lock=endpoints",
        "--concurrent-service-syncs=0",
        "--logging-format=xml",
    ];
    assert_eq!(
        options(&wrong).unwrap_err(),
        "[format: Invalid value: \"xml\": Unsupported log format, \
         resourceLock value must be \"leases\", \
         \"foo\" is not in the list of known controllers, \
         \"bar\" is not in the list of known controllers, \
         \"*\" is not in the list of known controllers, \
         concurrent-service-syncs must be a positive number, \
         \"x\" is not in the list of known webhooks, \
         --webhook-secure-port cannot be the same value as --secure-port, \
         --cloud-provider cannot be empty]"
    );
}

#[test]
fn each_error_is_reported_once() {
    let wrong = ["--controllers=foo,-foo", "--webhooks=x,-x"];
    assert_eq!(
        options(&wrong).unwrap_err(),
        "[\"foo\" is not in the list of known controllers, \"x\" is not in the list of known webhooks]"
    );
    assert_eq!(options(&["--controllers=foo,-foo"]).unwrap_err(), "\"foo\" is not in the list of known controllers");
}

#[test]
fn a_platform_is_the_scheme_of_provider_ids() {
    let gate = "--feature-gates=CloudProviderNodeOwnership=true";
    assert_eq!(options(&[gate, "--cloud-provider-platforms=a,*"]).unwrap().platforms, ["a", "*"]);
    for platform in ["a://", " ", "a b", ",a"] {
        let error = options(&[gate, &format!("--cloud-provider-platforms={platform}")]).unwrap_err();
        assert!(error.starts_with("--cloud-provider-platforms contains invalid platform identifier"), "{error}");
    }
    let error = options(&["--node-lifecycle-wait-timeout=-1s"]).unwrap_err();
    assert!(error.contains("--node-lifecycle-wait-timeout"), "{error}");
}

#[test]
fn each_limit_is_said_with_the_name_of_its_flag() {
    let rows = [
        (
            "--secure-port=70000",
            "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
        ),
        ("--secure-port=-1", "--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port"),
        (
            "--webhook-secure-port=70000",
            "--webhook-secure-port 70000 must be between 0 and 65535, inclusive. A value of 0 disables the webhook \
             endpoint entirely.",
        ),
        ("--webhook-secure-port=10258", "--webhook-secure-port cannot be the same value as --secure-port"),
        ("--concurrent-node-syncs=0", "concurrent-node-syncs must be a positive number"),
        ("--concurrent-node-syncs=-1", "concurrent-node-syncs must be a positive number"),
        ("--concurrent-node-lifecycle-syncs=0", "concurrent-node-lifecycle-syncs must be at least 1, but got 0"),
        ("--concurrent-node-lifecycle-syncs=-2", "concurrent-node-lifecycle-syncs must be at least 1, but got -2"),
        (
            "--cloud-provider-platforms=a",
            "--cloud-provider-platforms requires the CloudProviderNodeOwnership feature gate to be enabled",
        ),
        ("--concurrent-node-status-updates=-1", "concurrent-node-status-updates cannot be a negative number"),
        ("--concurrent-service-syncs=-1", "concurrent-service-syncs must be a positive number"),
        ("--drift-repair", "--drift-repair needs --drift-check-period, which is 0: give the time between two checks"),
        ("--node-monitor-period=0", "--node-monitor-period must be greater than 0"),
        ("--node-deletion-budget=-1", "--node-deletion-budget -1 cannot be negative"),
        ("--leader-elect-lease-duration=5s", "leaseDuration must be greater than renewDeadline"),
        ("--log-text-split-stream", "options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"),
    ];
    for (arg, expected) in rows {
        assert_eq!(options(&[arg]).unwrap_err(), expected, "{arg}");
    }
}

#[test]
fn both_ports_may_be_switched_off() {
    let options = options(&["--secure-port=0", "--webhook-secure-port=0"]).unwrap();
    assert_eq!((options.serving.port, options.webhook_serving.port), (0, 0));
}

#[test]
fn election_times_are_checked_only_when_electing() {
    assert!(options(&["--leader-elect-renew-deadline=20s"]).is_err());
    assert!(options(&["--leader-elect-renew-deadline=20s", "--leader-elect=false"]).unwrap().election.is_none());
    assert!(options(&["--leader-elect-resource-lock=endpoints", "--leader-elect=false"]).is_ok());
}

#[test]
fn limits_that_are_not_given_are_left_to_the_pace() {
    let options = options(&["--concurrent-node-status-updates=0"]).unwrap();
    let mut check = Check { values: &options.values, gates: options.gates, errors: Vec::new(), classes: Vec::new() };
    assert_eq!(check.at_least_one("concurrent-node-syncs"), None);
    assert_eq!(check.workers_or_none("concurrent-node-status-updates"), None);
    let (nodes, percent) =
        (check.not_negative("node-deletion-budget"), check.not_negative("node-deletion-budget-percent"));
    assert_eq!(lifecycle::decide::Budget { nodes, percent }, lifecycle::decide::Budget::DEFAULT);
    assert_eq!(options.clients.rate, None);
}

#[test]
fn the_rate_of_clients_counts_only_when_it_is_given() {
    let rate = |args: &[&str]| options(args).unwrap().clients.rate.map(|rate| (rate.qps, rate.burst));
    assert_eq!(rate(&["--kube-api-qps=50", "--kube-api-burst=100"]), Some((50.0, 100)));
    assert_eq!(rate(&["--kube-api-qps=50"]), Some((50.0, 30)));
    assert_eq!(rate(&["--kube-api-burst=100"]), Some((20.0, 100)));
    assert_eq!(rate(&["--kube-api-qps=0", "--kube-api-burst=0"]), Some((5.0, 10)));
    assert_eq!(rate(&["--kube-api-qps=-1"]), None);
}

#[test]
fn a_value_without_effect_is_logged_once() {
    assert_eq!(options(&[]).unwrap().warnings, [""; 0]);
    let found = options(&[
        "--feature-gates=CloudDualStackNodeIPs=true,WatchList=false",
        "--kube-api-content-type=application/vnd.kubernetes.protobuf",
    ]);
    let warnings = found.unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "feature gates that have no effect in this program: CloudDualStackNodeIPs, WatchList",
            "--kube-api-content-type=application/vnd.kubernetes.protobuf is accepted and has no effect: requests are \
             application/json",
        ]
    );
    assert_eq!(options(&["--kube-api-content-type=application/json"]).unwrap().warnings, [""; 0]);
}

#[test]
fn the_migration_counts_only_with_its_flag_and_an_election() {
    assert_eq!(options(&["--leader-migration-config=/nonexistent"]).unwrap().migration, None);
    assert_eq!(options(&["--enable-leader-migration", "--leader-elect=false"]).unwrap().migration, None);
    assert_eq!(options(&["--enable-leader-migration"]).unwrap().migration, Some(Migration::default()));
    let error = options(&["--enable-leader-migration", "--leader-migration-config=/nonexistent"]).unwrap_err();
    assert!(error.starts_with("unable to read leader migration configuration from \"/nonexistent\": "), "{error}");
    let same = ["--enable-leader-migration", "--leader-elect-resource-name=cloud-provider-extraction-migration"];
    assert!(options(&same).unwrap_err().contains("is the name of the main lease too"));
}

#[test]
fn the_commands_of_a_dry_run_know_the_lease_and_migrated_controllers_are_left_to_others() {
    let found = options(&["--dry-run", "--leader-elect=true", "--enable-leader-migration"]).unwrap();
    assert_eq!((found.election.is_some(), found.migration), (true, Some(Migration::default())));
    assert!(
        options(&["--dry-run", "--leader-elect-renew-deadline=20s"]).is_err(),
        "what is wrong without --dry-run is wrong"
    );
}

#[test]
fn conditions_of_services_are_off_unless_asked_for() {
    assert!(!options(&[]).unwrap().gates.service_conditions);
    assert!(options(&["--feature-gates=ServiceLoadBalancerConditions=true"]).unwrap().gates.service_conditions);
}

#[test]
fn logging_flags_reach_the_logging() {
    let options = options(&[
        "--v=4",
        "--vmodule=a=1",
        "--vmodule=b=2",
        "--log-flush-frequency=1s",
        "--feature-gates=LoggingAlphaOptions=true",
        "--log-text-split-stream",
        "--log-text-info-buffer-size=1Ki",
    ]);
    let logging = options.unwrap().logging;
    assert_eq!((logging.verbosity, logging.vmodule.len(), logging.flush_frequency), (4, 2, Duration::from_secs(1)));
    assert_eq!(logging.text, Routing { split_stream: true, info_buffer_size: 1024 });
}

#[test]
fn webhooks_need_the_gate() {
    struct Refuses;
    #[async_trait::async_trait]
    impl AdmissionHandler for Refuses {
        async fn admit(&self, _: AdmissionRequest) -> Result<Option<AdmissionResponse>, String> {
            Ok(None)
        }
    }
    let webhook = Webhook::new("pv", "/pv", Refuses);
    let program = Program { webhooks: vec![webhook], ..Program::default() };
    let on = |args: &[&str]| {
        let args = ["ccm", "--cloud-provider=fake"].iter().chain(args).map(OsString::from);
        let Ok(Asked::Run(values)) = parse::parse(&program, args) else { panic!("not accepted") };
        let options = Options::new(&values, &program).unwrap();
        (options.webhooks.iter().map(|webhook| webhook.name).collect::<Vec<_>>(), options.warnings.join("; "))
    };
    let nothing = |why: &str| (vec![], format!("--webhooks has no effect {why}: no webhook is served"));
    let gate = "--feature-gates=CloudControllerManagerWebhook=true";
    let silent = |webhooks: &[&'static str]| (webhooks.to_vec(), String::new());
    assert_eq!(on(&["--webhooks=*"]), nothing("without --feature-gates=CloudControllerManagerWebhook=true"));
    assert_eq!(on(&["--webhooks=-pv"]), silent(&[]));
    assert_eq!(on(&[gate]), silent(&[]));
    assert_eq!(on(&[gate, "--webhooks=*"]), silent(&["pv"]));
    assert_eq!(on(&[gate, "--webhooks=*,-pv"]), silent(&[]));
    let (webhooks, warning) = on(&[gate, "--webhooks=pv", "--webhook-secure-port=0"]);
    assert_eq!((webhooks, warning), (vec!["pv"], nothing("with --webhook-secure-port=0").1));
}

#[test]
fn a_reported_version_replaces_the_own_one() {
    assert_eq!(options(&[]).unwrap().version, crate::version::VERSION);
    let version = format!("{}-eks", crate::version::VERSION);
    assert_eq!(options(&[&format!("--version={version}")]).unwrap().version, version);
}

/// Has its own service controller, and enables node IPAM by default.
struct Brings;

#[async_trait::async_trait]
impl ProviderFactory for Brings {
    fn name(&self) -> &'static str {
        "x"
    }
    fn service_controllers(&self) -> &'static [ServiceControllerSpec] {
        &[ServiceControllerSpec {
            name: "x-service-lb-controller",
            aliases: &["x-service"],
            client_name: "x-service-controller",
            classes: &["example.com/a", "example.com/b"],
            metrics_prefix: "x",
        }]
    }
    fn on_by_default(&self) -> &'static [&'static str] {
        &["node-ipam-controller"]
    }
    fn absent_controllers(&self) -> &'static [&'static str] {
        &["x-tenant", "x-params"]
    }
    async fn build(&self, _: Option<CloudConfig>, _: &FlagValues) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        Err(ProviderError::unknown("no cloud"))
    }
}

#[test]
fn controllers_of_the_replaced_program_are_known_and_have_no_effect() {
    let mut registry = Registry::new();
    registry.register(Arc::new(Brings)).unwrap();
    let names = |args: &[&str]| {
        let options = Options::with_providers(&registry, args).unwrap();
        (options.switched_on().map(|known| known.name).collect::<Vec<_>>(), options.warnings)
    };
    let usual = names(&["--cloud-provider=x"]);
    assert_eq!(names(&["--cloud-provider=x", "--controllers=*,-x-tenant"]), usual);
    let warning = "--controllers enables \"x-params\", which this program does not have: no effect".to_owned();
    assert_eq!(names(&["--cloud-provider=x", "--controllers=*,x-params"]), (usual.0, vec![warning]));
}

#[test]
fn controllers_of_a_provider_are_on_with_that_provider_only() {
    let mut registry = Registry::new();
    registry.register(Arc::new(Brings)).unwrap();
    let check = |args: &[&str], wanted: &[&str], classes: &[&str]| {
        let options = Options::with_providers(&registry, args).unwrap();
        let on: Vec<_> = options.switched_on().map(|known| known.name).collect();
        let found: Vec<_> =
            ["node-ipam-controller", "x-service-lb-controller"].into_iter().filter(|name| on.contains(name)).collect();
        assert_eq!(found, wanted, "{args:?}");
        assert_eq!(options.classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), classes, "{args:?}");
    };
    let both = ["node-ipam-controller", "x-service-lb-controller"];
    check(&["--cloud-provider=x"], &both[..1], &[]);
    check(&["--cloud-provider=x", "--controllers=*,-nodeipam"], &[], &[]);
    check(&["--cloud-provider=x", "--controllers=*,-node-ipam"], &[], &[]);
    check(&["--cloud-provider=x", "--controllers=*,x-service"], &both, &["example.com/a", "example.com/b"]);
    check(&["--cloud-provider=x", "--controllers=service"], &[], &[]);
    check(&["--cloud-provider=y"], &[], &[]);
    // The flag names it, but it does not start with this provider: no controller handles its classes.
    check(&["--cloud-provider=y", "--controllers=*,x-service"], &both[1..], &[]);
}

struct Tainting(&'static str, &'static [NodeTaskSpec]);

#[async_trait::async_trait]
impl ProviderFactory for Tainting {
    fn name(&self) -> &'static str {
        self.0
    }
    fn node_tasks(&self) -> &'static [NodeTaskSpec] {
        self.1
    }
    async fn build(&self, _: Option<CloudConfig>, _: &FlagValues) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        Err(ProviderError::unknown("no cloud"))
    }
}

const fn tainting(name: &'static str, taints: &'static [TaintId]) -> NodeTaskSpec {
    NodeTaskSpec { name, aliases: &[], queue: name, on_by_default: true, taints, check: |_| Vec::new() }
}

const OUT: TaintId = TaintId { key: "x.io/out", effect: TaintEffect::NoExecute };
const OTHER_EFFECT: TaintId = TaintId { effect: TaintEffect::NoSchedule, ..OUT };
const ONE: &[NodeTaskSpec] = &[tainting("a", &[OUT]), tainting("b", &[OTHER_EFFECT])];
const SAME: &[NodeTaskSpec] = &[tainting("c", &[OUT])];
const TWO: &[NodeTaskSpec] = &[tainting("a", &[OUT]), tainting("b", &[OUT])];
const INITIALIZED: &[NodeTaskSpec] = &[tainting("a", &[TaintId { key: TAINT_UNINITIALIZED, ..OUT }])];
const STOPPED: &[NodeTaskSpec] = &[tainting("a", &[TaintId { key: TAINT_SHUTDOWN, ..OUT }])];

#[test]
fn a_taint_has_one_owner_in_the_program() {
    let refused = |tasks, other| {
        let mut registry = Registry::new();
        registry.register(Arc::new(Tainting("x", tasks))).unwrap();
        registry.register(Arc::new(Tainting("y", other))).unwrap();
        Options::with_providers(&registry, ["--cloud-provider=x"]).err().map(|failure| failure.message)
    };
    // Only one of the providers runs.
    assert_eq!(refused(ONE, SAME), None);
    for (tasks, taint) in [(TWO, OUT.key), (INITIALIZED, TAINT_UNINITIALIZED), (STOPPED, TAINT_SHUTDOWN)] {
        assert_eq!(refused(tasks, &[]), Some(format!("the taint {taint}:NoExecute was registered twice")));
    }
}
