use super::*;

fn web() -> Names {
    let mut service = Service::default();
    service.metadata.namespace = "default".into();
    service.metadata.name = "web".into();
    service.metadata.uid = "11111111-2222-3333-4444-555555555555".into();
    Names::of(&service)
}

#[test]
fn names_of_a_service_hold_its_uid() {
    let names = web();
    assert_eq!(names.balancer, "a1111111122223333444455555555555");
    assert_eq!(names.firewall(), "k8s-fw-a1111111122223333444455555555555");
    assert_eq!(names.deny_firewall(), "k8s-fw-a1111111122223333444455555555555-deny");
    assert_eq!(names.external_check_firewall(), "k8s-a1111111122223333444455555555555-http-hc");
    assert_eq!(names.internal_check_firewall(), "a1111111122223333444455555555555-hc");
}

#[test]
fn a_description_that_users_wrote_is_not_shown() {
    let names = web();
    let own = [
        String::new(),
        names.description(),
        names.firewall_description("203.0.113.7"),
        replacing(&names.description(), "k8s-cid-node"),
        ClusterNames("cid").external_check_firewall_description(),
        http_check_description("k8s-cid-node"),
    ];
    for text in &own {
        assert_eq!(shown_description(text), text);
    }
    for text in ["by hand", "{", r#"{"kubernetes.io/service-name":"call Bob"}"#, r#"{"note":"a"}"#, "[1]"] {
        assert_eq!(shown_description(text), "(another text)", "{text}");
    }
}

#[test]
fn descriptions_are_those_of_the_go_program_to_the_byte() {
    let names = web();
    assert_eq!(names.description(), r#"{"kubernetes.io/service-name":"default/web"}"#);
    assert_eq!(
        names.firewall_description("203.0.113.7"),
        r#"{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"203.0.113.7"}"#
    );
    assert_eq!(http_check_description("k8s-cid-node"), r#"{"kubernetes.io/service-name":"k8s-cid-node"}"#);
    assert_eq!(ClusterNames("cid").external_check_firewall_description(), r#"{"kubernetes.io/cluster-id":"cid"}"#);
    let key = described_service(&names.firewall_description("203.0.113.7")).unwrap();
    assert_eq!(key.to_string(), "default/web");
    assert_eq!(described_service("made by hand"), None);
    assert_eq!(described_service(&http_check_description("k8s-cid-node")), None);
}

#[test]
fn names_of_what_services_share_hold_the_id_of_the_cluster() {
    let names = ClusterNames("cid");
    assert_eq!(names.health_check(), "k8s-cid-node");
    assert_eq!(names.external_check_firewall(), "k8s-cid-node-http-hc");
    assert_eq!(names.internal_check_firewall(), "k8s-cid-node-hc");
    assert_eq!(names.instance_group(), "k8s-ig--cid");
    assert_eq!(ClusterNames("").instance_group(), "k8s-ig");
    assert_eq!(names.shared_backend_service("TCP", "None"), "k8s-cid-internal-tcp-nmv1-6eef6648406c333a");
    assert_eq!(names.shared_backend_service("UDP", "ClientIP"), "k8s-cid-internal-udp-nmv1-1668fd70f588116e");
}
