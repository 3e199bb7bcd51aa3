//! Flags of this program and of running components.

use super::*;

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

/// As written by kubeadm, with the flags that the in-tree providers needed.
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
error    cloud-provider     pod kube-system/kube-controller-manager-a: kube-controller-manager has --cloud-provider=aws: it manages nodes, routes and Services itself, and newer versions refuse such a flag -> give it --cloud-provider=external before this program leads
error    cluster-name       pod kube-system/kube-controller-manager-a: kube-controller-manager has --cluster-name=prod, and here it is kubernetes: names and tags in the cloud contain it -> give --cluster-name=prod
warning  admission-plugins  pod kube-system/kube-apiserver-a: kube-apiserver has the admission plugin PersistentVolumeLabel, which newer versions do not know and stop at -> take it out of --enable-admission-plugins: what it did is the work of persistentvolume-label-controller
warning  cloud-provider     pod kube-system/kube-apiserver-a: kube-apiserver has --cloud-config=/etc/x: newer versions do not know the flag and stop at their start -> take --cloud-config out
warning  leader-migration   pod kube-system/kube-controller-manager-a: kube-controller-manager runs with --enable-leader-migration, and this program would not share its second lease -> give --enable-leader-migration, with the same --leader-migration-config, until kube-controller-manager has no cloud any more

4 errors, 3 warnings, 0 notes.
";
    assert_eq!(text(&checks, 0, Output::plain(Format::Text)), expected);
    let document = json(&checks);
    assert_eq!((&document["errors"], &document["warnings"]), (&json!(4), &json!(3)));
    assert_eq!(
        document["checks"][3],
        json!({"severity": "error", "check": "cluster-name", "subject": "pod kube-system/kube-controller-manager-a",
            "message": "kube-controller-manager has --cluster-name=prod, and here it is kubernetes: names and tags in the cloud contain it",
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
        ["error cluster-name kube-controller-manager has --cluster-name=kubernetes, and here it is prod: names and \
             tags in the cloud contain it"],
        "the default is a name too"
    );
    assert_eq!(
        in_tree(&["--cloud-config=/etc/cloud.conf", "--node-monitor-period=5"], &[])[1..],
        [
            "warning flag-value kube-controller-manager has a value that this program would not take: invalid argument \"5\" for \"--node-monitor-period\" flag: time: missing unit in duration \"5\"",
            "warning cloud-config --cloud-config is /etc/cloud.conf there and not set here: only one of them reads a file",
        ]
    );
}

#[test]
fn a_configuration_on_one_side_has_a_fix_that_can_be_followed_on_another_machine() {
    let fix = |theirs: &[&str], here: &[&str]| {
        only(flags_of(&[cloud_controller(theirs)], &[&[NO_ROUTES][..], here].concat()), "cloud-config").fix
    };
    let theirs = ["--cloud-config=/etc/cloud.conf"];
    assert!(fix(&theirs, &[]).ends_with("give the copy: --cloud-config=FILE"));
    assert!(fix(&[], &["--cloud-config=/tmp/place"]).ends_with("see that its settings are intended"));
    assert_eq!(fix(&theirs, &["--cloud-config=/tmp/copy"]), "see that both hold the same");
}

#[test]
fn differences_from_the_running_program_are_reported_per_flag() {
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
        "its lease is kube-system/mine, and here it would be kube-system/cloud-controller-manager: both would be \
         active at the same time"
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
    assert_eq!(election(&["--leader-elect-resource-name=x"], &["--dry-run"]), [Severity::Info]);
    assert_eq!(election(&["--leader-elect=false"], &["--dry-run"]), [Severity::Info]);
    let migrating = |ours: &[&str]| {
        let ours = [ours, &["--enable-leader-migration", NO_ROUTES]].concat();
        let checks = flags_of(&[controller_manager(&["--cloud-provider=aws"])], &ours);
        checks.iter().filter(|check| check.check == "leader-migration").count()
    };
    assert_eq!((migrating(&[]), migrating(&["--dry-run"])), (1, 0));
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
    let check = |pod: Pod| lines(pods::checks(&running(&[pod]), account, &Program::default()));
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

#[test]
fn a_pod_that_initializes_no_nodes_need_not_tolerate_their_taint() {
    // The chart of cloud-provider-azure, beside cloud-node-manager.
    let tolerations = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    let check = |controllers: &str| {
        let command = ["cloud-controller-manager", "--cloud-provider=azure", controllers];
        let spec = json!({"hostNetwork": true, "containers": [{"command": command}], "tolerations": tolerations});
        lines(pods::checks(&running(&[pod("x", spec)]), "", &Program::default()))
    };
    assert_eq!(check("--controllers=*,-cloud-node"), [""; 0]);
    assert_eq!(check("--controllers=*"), ["error toleration pod kube-system/x"]);
}

#[test]
fn files_of_the_node_may_be_for_root_alone() {
    let warned = |volume: Value, pod_user: Value, user: Value| {
        let command =
            ["cloud-controller-manager", "--cloud-config=/etc/kubernetes/azure.json", "--kubeconfig=/other/k"];
        let spec = json!({"hostNetwork": true, "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsUser": pod_user},
            "volumes": [{"name": "a", volume.as_str().unwrap(): {"path": "/etc/kubernetes"}}],
            "containers": [{"command": command, "securityContext": {"runAsUser": user},
                "volumeMounts": [{"name": "a", "mountPath": "/etc/kubernetes"}]}]});
        pods::checks(&running(&[pod("x", spec)]), "", &Program::default())
    };
    let found = only(warned("hostPath".into(), Value::Null, Value::Null), "user");
    assert!(found.message.contains("/etc/kubernetes/azure.json of the node"), "{}", found.message);
    assert!(!found.message.contains("/other/k"), "{}", found.message);
    // The chart for OpenStack, a pod of root, and a Secret.
    assert_eq!(lines(warned("hostPath".into(), 1001.into(), Value::Null)), [""; 0]);
    assert_eq!(lines(warned("hostPath".into(), Value::Null, 0.into())), [""; 0]);
    assert_eq!(lines(warned("secret".into(), Value::Null, Value::Null)), [""; 0]);
}
