//! Nodes and Services.

use super::*;

fn previewed(plans: Vec<Plan>) -> Previewed {
    Previewed { plans, ..Previewed::default() }
}

fn unplanned(subject: &str, error: &str) -> Unplanned {
    Unplanned { subject: subject.into(), error: SyncError::Terminal(error.to_owned()) }
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
    let labeled =
        Node { labels: [("topology.kubernetes.io/zone", "a")].into_iter().collect(), ..node("labeled", None) };
    let doomed = Node { ready: Some(ConditionStatus::False), ..node("doomed", Some("fake://doomed")) };
    let taint =
        Taint { key: TAINT_UNINITIALIZED.into(), value: "true".into(), effect: "NoSchedule".into(), time_added: None };
    let waiting = Node { taints: [taint].into(), ..node("waiting", None) };
    let nodes = vec![
        (node("good", Some("fake://good")), here()),
        (node("other", Some("aws:///x/i-1")), Lookup::Foreign),
        (node("bare", None), here()),
        (labeled, here()),
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
            "warning node-provider-id node labeled",
            "warning node-provider-id node other",
        ]
    );
}

#[test]
fn equal_findings_of_nodes_are_one_line_with_an_example() {
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

#[test]
fn one_cause_for_many_failed_plans_is_one_line() {
    let all = ["service a/a", "service a/b", "service a/c", "service a/d", "node n", "routes"];
    let mut failed: Vec<Unplanned> = all.map(|subject| unplanned(subject, "no right")).into();
    failed.push(unplanned("service a/e", "another"));
    let checks = services::others(&Previewed { unplanned: failed, ..Previewed::default() }, |_| false);
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
fn equal_findings_of_a_provider_are_one_line() {
    let of = |name: &str, text: &str| Check::error("instances", format!("node {name}"), text, "list it");
    let lease = |name: &str| Check::good("lease", format!("lease {name}"), "no process holds it");
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
    assert!(check.fix.starts_with("if the machine exists: compare"), "{check:?}");
    let no_credentials = Lookup::Unknown(ProviderError::unknown("no credentials for AWS"));
    let check = only(of_nodes(vec![(node("a", Some("fake://a")), no_credentials)], Vec::new()), "node-instance");
    assert_eq!(check.fix, "do what the message says; until then nothing is deleted");
}

#[test]
fn a_mistake_in_a_service_is_reported_once() {
    let services = [service("web", &[], json!({"type": "LoadBalancer"}), None)];
    let mistake = Finding { value: Some("x".into()), ..Finding::new(Severity::Error, "a/b", "no number") };
    let checks = services::checks(&services, &|_| vec![mistake.clone()], &Previewed::default(), true, &[]);
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
    let off = services::checks(&services, &|_| Vec::new(), &Previewed::default(), false, &[]);
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
    let checks = services::checks(&services, &strict, &Previewed::default(), true, &[]);
    assert_eq!(
        lines(checks),
        ["error service-annotations service default/web", "warning service-annotations service default/web"]
    );
}

#[test]
fn a_problem_that_the_provider_reports_too_is_one_finding() {
    let balancer = |severity, name: &str| Check {
        severity,
        ..Check::warning("load-balancers", format!("service a/{name}"), "no such network", "see the network")
    };
    let ours = vec![
        Check::error("service-plan", "service a/moved", "2 writes would be made; traffic may be lost", "ccm plan"),
        Check::warning("service-plan", "service a/status", "1 write would be made", "ccm plan"),
        Check::error("plan", "service a/failed", "could not be planned: no such network", "ccm explain"),
        Check::error("plan", "service a/other", "could not be planned: the API server", "ccm explain"),
        Check::error("node-instance", "node lost", "the instance does not exist", "compare"),
        Check::error("node-instance", "node unknown", "the instance does not exist", "compare"),
        Check::error("node-deletion", "node lost", "it would be deleted", "compare"),
    ];
    let theirs = vec![
        balancer(Severity::Warning, "moved"),
        balancer(Severity::Info, "status"),
        balancer(Severity::Error, "failed"),
        balancer(Severity::Error, "other"),
        Check::error("provider-ids", "node lost", "no server", "delete it"),
        Check::warning("provider-ids", "node unknown", "another zone", "none"),
    ];
    let found = once(ours, theirs);
    let moved = found.iter().find(|check| check.subject == "service a/moved").unwrap();
    assert_eq!((moved.severity, &*moved.message), (Severity::Error, "no such network; traffic may be lost"));
    assert_eq!(
        lines(found),
        [
            "error load-balancers service a/failed, a/other",
            "error load-balancers service a/moved",
            "error node-deletion node lost",
            "error node-instance node unknown",
            "error plan service a/other",
            "error provider-ids node lost",
            "warning provider-ids node unknown",
            "warning service-plan service a/status",
            "info load-balancers service a/status",
        ]
    );
}
