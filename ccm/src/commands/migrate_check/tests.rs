//! What follows from what was read.

#![expect(clippy::needless_pass_by_value, reason = "literals at all callers")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_controllers::preview::Unplanned;
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    Change, Check, Evidence, EvidenceKind, Finding, Instance, Lookup, Node, Plan, ProviderError, Risk, Schemes,
    Service, Severity, Step, Taint, Verb,
};
use ccm_runtime::SyncError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::objects::{Lease, Pod};
use super::running::{Found, Running};
use super::*;
use crate::options::Options;
use crate::program::Program;

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn options(more: &[&str]) -> Options {
    Options::from_args(["--cloud-provider=fake"].iter().chain(more)).unwrap()
}

/// `error check subject`, sorted as printed.
fn lines(checks: Vec<Check>) -> Vec<String> {
    let line = |check: Check| format!("{} {} {}", check.severity.as_str(), check.check, check.subject);
    sorted(checks).into_iter().map(|check| line(check).trim_end().to_owned()).collect()
}

fn only(checks: Vec<Check>, word: &str) -> Check {
    let mut found: Vec<Check> = checks.into_iter().filter(|check| check.check == word).collect();
    assert_eq!(found.len(), 1, "{word}: {found:?}");
    found.remove(0)
}

fn pod(name: &str, spec: Value) -> Pod {
    of(json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}))
}

fn running(pods: &[Pod]) -> Vec<Running> {
    let mut found = Found::default();
    pods.iter().for_each(|pod| found.add(pod));
    found.finish()
}

fn runs(command: &[&str]) -> Value {
    json!({"hostNetwork": true, "containers": [{"command": command}]})
}

fn flags_of(pods: &[Pod], more: &[&str]) -> Vec<Check> {
    let options = options(more);
    let routes = options.values.bool("configure-cloud-routes");
    let runs = |name: &str| name != ccm_controllers::route::NAME || routes;
    flags::checks(&running(pods), &flags::Ours { program: &Program::default(), options: &options, runs: &runs })
}

#[test]
fn flags_of_routes_do_not_matter_where_the_cloud_has_none() {
    let pods =
        [controller_manager(&["--cloud-provider=fake", "--configure-cloud-routes=false", "--controllers=*,-route"])];
    let options = options(&["--cluster-cidr=10.9.0.0/16"]);
    let messages_if = |routes: bool| {
        let runs = |name: &str| name != ccm_controllers::route::NAME || routes;
        let ours = flags::Ours { program: &Program::default(), options: &options, runs: &runs };
        flags::checks(&running(&pods), &ours).into_iter().map(|check| check.message).collect::<Vec<_>>().join("\n")
    };
    let words = [
        "would start: node-route-controller",
        "this program would make routes",
        "--cluster-cidr=10.1.0.0/16, and here",
    ];
    for word in words {
        assert!(messages_if(true).contains(word) && !messages_if(false).contains(word), "{word}");
    }
}

/// As kubeadm writes it, with what the in-tree providers needed.
fn controller_manager(more: &[&str]) -> Pod {
    let command =
        ["kube-controller-manager", "--allocate-node-cidrs=true", "--cluster-cidr=10.1.0.0/16", "--leader-elect=true"];
    pod("kube-controller-manager-a", runs(&[&command, more].concat()))
}

fn api_server(more: &[&str]) -> Pod {
    pod("kube-apiserver-a", runs(&[&["kube-apiserver", "--enable-admission-plugins=NodeRestriction"], more].concat()))
}

fn cloud_controller(more: &[&str]) -> Pod {
    pod("aws-ccm-a", runs(&[&["/bin/aws-cloud-controller-manager", "--cloud-provider=fake"], more].concat()))
}

const NO_ROUTES: &str = "--configure-cloud-routes=false";

#[test]
fn flags_of_an_in_tree_cloud_are_reported_with_the_fix() {
    let pods = [
        controller_manager(&["--cloud-provider=aws", "--cluster-name=prod", "--enable-leader-migration"]),
        api_server(&[
            "--cloud-provider=aws",
            "--cloud-config=/etc/x",
            "--enable-admission-plugins=PersistentVolumeLabel",
        ]),
    ];
    let checks = sorted(flags_of(&pods, &[NO_ROUTES]));
    let expected = "\
error    cloud-provider     pod kube-system/kube-apiserver-a: kube-apiserver has --cloud-provider=aws: newer versions do not know the flag and stop at their start -> take --cloud-provider out
error    cloud-provider     pod kube-system/kube-controller-manager-a: --cloud-provider is aws there and fake here: another cloud -> give --cloud-provider=aws here too, unless the change is intended
error    cloud-provider     pod kube-system/kube-controller-manager-a: kube-controller-manager has --cloud-provider=aws: it looks after nodes, routes and Services itself, and newer versions stop at such a flag -> give it --cloud-provider=external before this program leads
error    cluster-name       pod kube-system/kube-controller-manager-a: kube-controller-manager has --cluster-name=prod, and here it is kubernetes: names and marks in the cloud are made of it -> give --cluster-name=prod
warning  admission-plugins  pod kube-system/kube-apiserver-a: kube-apiserver has the admission plugin PersistentVolumeLabel, which newer versions do not know and stop at -> take it out of --enable-admission-plugins: what it did is the work of persistentvolume-label-controller
warning  cloud-provider     pod kube-system/kube-apiserver-a: kube-apiserver has --cloud-config=/etc/x: newer versions do not know the flag and stop at their start -> take --cloud-config out
warning  leader-migration   pod kube-system/kube-controller-manager-a: kube-controller-manager runs with --enable-leader-migration, and this program would not share its second lease -> give --enable-leader-migration, with the same --leader-migration-config, until kube-controller-manager has no cloud any more

4 errors, 3 warnings, 0 good or good to know.
";
    assert_eq!(text(&checks, Output::plain(Format::Text)), expected);
    let document = json(&checks);
    assert_eq!((&document["errors"], &document["warnings"]), (&json!(4), &json!(3)));
    assert_eq!(
        document["checks"][3],
        json!({"severity": "error", "check": "cluster-name", "subject": "pod kube-system/kube-controller-manager-a",
            "message": "kube-controller-manager has --cluster-name=prod, and here it is kubernetes: names and marks in the cloud are made of it",
            "fix": "give --cluster-name=prod"})
    );
}

#[test]
fn flags_of_an_in_tree_cloud_are_compared_with_the_flags_here() {
    let in_tree = |theirs: &[&str], ours: &[&str]| {
        let pods = [controller_manager(&[&["--cloud-provider=fake"], theirs].concat())];
        let checks = flags_of(&pods, &[&["--cluster-cidr=10.1.0.0/16"], ours].concat());
        let found = checks.into_iter().filter(|check| check.severity > Severity::Info);
        found.map(|check| format!("{} {} {}", check.severity.as_str(), check.check, check.message)).collect::<Vec<_>>()
    };
    // The only finding: the cloud provider runs in kube-controller-manager.
    assert_eq!(in_tree(&[], &[]).len(), 1);
    assert_eq!(in_tree(&["--concurrent-service-syncs=5"], &["--concurrent-service-syncs=5"]).len(), 1);
    assert_eq!(
        in_tree(&["--controllers=*,-service,-ttl,-bootstrapsigner", "--route-reconciliation-period=1m"], &[])[1..],
        [
            "warning controllers --controllers is *,-service there and * here; would start: service-lb-controller",
            "warning flag-value --route-reconciliation-period is 1m0s there and 10s here",
        ]
    );
    let mut routes = in_tree(&["--configure-cloud-routes=false"], &[]);
    assert_eq!(
        routes.remove(1),
        "warning routes --configure-cloud-routes is false there and true here: this program would make routes"
    );
    assert_eq!(routes.len(), 1);
    assert_eq!(
        in_tree(&[], &["--cluster-name=prod"])[1..],
        [
            "error cluster-name kube-controller-manager has --cluster-name=kubernetes, and here it is prod: names and marks in the cloud are made of it"
        ],
        "the default is a name too"
    );
    assert_eq!(
        in_tree(&["--cloud-config=/etc/cloud.conf", "--node-monitor-period=5"], &[])[1..],
        [
            "warning flag-value kube-controller-manager has a value that this program would not take: invalid argument \"5\" for \"--node-monitor-period\" flag: time: missing unit in duration \"5\"",
            "warning cloud-config --cloud-config is /etc/cloud.conf there and not set here: one works without a file",
        ]
    );
}

#[test]
fn what_differs_from_the_running_program_is_reported_flag_by_flag() {
    let theirs = [
        "--port=0",
        "--cluster-name=prod",
        "--cluster-cidr=10.2.0.0/16",
        "--leader-elect-resource-name=mine",
        "--controllers=*,-route,nodes",
        "--node-monitor-period=10s",
        "--cloud-config=/etc/cloud.conf",
    ];
    let checks =
        flags_of(&[cloud_controller(&theirs)], &["--cluster-cidr=10.1.0.0/16", "--concurrent-service-syncs=5"]);
    assert_eq!(
        lines(checks.clone())[..9],
        [
            "error cluster-name pod kube-system/aws-ccm-a",
            "error flags pod kube-system/aws-ccm-a",
            "error leader-election pod kube-system/aws-ccm-a",
            "error pod-ranges pod kube-system/aws-ccm-a",
            "warning cloud-config pod kube-system/aws-ccm-a",
            "warning controllers pod kube-system/aws-ccm-a",
            "warning flag-value pod kube-system/aws-ccm-a",
            "warning flag-value pod kube-system/aws-ccm-a",
            "info unseen kube-apiserver",
        ]
    );
    let flag = only(checks.clone(), "flags");
    assert!(flag.message.contains("unknown flag: --port (removed in Kubernetes 1.24"), "{flag:?}");
    let controllers = only(checks.clone(), "controllers").message;
    assert!(controllers.contains("would start: node-route-controller; \"nodes\" is not in the list"), "{controllers}");
    let election = only(checks.clone(), "leader-election").message;
    assert_eq!(
        election,
        "its lease is kube-system/mine, and here it would be kube-system/cloud-controller-manager: both would work at once"
    );
    let values: Vec<String> =
        checks.into_iter().filter(|c| c.check == "flag-value").map(|c| c.message + " -> " + &c.fix).collect();
    assert_eq!(
        values,
        [
            "--node-monitor-period is 10s there and 5s here -> give --node-monitor-period=10s here too, unless the change is intended",
            "--concurrent-service-syncs is not set there and 5 here -> leave --concurrent-service-syncs out here, unless the change is intended",
        ]
    );
}

#[test]
fn two_programs_without_a_common_lease_are_an_error_and_a_trial_is_none() {
    let election = |theirs: &[&str], ours: &[&str]| {
        let checks = flags_of(&[cloud_controller(&[theirs, &[NO_ROUTES]].concat())], &[ours, &[NO_ROUTES]].concat());
        checks
            .into_iter()
            .filter(|check| check.check == "leader-election")
            .map(|check| check.severity)
            .collect::<Vec<_>>()
    };
    assert_eq!(election(&[], &[]), []);
    assert_eq!(election(&["--leader-elect=false"], &[]), [Severity::Error]);
    assert_eq!(election(&[], &["--leader-elect=false"]), [Severity::Error]);
    assert_eq!(election(&["--leader-elect-resource-namespace=x"], &[]), [Severity::Error]);
    assert_eq!(election(&["--leader-elect-resource-name=x"], &["--leader-elect-resource-name=x"]), []);
    assert_eq!(election(&["--dry-run", "--leader-elect-resource-name=x"], &[]), [Severity::Info]);
}

#[test]
fn pod_ranges_come_from_one_component_and_are_the_same_everywhere() {
    let ranges = |theirs: &[&str], ours: &[&str]| {
        let checks = flags_of(&[controller_manager(theirs)], ours);
        checks.into_iter().filter(|check| check.check == "pod-ranges").map(|check| check.message).collect::<Vec<_>>()
    };
    let ipam = ["--controllers=*,nodeipam", "--allocate-node-cidrs=true", "--cluster-cidr=10.1.0.0/16", NO_ROUTES];
    assert!(ranges(&[], &ipam)[0].contains("nodes would get two"));
    assert_eq!(ranges(&["--controllers=*,-nodeipam"], &ipam), Vec::<String>::new());
    let other = ranges(&["--controllers=*,-nodeipam", "--node-cidr-mask-size=25"], &ipam);
    assert_eq!(other, ["kube-controller-manager has --node-cidr-mask-size=25, and here it is 0"]);
    assert_eq!(ranges(&[], &["--cluster-cidr=10.1.0.0/16"]), Vec::<String>::new());
    assert_eq!(
        ranges(&[], &["--cluster-cidr=10.9.0.0/16"]),
        ["kube-controller-manager has --cluster-cidr=10.1.0.0/16, and here it is 10.9.0.0/16"]
    );
    assert!(ranges(&["--allocate-node-cidrs=false"], &["--cluster-cidr=10.1.0.0/16"])[0].starts_with("neither"));
    assert_eq!(ranges(&["--allocate-node-cidrs=false"], &[NO_ROUTES]), Vec::<String>::new(), "nobody needs them");
}

#[test]
fn pods_must_start_where_nothing_is_initialized_yet() {
    let account = "system:serviceaccount:kube-system:cloud-controller-manager";
    let check = |pod: Pod| lines(pods::checks(&running(&[pod]), account));
    let with = |tolerations: Value, network: bool| {
        pod(
            "x",
            json!({"containers": [{"command": ["cloud-controller-manager"]}], "hostNetwork": network, "tolerations": tolerations,
            "serviceAccountName": "cloud-controller-manager"}),
        )
    };
    let aws = json!([{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
    assert_eq!(check(with(aws, true)), Vec::<String>::new());
    assert_eq!(check(with(json!([{"operator": "Exists"}]), true)), Vec::<String>::new());
    let other = json!([{"key": TAINT_UNINITIALIZED, "value": "false"}, {"key": "x", "operator": "Exists"},
        {"key": TAINT_UNINITIALIZED, "operator": "Exists", "effect": "NoExecute"}]);
    assert_eq!(
        check(with(other, false)),
        ["error toleration pod kube-system/x", "warning host-network pod kube-system/x"]
    );
    let mut mirror = with(json!([]), true);
    mirror.metadata.owner_references = of(json!([{"kind": "Node"}]));
    assert_eq!(check(mirror), Vec::<String>::new(), "nobody schedules it");
    let mut named = with(json!([{"operator": "Exists"}]), true);
    named.spec.service_account_name = "aws".into();
    assert_eq!(check(named), ["info rbac pod kube-system/x"]);
}

fn node(name: &str, id: Option<&str>) -> Node {
    Node { name: name.into(), provider_id: id.map(Into::into), ready: Some(ConditionStatus::True), ..Node::default() }
}

fn previewed(plans: Vec<Plan>) -> Previewed {
    Previewed { plans, unplanned: Vec::new(), warnings: Vec::new(), skipped: Vec::new() }
}

fn step(verb: Verb, kind: &'static str, id: &str, risk: Risk) -> Step {
    Step { verb, kind: kind.into(), id: id.into(), changes: Vec::new(), reason: "test".into(), risk }
}

fn here() -> Lookup {
    Lookup::Found(Arc::new(Instance { shutdown: Ok(false), metadata: Ok(None) }))
}

fn gone() -> Lookup {
    let (kind, read_began) = (EvidenceKind::Absent, SystemTime::UNIX_EPOCH);
    Lookup::Gone(Evidence { kind, read_began, grace: Duration::ZERO })
}

fn of_nodes(nodes: Vec<(Node, Lookup)>, plans: Vec<Plan>) -> Vec<Check> {
    let (nodes, answers): (Vec<NodeRef>, Vec<Lookup>) =
        nodes.into_iter().map(|(node, answer)| (Arc::new(node), answer)).unzip();
    let previewed = previewed(plans);
    nodes::checks(&nodes::Nodes {
        nodes: &nodes,
        answers: Some(&answers),
        schemes: Schemes::new(["fake"]),
        previewed: &previewed,
    })
}

#[test]
fn nodes_that_the_cloud_does_not_know_are_errors_and_foreign_ones_warnings() {
    let labelled =
        Node { labels: [("topology.kubernetes.io/zone", "a")].into_iter().collect(), ..node("labelled", None) };
    let doomed = Node { ready: Some(ConditionStatus::False), ..node("doomed", Some("fake://doomed")) };
    let taint =
        Taint { key: TAINT_UNINITIALIZED.into(), value: "true".into(), effect: "NoSchedule".into(), time_added: None };
    let waiting = Node { taints: [taint].into(), ..node("waiting", None) };
    let nodes = vec![
        (node("good", Some("fake://good")), here()),
        (node("other", Some("aws:///x/i-1")), Lookup::Foreign),
        (node("bare", None), here()),
        (labelled, here()),
        (node("lost", Some("fake://lost")), gone()),
        (doomed, gone()),
        (node("dark", Some("fake://dark")), Lookup::Unknown(ProviderError::InstanceNotFound)),
        (waiting, here()),
    ];
    let plans = vec![Plan::new("node doomed").with(step(Verb::Delete, "Node", "doomed", Risk::None))];
    assert_eq!(
        lines(of_nodes(nodes, plans)),
        [
            "error kubelet node bare",
            "error node-deletion node doomed",
            "error node-instance node dark",
            "error node-instance node lost",
            "error node-uninitialized node waiting",
            "warning node-provider-id node labelled",
            "warning node-provider-id node other",
        ]
    );
}

#[test]
fn what_many_nodes_share_is_one_line_with_an_example() {
    let names = ["a", "b", "c", "d", "e"];
    let nodes = || names.map(|name| (node(name, Some(&format!("fake://{name}"))), here())).to_vec();
    let plan = |name: &&str| {
        let change =
            Change { field: "status.addresses".into(), before: None, after: Some(format!("InternalIP={name}")) };
        let update = step(Verb::Update, "Node", name, Risk::None);
        Plan::new(format!("node {name} addresses")).with(Step { changes: vec![change], ..update })
    };
    let check = only(of_nodes(nodes(), names.iter().map(plan).collect()), "node-addresses");
    assert_eq!(
        (check.subject.as_str(), check.message.as_str()),
        ("node a, b, c and 2 more", "addresses would change, on 5 nodes; the first: status.addresses = InternalIP=a")
    );
    assert_eq!(lines(of_nodes(nodes(), Vec::new())), ["info nodes"]);
    let foreign = names.map(|name| (node(name, Some("aws://x")), Lookup::Foreign)).to_vec();
    assert_eq!(
        lines(of_nodes(foreign, Vec::new())),
        ["error node-provider-id", "warning node-provider-id node a, b, c and 2 more"],
        "no node at all is of this cloud"
    );
}

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn service(name: &str, finalizers: &[&str], spec: Value, ip: Option<&str>) -> Arc<Service> {
    let ingress: Vec<Value> = ip.iter().map(|ip| json!({"ip": ip})).collect();
    Arc::new(of(json!({"metadata": {"namespace": "default", "name": name, "finalizers": finalizers}, "spec": spec,
        "status": {"loadBalancer": {"ingress": ingress}}})))
}

#[test]
fn what_keeps_many_from_being_planned_is_one_line() {
    let unplanned = |subject: &str, error: &str| Unplanned {
        subject: subject.into(),
        error: SyncError::Terminal(error.to_owned()),
    };
    let all = ["service a/a", "service a/b", "service a/c", "service a/d", "node n", "routes"];
    let mut unplanned: Vec<Unplanned> = all.map(|subject| unplanned(subject, "no right")).into();
    unplanned.push(Unplanned { subject: "service a/e".into(), error: SyncError::Terminal("another".into()) });
    let checks = services::others(&Previewed { unplanned, ..previewed(Vec::new()) }, |_| false);
    assert_eq!(
        lines(checks),
        [
            "error plan node n",
            "error plan routes",
            "error plan service a/a, a/b, a/c and 1 more",
            "error plan service a/e",
        ]
    );
}

#[test]
fn what_a_provider_says_of_many_nodes_alike_is_one_line() {
    let of = |name: &str, text: &str| Check::error("instances", format!("node {name}"), text, "list it");
    let lease = |name: &str| Check::good("lease", format!("lease {name}"), "nobody holds it");
    let checks =
        vec![of("d", "no"), of("a", "no"), of("b", "other"), of("c", "no"), of("e", "no"), lease("x"), lease("y")];
    assert_eq!(
        lines(checks),
        [
            "error instances node b",
            "error instances node d, a, c and 1 more",
            "info lease lease x",
            "info lease lease y",
        ]
    );
}

#[test]
fn an_error_of_the_cloud_has_its_own_fix() {
    let denied = ProviderError::new(ccm_provider::ErrorClass::Denied { action: "ec2:DescribeInstances".into() }, "no");
    let check =
        only(of_nodes(vec![(node("a", Some("fake://a")), Lookup::Unknown(denied))], Vec::new()), "node-instance");
    assert_eq!(check.fix, "grant ec2:DescribeInstances to the identity of the controller manager");
    let unclear = Lookup::Unknown(ProviderError::InstanceNotFound);
    let check = only(of_nodes(vec![(node("a", Some("fake://a")), unclear)], Vec::new()), "node-instance");
    assert!(check.fix.starts_with("see that name and provider ID"), "{check:?}");
}

#[test]
fn a_mistake_in_a_service_is_reported_once() {
    let services = [service("web", &[], json!({"type": "LoadBalancer"}), None)];
    let mistake = Finding { value: Some("x".into()), ..Finding::new(Severity::Error, "a/b", "no number") };
    let checks = services::checks(&services, &|_| vec![mistake.clone()], &previewed(Vec::new()), true, &[]);
    let unplanned = |subject: &str, error: &str| Unplanned {
        subject: subject.into(),
        error: SyncError::Terminal(error.to_owned()),
    };
    let cause = |unplanned: &Unplanned| checks.iter().any(|check| services::is_cause(check, unplanned));
    assert!(cause(&unplanned("service default/web", "failed to plan: a/b \"x\": no number")));
    assert!(!cause(&unplanned("service default/web", "the cloud does not answer")));
    assert!(!cause(&unplanned("service default/other", "failed to plan: a/b \"x\": no number")));
}

#[test]
fn finalizers_classes_and_plans_of_services_are_reported() {
    let balancer = || json!({"type": "LoadBalancer"});
    let classed = || json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"});
    let services = [
        service("good", &[FINALIZER], balancer(), Some("192.0.2.1")),
        service("metallb", &[], balancer(), Some("192.0.2.2")),
        service("stays", &[FINALIZER], json!({"type": "ClusterIP"}), None),
        service("classed", &[], classed(), None),
        service("both", &[FINALIZER], classed(), None),
        service("plain", &[], json!({"type": "ClusterIP"}), None),
    ];
    let update = || step(Verb::Update, "LoadBalancer", "b", Risk::None);
    let plans = vec![
        Plan::new("service default/good").with(update()),
        Plan::new("service default/metallb").with(update()).with(step(
            Verb::Delete,
            "LoadBalancer",
            "b",
            Risk::Disruptive,
        )),
        Plan::new("service default/silent"),
        Plan::new("routes").with(step(Verb::Create, "Route", "r", Risk::None)),
    ];
    let seen = previewed(plans);
    let mut checks = services::checks(&services, &|_| Vec::new(), &seen, true, &[]);
    checks.extend(services::others(&seen, |_| false));
    assert_eq!(
        lines(checks),
        [
            "error service-plan service default/metallb",
            "warning route-plan routes",
            "warning service-class service default/both",
            "warning service-finalizer service default/metallb",
            "warning service-finalizer service default/stays",
            "warning service-plan service default/good",
            "info service-class service default/classed",
        ]
    );
    let off = services::checks(&services, &|_| Vec::new(), &previewed(Vec::new()), false, &[]);
    assert_eq!(lines(off), ["warning service-finalizer service default/good, default/stays, default/both"]);
}

#[test]
fn annotations_with_mistakes_are_reported_as_the_lint_has_them() {
    let strict = |_: &Service| {
        let finding = |severity| Finding::new(severity, "example.com/x", "unknown");
        [Severity::Error, Severity::Warning, Severity::Info].map(finding).to_vec()
    };
    let services = [
        service("web", &[], json!({"type": "LoadBalancer"}), None),
        service("plain", &[], json!({"type": "ClusterIP"}), None),
    ];
    let checks = services::checks(&services, &strict, &previewed(Vec::new()), true, &[]);
    assert_eq!(
        lines(checks),
        ["error service-annotations service default/web", "warning service-annotations service default/web"]
    );
}

#[test]
fn who_holds_which_lease_shows_who_works() {
    let now: jiff::Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let lease = |name: &str, holder: &str, renewed: &str| -> Lease {
        of(
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}),
        )
    };
    let (fresh, stale) = ("2026-01-01T00:00:58.123456Z", "2026-01-01T00:00:00.000000Z");
    let leases = [
        lease("cloud-controller-manager", "a_1", fresh),
        lease("rke2-cloud-controller-manager", "a_2", fresh),
        lease("old-cloud-controller-manager", "a_3", stale),
        lease("cloud-provider-extraction-migration", "a_4", fresh),
        lease("kube-controller-manager", "a_5", fresh),
        lease("kube-scheduler", "a_6", fresh),
    ];
    assert_eq!(
        lines(leases::checks(&leases, &options(&[]), now)),
        [
            "error lease lease kube-system/rke2-cloud-controller-manager",
            "warning lease lease kube-system/cloud-provider-extraction-migration",
            "info lease lease kube-system/cloud-controller-manager",
            "info lease lease kube-system/kube-controller-manager",
        ]
    );
    let migrating = leases::checks(&leases, &options(&["--enable-leader-migration"]), now);
    assert!(lines(migrating).contains(&"info lease lease kube-system/cloud-provider-extraction-migration".to_owned()));
    let own = leases::checks(&leases, &options(&["--leader-elect-resource-name=rke2-cloud-controller-manager"]), now);
    assert_eq!(lines(own)[0], "error lease lease kube-system/cloud-controller-manager");
    assert_eq!(
        lines(leases::checks(&[], &options(&[]), now)),
        ["info lease lease kube-system/cloud-controller-manager"]
    );
    assert_eq!(lines(leases::checks(&[], &options(&["--leader-elect=false"]), now)), ["warning lease"]);
}

fn answered(needs: &rbac::Needs, about_us: Option<&str>, refused: impl Fn(&str) -> bool) -> Vec<Check> {
    let granted = needs.questions().into_iter().map(|question| {
        let refused = refused(&format!("{question:?}"));
        (question, !refused)
    });
    rbac::checks(needs, &rbac::Answers { granted: granted.collect(), about_us: about_us.map(str::to_owned) })
}

const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

#[test]
fn a_missing_right_is_one_finding_with_the_commands_that_grant_it() {
    let options = options(&["--leader-elect-resource-name=mine"]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let needs = rbac::needs(ACCOUNT, &options, &controllers);
    let all = answered(&needs, None, |_| false);
    assert_eq!(lines(all.clone()), ["info rbac"]);
    assert_eq!(all[0].message, format!("every right is granted to {ACCOUNT}"));

    let checks = answered(&needs, None, |question| {
        question.contains("verb: \"delete\"") || question.contains("leases") || question.contains("persistentvolumes")
    });
    assert_eq!(
        lines(checks.clone()),
        ["error rbac leases", "error rbac leases", "error rbac nodes", "warning rbac persistentvolumes"]
    );
    let find = |part: &str| checks.iter().find(|check| check.fix.contains(part)).unwrap();
    assert_eq!(find("--verb=delete").message, format!("{ACCOUNT} may not delete nodes: nodes whose instance is gone"));
    assert_eq!(
        find("--verb=delete").fix,
        "apply the RBAC of manifests/ (base/rbac.yaml), or: kubectl create clusterrole ccm-nodes-delete --verb=delete \
         --resource=nodes && kubectl create clusterrolebinding ccm-nodes-delete --clusterrole=ccm-nodes-delete \
         --serviceaccount=kube-system:cloud-controller-manager"
    );
    assert!(find("--verb=get,update,watch").fix.contains(
        "kubectl -n kube-system create role ccm-leases-get-update-watch --verb=get,update,watch \
         --resource=leases.coordination.k8s.io --resource-name=mine && kubectl -n kube-system create rolebinding"
    ));
}

#[test]
fn rights_of_the_controllers_accounts_are_asked_where_they_have_their_own() {
    let options = options(&["--use-service-account-credentials"]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let needs = rbac::needs("jane", &options, &controllers);
    let checks = answered(&needs, None, |question| question.contains("services/status"));
    let check = only(checks, "rbac");
    assert!(
        check.message.starts_with("system:serviceaccount:kube-system:service-controller may not patch services/status")
    );
    let checks = answered(&needs, None, |question| question.contains("serviceaccounts/token"));
    assert!(checks[0].fix.ends_with("--user=jane"), "{checks:?}");
    let checks = answered(&needs, Some("forbidden"), |question| question.contains("services/status"));
    assert_eq!(lines(checks.clone()), ["warning rbac", "warning rbac services/status"]);
    assert!(checks[1].message.starts_with("the user of this command may not patch"), "{checks:?}");
}

fn of_webhook(kind: &'static str, webhook: Value) -> Vec<Check> {
    let configuration = of(json!({"metadata": {"name": "c"}, "webhooks": [webhook]}));
    let nodes = [Arc::new(node("a", None))];
    let services = [
        service("web", &[], json!({"type": "LoadBalancer"}), None),
        service("policy", &[], json!({"type": "ClusterIP"}), None),
    ];
    let namespaces = BTreeMap::from([("default".to_owned(), BTreeMap::from([("team".to_owned(), "a".to_owned())]))]);
    let written = webhooks::Written {
        nodes: &nodes,
        services: &services,
        lease: "kube-system",
        namespaces: &namespaces,
        volumes: true,
        all: true,
    };
    webhooks::checks(&[(kind, configuration)], &written)
}

#[test]
fn webhooks_that_can_refuse_our_writes_are_reported_with_what_they_refuse() {
    let refused = |rule: Value, more: Value| {
        let mut webhook = json!({"name": "w", "rules": [rule], "clientConfig": {"service": {"namespace": "default", "name": "policy"}}});
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let checks = of_webhook("validatingwebhook", webhook);
        let found = checks.into_iter().find(|check| check.severity != Severity::Info);
        found.map(|check| check.fix.split(" out of").next().unwrap().replace("take ", ""))
    };
    let rule = |groups: &[&str], resources: &[&str], operations: &[&str]| json!({"apiGroups": groups, "resources": resources, "operations": operations});
    let rows: [(Value, Value, Option<&str>); 14] = [
        (rule(&[""], &["persistentvolumes"], &["UPDATE"]), json!({}), Some("persistentvolumes")),
        (rule(&[""], &["persistentvolumes"], &["CREATE"]), json!({}), None),
        (
            rule(&["*"], &["*/*"], &["*"]),
            json!({}),
            Some("nodes, nodes/status, services/status, persistentvolumes, leases"),
        ),
        (rule(&["*"], &["*"], &["UPDATE"]), json!({}), Some("nodes, persistentvolumes, leases")),
        (rule(&[""], &["*/status"], &["UPDATE"]), json!({}), Some("nodes/status, services/status")),
        (rule(&[""], &["nodes/*"], &["UPDATE"]), json!({}), Some("nodes, nodes/status")),
        (rule(&[""], &["nodes"], &["DELETE"]), json!({}), Some("nodes")),
        (rule(&[""], &["nodes"], &["CREATE"]), json!({}), None),
        (rule(&["apps"], &["*/*"], &["*"]), json!({}), None),
        (rule(&["*"], &["*/*"], &["*"]), json!({"failurePolicy": "Ignore"}), None),
        (
            rule(&["*"], &["*/*"], &["*"]),
            json!({"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]}}),
            Some("nodes, nodes/status, services/status, persistentvolumes"),
        ),
        (
            rule(&["*"], &["*/*"], &["*"]),
            json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}),
            Some("nodes, nodes/status, persistentvolumes"),
        ),
        (rule(&["*"], &["*/*"], &["*"]), json!({"objectSelector": {"matchLabels": {"x": "y"}}}), None),
        (
            json!({"apiGroups": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "Namespaced"}),
            json!({}),
            Some("services/status, leases"),
        ),
    ];
    for (rule, more, expected) in rows {
        assert_eq!(refused(rule.clone(), more.clone()).as_deref(), expected, "{rule} {more}");
    }
}

#[test]
fn a_webhook_whose_service_is_missing_is_an_error_and_a_labeller_of_volumes_a_warning() {
    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "operations": ["UPDATE"]});
    let webhook = |client: Value| json!({"name": "w", "rules": [rule.clone()], "clientConfig": client});
    let missing = webhook(json!({"service": {"namespace": "default", "name": "none"}}));
    assert_eq!(lines(of_webhook("validatingwebhook", missing)), ["error webhook validatingwebhook c/w"]);
    let outside = webhook(json!({"url": "https://example.com"}));
    assert_eq!(lines(of_webhook("validatingwebhook", outside)), ["warning webhook validatingwebhook c/w"]);
    let labeller = json!({"name": "pv", "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "resources": ["persistentvolumes"], "operations": ["CREATE"]}]});
    assert_eq!(lines(of_webhook("mutatingwebhook", labeller.clone())), ["warning volume-labels mutatingwebhook c/pv"]);
    assert_eq!(lines(of_webhook("validatingwebhook", labeller)), ["info webhook"]);
}
