use super::*;
use crate::program::Program;

fn converted(from: &str, given: &Value) -> (Value, Vec<String>, Vec<String>) {
    let chart = CHARTS.iter().find(|chart| chart.name == from).unwrap();
    let program = Program::default();
    let made = convert(chart, given.as_object().unwrap().clone(), &program.flags);
    let keys = |lines: &[Line]| {
        let mut keys: Vec<String> = lines.iter().map(|line| line.key.clone()).collect();
        keys.sort();
        keys
    };
    (Value::Object(made.values.clone()), keys(&made.taken), keys(&made.open))
}

/// With what the chart for AWS sets by itself.
fn with_defaults_of_aws(mut values: Value) -> Value {
    let defaults = json!({"affinity": {}, "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "resources": {"requests": {"cpu": "200m"}}, "priorityClassName": "system-node-critical"});
    merge(&mut values, defaults);
    values
}

fn leaves(above: &str, value: &Value, found: &mut Vec<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                leaves(&if above.is_empty() { name.clone() } else { format!("{above}.{name}") }, value, found);
            }
        }
        _ => found.push(above.to_owned()),
    }
}

/// Each key of the file is among the results, or something below it.
#[track_caller]
fn none_is_lost(from: &str, given: &Value) {
    let (_, taken, open) = converted(from, given);
    let all: Vec<&String> = taken.iter().chain(&open).collect();
    let mut keys = Vec::new();
    leaves("", given, &mut keys);
    for key in keys {
        let names = |known: &&&String| {
            let known = known.split(' ').next().unwrap();
            key == known || key.strip_prefix(known).is_some_and(|rest| rest.starts_with('.'))
        };
        assert!(all.iter().any(|known| names(&known)), "{key} is lost: {all:?}");
    }
}

#[test]
fn every_key_of_the_charts_is_taken_or_listed() {
    for chart in &CHARTS {
        let mut given = json!({});
        for (key, take) in chart.rows {
            let mut value = match take {
                Take::Flag("secure-port") | Take::Flag("v") => json!(2),
                _ => json!("x"),
            };
            for name in key.rsplit('.') {
                value = json!({ name: value });
            }
            merge(&mut given, value);
        }
        none_is_lost(chart.name, &given);
    }
    let unknown = json!({"args": ["--no-such-flag=1", "word"], "misspelt": {"a": 1}, "image": {"digest": "x"}});
    none_is_lost("aws", &unknown);
    let (_, _, open) = converted("aws", &unknown);
    assert_eq!(open, ["args --no-such-flag=1", "args word", "image.digest", "misspelt"]);
    let (values, ..) = converted("aws", &json!({"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}));
    assert_eq!(values["affinity"], json!({}));
}

#[test]
fn arguments_become_values_or_flags() {
    let given = json!({"args": ["--v=4", "--cloud-provider=aws", "--cluster-cidr=10.0.0.0/16", "--controllers=*,-route",
        "--use-service-account-credentials", "--secure-port=10300", "--node_monitor_period=10s",
        "--feature-gates=A=true", "--feature-gates=B=true"]});
    let (values, _, open) = converted("aws", &given);
    assert_eq!(open, [""; 0]);
    let wanted = json!({
        "cloudProvider": "aws", "verbosity": 4, "controllers": ["*", "-route"], "serviceAccountCredentials": true,
        "routes": {"enabled": true, "clusterCIDR": "10.0.0.0/16"}, "securePort": 10300,
        "serviceAccount": {"name": "cloud-controller-manager"}, "hostNetwork": false, "bindAddress": "0.0.0.0",
        "flags": {"node-monitor-period": "10s", "feature-gates": ["A=true", "B=true"]},
    });
    assert_eq!(values, with_defaults_of_aws(wanted));
    // Without routes, the range is that of the nodes.
    let given = json!({"args": ["--cluster-cidr=10.0.0.0/16", "--configure-cloud-routes=false"]});
    let (values, ..) = converted("aws", &given);
    assert_eq!(values["flags"]["cluster-cidr"], "10.0.0.0/16");
}

/// As in Go.
#[test]
fn controllers_that_are_given_again_add_up() {
    let (values, ..) = converted("aws", &json!({"args": ["--controllers=*", "--controllers=-route,-service"]}));
    assert_eq!(values["controllers"], json!(["*", "-route", "-service"]));
    let (values, ..) = converted("openstack", &json!({"controllerExtraArgs": "- --controllers=-route"}));
    let of_chart = ["cloud-node", "cloud-node-lifecycle", "route", "service"];
    assert_eq!(values["controllers"], json!([&of_chart[..], &["-route"]].concat()));
}

#[test]
fn the_arguments_of_the_user_come_after_those_that_the_chart_of_openstack_sets() {
    let given = json!({"controllerExtraArgs": "- --controllers=-route\n- --v=5\n- --bind-address=10.0.0.1\n- --cloud-config=/x\n",
        "enabledControllers": ["*"], "logVerbosityLevel": 2, "serviceMonitor": {"enabled": true}, "secret": {"enabled": false}});
    let (values, ..) = converted("openstack", &given);
    assert_eq!(values["controllers"], json!(["*", "-route"]));
    assert_eq!((&values["verbosity"], &values["bindAddress"]), (&json!(5), &json!("10.0.0.1")));
    assert_eq!(values["flags"], json!({"cloud-config": "/x"}));
}

#[test]
fn the_value_of_a_flag_may_be_the_next_argument() {
    let args = [
        "--cluster-name",
        "prod",
        "-v",
        "3",
        "--use_service_account_credentials",
        "--configure-cloud-routes=T",
        "--cluster-cidr=10.0.0.0/16",
        "--bind-address=10.0.0.1",
    ];
    let (values, _, open) = converted("aws", &json!({"args": args, "hostNetworking": true}));
    assert_eq!(open, [""; 0]);
    let wanted = json!({
        "cloudProvider": "aws", "clusterName": "prod", "verbosity": 3, "serviceAccountCredentials": true,
        "routes": {"enabled": true, "clusterCIDR": "10.0.0.0/16"}, "hostNetwork": true, "bindAddress": "10.0.0.1",
        "serviceAccount": {"name": "cloud-controller-manager"},
    });
    assert_eq!(values, with_defaults_of_aws(wanted));
}

#[test]
fn a_whole_file_of_openstack_comes_before_its_sections() {
    let given = json!({"cloudConfigContents": "[Global]\nregion=a\n", "cloudConfig": {"global": {"region": "b"}}});
    let (values, _, open) = converted("openstack", &given);
    assert_eq!(values["cloudConfig"]["inline"], "[Global]\nregion=a\n");
    assert_eq!(open, ["secret.create"]);
}

#[test]
fn what_a_chart_sets_by_itself_stays() {
    let (values, _, open) = converted("openstack", &json!({"secret": {"create": false, "name": "mine"}}));
    assert_eq!(values["controllers"], json!(["cloud-node", "cloud-node-lifecycle", "route", "service"]));
    assert_eq!(values["cloudConfig"], json!({"existingSecret": "mine", "mountPath": "/etc/config"}));
    assert_eq!(values["extraVolumes"][0]["hostPath"]["path"], "/etc/kubernetes/pki");
    assert_eq!(open, [""; 0]);
    let (values, _, open) = converted("azure", &json!({}));
    assert_eq!(values["routes"], json!({"enabled": true, "clusterCIDR": "10.244.0.0/16"}));
    assert_eq!((&values["kind"], &values["securePort"]), (&json!("Deployment"), &json!(10268)));
    assert_eq!(values["controllers"], json!(["*", "-cloud-node"]));
    assert_eq!(open, ["cloudControllerManager.cloudConfig", "cloudNodeManager"]);
}

#[test]
fn the_sections_of_openstack_become_the_file() {
    let given = json!({"cloudConfig": {"global": {"auth-url": "https://k/v3", "password": "a\"b"}, "route": {"router-id": 1, "empty": null}},
        "controllerExtraArgs": "- --cluster-cidr=10.0.0.0/16\n# a comment\n- \"--user-agent=x\"\n"});
    let (values, taken, _) = converted("openstack", &given);
    let file = "[Global]\nauth-url = \"https://k/v3\"\npassword = \"a\\\"b\"\n[Route]\nrouter-id = \"1\"\n";
    assert_eq!(values["cloudConfig"]["inline"], file);
    assert_eq!(values["routes"]["clusterCIDR"], "10.0.0.0/16");
    assert!(taken.contains(&"controllerExtraArgs --cluster-cidr=10.0.0.0/16".to_owned()), "{taken:?}");
}

#[test]
fn the_result_is_yaml_with_every_key_in_its_comments() {
    let chart = &CHARTS[0];
    let given = json!({"env": [{"name": "A", "value": "yes"}], "image": {"tag": "v1"}, "podAnnotations": {"on": "1"}});
    let program = Program::default();
    let made = convert(chart, given.as_object().unwrap().clone(), &program.flags);
    let text = made.render(chart, Output::plain(Format::Text));
    let wanted = "#   env: extraEnv\n";
    assert!(text.starts_with("# From values of the chart of cloud-provider-aws") && text.contains(wanted), "{text}");
    let yaml: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    assert!(yaml.contains("extraEnv:\n  -\n    name: \"A\"\n    value: \"yes\"\n"), "{yaml}");
    assert!(yaml.contains("podAnnotations:\n  \"on\": \"1\"\n"), "{yaml}");
}

#[test]
fn a_node_selector_is_merged_with_that_of_the_chart_and_null_deletes_it() {
    let label = "node-role.kubernetes.io/control-plane";
    for chart in &CHARTS {
        let selected = |selector: Value| {
            let key = if chart.name == "azure" { "cloudControllerManager" } else { "" };
            let given = json!({"nodeSelector": selector});
            let given = if key.is_empty() { given } else { json!({ key: given }) };
            let (values, ..) = converted(chart.name, &given);
            assert_eq!(values["affinity"], json!({}), "{}", chart.name);
            values["nodeSelector"].clone()
        };
        assert_eq!(selected(json!({"kubernetes.io/os": "linux"})), json!({"kubernetes.io/os": "linux", label: ""}));
        assert_eq!(selected(json!({})), json!({label: ""}));
        assert_eq!(selected(json!({label: null})), Value::Null);
        assert_eq!(selected(Value::Null), Value::Null);
    }
}

#[test]
fn null_deletes_the_tolerations_of_the_chart() {
    let (values, ..) = converted("aws", &json!({"tolerations": null}));
    assert_eq!(values["tolerations"], json!([]));
}

/// Helm merges the values with those of this chart, which has `runAsNonRoot: true`: the kubelet would refuse the pod.
#[test]
fn a_program_that_runs_as_root_there_may_do_so_here() {
    for chart in ["aws", "openstack"] {
        for (key, ours) in
            [("podSecurityContext", "podSecurityContext"), ("securityContext", "containerSecurityContext")]
        {
            let context = |given: Value| converted(chart, &json!({ key: given })).0[ours].clone();
            let of_root = json!({"runAsUser": 0, "runAsNonRoot": false, "fsGroup": 5});
            assert_eq!(context(json!({"runAsUser": 0, "fsGroup": 5})), of_root, "{chart}: {key}");
            let of_another = json!({"runAsUser": 7, "fsGroup": 5});
            assert_eq!(context(of_another.clone()), of_another, "{chart}: {key}");
        }
    }
}

#[test]
fn secrets_of_images_may_be_names_alone() {
    for chart in ["aws", "openstack"] {
        let (values, taken, _) = converted(chart, &json!({"imagePullSecrets": ["a", {"name": "b"}]}));
        assert_eq!(values["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]), "{chart}");
        assert!(taken.iter().any(|line| line == "imagePullSecrets"), "{chart}: {taken:?}");
    }
}

#[test]
fn files_without_values_change_nothing() {
    let values = json!({"a": {"b": 1}});
    assert_eq!(given([Value::Null]), Ok(Map::new()));
    assert_eq!(given([values.clone(), Value::Null]).map(Value::from), Ok(values));
    assert!(given([json!([1])]).unwrap_err().contains("expected a map"));
}

#[test]
fn a_manifest_is_not_taken_for_values() {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x"}});
    let error = given([manifest]).unwrap_err();
    assert!(error.contains("a manifest (DaemonSet)") && error.contains("helm get values"), "{error}");
}

#[test]
fn empty_keys_of_openstack_are_not_in_the_file() {
    let given =
        json!({"cloudConfig": {"global": {"region": null}, "loadBalancer": {"floating-network-id": null, "a": ""}}});
    let (values, ..) = converted("openstack", &given);
    assert_eq!(values["cloudConfig"]["inline"], "[Global]\n[LoadBalancer]\na = \"\"\n");
}

#[test]
fn the_variables_of_a_container_are_expanded_and_templates_are_left_to_the_user() {
    let given = json!({"cluster": {"name": "prod"}, "controllerExtraArgs":
        "- --cluster-name=$(CLUSTER_NAME)\n- --cloud-config=$(CLOUD_CONFIG)\n- --cluster-cidr={{ .Values.x }}\n"});
    let (values, _, open) = converted("openstack", &given);
    assert_eq!((&values["clusterName"], &values["routes"]), (&json!("prod"), &Value::Null));
    assert_eq!(values["flags"]["cloud-config"], "/etc/config/cloud.conf");
    assert!(open.contains(&"controllerExtraArgs --cluster-cidr={{ .Values.x }}".to_owned()), "{open:?}");
}

#[test]
fn the_node_manager_of_azure_is_always_named() {
    for (given, word) in
        [(json!({}), "uninstall"), (json!({"cloudNodeManager": {"enabled": false}}), "no other program")]
    {
        let program = Program::default();
        let made = convert(&CHARTS[1], given.as_object().unwrap().clone(), &program.flags);
        let line = made.open.iter().find(|line| line.key == "cloudNodeManager").unwrap();
        assert!(line.text.contains(word), "{given}: {}", line.text);
    }
}

#[test]
fn a_strategy_without_rolling_updates_clears_their_limits() {
    let strategy = |given: Value| {
        converted("azure", &json!({"cloudControllerManager": {"updateStrategy": given}})).0["updateStrategy"].clone()
    };
    assert_eq!(strategy(json!({"type": "Recreate"})), json!({"type": "Recreate", "rollingUpdate": null}));
    let rolling = json!({"rollingUpdate": {"maxSurge": 1}});
    assert_eq!(strategy(rolling.clone()), rolling);
}

const SAME: &str = "the same here";
const TOLERATIONS: &str = "this chart tolerates more; what only that of Azure tolerates is added";
/// What the `values.yaml` of the charts set, except images and roles; with the reason where it is not a default here.
const THEIRS: [(&str, &str, &str, &str); 27] = [
    ("aws", "args", r#"["--v=2", "--cloud-provider=aws"]"#, ""),
    ("aws", "nodeSelector", r#"{"node-role.kubernetes.io/control-plane": ""}"#, ""),
    ("aws", "resources", r#"{"requests": {"cpu": "200m"}}"#, ""),
    ("aws", "tolerations", "[]", TOLERATIONS),
    ("aws", "dnsPolicy", r#""Default""#, SAME),
    ("aws", "serviceAccountName", r#""cloud-controller-manager""#, ""),
    ("aws", "nameOverride", r#""aws-cloud-controller-manager""#, "the objects have names of their own"),
    ("azure", "infra.clusterName", r#""kubernetes""#, ""),
    ("azure", "cloudControllerManager.enabled", "true", SAME),
    ("azure", "cloudControllerManager.allocateNodeCidrs", r#""true""#, ""),
    ("azure", "cloudControllerManager.cloudConfig", r#""/etc/kubernetes/azure.json""#, ""),
    ("azure", "cloudControllerManager.clusterCIDR", r#""10.244.0.0/16""#, ""),
    ("azure", "cloudControllerManager.configureCloudRoutes", r#""true""#, ""),
    ("azure", "cloudControllerManager.leaderElect", r#""true""#, SAME),
    ("azure", "cloudControllerManager.logVerbosity", r#""2""#, SAME),
    ("azure", "cloudControllerManager.replicas", "1", ""),
    ("azure", "cloudControllerManager.routeReconciliationPeriod", r#""10s""#, SAME),
    ("azure", "cloudControllerManager.securePort", "10268", ""),
    (
        "azure",
        "cloudControllerManager.containerResourceManagement",
        r#"{"requestsCPU": "100m", "requestsMem": "128Mi", "limitsCPU": "4", "limitsMem": "2Gi"}"#,
        "",
    ),
    ("azure", "cloudControllerManager.tolerations", "[]", TOLERATIONS),
    ("azure", "cloudControllerManager.nodeSelector", r#"{"node-role.kubernetes.io/control-plane": ""}"#, ""),
    ("azure", "cloudNodeManager.enabled", "true", ""),
    ("openstack", "nodeSelector", r#"{"node-role.kubernetes.io/control-plane": ""}"#, ""),
    ("openstack", "podSecurityContext", r#"{"runAsUser": 1001}"#, ""),
    ("openstack", "enabledControllers", r#"["cloud-node", "cloud-node-lifecycle", "route", "service"]"#, ""),
    ("openstack", "secret", r#"{"enabled": true, "create": true, "name": "cloud-config"}"#, ""),
    ("openstack", "dnsPolicy", r#""ClusterFirst""#, ""),
];

#[test]
fn every_default_of_the_charts_is_kept_or_left_for_a_reason() {
    for (chart, path, value, why) in THEIRS {
        let known = CHARTS.iter().find(|known| known.name == chart).unwrap();
        let defaults: Value = serde_json::from_str(known.defaults).unwrap();
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(*at(&defaults, path) == value, why.is_empty(), "{chart}: {path}");
    }
}
