//! The values of the chart.

use std::collections::BTreeSet;

use ccm_test_manifests::workspace;
use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, release, template, with_components, workload};
use crate::tools::{helm, read};

/// Required values of the chart, with additional ones.
fn with(settings: &str) -> String {
    format!("cloudProvider=fake,image.repository=example.com/ccm,{settings}")
}

fn rendered(settings: &str) -> Option<Vec<Value>> {
    Some(documents(&template(&helm()?, &["--set", &with(settings)]).unwrap()))
}

fn pod(documents: &[Value]) -> &Value {
    &workload(documents)["spec"]["template"]["spec"]
}

#[test]
fn the_chart_refuses_bad_values_and_names_them() {
    let Some(helm) = helm() else { return };
    for (settings, named) in [
        ("kind=DaemonSet", "/cloudProvider"),
        ("cloudProvider=fake,kind=Pod", "/kind"),
        ("cloudProvider=fake,routes.enabled=true", "/routes/clusterCIDR"),
        ("cloudProvider=fake,cloudConfig.inline=a,cloudConfig.existingSecret=b", "/cloudConfig"),
        ("cloudProvider=fake,imag.tag=v1", "imag"),
        ("cloudProvider=fake,securePort=70000", "/securePort"),
        ("cloudProvider=fake,affinity=x", "/affinity"),
        ("cloudProvider=fake,bindAddress=localhost", "/bindAddress"),
        ("cloudProvider=fake,leaderElection.leaseName=a_b", "/leaderElection/leaseName"),
        ("cloudProvider=fake,podLabels.app\\.kubernetes\\.io/name=a", "invalid propertyName 'app.kubernetes.io/name'"),
        ("cloudProvider=fake,fullnameOverride=A_b", "/fullnameOverride"),
        ("cloudProvider=fake,image.digest=abc", "/image/digest"),
        ("cloudProvider=fake,volumeWebhook.enabled=true,volumeWebhook.caBundle=a", "/volumeWebhook/tlsSecret"),
        ("cloudProvider=fake,volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a", "/volumeWebhook"),
        ("cloudProvider=aws,serviceAccount.annotations.a=1", "/serviceAccount/annotations/a"),
    ] {
        let said = template(&helm, &["--set", settings]).unwrap_err();
        assert!(said.contains(named), "{settings}: {said}");
    }
    template(&helm, &["--set", "cloudProvider=fake,image.repository=a"]).unwrap();
}

#[test]
fn gates_of_the_user_leave_the_gate_of_the_webhook_on() {
    let Some(helm) = helm() else { return };
    let webhook = "cloudProvider=aws,image.repository=a,volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a,volumeWebhook.caBundle=b";
    let gates = |flags: &str| {
        let text = template(&helm, &["--set", &format!("{webhook},{flags}")]).unwrap();
        let gates = text.lines().filter_map(|line| line.trim().strip_prefix("- \"--feature-gates="));
        gates.map(|gate| gate.trim_end_matches('"').to_owned()).collect::<Vec<_>>()
    };
    const OURS: &str = "CloudControllerManagerWebhook=true";
    assert_eq!(gates("flags.v=3"), [OURS]);
    assert_eq!(gates("flags.feature-gates=A=true"), [OURS, "A=true"]);
    assert_eq!(gates("flags.feature-gates={A=true,B=false}"), [OURS, "A=true", "B=false"]);
    assert_eq!(gates("flags.feature-gates=null"), [""; 0]);
    // The user can disable it.
    let off = "CloudControllerManagerWebhook=false";
    assert_eq!(gates(&format!("flags.feature-gates={off}")), [OURS, off]);
}

#[test]
fn large_numbers_of_flags_are_written_out() {
    let Some(helm) = helm() else { return };
    let flags = r#"flags={"kube-api-burst":2000000,"kube-api-qps":0.5,"named":[1000000,"a"]}"#;
    let text = template(&helm, &["--set", "cloudProvider=fake,image.repository=a", "--set-json", flags]).unwrap();
    for flag in ["--kube-api-burst=2000000", "--kube-api-qps=0.5", "--named=1000000", "--named=a"] {
        assert!(text.contains(&format!("- \"{flag}\"\n")), "{flag}: {text}");
    }
}

#[test]
fn settings_that_would_not_work_are_refused_with_the_fix() {
    let Some(helm) = helm() else { return };
    let refused = |settings: &str, parts: &[&str]| {
        let said = template(&helm, &["--set", settings]).unwrap_err();
        assert!(parts.iter().all(|part| said.contains(part)), "{settings}: {said}");
    };
    refused("cloudProvider=fake", &["image.repository is required", "image.tag"]);
    refused(&with("serviceAccount.create=false"), &["serviceAccount.name is required"]);
    for more in ["", ",bindAddress=::1", ",bindAddress=0.0.0.0,securePort=0"] {
        refused(&with(&format!("metrics.serviceMonitor.enabled=true{more}")), &["serviceMonitor", "0.0.0.0"]);
    }
    refused(&with("hostNetwork=false"), &["probes", "0.0.0.0"]);
    let scraped = with("metrics.serviceMonitor.enabled=true,bindAddress=0.0.0.0");
    refused(&format!("{scraped},flags.bind-address=127.0.0.1"), &["bind-address", "set bindAddress"]);
    for (flag, value) in [("leader-elect-resource-name", "leaderElection.leaseName"), ("secure-port", "securePort")] {
        for given in [format!("flags.{flag}=1"), format!("extraArgs={{--{flag}=1}}")] {
            refused(&with(&given), &[&format!("flag {flag}"), &format!("set {value}")]);
        }
    }
    for given in ["flags.dry-run=false", "extraArgs={--dry-run=false}", "extraArgs={--v=2,--dry_run}"] {
        refused(&with(&format!("trial=true,{given}")), &["trial", "dry-run"]);
    }
    let webhook =
        "volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a,volumeWebhook.caBundle=b,volumeWebhook.port=10258";
    refused(&with(webhook), &["volumeWebhook.port", "10258"]);
    let digest = format!("image.digest=sha256:{},image.tag=mine", "a".repeat(64));
    refused(&with(&digest), &["image.tag mine", "image.digest", "the digest wins"]);
    let on_delete = "updateStrategy.type=OnDelete,updateStrategy.rollingUpdate=null";
    refused(&with(&format!("kind=Deployment,{on_delete}")), &["updateStrategy.type OnDelete", "a Deployment has none"]);
    refused(
        &with("updateStrategy.type=Recreate,updateStrategy.rollingUpdate=null"),
        &["Recreate", "a DaemonSet has none"],
    );
    // A trial is a Deployment of one replica.
    let trial = template(&helm, &["--set", &with(&format!("trial=true,{on_delete}"))]).unwrap();
    assert!(trial.contains("kind: Deployment") && !trial.contains("OnDelete"), "{trial}");
    for works in ["metrics.serviceMonitor.enabled=true,bindAddress=::", "hostNetwork=false,bindAddress=0.0.0.0"] {
        template(&helm, &["--set", &with(works)]).unwrap();
    }
}

#[test]
fn labels_of_the_pods_win_over_the_common_ones() {
    let Some(documents) = rendered("commonLabels.a=1x,commonLabels.b=2x,podLabels.a=3x") else { return };
    let labels = &workload(&documents)["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["a"], &labels["b"]), (&json!("3x"), &json!("2x")));
}

#[test]
fn two_releases_in_one_namespace_share_no_object() {
    let Some(helm) = helm() else { return };
    let values = workspace().join("tests/manifests/values/full.yaml");
    let identities = |name: &str| -> BTreeSet<String> {
        let text = release(&helm, name, &["--values", values.to_str().unwrap()]).unwrap();
        let identity = |one: &Value| {
            format!("{} {}/{}", one["kind"], one["metadata"]["namespace"], one["metadata"]["name"].as_str().unwrap())
        };
        documents(&text).iter().map(identity).collect()
    };
    let (one, other) = (identities("one"), identities("other"));
    assert!(one.len() > 15, "{one:?}");
    let shared: Vec<&String> = one.intersection(&other).collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

/// By default Prometheus sets the label `job` to the name of the Service, which starts with that of the release.
#[test]
fn the_job_is_the_one_that_the_alerts_select() {
    let Some(text) = chart("full") else { return };
    let documents = documents(&text);
    let kind = |kind: &str| documents.iter().find(|one| one["kind"] == kind).unwrap();
    let label = kind("ServiceMonitor")["spec"]["jobLabel"].as_str().unwrap();
    let service = documents.iter().find(|one| one["kind"] == "Service" && one["spec"]["clusterIP"] == "None").unwrap();
    assert_eq!(service["metadata"]["labels"][label], "cloud-controller-manager");
}

#[test]
fn an_affinity_of_the_user_replaces_the_rule_and_an_empty_one_removes_it() {
    let Some(helm) = helm() else { return };
    for kind in ["DaemonSet", "Deployment"] {
        let affinity = |value: &str| {
            let text = template(&helm, &["--set", &with(&format!("kind={kind}")), "--set-json", value]).unwrap();
            pod(&documents(&text))["affinity"].clone()
        };
        let default = affinity("affinity=null");
        assert!(default.to_string().contains("node-role.kubernetes.io/control-plane"), "{default}");
        assert_eq!(affinity("affinity={}"), Value::Null);
        let own = json!({"podAffinity": {"a": "b"}});
        assert_eq!(affinity(&format!("affinity={own}")), own);
    }
}

#[test]
fn tolerations_of_the_user_and_additional_ones_are_both_there() {
    let Some(helm) = helm() else { return };
    let listed = |keys: &[&str]| Value::from_iter(keys.iter().map(|key| json!({"key": key})));
    let tolerations = |own: &Value, extra: &Value| {
        let values = format!("tolerations={own},extraTolerations={extra}");
        let text = template(&helm, &["--set", &with("kind=DaemonSet"), "--set-json", &values]).unwrap();
        pod(&documents(&text))["tolerations"].as_array().cloned().unwrap_or_default()
    };
    for own in [&[][..], &["a"], &["a", "b"]] {
        for extra in [&[][..], &["x"], &["x", "y"]] {
            let expected = listed(&[own, extra].concat());
            assert_eq!(tolerations(&listed(own), &listed(extra)), *expected.as_array().unwrap(), "{own:?} {extra:?}");
        }
    }
    let default = tolerations(&Value::Null, &Value::Null);
    let more = [default.as_slice(), &[json!({"key": "x"})]].concat();
    assert_eq!(tolerations(&Value::Null, &listed(&["x"])), more);
}

/// As YAML has them whose entries are all comments.
#[test]
fn keys_without_a_value_are_empty() {
    let Some(helm) = helm() else { return };
    let keys =
        ["commonLabels", "commonAnnotations", "podLabels", "podAnnotations", "serviceAccount.annotations", "flags"];
    for (key, provider) in keys.iter().flat_map(|key| [(key, "azure"), (key, "gce")]) {
        let settings = with("volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a,volumeWebhook.caBundle=b");
        template(&helm, &["--set", &format!("{settings},controllers={{*}},cloudProvider={provider},{key}=null")])
            .unwrap();
    }
}

#[test]
fn null_drops_a_flag_that_the_chart_sets() {
    let Some(text) = helm().map(|helm| template(&helm, &["--set", &with("flags.cluster-name=null")]).unwrap()) else {
        return;
    };
    let args = args(workload(&documents(&text)));
    assert!(!args.is_empty() && !args.iter().any(|arg| arg.starts_with("--cluster-name")), "{args:?}");
    // Helm 4.0 removes a null of the user where the chart has a map.
    assert!(read("charts/ccm/values.yaml").contains("\nflags: null\n"));
}

#[test]
fn without_the_lifecycle_of_nodes_no_role_may_delete_one() {
    let deletes = |controllers: &str| {
        let documents = rendered(&format!("rbac.controllerRoles=true,{controllers}"))?;
        let verbs = documents.iter().flat_map(|one| one["rules"].as_array().cloned().unwrap_or_default());
        Some(verbs.filter(|rule| rule["verbs"].as_array().unwrap().contains(&"delete".into())).count())
    };
    for (controllers, expected) in [
        ("kind=DaemonSet", 2),
        ("controllers={*}", 2),
        ("controllers={*,-route}", 2),
        ("controllers={cloud-node-lifecycle}", 2),
        ("controllers={*,-cloud-node-lifecycle}", 0),
        ("controllers={*,-cloud-node-lifecycle-controller}", 0),
        ("controllers={cloud-node,service}", 0),
    ] {
        let Some(found) = deletes(controllers) else { return };
        assert_eq!(found, expected, "{controllers}");
    }
}

#[test]
fn the_chart_with_its_defaults_is_the_base() {
    let (Some(chart), Some(base)) = (chart("minimal"), with_components(&[])) else { return };
    let (chart, base) = (documents(&chart), documents(&base));
    // Values that depend on the release and on the image.
    let common = |documents: &[Value]| {
        let mut pod = pod(documents).clone();
        pod["serviceAccountName"].take();
        for field in ["args", "image"] {
            pod["containers"][0][field].take();
        }
        let rules = documents.iter().find(|one| one["kind"] == "ClusterRole").unwrap()["rules"].clone();
        (pod, rules)
    };
    assert_eq!(common(&chart), common(&base));
    let of_chart = args(workload(&chart));
    let missing: Vec<String> = args(workload(&base)).into_iter().filter(|arg| !of_chart.contains(arg)).collect();
    assert!(missing.is_empty(), "{missing:?} not in {of_chart:?}");
}

#[test]
fn secret_digest_and_name_of_the_user_are_taken() {
    let Some(text) = chart("secret") else { return };
    let documents = documents(&text);
    let pod = pod(&documents);
    let digest = "example/ccm@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_eq!(pod["containers"][0]["image"], digest);
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "my-cloud");
    assert!(args(workload(&documents)).contains(&"--cloud-config=/etc/cloud/cloud.yaml".to_owned()));
    assert!(!text.contains("kind: Secret"));
    let named = documents.iter().all(|one| one["metadata"]["name"].as_str().unwrap().starts_with("my-ccm"));
    assert!(named, "{text}");
}

/// As in the Go program: other keys of the Secret are named by their path.
#[test]
fn the_folder_of_the_configuration_can_be_chosen() {
    let Some(helm) = helm() else { return };
    let settings = with("cloudConfig.existingSecret=a,cloudConfig.mountPath=/etc/config");
    let documents = documents(&template(&helm, &["--set", &settings]).unwrap());
    assert_eq!(pod(&documents)["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/config");
    assert!(args(workload(&documents)).contains(&"--cloud-config=/etc/config/cloud.conf".to_owned()));
}

/// Providers read the file once, so the pods must start again.
#[test]
fn a_change_of_the_configuration_changes_the_pods() {
    let Some(helm) = helm() else { return };
    let template_of = |settings: &str| {
        let text = template(&helm, &["--set", &with(settings)]).unwrap();
        workload(&documents(&text))["spec"]["template"].clone()
    };
    assert_ne!(template_of("cloudConfig.inline=a"), template_of("cloudConfig.inline=b"));
    assert_eq!(template_of("cloudConfig.existingSecret=a")["metadata"]["annotations"], Value::Null);
}

#[test]
fn the_values_of_the_charts_of_the_go_programs_have_their_place() {
    let Some(helm) = helm() else { return };
    let text = template(
        &helm,
        &[
            "--set",
            &with("nameOverride=occm,commonAnnotations.a=b,serviceAccount.annotations.c=d,extraArgs={--v=4}"),
            "--set-json",
            r#"tolerations=[{"key":"mine"}]"#,
            "--set-json",
            r#"hostAliases=[{"ip":"10.0.0.1","hostnames":["keystone"]}]"#,
            "--set-json",
            r#"initContainers=[{"name":"wait","image":"example.com/wait"}]"#,
            "--set-json",
            r#"rbac.additionalRules=[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]"#,
        ],
    )
    .unwrap();
    let documents = documents(&text);
    let pod = pod(&documents);
    assert_eq!(pod["tolerations"], json!([{"key": "mine"}]));
    assert_eq!(pod["hostAliases"][0]["hostnames"][0], "keystone");
    assert_eq!(pod["initContainers"][0]["name"], "wait");
    assert_eq!(args(workload(&documents)).last().unwrap(), "--v=4");
    for one in &documents {
        assert_eq!(one["metadata"]["annotations"]["a"], "b", "{one}");
        assert!(one["metadata"]["name"].as_str().unwrap().contains("-occm"), "{one}");
    }
    let account = documents.iter().find(|one| one["kind"] == "ServiceAccount").unwrap();
    assert_eq!(account["metadata"]["annotations"]["c"], "d");
    let role = documents.iter().find(|one| one["kind"] == "ClusterRole").unwrap();
    assert!(role["rules"].to_string().contains("secrets"), "{role}");
}

/// A trial: of the chart for two providers, and of the component, alone and with others.
#[test]
fn a_trial_has_no_port_and_its_roles_only_read() {
    let chart = |provider: &str| {
        // With the name of the program that runs now.
        let named = "fullnameOverride=cloud-controller-manager,kind=DaemonSet,serviceAccountCredentials=true";
        let settings = with(&format!("trial=true,cloudProvider={provider},{named}"));
        let rules = r#"rbac.additionalRules=[{"apiGroups":["a"],"resources":["b"],"verbs":["get","patch"]},
            {"apiGroups":["a"],"resources":["c"],"verbs":["*"]},{"apiGroups":["a"],"resources":["d"],"verbs":["create"]}]"#;
        let text = template(&helm()?, &["--set", &settings, "--set-json", rules]).unwrap();
        let all = documents(&text);
        let role = all.iter().find(|one| one["kind"] == "ClusterRole").unwrap();
        let added: Vec<&Value> =
            role["rules"].as_array().unwrap().iter().filter(|one| one["apiGroups"][0] == "a").collect();
        let rule = |resource: &str, verbs: Value| json!({"apiGroups": ["a"], "resources": [resource], "verbs": verbs});
        assert_eq!(added, [&rule("b", json!(["get"])), &rule("c", json!(["get", "list", "watch"]))]);
        Some(all)
    };
    let components = [&["trial"][..], &["deployment", "cloud-config", "controller-roles", "routes", "trial"]];
    let components = components.map(|names| with_components(names).map(|text| documents(&text)));
    for documents in [chart("fake"), chart("gce")].into_iter().chain(components) {
        let Some(documents) = documents else { return };
        let workload = workload(&documents);
        let container = &pod(&documents)["containers"][0];
        for field in ["ports", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[field], Value::Null);
        }
        let args = args(workload);
        assert!(
            args.contains(&"--dry-run=true".to_owned()) && args.contains(&"--secure-port=0".to_owned()),
            "{args:?}"
        );
        let rules = documents.iter().flat_map(|one| one["rules"].as_array().cloned().unwrap_or_default());
        let verbs = rules.flat_map(|rule| rule["verbs"].as_array().cloned().unwrap());
        let verbs: BTreeSet<String> = verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect();
        assert!(verbs.contains("list"), "{verbs:?}");
        assert!(verbs.iter().all(|verb| ["get", "list", "watch"].contains(&&**verb)), "{verbs:?}");
        // Nothing is shared with the manifests of the base.
        let base = documents.iter().any(|one| one["metadata"]["name"] == "cloud-controller-manager");
        assert!(!base, "{documents:#?}");
    }
}
