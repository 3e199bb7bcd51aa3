//! Leases, permissions and webhooks.

use super::*;

#[test]
fn the_holders_of_leases_show_the_active_programs() {
    let now: jiff::Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let lease = |name: &str, holder: &str, renewed: Option<&str>| -> Lease {
        of(
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}),
        )
    };
    let (fresh, stale) = (Some("2026-01-01T00:00:58.123456Z"), Some("2026-01-01T00:00:00.000000Z"));
    let leases = [
        lease("cloud-controller-manager", "a_1", fresh),
        lease("rke2-cloud-controller-manager", "a_2", fresh),
        lease("old-cloud-controller-manager", "a_3", stale),
        lease("new-cloud-controller-manager", "a_7", None),
        lease("cloud-provider-extraction-migration", "a_4", fresh),
        lease("kube-controller-manager", "a_5", fresh),
        lease("kube-scheduler", "a_6", fresh),
    ];
    assert_eq!(
        lines(leases::checks(&leases, &options(&[]), now)),
        [
            "error lease lease kube-system/new-cloud-controller-manager",
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
    assert_eq!(
        lines(leases::checks(&leases, &options(&["--dry-run"]), now)),
        ["info lease"],
        "a trial waits for nobody"
    );
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
    let needs = rbac::needs(ACCOUNT, &options, &controllers, &rbac::Provider::default());
    let all = answered(&needs, None, |_| false);
    assert_eq!(lines(all.clone()), ["info rbac"]);
    assert_eq!(all[0].message, format!("every permission is granted to {ACCOUNT}"));

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
        "kubectl apply -f manifests/base/rbac.yaml, or: kubectl create clusterrole ccm-nodes-delete --verb=delete \
         --resource=nodes && kubectl create clusterrolebinding ccm-nodes-delete --clusterrole=ccm-nodes-delete \
         --serviceaccount=kube-system:cloud-controller-manager"
    );
    assert!(find("--verb=get,update,watch").fix.contains(
        "kubectl -n kube-system create role ccm-leases-get-update-watch --verb=get,update,watch \
         --resource=leases.coordination.k8s.io --resource-name=mine && kubectl -n kube-system create rolebinding"
    ));
}

/// The findings where nothing else is granted.
fn missing(granted: &Granted) -> Vec<String> {
    let options = options(&[]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let needs = rbac::needs(ACCOUNT, &options, &controllers, &rbac::Provider::default());
    let mut answers = rbac::Answers { granted: Default::default(), about_us: None };
    answers.granted.extend(needs.questions().into_iter().map(|question| {
        let is_granted = granted.allows(&question);
        (question, is_granted)
    }));
    lines(rbac::checks(&needs, &answers))
}

fn granted(documents: impl IntoIterator<Item = Value>) -> Granted {
    Granted::of(documents, "default".to_owned())
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn role(kind: &str, namespace: &str, rules: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "rules": rules,
        "metadata": {"name": "x", "namespace": namespace}})
}

fn binding(kind: &str, role_kind: &str, account: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "x", "namespace": "kube-system"},
        "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": "x"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}]})
}

#[test]
fn roles_that_will_be_applied_count_for_the_accounts_that_they_are_bound_to() {
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let whole = role("ClusterRole", "", all.clone());
    let bound = |binding: Value| json!({"apiVersion": "v1", "kind": "List", "items": [whole.clone(), binding]});
    let ccm = "cloud-controller-manager";
    assert_eq!(missing(&granted([bound(binding("ClusterRoleBinding", "ClusterRole", ccm))])), ["info rbac"]);
    let nothing = missing(&granted([]));
    assert!(nothing.contains(&"error rbac nodes".to_owned()), "{nothing:?}");
    // Another account, a role that is not bound, a binding of another role, another kind of object.
    assert_eq!(missing(&granted([bound(binding("ClusterRoleBinding", "ClusterRole", "other"))])), nothing);
    assert_eq!(missing(&granted([whole.clone()])), nothing);
    assert_eq!(missing(&granted([bound(binding("ClusterRoleBinding", "Role", ccm))])), nothing);
    assert_eq!(missing(&granted([json!({"apiVersion": "v1", "kind": "ClusterRole", "rules": all})])), nothing);
    // In one namespace: the Lease, and no node.
    for (role_kind, role) in [("ClusterRole", whole.clone()), ("Role", role("Role", "kube-system", all.clone()))] {
        let some = missing(&granted([role, binding("RoleBinding", role_kind, ccm)]));
        assert!(some.contains(&"error rbac nodes".to_owned()), "{role_kind}: {some:?}");
        assert!(!some.contains(&"error rbac leases".to_owned()), "{role_kind}: {some:?}");
    }
    let of_lease = |names: Value| {
        let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": names,
            "verbs": ["get", "update"]}]);
        missing(&granted([role("Role", "kube-system", rules), binding("RoleBinding", "Role", ccm)]))
    };
    let count = |found: Vec<String>| found.iter().filter(|line| *line == "error rbac leases").count();
    // Only its creation is missing; watch is not needed where get is granted.
    assert_eq!(count(of_lease(json!([ccm]))), 1);
    assert_eq!(count(of_lease(json!(["another"]))), 2);
}

#[test]
fn roles_and_bindings_without_a_namespace_are_in_that_of_kubectl() {
    let all = || json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let ccm = "cloud-controller-manager";
    let bound_to = |kind: &str, name: &str| {
        let mut binding = binding("RoleBinding", kind, ccm);
        binding["roleRef"]["name"] = json!(name);
        binding["metadata"].as_object_mut().unwrap().remove("namespace");
        binding
    };
    let of = |documents: &[Value], namespace: &str| missing(&Granted::of(documents.to_vec(), namespace.to_owned()));
    let nothing = of(&[], "default");
    for bound in [
        [role("Role", "", all()), bound_to("Role", "x")],
        [role("ClusterRole", "", all()), bound_to("ClusterRole", "x")],
    ] {
        assert_eq!(of(&bound, "default"), nothing);
        let some = of(&bound, "kube-system");
        assert!(some.contains(&"error rbac nodes".to_owned()), "{some:?}");
        assert!(!some.contains(&"error rbac leases".to_owned()), "{some:?}");
    }
    let reader = [bound_to("Role", "extension-apiserver-authentication-reader")];
    assert_eq!(of(&reader, "default"), nothing);
    let rest: Vec<String> = nothing.into_iter().filter(|line| line != "warning rbac configmaps").collect();
    assert_eq!(of(&reader, "kube-system"), rest);
    // A Role does not replace the ClusterRole of the same name.
    let both = [
        role("ClusterRole", "", all()),
        role("Role", "", json!([])),
        binding("ClusterRoleBinding", "ClusterRole", ccm),
    ];
    assert_eq!(of(&both, "default"), ["info rbac"]);
}

#[test]
fn roles_that_are_bound_to_a_group_count_for_its_accounts() {
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    for (group, expected) in [
        ("system:authenticated", true),
        ("system:serviceaccounts", true),
        ("system:serviceaccounts:kube-system", true),
        ("system:serviceaccounts:default", false),
    ] {
        let mut bound = binding("ClusterRoleBinding", "ClusterRole", "");
        bound["subjects"] = json!([{"kind": "Group", "name": group}]);
        let found = missing(&granted([role("ClusterRole", "", all.clone()), bound]));
        assert_eq!(found == ["info rbac"], expected, "{group}: {found:?}");
    }
}

#[test]
fn a_program_with_a_kubeconfig_is_not_reviewed_as_the_service_account_of_its_pod() {
    let account = |owner: &str, args: &[&str]| {
        let mut found = Found::default();
        found.add(&of(json!({
            "metadata": {"name": "ccm", "namespace": "kube-system", "ownerReferences": [{"kind": owner}]},
            "spec": {"serviceAccountName": "ccm", "containers": [{"command": ["/cloud-controller-manager"], "args": args}]}})));
        pods::account(&found.finish())
    };
    let of_pod = Some("system:serviceaccount:kube-system:ccm".to_owned());
    assert_eq!(account("DaemonSet", &["--v=2"]), of_pod);
    assert_eq!(account("DaemonSet", &["--kubeconfig="]), of_pod);
    assert_eq!(account("DaemonSet", &["--kubeconfig=/etc/ccm/kubeconfig"]), Some(String::new()));
    // kube-up
    assert_eq!(account("Node", &["--v=2"]), Some(String::new()));

    // Others can be asked about the accounts of the controllers only.
    let refused = |more: &[&str]| {
        let options = options(more);
        let controllers: Vec<&Controller> = options.switched_on().collect();
        let needs = rbac::needs("", &options, &controllers, &rbac::Provider::default());
        lines(answered(&needs, None, |_| true))
    };
    assert_eq!(refused(&[]), ["warning rbac"], "of the user of this command");
    let of_controllers = refused(&["--use-service-account-credentials"]);
    assert!(of_controllers.contains(&"error rbac services/status".to_owned()), "{of_controllers:?}");
    assert!(!of_controllers.iter().any(|line| line.contains("token") || line.contains("leases")), "{of_controllers:?}");
}

#[test]
fn a_config_map_that_is_there_is_not_created_and_another_account_may_create_it() {
    const UID: ConfigMapSpec = ConfigMapSpec { namespace: "kube-system", name: "ingress-uid", why: "names of objects" };
    let refused = |own: &str, stored: Option<bool>, account: &str| {
        let options = options(&[own]);
        let provider = rbac::Provider { config_maps: vec![(&UID, stored)], ..rbac::Provider::default() };
        let needs = rbac::needs(ACCOUNT, &options, &[], &provider);
        let is_creation = |question: &str| question.contains("configmaps") && question.contains("\"create\"");
        lines(answered(&needs, None, |question| is_creation(question) && question.contains(account)))
    };
    let (one, own) = ("--use-service-account-credentials=false", "--use-service-account-credentials");
    for (own, stored, account, expected) in [
        (one, Some(true), "", "info rbac"),
        (one, Some(false), "", "error rbac configmaps"),
        // The user of the command may not see it.
        (one, None, "", "warning rbac configmaps"),
        (own, Some(true), "", "info rbac"),
        // As with the roles of kOps.
        (own, Some(false), ACCOUNT, "info rbac"),
        (own, Some(false), "kube-system:cloud-provider", "info rbac"),
        (own, Some(false), "", "error rbac configmaps"),
    ] {
        assert_eq!(refused(own, stored, account), [expected], "{own} {stored:?} {account}");
    }
}

#[test]
fn the_account_is_that_of_the_workload_in_the_files() {
    let workload = |kind: &str, namespace: &str, account: &str| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace},
            "spec": {"template": {"spec": {"serviceAccountName": account,
                "containers": [{"name": "c", "image": "example.com/ccm:1", "args": ["--cloud-provider=aws"]}]}}}})
    };
    let mine = workload("DaemonSet", "cloud", "mine");
    let account = |documents: Vec<Value>| granted(documents).account;
    let wanted = Some("system:serviceaccount:cloud:mine".to_owned());
    assert_eq!(account(vec![mine.clone()]), wanted);
    assert_eq!(account(vec![json!({"apiVersion": "v1", "kind": "List", "items": [mine.clone()]})]), wanted);
    let mut other = workload("Deployment", "cloud", "other");
    assert_eq!(account(vec![mine.clone(), other.clone()]), None, "which one?");
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/web:1");
    assert_eq!(account(vec![mine, other]), wanted, "another program");
    assert_eq!(account(vec![workload("DaemonSet", "", "mine")]), None, "the namespace is that of kubectl's context");
    assert_eq!(account(Vec::new()), None);
}

#[test]
fn rights_of_the_controllers_accounts_are_asked_where_they_have_their_own() {
    let options = options(&["--use-service-account-credentials"]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let needs = rbac::needs("jane", &options, &controllers, &rbac::Provider::default());
    let checks = answered(&needs, None, |question| question.contains("services/status"));
    let check = only(checks, "rbac");
    assert!(
        check.message.starts_with("system:serviceaccount:kube-system:service-controller may not patch services/status")
    );
    let component = "it is the account of one controller (--use-service-account-credentials): add the component \
                     service-account-credentials to the overlay (Helm: serviceAccountCredentials=true), or: kubectl ";
    assert!(check.fix.starts_with(component), "{check:?}");
    let checks = answered(&needs, None, |question| question.contains("serviceaccounts/token"));
    let fix = &checks[0].fix;
    assert!(fix.starts_with("kubectl -n kube-system create role ") && fix.ends_with("--user=jane"), "{fix}");
    let checks = answered(&needs, Some("forbidden"), |question| question.contains("services/status"));
    assert_eq!(lines(checks.clone()), ["warning rbac"]);
    assert!(checks[0].message.ends_with("; the user of this command may not patch services/status"), "{checks:?}");
}

/// kOps's role grants tokens for three accounts by name.
#[test]
fn the_account_of_the_volumes_is_asked_for_with_their_controller_and_is_not_vital() {
    let lines_of = |more: &[&str]| {
        let options = options(&[&["--use-service-account-credentials"], more].concat());
        let controllers: Vec<&Controller> = options.switched_on().collect();
        let needs = rbac::needs("jane", &options, &controllers, &rbac::Provider::default());
        let is_of_volumes = |question: &str| {
            question.contains("\"serviceaccounts/token\"") && question.contains("name: \"pvl-controller\"")
        };
        lines(answered(&needs, None, is_of_volumes))
    };
    assert_eq!(lines_of(&["--controllers=*,-pvlabel"]), ["info rbac"]);
    assert_eq!(lines_of(&[]), ["warning rbac serviceaccounts/token"]);
}

#[test]
fn rights_to_objects_that_load_balancers_depend_on_are_asked_where_the_provider_reads_them() {
    let options = options(&[]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let refused = |related| {
        let needs =
            rbac::needs(ACCOUNT, &options, &controllers, &rbac::Provider { related, ..rbac::Provider::default() });
        lines(answered(&needs, None, |question| question.contains("endpointslices") || question.contains("namespaces")))
    };
    assert_eq!(refused(Related::default()), ["info rbac"]);
    assert_eq!(
        refused(Related { endpoint_slices: true, namespaces: true }),
        ["error rbac endpointslices", "error rbac namespaces"]
    );
}

#[test]
fn the_process_watches_the_objects_that_load_balancers_depend_on() {
    let options = options(&["--use-service-account-credentials"]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let related = Related { endpoint_slices: true, namespaces: false };
    let needs = rbac::needs("jane", &options, &controllers, &rbac::Provider { related, ..rbac::Provider::default() });
    let check = only(answered(&needs, None, |question| question.contains("endpointslices")), "rbac");
    assert!(check.message.starts_with("jane may not list"), "{check:?}");
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
fn webhooks_that_can_refuse_our_writes_are_reported_with_the_writes() {
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
fn a_webhook_whose_service_is_missing_is_an_error_and_a_labeler_of_volumes_a_warning() {
    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "operations": ["UPDATE"]});
    let webhook = |client: Value| json!({"name": "w", "rules": [rule.clone()], "clientConfig": client});
    let missing = webhook(json!({"service": {"namespace": "default", "name": "none"}}));
    assert_eq!(lines(of_webhook("validatingwebhook", missing)), ["error webhook validatingwebhook c/w"]);
    let outside = webhook(json!({"url": "https://example.com"}));
    assert_eq!(lines(of_webhook("validatingwebhook", outside)), ["warning webhook validatingwebhook c/w"]);
    let labeler = json!({"name": "pv", "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "resources": ["persistentvolumes"], "operations": ["CREATE"]}]});
    assert_eq!(lines(of_webhook("mutatingwebhook", labeler.clone())), ["warning volume-labels mutatingwebhook c/pv"]);
    assert_eq!(lines(of_webhook("validatingwebhook", labeler)), ["info webhook"]);
}

#[test]
fn a_long_cause_is_printed_once_and_hidden_findings_are_counted() {
    let cause =
        "no credentials for AWS: the environment names no source of credentials, and the metadata service is off";
    let check = |name: &str| Check::error(name, "", format!("could not be checked: ec2:{name}: {cause}"), "");
    let printed = text(&[check("a"), check("b")], 3, Output::plain(Format::Text));
    assert_eq!(printed.matches(cause).count(), 1, "{printed}");
    assert!(printed.contains("could not be checked: ec2:b: as above\n"), "{printed}");
    assert!(printed.ends_with("2 errors, 0 warnings, 0 notes, 3 hidden by --suppress.\n"), "{printed}");
}

#[test]
fn rights_of_another_user_are_one_finding_without_commands_that_grant_them() {
    let options = options(&[]);
    let controllers: Vec<&Controller> = options.switched_on().collect();
    let needs = rbac::needs(ACCOUNT, &options, &controllers, &rbac::Provider::default());
    let checks = answered(&needs, Some("forbidden"), |_| true);
    assert_eq!(lines(checks.clone()), ["warning rbac"]);
    assert!(checks[0].message.contains("; the user of this command may not "), "{}", checks[0].message);
    assert!(!checks[0].fix.contains("kubectl"), "{}", checks[0].fix);
}
