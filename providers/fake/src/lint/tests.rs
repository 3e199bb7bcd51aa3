use super::*;
use crate::Factory;
use ccm_provider::{ProviderFactory, Severity};

fn texts(text: &str) -> Vec<String> {
    let lint = Factory;
    let findings = lint.lint().unwrap().config(text);
    findings.iter().map(|finding| format!("{} {finding}", finding.severity.as_str())).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(texts(text), expected, "{text}");
}

#[test]
fn every_mistake_is_a_finding_with_its_path_and_hint() {
    check(
        "unlistd: missing\ninstances:\n- {name: a, adresses: []}\n- {shutdown: 1}\nloadBalancers: {pool: x}\n",
        &[
            "error instances[0].adresses: unknown key; did you mean \"addresses\"?",
            "error instances[1].name: needed",
            "error instances[1].shutdown: expected true or false, found the number 1",
            "error loadBalancers.pool: \"x\" is not an address range such as 203.0.113.0/24",
            "error unlistd: unknown key; did you mean \"unlisted\"?",
        ],
    );
    check(
        "unlisted: mising",
        &["error unlisted: unknown word \"mising\"; expected one of invent, missing, error; did you mean \"missing\"?"],
    );
}

#[test]
fn a_file_that_is_no_yaml_is_an_error() {
    for text in ["instances: [", "a: 1\na: 2", "- x", "x"] {
        let findings = Checks.config(text);
        assert!(!findings.is_empty() && findings.iter().all(|f| f.severity == Severity::Error), "{text}: {findings:?}");
        assert!(findings.iter().all(|finding| finding.key == "cloud-config" || text == "a: 1\na: 2"), "{findings:?}");
    }
}

#[test]
fn an_empty_file_and_the_example_have_no_findings() {
    check("", &[]);
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("\n```yaml\n").unwrap();
    check(rest.split_once("\n```").unwrap().0, &[]);
}

#[test]
fn parts_that_are_switched_off_have_no_effect() {
    check(
        "interfaces: {instancesV2: false, loadBalancer: false}\ninstances: [{name: a}]\n\
         loadBalancers: {statuses: [{ingress: []}]}\nroutes: {nodeAddresses: true}\nvolumes: [{id: v}]\n\
         clusters: [{name: c}]",
        &[
            "warning instances: no effect without interfaces.instancesV2: true",
            "warning loadBalancers: no effect without interfaces.loadBalancer: true",
            "warning routes: no effect without interfaces.routes: true",
            "warning volumes: no effect without interfaces.pvLabels: true",
            "warning clusters: no effect without interfaces.clusters: true",
        ],
    );
    check(
        "interfaces: {instances: true, zones: true}",
        &[
            "warning interfaces.instances \"true\": no effect without interfaces.instancesV2: false",
            "warning interfaces.zones \"true\": no effect without interfaces.instancesV2: false",
        ],
    );
    check("interfaces: {instancesV2: false, instances: true, zones: true}\ninstances: [{name: a}]", &[]);
}

#[test]
fn entries_that_can_never_count_are_reported() {
    check(
        "instances: [{name: a, exists: false, shutdown: true}]\nloadBalancers:\n  statuses:\n  - {service: web}\n  \
         - {service: '*', missing: true, ingress: [{ip: 192.0.2.1}]}\n  - {service: 'd/*'}\n  initial: [{service: web}]",
        &[
            "warning instances[0].shutdown: no effect beside exists: false",
            "warning loadBalancers.statuses[0].service \"web\": no Service is named like this; write namespace/name",
            "warning loadBalancers.statuses[1].ingress: no effect beside missing: true",
            "warning loadBalancers.statuses[2]: never used: loadBalancers.statuses[1] matches every Service; put it last",
            "warning loadBalancers.initial[0].service \"web\": no Service is named like this; write namespace/name",
        ],
    );
}

#[test]
fn faults_without_effect_are_reported() {
    check(
        "faults:\n- {call: EnsureLoadBalncer, error: x}\n- {call: ['*', nothing], service: web, retryAfter: 1s, times: 0}\n\
         - {call: '*', wrap: w}\n- {call: GetZone, error: x, result: {Region: r}}\n- {call: '*', kind: Retry, retryAfter: 1s}",
        &[
            "warning faults[0].call \"EnsureLoadBalncer\": no call has such a name; did you mean \"EnsureLoadBalancer\"?",
            "warning faults[1].retryAfter: no effect without kind: Retry, Throttled or InProgress",
            "warning faults[1].call \"nothing\": no call has such a name",
            "warning faults[1].service \"web\": no Service is named like this; write namespace/name",
            "warning faults[1].times \"0\": the rule never applies",
            "warning faults[2].wrap: no effect without an error",
            "warning faults[3].result: no effect beside an error",
        ],
    );
}

#[test]
fn a_service_has_no_annotation_of_the_fake_cloud() {
    let mut service = crate::tests::service("d/a");
    service.metadata.annotations.insert("fake.example.com/x".to_owned(), "y".to_owned());
    assert!(Checks.service(&service).is_empty());
}
