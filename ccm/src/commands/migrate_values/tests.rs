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
    assert_eq!(values, wanted);
    // Without routes, the range is that of the nodes.
    let given = json!({"args": ["--cluster-cidr=10.0.0.0/16", "--configure-cloud-routes=false"]});
    let (values, ..) = converted("aws", &given);
    assert_eq!(values["flags"]["cluster-cidr"], "10.0.0.0/16");
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
    assert_eq!(values, wanted);
}

#[test]
fn a_whole_file_of_openstack_comes_before_its_sections() {
    let given = json!({"cloudConfigContents": "[Global]\nregion=a\n", "cloudConfig": {"global": {"region": "b"}}});
    let (values, _, open) = converted("openstack", &given);
    assert_eq!(values["cloudConfig"]["inline"], "[Global]\nregion=a\n");
    assert_eq!(open, [""; 0]);
}

#[test]
fn what_a_chart_sets_by_itself_stays() {
    let (values, _, open) = converted("openstack", &json!({"secret": {"create": false, "name": "mine"}}));
    assert_eq!(values["controllers"], json!(["cloud-node", "cloud-node-lifecycle", "route", "service"]));
    assert_eq!(values["cloudConfig"], json!({"existingSecret": "mine"}));
    assert_eq!(values["extraVolumes"][0]["hostPath"]["path"], "/etc/kubernetes/pki");
    assert_eq!(open, [""; 0]);
    let (values, _, open) = converted("azure", &json!({}));
    assert_eq!(values["routes"], json!({"enabled": true, "clusterCIDR": "10.244.0.0/16"}));
    assert_eq!((&values["kind"], &values["securePort"]), (&json!("Deployment"), &json!(10268)));
    assert_eq!(values["controllers"], json!(["*", "-cloud-node"]));
    assert_eq!(open, ["cloudControllerManager.cloudConfig"]);
}

#[test]
fn the_sections_of_openstack_become_the_file() {
    let given = json!({"cloudConfig": {"global": {"auth-url": "https://k/v3", "password": "a\"b"}, "route": {"router-id": 1}},
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
