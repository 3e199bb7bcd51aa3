use ccm_provider::{Service, Severity};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::annotations::PREFIX;

/// A Service as in a file, without the fields that the API server fills in.
fn service(annotations: &[(&str, &str)], spec: &Value) -> Service {
    let mut whole = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        whole["spec"][key] = value.clone();
    }
    let mut service: Service = serde_json::from_value(whole).unwrap();
    let key = |key: &str| if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") };
    service.metadata.annotations = annotations.iter().map(|(k, v)| (key(k), (*v).to_owned())).collect();
    service
}

fn summary(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{} {f}", f.severity.as_str()).replace(PREFIX, "~")).collect()
}

fn check(annotations: &[(&str, &str)], spec: &Value, expected: &[&str]) {
    assert_eq!(summary(&Checks.service(&service(annotations, spec))), expected, "{annotations:?} {spec}");
}

#[test]
fn a_good_file_has_no_findings() {
    check(&[], &json!({}), &[]);
    check(&[("type", "nlb")], &json!({"externalTrafficPolicy": "Local"}), &[]);
    check(&[("ssl-cert", "arn:aws:acm:x"), ("ssl-ports", "https")], &json!({"externalTrafficPolicy": "Local"}), &[]);
}

#[test]
fn misspelt_keys_get_the_key_that_is_meant() {
    for (key, meant) in [
        ("service.beta.kubernetes.io/aws-loadbalancer-type", "type"),
        ("service.beta.kubernetes.io/aws-load-balancer_internal", "internal"),
        ("service.beta.kubernetes.io/aws-loadbalancer-ssl-certs", "ssl-cert"),
        ("service.beta.kubernetes.io/aws-elb-internal", "internal"),
        ("service.beta.kubernetes.io/aws-nlb-subnets", "subnets"),
        ("service.beta.kubernetes.io/aws-internal", "internal"),
        ("service.beta.kubernetes.io/asw-load-balancer-type", "type"),
        ("service.beta.kubernetes.io/awsLoadBalancerSslPorts", "ssl-ports"),
        ("sevice.beta.kubernetes.io/aws-load-balancer-type", "type"),
        ("service.alpha.kubernetes.io/aws-load-balancer-internal", "internal"),
        ("kubernetes.io/aws-load-balancer-internal", "internal"),
        ("service.beta.k8s.io/aws-load-balancer-ssl-cert", "ssl-cert"),
        ("aws-load-balancer-type", "type"),
        (
            "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enable",
            "cross-zone-load-balancing-enabled",
        ),
    ] {
        let findings = summary(&Checks.service(&annotated(key)));
        let shown = key.replace(PREFIX, "~");
        assert_eq!(findings, [format!("warning {shown} \"x\": unknown key, no effect; did you mean \"~{meant}\"?")]);
    }
    check(
        &[("service.beta.kubernetes.io/load-balancer-source-range", "10.0.0.0/8")],
        &json!({}),
        &[
            "warning service.beta.kubernetes.io/load-balancer-source-range \"10.0.0.0/8\": unknown key, no effect; did you \
           mean \"service.beta.kubernetes.io/load-balancer-source-ranges\"?",
        ],
    );
    check(
        &[("service.beta.kubernetes.io/aws-balancer-color", "x"), ("k8s.io/aws-lb-color", "y")],
        &json!({}),
        &[
            "warning k8s.io/aws-lb-color \"y\": unknown key, no effect; keys for load balancers begin with \"~\"",
            "warning service.beta.kubernetes.io/aws-balancer-color \"x\": unknown key, no effect; keys for load balancers \
             begin with \"~\"",
        ],
    );
}

/// A Service with one annotation.
fn annotated(key: &str) -> Service {
    let mut service = service(&[], &json!({}));
    service.metadata.annotations = [(key.to_owned(), "x".to_owned())].into();
    service
}

#[test]
fn keys_of_others_are_left_unchanged() {
    for key in [
        "service.beta.kubernetes.io/azure-load-balancer-internal",
        "service.beta.kubernetes.io/oci-load-balancer-internal",
        "service.beta.kubernetes.io/do-loadbalancer-name",
        "service.beta.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features",
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        "example.com/aws-load-balancer-type",
        "alb.ingress.kubernetes.io/scheme",
        "external-dns.alpha.kubernetes.io/hostname",
        "kubectl.kubernetes.io/last-applied-configuration",
        "meta.helm.sh/release-name",
        "eks.amazonaws.com/role-arn",
        "aws",
        "type",
    ] {
        let mut service = service(&[], &json!({}));
        service.metadata.annotations = [(key.to_owned(), "10.0.0.0/8".to_owned())].into();
        assert_eq!(summary(&Checks.service(&service)), Vec::<String>::new(), "{key}");
    }
}

#[test]
fn keys_of_the_other_controller_are_reported_as_such() {
    let whose = "belongs to the aws-load-balancer-controller (~type: external); no effect here";
    check(
        &[
            ("nlb-target-type", "ip"),
            ("listener-attributes.TCP-80", "a=b"),
            ("scheme", "internet-facing"),
            ("service.kubernetes.io/aws-load-balancer-internal", "true"),
            ("service.kubernetes.io/aws-load-balancer-name", "n"),
        ],
        &json!({}),
        &[
            &format!("info ~listener-attributes.TCP-80 \"a=b\": {whose}"),
            &format!("info ~nlb-target-type \"ip\": {whose}"),
            &format!("info ~scheme \"internet-facing\": {whose}"),
            "warning service.kubernetes.io/aws-load-balancer-internal \"true\": only the aws-load-balancer-controller reads \
             keys of service.kubernetes.io; no effect here; did you mean \"~internal\"?",
            "warning service.kubernetes.io/aws-load-balancer-name \"n\": only the aws-load-balancer-controller reads keys \
             of service.kubernetes.io; no effect here",
        ],
    );
    check(
        &[("scheme", "internal")],
        &json!({}),
        &[
            "warning ~scheme \"internal\": only the aws-load-balancer-controller reads it: the load balancer of this Service is not internal; write ~internal: \"true\"",
        ],
    );
}

#[test]
fn a_service_of_the_other_controller_is_left_to_it() {
    let left = "left to the aws-load-balancer-controller: this program creates nothing";
    check(
        &[
            ("type", "external"),
            ("nlb-target-type", "ip"),
            ("scheme", "internal"),
            ("healthcheck-port", "nonsense"),
            ("brand-new-of-tomorrow", "x"),
            ("nlb-targt-type", "ip"),
            ("service.kubernetes.io/aws-load-balancer-name", "n"),
        ],
        &json!({"loadBalancerIP": "192.0.2.1"}),
        &[
            &format!("info ~type \"external\": {left}"),
            "warning ~nlb-targt-type \"ip\": unknown key, no effect; did you mean \"~nlb-target-type\"?",
        ],
    );
    let mut before = service(&[("type", "nlb-ip")], &json!({}));
    before.metadata.uid = "01234567-89ab-cdef-0123-456789abcdef".into();
    before.status.load_balancer = serde_json::from_value(
        json!({"ingress": [{"hostname": "a0123456789abcdef0123456789abcde-1.elb.us-west-2.amazonaws.com"}]}),
    )
    .unwrap();
    let findings = summary(&Checks.service(&before));
    assert_eq!(findings[0], format!("info ~type \"nlb-ip\": {left}"));
    assert!(
        findings[1].starts_with("warning ~type \"nlb-ip\": the previous load balancer a0123456789abcdef"),
        "{findings:?}"
    );
    assert_eq!(findings.len(), 2);
}

#[test]
fn services_that_nobody_here_serves_are_reported_only_with_annotations_of_ours() {
    let class = json!({"loadBalancerClass": "service.k8s.aws/nlb"});
    let internal = json!({"type": "ClusterIP"});
    for spec in [&class, &internal] {
        check(&[("example.com/x", "y"), ("nlb-target-type", "ip")], spec, &[]);
    }
    let ours = [("internal", "maybe"), ("ssl-cert", "x")];
    check(
        &ours,
        &class,
        &["info spec.loadBalancerClass \"service.k8s.aws/nlb\": a Service with a class is left to its controller: \
           ~internal and the like have no effect here"],
    );
    check(
        &ours,
        &internal,
        &[
            "info spec.type \"ClusterIP\": only Services of type LoadBalancer have a load balancer: ~internal and the like \
           have no effect here",
        ],
    );
}

#[test]
fn what_a_run_would_refuse_comes_first_and_once() {
    check(
        &[
            ("type", "nlb"),
            ("extra-security-groups", "sg-1"),
            ("cross-zone-load-balancing-enabled", "yes"),
            ("idle", "x"),
        ],
        &json!({}),
        &[
            "error ~extra-security-groups \"sg-1\": BYO extra security group annotation \"~extra-security-groups\" is not \
             supported by NLB; remove it, or name all groups in ~security-groups",
            "error ~cross-zone-load-balancing-enabled \"yes\": not a boolean; write \"true\" or \"false\"",
            "warning ~idle \"x\": unknown key, no effect",
        ],
    );
    check(
        &[("connection-idle-timeout", "60s")],
        &json!({}),
        &[
            "error ~connection-idle-timeout \"60s\": not a whole number from -2147483648 to 2147483647; write for example \
           \"10\"",
        ],
    );
}

#[test]
fn all_that_a_run_would_refuse_is_reported_at_once() {
    let findings = Checks.service(&service(
        &[("type", "nlb"), ("extra-security-groups", "sg-1"), ("healthcheck-protocol", "ssl")],
        &json!({"sessionAffinity": "ClientIP", "loadBalancerIP": "192.0.2.1", "loadBalancerSourceRanges": ["::/0"],
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}),
    ));
    let keys: Vec<String> = findings.iter().map(|f| f.key.replace(PREFIX, "~")).collect();
    assert_eq!(
        keys,
        [
            "~extra-security-groups",
            "spec.sessionAffinity",
            "spec.ports[].protocol",
            "spec.loadBalancerSourceRanges",
            "~healthcheck-protocol",
            "spec.loadBalancerIP",
        ]
    );
    assert!(findings.iter().all(|finding| finding.severity == Severity::Error), "{findings:?}");
    check(
        &[("healthcheck-healthy-threshold", "1"), ("healthcheck-timeout", "1")],
        &json!({}),
        &[
            "error ~healthcheck-timeout \"1\": must be at least 2 on a classic load balancer",
            "error ~healthcheck-healthy-threshold \"1\": AWS takes 2 to 10 on a classic load balancer",
        ],
    );
}

#[test]
fn mistakes_of_the_spec_are_errors() {
    let cases = [
        (json!({"ports": []}), "spec.ports: requested load balancer with no ports; add one"),
        (
            json!({"sessionAffinity": "ClientIP"}),
            "spec.sessionAffinity \"ClientIP\": unsupported load balancer affinity; write None",
        ),
        (
            json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 80}]}),
            "spec.ports[].protocol \"TCP, UDP\": mixed protocol is not supported for LoadBalancer; make a Service for each \
             protocol",
        ),
        (
            json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
            "spec.ports[].protocol \"UDP\": a classic load balancer takes TCP only (port 53); use TCP, or ask for a network \
             load balancer",
        ),
        (
            json!({"loadBalancerIP": "192.0.2.1"}),
            "spec.loadBalancerIP \"192.0.2.1\": LoadBalancerIP cannot be specified for AWS ELB; remove it (network load \
             balancers take addresses by annotation)",
        ),
        (
            json!({"loadBalancerSourceRanges": ["2001:db8::/32"]}),
            "spec.loadBalancerSourceRanges \"2001:db8::/32\": IPv6 ranges cannot be served: load balancers of this program are IPv4; remove them",
        ),
        (
            json!({"allocateLoadBalancerNodePorts": false}),
            "spec.ports: no usable ports: a load balancer reaches pods through node ports, and none is allocated; set \
             spec.allocateLoadBalancerNodePorts to true or give each port a nodePort",
        ),
    ];
    for (spec, expected) in cases {
        check(&[], &spec, &[&format!("error {expected}")]);
    }
    check(&[("type", "nlb")], &json!({"ports": [{"port": 53, "protocol": "UDP"}]}), &[]);
}

#[test]
fn the_kind_of_an_existing_balancer_is_kept() {
    let mut service = service(&[("type", "nlb")], &json!({}));
    service.status.load_balancer =
        serde_json::from_value(json!({"ingress": [{"hostname": "a1-2.us-west-2.elb.amazonaws.com"}]})).unwrap();
    let findings = summary(&Checks.service(&service));
    assert!(
        findings[0].starts_with("error ~type \"nlb\": cannot update Load Balancer Type annotation"),
        "{findings:?}"
    );
    assert_eq!(findings.len(), 1);
}

#[test]
fn what_the_cloud_config_decides_is_reported_as_such() {
    check(
        &[("type", "nlb"), ("security-groups", "sg-1")],
        &json!({}),
        &[
            "info ~security-groups \"sg-1\": takes effect on a network load balancer only with NLBSecurityGroupMode = Managed in \
           the cloud config",
        ],
    );
    check(
        &[("healthcheck-path", "/x")],
        &json!({}),
        &["warning ~healthcheck-path \"/x\": no effect without ~healthcheck-protocol: http or https, or \
           ClusterServiceLoadBalancerHealthProbeMode = Shared"],
    );
    check(&[("type", "nlb"), ("healthcheck-port", "8080")], &json!({}), &[]);
}

#[test]
fn what_is_noticed_beside_annotations_is_reported_too() {
    check(
        &[("type", "nlb")],
        &json!({"ipFamilyPolicy": "RequireDualStack"}),
        &[
            "warning spec.ipFamilyPolicy \"RequireDualStack\": the load balancer is IPv4 only; clients of the other family cannot reach it",
        ],
    );
}

#[test]
fn a_file_of_the_cloud_config_is_checked_whole() {
    let text = "[Global]\nZone = nowhere\nRoleARN = admin\nKubernetesClusterTag = a\nKubernetesClusterID = b\n\
                NodeIPFamilies = ipv5\nVPCC = vpc-1\nDisableStrictZoneCheck = true\nSourceARN = arn:x\n\
                [ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = nonsense\n[Globl]\nx = y\n";
    let summary: Vec<String> =
        Checks.config(text).iter().map(|finding| format!("{} {finding}", finding.severity.as_str())).collect();
    assert_eq!(
        summary,
        [
            "error [Global] NodeIPFamilies \"ipv5\": line 6: not an IP family; write ipv4 or ipv6, one line for each",
            "warning [Global] VPCC: line 7: unknown key, ignored; did you mean \"VPC\"?",
            "warning [Global] DisableStrictZoneCheck \"true\": line 8: this key has no effect any more; remove it",
            "warning [Globl]: line 14: unknown section, ignored; did you mean \"Global\"?",
            "error [ServiceOverride \"1\"] SigningRegion \"\": signingRegion is missing [SigningRegion is \"\"] in override \
             1; add for example SigningRegion = us-west-2",
            "error [ServiceOverride \"1\"] URL \"nonsense\": could not parse override URL in override 1; expected \
             http[s]://host[:port][/path]",
            "error [Global] Zone \"nowhere\": invalid AZ: nowhere; [Global] Zone must be the name of an availability zone \
             such as us-west-2a, or be left out",
            "error [Global] RoleARN \"admin\": unable to create sts v2 client: [Global] RoleARN = \"admin\": not an ARN; expected \
             arn:aws:iam::<account>:role/<name>",
            "error [Global] KubernetesClusterID \"b\": clusterID tags did not match: \"b\" vs \"a\"; set \
             KubernetesClusterTag and KubernetesClusterID in section [Global] to the same value, or only one",
        ]
    );
    assert!(Checks.config("").is_empty());
    assert!(Checks.config("[Global]\nZone = us-west-2a\nKubernetesClusterID = c1\n").is_empty());
}

#[test]
fn values_that_are_something_else_are_reported() {
    let text = "[Global]\nRegion = us-west-2a\nVPC = main\nSubnetID = vpc-1\nRouteTableID = rtb-1\nElbSecurityGroup = web\n\
                KubernetesClusterID = c1\n";
    assert_eq!(
        summary(&Checks.config(text)),
        [
            "warning [Global] VPC \"main\": does not look like an ID; write vpc-…",
            "warning [Global] SubnetID \"vpc-1\": does not look like an ID; write subnet-…",
            "warning [Global] ElbSecurityGroup \"web\": does not look like an ID; write sg-…",
            "warning [Global] Region \"us-west-2a\": looks like a zone; the region is us-west-2",
        ]
    );
    for region in ["us-west-2", "us-gov-west-1", "eusc-de-east-1", "custom"] {
        let text = format!("[Global]\nRegion = {region}\n");
        assert_eq!(summary(&Checks.config(&text)), [""; 0], "{text}");
    }
}

#[test]
fn a_file_that_is_no_cloud_config_is_one_error() {
    for text in ["nonsense", "[Global", "apiVersion: v1\nkind: ConfigMap\n"] {
        let findings = Checks.config(text);
        assert_eq!((findings.len(), findings[0].severity, &*findings[0].key), (1, Severity::Error, "cloud-config"));
    }
}

#[test]
fn parts_of_a_configuration_that_do_not_count_are_named() {
    let text = "[Global]\nVPC = vpc-1\nSubnetID = subnet-1\nClusterServiceSharedLoadBalancerHealthProbePort = 1\n";
    let keys: Vec<String> = Checks.config(text).into_iter().map(|finding| finding.key).collect();
    assert_eq!(
        keys,
        ["[Global] ClusterServiceSharedLoadBalancerHealthProbePort", "[Global] VPC", "[Global] SubnetID",]
    );
}

proptest! {
    #[test]
    fn no_key_and_no_file_makes_a_lint_panic(key in "\\PC{0,40}", near in "[a-z./-]{0,12}aws[-_a-zA-Z]{0,30}", value in "\\PC{0,10}", text in "\\PC*") {
        for key in [&key, &near, &format!("{PREFIX}{near}"), &format!("service.beta.kubernetes.io/{near}")] {
            let mut service = service(&[], &json!({}));
            service.metadata.annotations = [(key.clone(), value.clone())].into();
            for finding in Checks.service(&service) {
                prop_assert_eq!(&finding.key, key);
            }
        }
        let _ = Checks.config(&text);
        let _ = Checks.config(&format!("[Global]\n{text}"));
    }
}
