use ccm_kit::gcfg::table::line;

use super::*;

const ID: &str = "6c30d6a8-1b2c-4d3e-8f90-a1b2c3d4e5f6";

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{:?} {}", finding.severity, line(finding))).collect()
}

fn good(text: &str) -> (Config, Vec<String>) {
    let (config, findings) = Config::parse(Some(text)).unwrap_or_else(|error| panic!("{text}\n{error}"));
    (config, lines(&findings))
}

/// Parses a text without findings.
fn quiet(text: &str) -> Config {
    let (config, findings) = good(text);
    assert_eq!(findings, Vec::<String>::new(), "{text}");
    config
}

fn bad(text: &str) -> String {
    let error = Config::parse(Some(text)).expect_err(text);
    assert!(matches!(error.class(), ErrorClass::Invalid { findings } if !findings.is_empty()), "{error}");
    let message = error.to_string();
    message.strip_prefix("failed to read OpenStack cloud config file: ").unwrap_or(&message).to_owned()
}

fn warned(text: &str, expected: &[&str]) -> Config {
    let (config, findings) = good(text);
    assert_eq!(findings, expected, "{text}");
    config
}

#[test]
fn no_file_is_an_error_and_an_empty_one_gives_the_defaults() {
    assert_eq!(Config::parse(None).unwrap_err().to_string(), "no OpenStack cloud provider config file given");
    let config = quiet("");
    let balancer = &config.load_balancer;
    assert_eq!((balancer.lb_method.as_str(), balancer.lb_provider.as_str()), ("ROUND_ROBIN", "amphora"));
    assert_eq!((balancer.ingress_hostname_suffix.as_str(), balancer.container_store.as_str()), ("nip.io", "barbican"));
    assert_eq!((balancer.monitor_delay.as_secs(), balancer.monitor_timeout.as_secs()), (5, 3));
    assert_eq!((balancer.monitor_max_retries, balancer.monitor_max_retries_down, balancer.max_shared_lb), (1, 3, 2));
    assert!(balancer.enabled && balancer.cascade_delete && !balancer.internal_lb && !balancer.create_monitor);
    assert_eq!(config.metadata.request_timeout, Duration::from_secs(60));
    assert_eq!(config.metadata.search_order, [MetadataSource::ConfigDrive, MetadataSource::MetadataService]);
    assert_eq!(config.global.endpoint_type.unwrap_or_default().as_str(), "public");
    assert_eq!(config.route_router, None);
}

#[test]
fn every_key_is_read() {
    let config = quiet(&format!(
        r#"
[Global]
auth-url = https://keystone/v3
user-id = u
username = n
password = p
tenant-id = t
tenant-name = tn
trust-id = tr
trustee-id = te
trustee-password = tp
domain-id = d
domain-name = dn
tenant-domain-id = td
tenant-domain-name = tdn
user-domain-id = ud
user-domain-name = udn
region = r
os-endpoint-type = internal
ca-file = /ca
cafilecontents = PEM
tls-insecure = true
cert-file = /cert
key-file = /key
token = tok
use-clouds = true
clouds-file = /clouds
cloud = c
application-credential-id = ai
application-credential-name = an
application-credential-secret = as
[Networking]
ipv6-support-disabled = true
public-network-name = a
internal-network-name = b
address-sort-order = "10.0.0.0/8, fd00::/8"
[LoadBalancer]
enabled = false
lb-version = v2
subnet-id = {ID}
member-subnet-id = {ID}
network-id = {ID}
floating-network-id = {ID}
floating-subnet-id = {ID}
floating-subnet = ext-*
floating-subnet-tags = a,b
lb-method = SOURCE_IP_PORT
lb-provider = ovn
create-monitor = true
monitor-delay = 1m
monitor-timeout = 30s
monitor-max-retries = 2
monitor-max-retries-down = 4
manage-security-groups = true
internal-lb = true
node-selector = "k=v,l"
cascade-delete = false
flavor-id = {ID}
availability-zone = az
enable-ingress-hostname = true
ingress-hostname-suffix = example.com
default-tls-container-ref = ref
container-store = external
max-shared-lb = 7
provider-requires-serial-api-calls = true
[LoadBalancerClass "DMZ"]
floating-network-id = {ID}
floating-subnet-id = {ID}
floating-subnet = ~ext.*
floating-subnet-tags = &a
network-id = {ID}
subnet-id = {ID}
member-subnet-id = {ID}
[Route]
router-id = {ID}
[Metadata]
search-order = "metadataService, configDrive"
request-timeout = 2m
[BlockStorage]
bs-version = v3
ignore-volume-az = true
"#
    ));
    let global = &config.global;
    let texts = [
        (&global.auth_url, "https://keystone/v3"),
        (&global.user_id, "u"),
        (&global.username, "n"),
        (&global.password.0, "p"),
        (&global.tenant_id, "t"),
        (&global.tenant_name, "tn"),
        (&global.trust_id, "tr"),
        (&global.trustee_id, "te"),
        (&global.trustee_password.0, "tp"),
        (&global.domain_id, "d"),
        (&global.domain_name, "dn"),
        (&global.tenant_domain_id, "td"),
        (&global.tenant_domain_name, "tdn"),
        (&global.user_domain_id, "ud"),
        (&global.user_domain_name, "udn"),
        (&global.region, "r"),
        (&global.ca_file, "/ca"),
        (&global.ca_file_contents, "PEM"),
        (&global.cert_file, "/cert"),
        (&global.key_file, "/key"),
        (&global.token.0, "tok"),
        (&global.clouds_file, "/clouds"),
        (&global.cloud, "c"),
        (&global.application_credential_id, "ai"),
        (&global.application_credential_name, "an"),
        (&global.application_credential_secret.0, "as"),
    ];
    for (value, expected) in texts {
        assert_eq!(value, expected);
    }
    assert_eq!((global.endpoint_type, global.tls_insecure), (Some(EndpointType::Internal), Some(true)));
    assert!(global.use_clouds);

    let networking = &config.networking;
    assert!(networking.is_ipv6_disabled);
    assert_eq!((&networking.public_networks, &networking.internal_networks), (&vec!["a".into()], &vec!["b".into()]));
    assert_eq!(networking.sort_order, ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);

    let expected = LoadBalancerConfig {
        enabled: false,
        lb_version: "v2".into(),
        subnet_id: ID.into(),
        member_subnet_id: ID.into(),
        network_id: ID.into(),
        floating_network_id: ID.into(),
        floating_subnet_id: ID.into(),
        floating_subnet: "ext-*".into(),
        floating_subnet_tags: "a,b".into(),
        lb_method: "SOURCE_IP_PORT".into(),
        lb_provider: "ovn".into(),
        create_monitor: true,
        monitor_delay: Duration::from_secs(60),
        monitor_timeout: Duration::from_secs(30),
        monitor_max_retries: 2,
        monitor_max_retries_down: 4,
        manage_security_groups: true,
        internal_lb: true,
        node_selector: "k=v,l".into(),
        cascade_delete: false,
        flavor_id: ID.into(),
        availability_zone: "az".into(),
        enable_ingress_hostname: true,
        ingress_hostname_suffix: "example.com".into(),
        default_tls_container_ref: "ref".into(),
        container_store: "external".into(),
        max_shared_lb: 7,
        serial_calls: true,
    };
    assert_eq!(config.load_balancer, expected);
    let class = Class {
        floating_network_id: ID.into(),
        floating_subnet_id: ID.into(),
        floating_subnet: "~ext.*".into(),
        floating_subnet_tags: "&a".into(),
        network_id: ID.into(),
        subnet_id: ID.into(),
        member_subnet_id: ID.into(),
    };
    assert_eq!(config.classes, BTreeMap::from([("DMZ".to_owned(), class)]));
    assert_eq!(config.route_router.as_deref(), Some(ID));
    assert_eq!(config.metadata.search_order, [MetadataSource::MetadataService, MetadataSource::ConfigDrive]);
    assert_eq!(config.metadata.request_timeout, Duration::from_secs(120));
    assert_eq!(config.block_storage, BlockStorage { ignore_volume_az: true });
}

/// Pitfall 1.
#[test]
fn durations_may_lack_their_unit_with_a_warning() {
    let delay = |value: &str| {
        let (config, findings) = good(&format!("[LoadBalancer]\nmonitor-timeout = 1s\nmonitor-delay = {value}"));
        (config.load_balancer.monitor_delay, findings)
    };
    assert_eq!(delay("5s"), (Duration::from_secs(5), vec![]));
    assert_eq!(delay("1m"), (Duration::from_secs(60), vec![]));
    let warning = "Warning [LoadBalancer] monitor-delay = \"5\": line 3: without a unit, read as seconds; write 5s";
    assert_eq!(delay("5"), (Duration::from_secs(5), vec![warning.to_owned()]));
    let text = "[LoadBalancer]\nmonitor-timeout = 0\nmonitor-delay = 0\n";
    assert_eq!(good(text).0.load_balancer.monitor_delay, Duration::ZERO);
    assert_eq!(
        bad("[LoadBalancer]\nmonitor-delay = 5x\n"),
        "[LoadBalancer] monitor-delay = \"5x\": line 2: not a duration; write for example 5s, 1m or 1m30s"
    );
}

/// Pitfall 2.
#[test]
fn what_belongs_to_others_or_to_old_versions_starts() {
    let (_, findings) = good(
        "[Global]\nkubeconfig-path = /x\nregoin = x\n[LoadBalancer]\nuse-octavia = true\n\
         [BlockStorage]\nbs-version = v3\ntrust-device-path = no\n[Snapshots]\na = 1\n[Networking \"x\"]\n",
    );
    assert_eq!(
        findings,
        [
            "Warning [Global] kubeconfig-path = \"/x\": line 2: this key has no effect any more; remove it",
            "Warning [Global] regoin: line 3: unknown key, ignored; did you mean \"region\"?",
            "Warning [Networking \"x\"]: line 11: this section has no subsections",
            "Warning [LoadBalancer] use-octavia = \"true\": line 5: this key has no effect any more; remove it",
            "Warning [Snapshots]: line 9: unknown section, ignored",
            "Info [BlockStorage] trust-device-path: line 8: unknown key, ignored",
        ]
    );
}

#[test]
fn another_version_of_cinder_is_a_warning() {
    let findings = |version: &str| good(&format!("[BlockStorage]\nbs-version = {version}\n")).1;
    assert_eq!((findings("auto"), findings("v3")), (vec![], vec![]));
    assert_eq!(
        findings("v1"),
        ["Warning [BlockStorage] bs-version = \"v1\": line 2: only v3 is spoken, and used; remove the key"]
    );
}

/// Pitfall 3.
#[test]
fn booleans_are_the_words_of_gcfg() {
    assert_eq!(
        bad("[LoadBalancer]\ncreate-monitor = maybe"),
        "[LoadBalancer] create-monitor = \"maybe\": line 2: not a boolean; write true or false"
    );
    for line in ["create-monitor = YES", "create-monitor = On", "create-monitor = 1", "create-monitor"] {
        assert!(quiet(&format!("[LoadBalancer]\n{line}\n")).load_balancer.create_monitor, "{line}");
    }
}

/// Pitfall 4.
#[test]
fn quotes_keep_comment_signs_in_a_password() {
    assert_eq!(quiet("[Global]\npassword = \"a#b;c\"\n").global.password.0, "a#b;c");
    assert_eq!(quiet("[Global]\npassword = a#b\n").global.password.0, "a");
}

/// Pitfall 5.
#[test]
fn each_line_of_a_list_adds_a_network() {
    let config = quiet("[Networking]\npublic-network-name = ext1\npublic-network-name = ext 2\n");
    assert_eq!(config.networking.public_networks, ["ext1", "ext 2"]);
}

#[test]
fn an_empty_name_is_no_network_and_hides_no_address() {
    let text = "[Networking]\ninternal-network-name =\npublic-network-name = \"\"\npublic-network-name = ext\n";
    let (config, findings) = Config::parse(Some(text)).unwrap();
    let Networking { public_networks, internal_networks, .. } = config.networking;
    assert_eq!((public_networks, internal_networks), (vec!["ext".to_owned()], vec![]));
    let keys: Vec<&str> = findings.iter().map(|finding| &*finding.key).collect();
    assert_eq!(keys, ["[Networking] public-network-name", "[Networking] internal-network-name"]);
}

/// Pitfall 6.
#[test]
fn names_of_classes_are_case_sensitive() {
    let config = quiet("[loadbalancerclass \"DMZ\"]\nfloating-subnet = a\n[LoadBalancerClass \"b\"]\n");
    assert_eq!(config.classes.keys().collect::<Vec<_>>(), ["DMZ", "b"]);
    assert_eq!(config.classes.get("dmz"), None);
}

#[test]
fn a_pattern_that_is_none_is_a_warning_where_it_counts() {
    let text = "[LoadBalancer]\nfloating-subnet = ~(\n[LoadBalancerClass \"dmz\"]\nfloating-subnet = {a\n";
    let (_, findings) = good(text);
    let starts = [
        "Warning [LoadBalancer] floating-subnet = \"~(\": \"~(\" is not a regular expression",
        "Warning [LoadBalancerClass \"dmz\"] floating-subnet = \"{a\": \"{a\" is not a glob",
    ];
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().zip(starts).all(|(finding, start)| finding.starts_with(start)), "{findings:?}");
    quiet(&format!("[LoadBalancer]\nfloating-subnet-id = {ID}\nfloating-subnet = ~(\n"));
}

#[test]
fn errors_name_section_key_and_value() {
    for (text, error) in [
        (
            "[Global\n",
            "line 1, column 8: expected ']' or a subsection in double quotes after the name of section \"Global\"",
        ),
        (
            "[LoadBalancer]\nlb-version = v1",
            "[LoadBalancer] lb-version = \"v1\": only v2, which is Octavia, is supported; remove the key",
        ),
        (
            "[LoadBalancer]\nmonitor-max-retries = -1",
            "[LoadBalancer] monitor-max-retries = \"-1\": line 2: not an integer from 0 to 2147483647",
        ),
        (
            "[Global]\nos-endpoint-type = pubilc",
            "[Global] os-endpoint-type = \"pubilc\": line 2: not an endpoint type; write public, internal or admin",
        ),
        ("[Global]\npassword\n", "[Global] password: line 2: a value is missing; write key = string"),
        (
            "[Metadata]\nsearch-order = configDrive,disk",
            "[Metadata] search-order = \"configDrive,disk\": line 2: \"disk\" is unknown; write configDrive, metadataService, or both with a comma",
        ),
        (
            "[Metadata]\nsearch-order = configDrive,configDrive,configDrive",
            "[Metadata] search-order = \"configDrive,configDrive,configDrive\": line 2: more than two elements; write configDrive, metadataService, or both with a comma",
        ),
    ] {
        assert_eq!(bad(text), error, "{text}");
        assert!(Config::lint(text).iter().any(|finding| finding.severity == Severity::Error), "{text}");
    }
}

#[test]
fn what_octavia_refuses_later_is_a_warning() {
    warned(
        "[LoadBalancer]\nmonitor-delay = -5s\nmonitor-timeout = 500ms\nmonitor-max-retries = 0\nsubnet-id = public\n\
         lb-method = ROUND_ROBBIN\nlb-provider = onv\ncontainer-store = vault\nmax-shared-lb = 0\n",
        &[
            "Warning [LoadBalancer] monitor-delay = \"-5s\": line 2: Octavia gets whole seconds: 0, which Octavia refuses",
            "Warning [LoadBalancer] monitor-timeout = \"500ms\": line 3: Octavia gets whole seconds: 0, which Octavia refuses",
            "Warning [LoadBalancer] monitor-max-retries = \"0\": line 4: Octavia takes numbers from 1 to 10",
            "Warning [LoadBalancer] subnet-id = \"public\": line 5: does not look like an ID; write a UUID",
            "Warning [LoadBalancer] lb-method = \"ROUND_ROBBIN\": line 6: unknown, Octavia may refuse it; known are ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, SOURCE_IP_PORT; did you mean \"ROUND_ROBIN\"?",
            "Warning [LoadBalancer] lb-provider = \"onv\": line 7: unknown, used as it is; known are amphora, amphorav2, octavia, ovn, f5; \
             did you mean \"ovn\"?",
            "Warning [LoadBalancer] container-store = \"vault\": line 8: unknown, certificates are not looked up; known are barbican, external",
            "Warning [LoadBalancer] max-shared-lb = \"0\": line 9: no Service can have a load balancer named by annotation",
            "Warning [LoadBalancer] monitor-timeout = \"500ms\": longer than monitor-delay = 0s: Octavia refuses such health monitors",
        ],
    );
    let config = warned(
        "[LoadBalancer]\nmonitor-timeout = 2500ms\n",
        &["Warning [LoadBalancer] monitor-timeout = \"2500ms\": line 2: Octavia gets whole seconds: 2"],
    );
    assert_eq!(config.load_balancer.monitor_timeout, Duration::from_millis(2500));
    quiet("[LoadBalancer]\nsubnet-id = 6c30d6a81b2c4d3e8f90a1b2c3d4e5f6\nlb-provider =\nflavor-id =\n");
}

#[test]
fn drivers_and_methods_are_compared() {
    let key = "Warning [LoadBalancer] lb-method";
    warned(
        "[LoadBalancer]\nlb-provider = ovn\n",
        &[&format!("{key} = \"ROUND_ROBIN\": the Octavia provider ovn needs SOURCE_IP_PORT")],
    );
    warned(
        "[LoadBalancer]\nlb-method = SOURCE_IP_PORT\n",
        &[&format!("{key} = \"SOURCE_IP_PORT\": the Octavia provider amphora refuses it")],
    );
}

#[test]
fn keys_without_effect_are_warned_about() {
    let config = warned(
        "[Global]\nclouds-file = /c\ncert-file = /x\ntls-insecure = yes\n[LoadBalancer]\nenabled = no\nlb-version = v1\n\
         [Networking]\naddress-sort-order = \"fd00::/8, bogus, 10.0.0.0/8\"\n[Metadata]\nrequest-timeout = 0\nsearch-order =\n",
        &[
            "Warning [Global] tls-insecure = \"yes\": line 4: certificates are verified: only the exact text true switches that off",
            "Warning [Networking] address-sort-order = \"fd00::/8, bogus, 10.0.0.0/8\": line 9: ignored, as no CIDR: \"bogus\"",
            "Warning [Global] clouds-file = \"/c\": no effect without use-clouds = true",
            "Warning [Global] cert-file = \"/x\": no effect without key-file",
            "Warning [LoadBalancer] lb-version = \"v1\": only v2, which is Octavia, is supported; remove the key",
        ],
    );
    assert_eq!(config.global.tls_insecure, Some(false));
    assert_eq!(config.networking.sort_order.len(), 2);
    assert_eq!(config.metadata, Metadata::default());
}

#[test]
fn secrets_are_in_no_text() {
    let text = "[Global]\npassword = hunter2\npassword = hunter2\ntrustee-password = hunter2\ntoken = hunter2\n\
                application-credential-secret = hunter2\npasswrod = hunter2\n";
    let (config, findings) = good(text);
    assert!(!format!("{config:?}{findings:?}").contains("hunter2"));
    assert!(!bad(&format!("{text}use-clouds = maybe\n")).contains("hunter2"));
}

#[test]
fn the_reference_has_every_section() {
    let reference = reference();
    for section in ["Global", "Networking", "LoadBalancer", "LoadBalancerClass", "Route", "Metadata", "BlockStorage"] {
        assert!(reference.contains(&format!("### `[{section}]`\n")), "{section}");
    }
    assert!(reference.contains("| `monitor-delay` | duration | `5s` |"), "{reference}");
}

#[test]
fn the_reference_shows_the_defaults_in_force() {
    fn written<T>(table: &gcfg::Table<T>) -> String {
        let keys = table.keys.iter().filter(|key| !key.default.is_empty());
        let lines: String = keys.map(|key| format!("{} = \"{}\"\n", key.name, key.default)).collect();
        format!("[{}]\n{lines}", table.section)
    }
    let config = quiet(&(written(&table::LOAD_BALANCER) + &written(&table::METADATA)));
    assert_eq!(config.load_balancer, LoadBalancerConfig::default());
    assert_eq!(config.metadata, Metadata::default());
}
