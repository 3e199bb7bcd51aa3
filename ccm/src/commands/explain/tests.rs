use std::sync::Arc;
use std::time::Duration;

use ccm_controllers::preview::Scope;
use ccm_provider::flag::FlagValues;
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{FINALIZER_LOAD_BALANCER, LABEL_EXCLUDE_BALANCERS, TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use ccm_provider::{
    ErrorClass, Evidence, EvidenceKind, FactState, Finding, Lookup, Node, NodeRef, NodeTaskSpec, Plan, ProviderError,
    Risk, Service, ServiceKey, Severity, Step, Taint, TaintEffect, TaintId, Verb,
};
use ccm_runtime::election::Seen;
use ccm_runtime::{ApiError, SyncError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::output::{Format, Output};
use super::super::previewed::{Previewed, Warning};
use super::report::{self, Story};
use super::{Object, cluster, events, leader, object};
use crate::options::Options;

const BORN: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

fn web(patch: &Value) -> Service {
    let mut web = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "u-1", "creationTimestamp": BORN},
        "spec": {"type": "LoadBalancer"},
    });
    for (part, fields) in patch.as_object().unwrap() {
        let into = web.as_object_mut().unwrap().entry(part).or_insert(json!({}));
        into.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    serde_json::from_value(web).unwrap()
}

fn worker(name: &str, taints: &[&str]) -> Node {
    let taint =
        |key: &&str| Taint { key: (*key).into(), value: "".into(), effect: "NoSchedule".into(), time_added: None };
    Node {
        name: name.into(),
        uid: "n-1".into(),
        created: Some(BORN.parse().unwrap()),
        taints: taints.iter().map(taint).collect(),
        ..Node::default()
    }
}

fn create() -> Plan {
    Plan::new("service default/web").with(Step {
        verb: Verb::Create,
        kind: "LoadBalancer".into(),
        id: "a".into(),
        changes: Vec::new(),
        reason: "the Service wants one".into(),
        risk: Risk::None,
    })
}

fn text(story: &Story) -> String {
    report::print(story, Output::plain(Format::Text))
}

fn seen(holder: &str, seconds: i64) -> Result<Option<Seen>, ApiError> {
    let renewed = Some(now() - jiff::SignedDuration::from_secs(seconds));
    Ok(Some(Seen { holder: holder.to_owned(), duration: Some(Duration::from_secs(15)), renewed }))
}

fn lease(seen: Result<Option<Seen>, ApiError>) -> Result<ccm_provider::Fact, String> {
    cluster::lease("kube-system/ccm", seen, Duration::from_secs(15), now())
}

fn forbidden() -> ApiError {
    ApiError::Status { code: 403, reason: "Forbidden".into(), message: "no".into(), retry_after: None }
}

#[test]
fn a_service_that_waits_names_the_write_and_not_the_missing_address() {
    let mut story = object::service(&web(&json!({})), true, now());
    story.facts.push(lease(seen("pod-1", 3)).unwrap());
    story.previewed(&Previewed { plans: vec![create()], ..Previewed::default() }, false, false);
    assert_eq!(
        text(&story),
        "\
service default/web
  done    Service: type LoadBalancer, created 5m ago
  waiting finalizer: service.kubernetes.io/load-balancer-cleanup is not set yet
  waiting address: none yet
  done    lease kube-system/ccm: held by pod-1, renewed 3s ago
  waiting the leader's write: create LoadBalancer a (because the Service wants one)
waiting for the leader's write: create LoadBalancer a (because the Service wants one)
"
    );
}

/// The picture of the pages is made of this file.
#[test]
fn a_broken_service_on_a_terminal_looks_as_in_the_picture() {
    let of_shop = json!({"metadata": {"namespace": "shop", "finalizers": [FINALIZER_LOAD_BALANCER]}});
    let service = web(&of_shop);
    let mut story = object::service(&service, true, now());
    let options = Options::from_args(["--cloud-provider=x"]).unwrap();
    let needed = cluster::needed(&Object::Service(Arc::new(service)));
    story.facts.extend(cluster::controllers(&options, &[], &needed));
    story.facts.push(lease(seen("ccm-7d4b9", 3)).unwrap());
    let denied = ErrorClass::Denied { action: "elasticloadbalancing:CreateLoadBalancer".into() };
    let denied = ProviderError::new(denied, "assumed-role/nodes is not authorized to create a load balancer");
    let error = SyncError::provider("failed to plan load balancer", &denied);
    let unplanned = vec![ccm_controllers::preview::Unplanned { subject: "service shop/web".into(), error }];
    story.previewed(&Previewed { unplanned, ..Previewed::default() }, false, false);
    let nodes: Vec<NodeRef> = ["worker-1", "worker-2"].map(|name| Arc::new(worker(name, &[]))).to_vec();
    story.facts.push(cluster::hosts(&nodes, None));
    assert_eq!(report::print(&story, Output::picture()), include_str!("tests/broken.ansi"));
}

#[test]
fn a_denied_call_names_its_class_and_the_right_that_is_missing() {
    let mut story = object::service(&web(&json!({})), true, now());
    let denied = ProviderError::new(ErrorClass::Denied { action: "ec2:CreateTags".into() }, "not allowed");
    let error = SyncError::provider("failed to plan load balancer", &denied);
    let unplanned = vec![ccm_controllers::preview::Unplanned { subject: "service default/web".into(), error }];
    story.previewed(&Previewed { unplanned, ..Previewed::default() }, false, false);
    assert_eq!(
        story.conclusion(),
        "broken: the controllers: failed to plan load balancer: not allowed (denied) → grant ec2:CreateTags to the identity \
         of the controller manager"
    );
}

#[test]
fn an_error_of_unknown_cause_gives_way_to_a_link_that_explains_it() {
    let mut story = object::node(&worker("a", &[TAINT_UNINITIALIZED]), None, &[], now());
    story.failed("the controllers", "no instance", Some(&ErrorClass::NotFound));
    story.failed("the controllers", "no such thing", Some(&ErrorClass::Unknown));
    assert!(story.conclusion().starts_with("broken: the controllers: no instance (not-found) → "));
    story.effects.remove(0);
    assert!(
        story.conclusion().starts_with("broken: the controllers: no such thing (unknown) → "),
        "{}",
        story.conclusion()
    );
    story.facts.push(ccm_provider::Fact::bad("instance a", "not listed", "list it"));
    assert_eq!(story.conclusion(), "broken: instance a: not listed → list it (and 1 more above)");
    assert!(story.reports("no such thing") && !story.reports("another"));
}

#[test]
fn a_temporary_error_is_shown_as_waiting() {
    let mut story = Story::default();
    story.failed("the cloud", "slower", Some(&ErrorClass::Throttled { after: None }));
    assert_eq!(story.state(), FactState::Waiting);
    story.previewed(
        &Previewed {
            warnings: vec![Warning { subject: "x".into(), reason: "Later".into(), message: "a second list".into() }],
            ..Previewed::default()
        },
        false,
        false,
    );
    assert_eq!(story.state(), FactState::Waiting);
}

#[test]
fn a_service_of_another_class_is_its_controllers() {
    let class = json!({"spec": {"loadBalancerClass": "example.com/x"}});
    let story = object::service(&web(&class), false, now());
    assert_eq!(
        text(&story),
        "\
service default/web
  done    Service: type LoadBalancer, created 5m ago
  waiting the controller of the class: loadBalancerClass \"example.com/x\" is another controller's: this program leaves the Service alone → see that the controller of the class \"example.com/x\" runs, or recreate the Service without it
waiting for the controller of the class: loadBalancerClass \"example.com/x\" is another controller's: this program leaves the Service alone → see that the controller of the class \"example.com/x\" runs, or recreate the Service without it
"
    );
    let mut done = class.clone();
    done["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let story = object::service(&web(&done), false, now());
    assert!(story.conclusion().starts_with("OK: loadBalancerClass"), "{}", story.conclusion());
}

#[test]
fn a_service_being_deleted_shows_its_finalizers() {
    let leaving = json!({"metadata": {"deletionTimestamp": BORN, "finalizers": [FINALIZER_LOAD_BALANCER, "x/y"]}});
    let story = object::service(&web(&leaving), true, now());
    let text = text(&story);
    assert!(text.contains("waiting Service: being deleted since 5m ago; finalizers that are left: service.kubernetes.io/load-balancer-cleanup, x/y\n"), "{text}");
    assert!(story.not_ours.is_none());
    let others = json!({"metadata": {"deletionTimestamp": BORN, "finalizers": ["x/y"]}});
    let story = object::service(&web(&others), true, now());
    assert!(story.not_ours.as_ref().unwrap().contains("only finalizers of others"), "{story:?}");
    assert_eq!(story.state(), FactState::Waiting);
}

#[test]
fn a_lease_shows_whether_anybody_works() {
    let state = |seen| lease(seen).unwrap().state;
    assert_eq!(state(seen("pod-1", 15)), FactState::Good);
    assert_eq!(state(seen("pod-1", -3600)), FactState::Good, "a clock that is ahead");
    assert_eq!(state(seen("pod-1", 16)), FactState::Bad);
    assert_eq!(state(Ok(None)), FactState::Bad);
    let released = lease(seen("", 90)).unwrap();
    assert_eq!(
        (released.state, &*released.text),
        (FactState::Bad, "released 90s ago, without a holder: no replica is active")
    );
    let expired = lease(seen("pod-1", 300)).unwrap();
    assert_eq!(expired.text, "held by pod-1, last renewed 5m ago and valid for 15s: no replica is active");
    let unseen = lease(Err(forbidden())).unwrap_err();
    assert!(unseen.contains("grant get on leases"), "{unseen}");
}

#[test]
fn hosts_name_each_node_that_is_left_out_and_why() {
    let excluded =
        |name: &str| Node { labels: [(LABEL_EXCLUDE_BALANCERS, "")].into_iter().collect(), ..worker(name, &[]) };
    let fact = |nodes: Vec<Node>| {
        let nodes: Vec<NodeRef> = nodes.into_iter().map(Arc::new).collect();
        cluster::hosts(&nodes, None)
    };
    assert_eq!(fact(vec![]).state, FactState::Bad);
    let some = fact(vec![worker("a", &[]), excluded("b"), Node { deleting: true, ..worker("c", &[]) }]);
    assert_eq!(some.state, FactState::Good);
    assert_eq!(
        some.text,
        "1 of 3 nodes are hosts of the load balancer; not b: it has the label \
         node.kubernetes.io/exclude-from-external-load-balancers; c: it is being deleted"
    );
    let none = fact((0..9).map(|n| excluded(&format!("n{n}"))).collect());
    assert_eq!(none.state, FactState::Bad);
    assert!(none.text.contains("none of 9 nodes") && none.text.ends_with("; and 4 more)"), "{}", none.text);
    let new = || worker("a", &[TAINT_UNINITIALIZED]);
    let some = fact(vec![new(), worker("b", &[])]);
    assert_eq!(some.text, "1 of 2 nodes are hosts of the load balancer; 1 not initialized yet");
    assert_eq!(fact(vec![new()]).state, FactState::Waiting);
}

#[test]
fn a_node_lists_each_of_its_taints() {
    let node = worker("a", &[TAINT_SHUTDOWN, "example.com/x", "example.com/own"]);
    const OWN: &[TaintId] = &[
        TaintId { key: "example.com/own", effect: TaintEffect::NoSchedule },
        // Differs from the node's taint.
        TaintId { key: "example.com/x", effect: TaintEffect::NoExecute },
    ];
    let task = NodeTaskSpec {
        name: "x-taints",
        aliases: &[],
        queue: "x",
        on_by_default: true,
        taints: OWN,
        check: |_| Vec::new(),
    };
    let story = object::node(&node, None, &[&task], now());
    let text = text(&story);
    for line in [
        "  done    initialization: done: the node has no taint that says otherwise\n",
        "  broken  taint: node.cloudprovider.kubernetes.io/shutdown: the cloud said that the instance is stopped → ",
        "  done    taint: example.com/own:NoSchedule: x-taints adds and removes it\n",
        "  done    other taints: example.com/x: not from this program\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn the_answer_of_the_cloud_is_reported_with_its_evidence() {
    let gone = Lookup::Gone(Evidence {
        kind: EvidenceKind::Terminated { state: "terminated".into() },
        read_began: std::time::SystemTime::UNIX_EPOCH,
        grace: Duration::ZERO,
    });
    let fact = cluster::lookup(&gone).unwrap();
    assert_eq!((fact.state, &*fact.text), (FactState::Bad, "the cloud shows the instance as terminated"));
    assert!(cluster::lookup(&Lookup::Unknown(ProviderError::unknown("x"))).is_err());
    assert_eq!(cluster::lookup(&Lookup::Foreign).unwrap().state, FactState::Good);
}

#[test]
fn a_controller_that_is_switched_off_matters_where_the_object_waits_for_it() {
    let options =
        Options::from_args(["--cloud-provider=x", "--controllers=*,-cloud-node,-cloud-node-lifecycle"]).unwrap();
    let states = |node: Node| {
        let facts = cluster::controllers(&options, &[], &cluster::needed(&Object::Node(Arc::new(node))));
        facts.iter().map(|fact| fact.state).collect::<Vec<_>>()
    };
    assert_eq!(states(worker("a", &[TAINT_UNINITIALIZED])), [FactState::Bad, FactState::Good]);
    assert_eq!(states(worker("a", &[])), [FactState::Good, FactState::Bad], "it is not Ready");
    let service = Object::Service(Arc::new(web(&json!({}))));
    let skipped = [("service-lb-controller", "no balancers".to_owned())];
    let facts = cluster::controllers(&options, &skipped, &cluster::needed(&service));
    assert_eq!((facts[0].state, &*facts[0].text), (FactState::Bad, "does not run: no balancers"));
}

#[test]
fn a_node_without_routes_waits_for_their_controller_and_for_its_own_writes() {
    let network =
        |reason: &str| Node { network_unavailable: Some((ConditionStatus::True, reason.into())), ..worker("a", &[]) };
    let step = |kind: &'static str, id: &str| Step { kind: kind.into(), id: id.into(), ..create().steps.remove(0) };
    let plan = Plan::new("routes").with(step("Route", "10.1.0.0/24 to a")).with(step("Route", "10.2.0.0/24 to b.a"));
    let plan = plan.with(step("Node", "a")).with(step("Node", "b.a"));
    let skipped = vec![("node-route-controller", "--configure-cloud-routes=false".to_owned())];
    let mut previewed = Previewed::default();
    cluster::add_routes(&mut previewed, Previewed { plans: vec![plan], skipped, ..Previewed::default() }, &"a".into());
    let ids: Vec<&str> = previewed.plans.iter().flat_map(|plan| &plan.steps).map(|step| &*step.id).collect();
    assert_eq!(ids, ["10.1.0.0/24 to a", "a"]);

    let options = Options::from_args(["--cloud-provider=x"]).unwrap();
    let of = |node: Node| {
        let needed = cluster::needed(&Object::Node(Arc::new(node)));
        cluster::controllers(&options, &previewed.skipped, &needed).into_iter().nth(2)
    };
    let fact = of(network("NoRouteCreated")).unwrap();
    assert_eq!((fact.state, &*fact.text), (FactState::Bad, "does not run: --configure-cloud-routes=false"));
    // The condition is set by another network plugin: nothing waits for our controllers.
    assert_eq!(of(network("CalicoIsDown")).unwrap().state, FactState::Good);
    assert_eq!(of(worker("a", &[])), None);
}

#[test]
fn the_lease_of_a_migration_counts_for_its_controllers() {
    let options = Options::from_args(["--cloud-provider=x", "--enable-leader-migration"]).unwrap();
    let own = options.election.as_ref().unwrap();
    let names =
        |object: Object| cluster::leases(&options, own, &cluster::needed(&object)).into_iter().collect::<Vec<_>>();
    assert_eq!(names(Object::Service(Arc::new(web(&json!({}))))), ["cloud-provider-extraction-migration"]);
    assert_eq!(
        names(Object::Node(Arc::new(worker("a", &[])))),
        ["cloud-controller-manager", "cloud-provider-extraction-migration"]
    );
}

#[test]
fn a_dry_run_among_the_flags_is_why_nothing_is_written() {
    let mut story = Story::default();
    story.previewed(&Previewed { plans: vec![create()], ..Previewed::default() }, true, false);
    assert!(story.conclusion().starts_with("broken: --dry-run: "), "{}", story.conclusion());
    let mut story = Story::default();
    story.previewed(&Previewed::default(), true, false);
    assert_eq!(story.conclusion(), "OK");
}

#[test]
fn a_warning_about_an_annotation_is_counted_and_breaks_nothing() {
    let finding = |severity| Finding {
        severity,
        key: "example.com/tpye".into(),
        value: Some("a".into()),
        message: "unknown; did you mean example.com/type?".into(),
    };
    let mut story = Story::default();
    story.lint(&[finding(Severity::Warning), finding(Severity::Warning)]);
    assert_eq!(story.conclusion(), "OK, with 1 warning above");
    assert_eq!(story.facts[0].text, "warning: unknown; did you mean example.com/type?");
    story.lint(&[Finding { key: "example.com/other".into(), ..finding(Severity::Error) }]);
    assert_eq!(story.conclusion(), "broken: example.com/other \"a\": unknown; did you mean example.com/type?");
}

fn event(kind: &str, reason: &str, second: u32, component: &str) -> Value {
    json!({
        "involvedObject": {"uid": "u-1"}, "type": kind, "reason": reason, "message": "m", "count": 3,
        "lastTimestamp": format!("2026-01-01T00:04:{second:02}Z"), "source": {"component": component},
    })
}

#[test]
fn events_are_newest_first_and_of_this_object() {
    let mut older = event("Normal", "Old", 59, "service-controller");
    older["involvedObject"]["uid"] = "an-earlier-one".into();
    let modern = json!({
        "involvedObject": {"uid": "web"}, "type": "Normal", "reason": "New", "message": null, "eventTime": "2026-01-01T00:04:30.000001Z",
        "lastTimestamp": null, "reportingComponent": "kubelet", "source": {}, "series": null,
    });
    let list = json!({"items": [event("Normal", "A", 1, "x"), older, modern]});
    let events = events::parse(&list, "web", "u-1");
    let short: Vec<_> = events.iter().map(|e| (&*e.reason, &*e.component, e.count)).collect();
    assert_eq!(short, [("New", "kubelet", 1), ("A", "x", 3)]);
    assert_eq!(events::when(&events[1], now()), "3 times, last 59s ago");
}

#[test]
fn the_last_error_counts_until_a_sync_went_well() {
    let last = |items: Value| {
        let events = events::parse(&json!({"items": items}), "web", "u-1");
        events::last_error(&events).map(|event| event.reason.clone())
    };
    let ours = "service-controller";
    let failed = || event("Warning", "SyncLoadBalancerFailed", 10, ours);
    assert_eq!(
        last(json!([failed(), event("Normal", "EnsuringLoadBalancer", 11, ours)])).as_deref(),
        Some("SyncLoadBalancerFailed")
    );
    assert_eq!(last(json!([failed(), event("Normal", "EnsuredLoadBalancer", 11, ours)])), None);
    assert!(last(json!([failed(), event("Normal", "EnsuredLoadBalancer", 9, ours)])).is_some());
    assert_eq!(last(json!([event("Warning", "Rebooted", 10, "kubelet")])), None);
    // A warning beside the error is not the error.
    let mut classed = failed();
    classed["metadata"] = json!({"annotations": {ccm_provider::EVENT_ERROR_CLASS: "transient"}});
    let warned = |second| event("Warning", "AWSLoadBalancerWarning", second, ours);
    assert_eq!(last(json!([warned(10), classed])).as_deref(), Some("SyncLoadBalancerFailed"));
    let well = event("Normal", "EnsuredLoadBalancer", 11, ours);
    assert_eq!(last(json!([warned(12), well, classed])).as_deref(), Some("AWSLoadBalancerWarning"));
    // A temporary error means waiting, whether it was emitted as an event or not.
    let mut passing = object::service(&web(&json!({})), true, now());
    passing.previewed(&Previewed { plans: vec![create()], ..Previewed::default() }, false, false);
    passing.events(events::parse(&json!({"items": [classed]}), "web", "u-1"), now());
    assert_eq!(passing.state(), FactState::Waiting, "{}", passing.conclusion());

    let events = || events::parse(&json!({"items": [failed()]}), "web", "u-1");
    let mut quiet = Story::default();
    quiet.events(events(), now());
    assert_eq!(quiet.conclusion(), "OK");
    let mut silent = object::node(&worker("a", &[]), None, &[], now());
    silent.events(events(), now());
    assert!(silent.conclusion().starts_with("waiting for the kubelet: "), "{}", silent.conclusion());
    let mut pending = object::service(&web(&json!({})), true, now());
    pending.previewed(&Previewed { plans: vec![create()], ..Previewed::default() }, false, false);
    pending.events(events(), now());
    assert!(pending.conclusion().starts_with("broken: last error: SyncLoadBalancerFailed 3 times, last 50s ago: m → "));
    // The error class that the leader added as an annotation determines the fix.
    let mut denied = failed();
    denied["metadata"] = json!({"annotations": {"cloud-controller-manager/error-class": "denied"}});
    let mut pending = object::service(&web(&json!({})), true, now());
    pending.previewed(&Previewed { plans: vec![create()], ..Previewed::default() }, false, false);
    pending.events(events::parse(&json!({"items": [denied]}), "web", "u-1"), now());
    assert!(pending.conclusion().contains("m (denied) → grant the missing permission"), "{}", pending.conclusion());
}

#[test]
fn texts_of_others_stay_in_their_line_and_do_not_steer_the_terminal() {
    let mut story = Story::default();
    let mut nasty = event("Normal", "DryRun", 1, "x");
    nasty["message"] = "one\n  two \u{1b}[31mred\u{7}".into();
    story.events(events::parse(&json!({"items": [nasty]}), "web", "u-1"), now());
    story.unseen.push("a\nb".into());
    let text = text(&story);
    assert!(text.contains("  Normal DryRun 3 times, last 59s ago: one two [31mred\n"), "{text}");
    assert!(text.contains("  unseen  a b\n") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn the_document_has_all_that_the_text_has() {
    let mut story = object::service(&web(&json!({})), true, now());
    story.unseen.push("events: no".into());
    story.plan = Some(Previewed { plans: vec![create()], ..Previewed::default() });
    let document: Value = serde_json::from_str(&report::print(&story, Output::plain(Format::Json))).unwrap();
    assert_eq!(document["kind"], "Explanation");
    assert_eq!(document["object"], json!({"kind": "Service", "namespace": "default", "name": "web", "uid": "u-1"}));
    assert_eq!(document["state"], "waiting");
    assert_eq!(
        document["conclusion"],
        "waiting for finalizer: service.kubernetes.io/load-balancer-cleanup is not set yet"
    );
    assert_eq!(document["facts"][2], json!({"about": "address", "state": "waiting", "text": "none yet"}));
    assert_eq!(document["unseen"], json!(["events: no"]));
    assert_eq!(document["plan"]["changes"], 1);
    assert_eq!(document["leader"], Value::Null);
}

#[test]
fn the_leader_reports_its_failures_of_this_object_alone() {
    let failure = |subject: &str, class: Value, settled: bool| {
        json!({"subject": subject, "text": "no", "count": 2, "secondsAgo": 7, "controller": "service-lb-controller",
            "class": class, "remediation": "do it", "nextTrySeconds": 30, "settled": settled})
    };
    let state = json!({
        "provider": "x", "clusterName": "other", "dryRun": true,
        "leadership": {"state": "leading", "identity": "pod-1"}, "enabledControllers": ["cloud-node-controller"],
        "queues": [{"name": "service", "ready": 1, "working": 0, "waiting": 2}, {"name": "node", "ready": 0, "working": 0, "waiting": 0}],
        "recentPlans": [{"subject": "service default/web", "text": "a\n  b", "count": 1, "secondsAgo": 9}],
        "recentFailures": [
            failure("service default/web", json!("not-found"), false),
            failure("service default/web", json!("denied"), false),
            failure("service default/web hosts", json!("throttled"), false),
            failure("service default/web", json!("unknown"), false),
            failure("service default/web2", json!("denied"), false),
            failure("service default/web", json!("denied"), true),
        ],
    });
    let options = Options::from_args(["--cloud-provider=x", "--controllers=cloud-node,service"]).unwrap();
    let scope = Scope::Service(ServiceKey { namespace: "default".into(), name: "web".into() });
    let mut values = FlagValues::default();
    values.insert("leader", vec!["https://127.0.0.1:1".into()], true);
    values.insert("leader-ca", vec![String::new()], false);
    values.insert("leader-insecure", vec!["false".into()], false);
    let mut story = Story { title: "service default/web".into(), ..Story::default() };
    leader::flags(&values).unwrap().unwrap().add(&state, &options, &scope, &mut story);
    let all = story.facts.iter().chain(&story.effects);
    let lines: Vec<String> = all.map(|f| format!("{:?} {}: {}", f.state, f.about, f.text)).collect();
    assert!(story.leader.is_some());
    assert_eq!(
        lines,
        [
            "Good the asked replica: pod-1 leads",
            "Bad the asked replica: runs with --cluster-name=other, this command with kubernetes",
            "Bad the asked replica: runs with --dry-run: it writes nothing",
            "Good its queues: service: 1 ready, 0 in progress, 2 delayed",
            "Bad the asked replica: does not run what the flags of this command switch on: service-lb-controller",
            "Good its last plan: 9s ago: a b",
            "Bad service-lb-controller of the leader: 2 times, last 7s ago: no (denied); retried in 30s",
            "Waiting service-lb-controller of the leader: 2 times, last 7s ago: no (throttled); retried in 30s",
            "Good its last failure: 2 times, last 7s ago: no (denied); it went well since",
            "Bad service-lb-controller of the leader: 2 times, last 7s ago: no (not-found); retried in 30s",
            "Bad service-lb-controller of the leader: 2 times, last 7s ago: no (unknown); retried in 30s",
        ]
    );
}
