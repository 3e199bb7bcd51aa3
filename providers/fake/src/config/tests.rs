use super::*;

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("/folder"), None).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    Config::parse(text, Path::new(""), None).unwrap_err().problems()
}

#[test]
fn an_empty_document_means_all_defaults() {
    for text in ["", "\n", "# nothing\n", "---\n", "{}", "null"] {
        let config = parse(text);
        assert_eq!((&*config.start.provider_name, config.start.has_cluster_id), ("fake", true), "{text:?}");
        assert_eq!((config.start.call_log, config.start.state_file), (None, None));
        assert_eq!((config.unlisted, config.absence_grace), (Unlisted::Invent, Duration::ZERO));
        assert_eq!(config.load_balancers.pool.to_string(), "203.0.113.0/24");
        let on = config.start.interfaces;
        assert!(on.instances_v2 && on.load_balancer);
        assert!(!(on.instances || on.zones || on.routes || on.clusters || on.pv_labels));
    }
}

#[test]
fn a_document_that_is_no_map_is_an_error() {
    for text in ["[]", "text", "5", "- a: b"] {
        assert_eq!(problems(text).len(), 1, "{text}");
    }
}

#[test]
fn json_is_accepted() {
    assert_eq!(parse(r#"{"providerName": "p", "instances": [{"name": "a"}]}"#).instances.list.len(), 1);
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let start = parse("{callLog: a/b.jsonl, stateFile: /c.json}").start;
    assert_eq!(start.call_log.as_deref(), Some(Path::new("/folder/a/b.jsonl")));
    assert_eq!(start.state_file.as_deref(), Some(Path::new("/c.json")));
}

#[test]
fn unknown_keys_are_named_at_every_level() {
    for (text, path) in [
        ("nope: 1", "nope"),
        ("interfaces: {nope: true}", "interfaces.nope"),
        ("zone: {nope: a}", "zone.nope"),
        ("instances: [{name: a}, {name: b, nope: 1}]", "instances[1].nope"),
        (
            "instances: [{name: a, addresses: [{type: Hostname, address: a, nope: 1}]}]",
            "instances[0].addresses[0].nope",
        ),
        ("loadBalancers: {nope: 1}", "loadBalancers.nope"),
        ("loadBalancers: {statuses: [{nope: 1}]}", "loadBalancers.statuses[0].nope"),
        ("loadBalancers: {statuses: [{ingress: [{nope: 1}]}]}", "loadBalancers.statuses[0].ingress[0].nope"),
        (
            "loadBalancers: {statuses: [{ingress: [{ports: [{port: 1, nope: 1}]}]}]}",
            "loadBalancers.statuses[0].ingress[0].ports[0].nope",
        ),
        ("loadBalancers: {initial: [{service: a/b, nope: 1}]}", "loadBalancers.initial[0].nope"),
        ("routes: {nope: 1}", "routes.nope"),
        ("routes: {initial: [{destinationCIDR: 10.0.0.0/24, nope: 1}]}", "routes.initial[0].nope"),
        ("volumes: [{id: a, nope: 1}]", "volumes[0].nope"),
        ("clusters: [{name: a, nope: 1}]", "clusters[0].nope"),
        ("faults: [{call: a, nope: 1}]", "faults[0].nope"),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}: unknown key")), "{found:?}");
    }
}

#[test]
fn wrong_types_are_named() {
    for (text, path) in [
        ("providerName: 5", "providerName"),
        ("hasClusterID: 'true'", "hasClusterID"),
        ("hasClusterID: yes", "hasClusterID"),
        ("callLog: [a]", "callLog"),
        ("interfaces: [routes]", "interfaces"),
        ("interfaces: {routes: 1}", "interfaces.routes"),
        ("zone: here", "zone"),
        ("absenceGrace: 5", "absenceGrace"),
        ("absenceGrace: 5 minutes", "absenceGrace"),
        ("absenceGrace: -1s", "absenceGrace"),
        ("instances: {a: b}", "instances"),
        ("instances: [a]", "instances[0]"),
        ("instances: [{name: 1}]", "instances[0].name"),
        ("instances: [{name: a, shutdown: 'no'}]", "instances[0].shutdown"),
        ("instances: [{name: a, labels: {x: true}}]", "instances[0].labels.x"),
        ("instances: [{name: a, labels: [x]}]", "instances[0].labels"),
        ("loadBalancers: {pool: here}", "loadBalancers.pool"),
        ("loadBalancers: {ports: 80}", "loadBalancers.ports"),
        (
            "loadBalancers: {statuses: [{ingress: [{ports: [{port: 70000}]}]}]}",
            "loadBalancers.statuses[0].ingress[0].ports[0].port",
        ),
        ("faults: [{call: a, times: -1}]", "faults[0].times"),
        ("faults: [{call: a, times: 1.5}]", "faults[0].times"),
        ("faults: [{call: a, after: '1'}]", "faults[0].after"),
        ("faults: [{call: 5}]", "faults[0].call"),
        ("faults: [{call: [a, 5]}]", "faults[0].call[1]"),
        ("faults: [{call: a, delay: 3}]", "faults[0].delay"),
    ] {
        let found = problems(text);
        assert!(found[0].starts_with(&format!("{path}: ")), "{text}: {found:?}");
    }
}

#[test]
fn unknown_words_are_named() {
    for (text, path) in [
        ("unlisted: nothing", "unlisted"),
        (
            "instances: [{name: a, addresses: [{type: InternalIp, address: 10.0.0.1}]}]",
            "instances[0].addresses[0].type",
        ),
        ("loadBalancers: {ipMode: vip}", "loadBalancers.ipMode"),
        (
            "loadBalancers: {initial: [{service: a/b, ingress: [{ip: 192.0.2.1, ipMode: x}]}]}",
            "loadBalancers.initial[0].ingress[0].ipMode",
        ),
        ("faults: [{call: a, kind: NotFound}]", "faults[0].kind"),
    ] {
        let found = problems(text);
        assert!(found[0].starts_with(&format!("{path}: unknown word")), "{text}: {found:?}");
    }
}

#[test]
fn needed_keys_are_named() {
    for (text, path) in [
        ("instances: [{type: a}]", "instances[0].name"),
        ("instances: [{name: ''}]", "instances[0].name"),
        ("instances: [{name: a, addresses: [{address: a}]}]", "instances[0].addresses[0].type"),
        ("loadBalancers: {initial: [{ingress: []}]}", "loadBalancers.initial[0].service"),
        ("routes: {initial: [{name: a}]}", "routes.initial[0].destinationCIDR"),
        ("volumes: [{labels: {}}]", "volumes[0].id"),
        ("clusters: [{master: a}]", "clusters[0].name"),
        ("faults: [{error: a}]", "faults[0].call"),
        ("faults: [{call: []}]", "faults[0].call"),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{text}: {found:?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    assert_eq!(problems("{a: 1, unlisted: x, instances: [{}], zone: 5}").len(), 4);
}

#[test]
fn an_instance_that_could_never_be_found_is_an_error_that_names_it() {
    let found = problems("instances: [{name: a}, {name: a}]");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("instances[1]: instance \"a\" with provider ID \"fake://a\" is listed twice"),
        "{found:?}"
    );
    problems("instances: [{name: a}, {name: a, providerID: 'fake://a'}]");
    // A replaced instance has the name of the old one.
    parse("instances: [{name: a, providerID: 'fake://1', exists: false}, {name: a, providerID: 'fake://2'}]");
    parse("instances: [{name: a, providerID: 'fake://1'}, {name: b, providerID: 'fake://1'}]");
}

#[test]
fn a_null_is_a_key_left_out() {
    let config = parse("{zone: , instances: [{name: a, labels: null, addresses: }], loadBalancers: , faults: null}");
    assert_eq!((config.instances.list.len(), config.faults.len()), (1, 0));
}

#[test]
fn a_key_that_comes_twice_is_an_error() {
    assert!(problems("unlisted: missing\nunlisted: invent")[0].contains("unlisted"));
}
