//! Problems of a Service that do not depend on the cloud, for `ccm lint`.
//!
//! This includes problems of load balancer fields that the API server rejects (source:
//! `pkg/apis/core/validation/validation.go` of Kubernetes, `validateService`): a file is checked before any API server
//! sees it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ccm_provider::{Finding, Service, ServicePort, Severity, source_ranges, well_known};

/// Prefix of load balancer annotations of Kubernetes and of its in-tree clouds.
pub const DOMAINS: [&str; 2] = ["service.beta.kubernetes.io", "service.kubernetes.io"];

/// Types of a Service.
const TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];

/// A `spec.loadBalancerClass` that a controller of the program handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// The value in Services.
    pub name: &'static str,
    /// The name of the controller in `--controllers`.
    pub controller: &'static str,
    /// The provider to which the controller belongs.
    pub provider: &'static str,
    /// Whether the controller is enabled.
    pub is_on: bool,
}

/// All findings. Expects the API server's defaults to be filled in. `needs_node_ports`: whether load balancers send to
/// node ports, or the cloud is not known.
pub fn lint(service: &Service, classes: &[Class], needs_node_ports: bool) -> Vec<Finding> {
    let mut findings = words(service);
    findings.extend(ports(service));
    if service.is_load_balancer() {
        findings.extend(balancer(service, classes, needs_node_ports));
    } else if TYPES.contains(&&*service.spec.kind) {
        findings.extend(no_balancer(service));
    }
    findings
}

fn finding(
    severity: Severity,
    key: impl Into<String>,
    value: impl Into<String>,
    message: impl Into<String>,
) -> Finding {
    Finding { severity, key: key.into(), value: Some(value.into()), message: message.into() }
}

fn error(key: impl Into<String>, value: impl Into<String>, message: impl Into<String>) -> Finding {
    finding(Severity::Error, key, value, message)
}

/// Fields that take one of a few words.
fn words(service: &Service) -> Vec<Finding> {
    let spec = &service.spec;
    let fields: [(&str, &str, &[&str]); 5] = [
        ("spec.type", &spec.kind, &TYPES),
        ("spec.sessionAffinity", &spec.session_affinity, &["None", "ClientIP"]),
        ("spec.externalTrafficPolicy", &spec.external_traffic_policy, &["Cluster", "Local"]),
        (
            "spec.internalTrafficPolicy",
            spec.internal_traffic_policy.as_deref().unwrap_or_default(),
            &["Cluster", "Local"],
        ),
        (
            "spec.ipFamilyPolicy",
            spec.ip_family_policy.as_deref().unwrap_or_default(),
            &["SingleStack", "PreferDualStack", "RequireDualStack"],
        ),
    ];
    let protocols =
        spec.ports.iter().enumerate().map(|(at, port)| {
            (format!("spec.ports[{at}].protocol"), port.protocol.as_str(), &["TCP", "UDP", "SCTP"][..])
        });
    let fields = fields.into_iter().map(|(key, value, known)| (key.to_owned(), value, known)).chain(protocols);
    fields
        .filter(|(_, value, known)| !value.is_empty() && !known.contains(value))
        .map(|(key, value, known)| error(key, value, format!("unknown word; expected {}", one_of(known))))
        .collect()
}

/// `a, b or c`
fn one_of(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        words => words.join(""),
    }
}

fn ports(service: &Service) -> Vec<Finding> {
    let spec = &service.spec;
    if spec.ports.is_empty() && spec.kind != "ExternalName" && !is_headless(service) {
        return vec![Finding::new(Severity::Error, "spec.ports", "needed: a Service without ports serves nothing")];
    }
    let mut findings = Vec::new();
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (at, port) in spec.ports.iter().enumerate() {
        let ServicePort { name, protocol, port, node_port, .. } = port;
        let key = |field: &str| format!("spec.ports[{at}].{field}");
        if !(1..=65535).contains(port) {
            findings.push(error(key("port"), port.to_string(), "expected a number from 1 to 65535"));
        } else if !numbers.insert((protocol, port)) {
            findings.push(error(
                key("port"),
                port.to_string(),
                format!("there is a port {port} with protocol {protocol} already"),
            ));
        }
        if name.is_empty() && spec.ports.len() > 1 {
            findings.push(Finding::new(Severity::Error, key("name"), "needed where there are several ports"));
        } else if !name.is_empty() && !names.insert(name) {
            findings.push(error(key("name"), name, "there is a port of this name already"));
        }
        if !(0..=65535).contains(node_port) {
            findings.push(error(key("nodePort"), node_port.to_string(), "expected a number from 1 to 65535, or none"));
        } else if *node_port != 0 && !node_ports.insert((protocol, node_port)) {
            findings.push(error(key("nodePort"), node_port.to_string(), "another port has this node port already"));
        }
    }
    findings
}

fn is_headless(service: &Service) -> bool {
    service.spec.cluster_ip == "None"
}

/// A Service of type LoadBalancer.
fn balancer(service: &Service, classes: &[Class], needs_node_ports: bool) -> Vec<Finding> {
    let spec = &service.spec;
    let without_node_ports = || without_node_ports(service).filter(|_| needs_node_ports);
    let mut findings = source_ranges::review(service);
    if is_headless(service) {
        findings.push(error("spec.clusterIP", "None", "a LoadBalancer cannot be headless; leave it out"));
    }
    match spec.load_balancer_class.as_deref() {
        Some("") => findings.push(error(
            "spec.loadBalancerClass",
            "",
            "must not be empty: name a class, or leave it out for the default load balancer",
        )),
        Some(class) => match classes.iter().find(|known| known.name == class) {
            Some(known) if known.is_on => findings.extend(without_node_ports()),
            known => findings.push(finding(Severity::Info, "spec.loadBalancerClass", class, left_to(known))),
        },
        None => findings.extend(without_node_ports()),
    }
    findings.extend(address(service));
    if spec.health_check_node_port != 0 && !service.needs_health_check() {
        findings.push(error(
            "spec.healthCheckNodePort",
            spec.health_check_node_port.to_string(),
            "only with externalTrafficPolicy: Local; remove it",
        ));
    }
    let protocols: BTreeSet<&str> = spec.ports.iter().map(|port| port.protocol.as_str()).collect();
    if protocols.len() > 1 {
        let protocols: Vec<&str> = protocols.into_iter().collect();
        findings.push(finding(
            Severity::Info,
            "spec.ports",
            protocols.join(", "),
            "several protocols at one load balancer: not every cloud can; if yours cannot, make one Service for each",
        ));
    }
    findings
}

/// The message about a class for which no controller is enabled here.
fn left_to(known: Option<&Class>) -> String {
    match known {
        Some(Class { controller, provider, .. }) => format!(
            "the controller {controller} of --cloud-provider={provider} has this class, and is off: add it to --controllers, as in \
             --controllers=*,{controller}"
        ),
        None => "left to the controller of this class; this program does nothing for it".to_owned(),
    }
}

/// A missing node port: most load balancers send to the node ports.
fn without_node_ports(service: &Service) -> Option<Finding> {
    let spec = &service.spec;
    let reached = spec.ports.iter().all(|port| port.node_port != 0);
    (spec.allocate_load_balancer_node_ports == Some(false) && !reached).then(|| {
        finding(
            Severity::Warning,
            "spec.allocateLoadBalancerNodePorts",
            "false",
            "a port without node port is not reached by a load balancer that sends to nodes; remove this, or give each port its nodePort",
        )
    })
}

fn address(service: &Service) -> Option<Finding> {
    let asked = &service.spec.load_balancer_ip;
    if asked.is_empty() {
        return None;
    }
    let (severity, message) = match asked.parse::<IpAddr>() {
        Ok(_) => (
            Severity::Info,
            "deprecated: its meaning differs from cloud to cloud; an annotation of the cloud says it better",
        ),
        Err(_) => (Severity::Warning, "not an IP address, which is what most clouds require"),
    };
    Some(finding(severity, "spec.loadBalancerIP", asked, message))
}

/// A Service of another type: the API server refuses load balancer fields, or they have no effect.
fn no_balancer(service: &Service) -> Vec<Finding> {
    let spec = &service.spec;
    let kind = &spec.kind;
    let only = "only with type: LoadBalancer";
    let mut findings = Vec::new();
    if let Some(class) = &spec.load_balancer_class {
        findings.push(error("spec.loadBalancerClass", class, only));
    }
    if let Some(allocate) = spec.allocate_load_balancer_node_ports {
        findings.push(error("spec.allocateLoadBalancerNodePorts", allocate.to_string(), only));
    }
    if let Some(ranges) = spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty()) {
        findings.push(error("spec.loadBalancerSourceRanges", ranges.join(","), only));
    }
    if spec.health_check_node_port != 0 {
        let message = format!("{only} and externalTrafficPolicy: Local");
        findings.push(error("spec.healthCheckNodePort", spec.health_check_node_port.to_string(), message));
    }
    let reachable = kind == "NodePort" || kind == "ClusterIP" && !spec.external_ips.is_empty();
    if !spec.external_traffic_policy.is_empty() && !reachable {
        let message =
            "only where somebody outside of the cluster can connect: type LoadBalancer or NodePort, or externalIPs";
        findings.push(error("spec.externalTrafficPolicy", &spec.external_traffic_policy, message));
    }
    if !spec.load_balancer_ip.is_empty() {
        let message = format!("no effect: the type is {kind}, not LoadBalancer");
        findings.push(finding(Severity::Warning, "spec.loadBalancerIP", &spec.load_balancer_ip, message));
    }
    for (key, value) in &service.metadata.annotations {
        if key == well_known::ANNOTATION_SOURCE_RANGES {
            findings.push(error(key, value, only));
        } else if is_for_balancers(key) {
            let message = format!("no effect: the type is {kind}, not LoadBalancer");
            findings.push(finding(Severity::Warning, key, value, message));
        }
    }
    findings
}

/// Whether an annotation is for load balancers, by the naming of the in-tree clouds.
fn is_for_balancers(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, name)| DOMAINS.contains(&domain) && name.contains("load-balancer"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A class whose controller is enabled.
    const CLASS: Class = Class { name: "example.com/on", controller: "x-service", provider: "x", is_on: true };

    /// `severity key: message` of each finding, in order.
    fn lines(spec: &Value) -> Vec<String> {
        let spec = spec.as_object().unwrap().clone();
        let annotations = spec.get("annotations").cloned().unwrap_or_default();
        let service = json!({"metadata": {"name": "web", "annotations": annotations}, "spec": spec});
        let service: Service = serde_json::from_value(service).unwrap();
        lint(&service, &[CLASS, Class { name: "example.com/off", is_on: false, ..CLASS }], true)
            .iter()
            .map(|f| format!("{} {f}", f.severity.as_str()))
            .collect()
    }

    fn balancer(more: &Value) -> Vec<String> {
        let mut spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]});
        let fields = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        lines(&spec)
    }

    #[test]
    fn a_usual_service_has_no_findings() {
        assert_eq!(balancer(&json!({})), [""; 0]);
        assert_eq!(balancer(&json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000})), [""; 0]);
        let same_port = json!([{"name": "a", "port": 53, "protocol": "TCP", "nodePort": 1},
            {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 1}]);
        assert!(balancer(&json!({"ports": same_port})).iter().all(|line| line.starts_with("info ")));
        assert_eq!(lines(&json!({"type": "ClusterIP", "ports": [{"port": 80}]})), [""; 0]);
        assert_eq!(lines(&json!({"type": "ClusterIP", "clusterIP": "None"})), [""; 0]);
        assert_eq!(lines(&json!({"type": "ExternalName"})), [""; 0]);
        let outside = json!({"type": "ClusterIP", "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local",
            "ports": [{"port": 80}]});
        assert_eq!(lines(&outside), [""; 0]);
    }

    #[test]
    fn an_unknown_word_names_the_known_ones() {
        let rows = [
            (
                json!({"sessionAffinity": "ClientIp"}),
                "spec.sessionAffinity \"ClientIp\": unknown word; expected None or ClientIP",
            ),
            (
                json!({"externalTrafficPolicy": "local"}),
                "spec.externalTrafficPolicy \"local\": unknown word; expected Cluster or Local",
            ),
            (
                json!({"ports": [{"port": 80, "protocol": "tcp"}]}),
                "spec.ports[0].protocol \"tcp\": unknown word; expected TCP, UDP or SCTP",
            ),
        ];
        for (spec, expected) in rows {
            assert_eq!(balancer(&spec), [format!("error {expected}")]);
        }
        let misspelt = lines(&json!({"type": "Loadbalancer", "ports": [{"port": 80}], "loadBalancerClass": "a/b"}));
        let expected = "error spec.type \"Loadbalancer\": unknown word; expected ClusterIP, NodePort, LoadBalancer or ExternalName";
        assert_eq!(misspelt, [expected]);
    }

    #[test]
    fn ports_that_collide_or_are_out_of_range_are_errors() {
        let ports = json!([
            {"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30080},
            {"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30080},
            {"port": 0, "protocol": "TCP", "nodePort": 70000},
        ]);
        assert_eq!(
            balancer(&json!({"ports": ports})),
            [
                "error spec.ports[1].port \"80\": there is a port 80 with protocol TCP already",
                "error spec.ports[1].name \"a\": there is a port of this name already",
                "error spec.ports[1].nodePort \"30080\": another port has this node port already",
                "error spec.ports[2].port \"0\": expected a number from 1 to 65535",
                "error spec.ports[2].name: needed where there are several ports",
                "error spec.ports[2].nodePort \"70000\": expected a number from 1 to 65535, or none",
            ]
        );
        assert_eq!(
            balancer(&json!({"ports": []})),
            ["error spec.ports: needed: a Service without ports serves nothing"]
        );
    }

    #[test]
    fn a_class_takes_the_service_away_and_no_node_port_leaves_nothing_to_send_to() {
        let class = balancer(&json!({"loadBalancerClass": "example.com/x", "allocateLoadBalancerNodePorts": false}));
        assert_eq!(
            class,
            [
                "info spec.loadBalancerClass \"example.com/x\": left to the controller of this class; this program does nothing for it"
            ]
        );
        let ours = balancer(&json!({"loadBalancerClass": "example.com/on"}));
        assert_eq!(ours, [""; 0]);
        let off = balancer(&json!({"loadBalancerClass": "example.com/off"}));
        assert_eq!(
            off,
            [
                "info spec.loadBalancerClass \"example.com/off\": the controller x-service of --cloud-provider=x has this class, \
                 and is off: add it to --controllers, as in --controllers=*,x-service"
            ]
        );
        assert!(
            balancer(&json!({"loadBalancerClass": ""}))[0].starts_with("error spec.loadBalancerClass \"\": must not")
        );
        let none = json!({"allocateLoadBalancerNodePorts": false, "ports": [{"port": 80, "protocol": "TCP"}]});
        assert!(balancer(&none)[0].starts_with("warning spec.allocateLoadBalancerNodePorts \"false\": a port without"));
        assert_eq!(balancer(&json!({"allocateLoadBalancerNodePorts": false})), [""; 0], "the port has a node port");
    }

    #[test]
    fn fields_and_annotations_of_balancers_are_reported_on_other_types() {
        let spec = json!({"type": "ClusterIP", "ports": [{"port": 80}], "loadBalancerClass": "a/b",
        "allocateLoadBalancerNodePorts": true, "loadBalancerSourceRanges": ["10.0.0.0/8"], "healthCheckNodePort": 1,
        "externalTrafficPolicy": "Local", "loadBalancerIP": "192.0.2.1", "annotations": {
            "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8",
            "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
            "alb.ingress.kubernetes.io/load-balancer-name": "other",
        }});
        let keys: Vec<String> =
            lines(&spec).iter().map(|line| line.split(['"', ':']).next().unwrap().to_owned()).collect();
        assert_eq!(
            keys,
            [
                "error spec.loadBalancerClass ",
                "error spec.allocateLoadBalancerNodePorts ",
                "error spec.loadBalancerSourceRanges ",
                "error spec.healthCheckNodePort ",
                "error spec.externalTrafficPolicy ",
                "warning spec.loadBalancerIP ",
                "warning service.beta.kubernetes.io/azure-load-balancer-internal ",
                "error service.beta.kubernetes.io/load-balancer-source-ranges ",
            ]
        );
    }

    #[test]
    fn an_asked_address_is_deprecated_and_a_health_check_port_wants_the_local_policy() {
        assert!(
            balancer(&json!({"loadBalancerIP": "192.0.2.1"}))[0]
                .starts_with("info spec.loadBalancerIP \"192.0.2.1\": depr")
        );
        assert!(
            balancer(&json!({"loadBalancerIP": "web"}))[0]
                .starts_with("warning spec.loadBalancerIP \"web\": not an IP")
        );
        assert_eq!(
            balancer(&json!({"healthCheckNodePort": 31000})),
            ["error spec.healthCheckNodePort \"31000\": only with externalTrafficPolicy: Local; remove it"]
        );
    }
}
