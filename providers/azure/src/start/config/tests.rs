use ccm_kit::gcfg::table::line;

use super::*;

const LEAST: &str = "subscriptionId: s\nresourceGroup: RG1\nlocation: WestUS\n";

fn none(_: &str) -> Option<String> {
    None
}

fn read(text: &str) -> (Config, Vec<String>) {
    let (config, findings) = Config::read(&format!("{LEAST}{text}"), &none);
    (config, findings.iter().map(|finding| format!("{:?} {}", finding.severity, line(finding))).collect())
}

fn good(text: &str) -> Config {
    let (config, findings) = read(text);
    assert_eq!(findings, Vec::<String>::new(), "{text}");
    config
}

/// Exactly one finding, with this beginning.
fn one(text: &str, expected: &str) {
    let (_, findings) = read(text);
    assert!(findings.len() == 1 && findings[0].starts_with(expected), "{text}: {findings:?}");
}

#[test]
fn keys_have_any_case_and_groups_follow_the_resource_group() {
    let config = good("VMTYPE: vmss\nSecurityGroupNAME: nsg\ntenantID: t\n");
    assert_eq!((&*config.resource_group, &*config.location), ("rg1", "WestUS"));
    assert_eq!((config.vm_type, &*config.identity.tenant), (VmType::Vmss, "t"));
    assert_eq!((&*config.vnet_resource_group, &*config.balancing.resource_group), ("rg1", "rg1"));
    assert_eq!(config.identity.network_subscription, "s");
}

#[test]
fn json_is_read_as_well() {
    let text = r#"{"SubscriptionId": "s", "resourceGroup": "rg", "location": "l", "vmType": "Standard", "tagsMap": {"a": "b"}}"#;
    let (config, findings) = Config::parse(text, &none).unwrap();
    assert_eq!(
        (config.vm_type, config.tags, findings),
        (VmType::Standard, vec![("a".to_owned(), "b".to_owned())], vec![])
    );
}

#[test]
fn all_problems_are_reported_together() {
    let text = "subscriptionId: 12\nvmType: vmss\nlocation: l\nuseManagedIdentityExtension: \"true\"\n";
    let error = Config::parse(text, &none).unwrap_err().to_string();
    for part in [
        "failed to read the Azure cloud config: ",
        "subscriptionId: expected text (in quotes), found the number 12",
        "useManagedIdentityExtension: expected true or false, found the text \"true\"",
        "resourceGroup: needed",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = Config::parse("aadClientSecret: 12345\n", &none).unwrap_err().to_string();
    assert!(error.contains("aadClientSecret: expected text") && !error.contains("12345"), "{error}");
}

/// The values are those of sigs.k8s.io/yaml 1.6.
#[test]
fn numbers_and_booleans_are_texts_as_in_the_go_program_with_a_warning() {
    for (written, text) in [
        ("10023", "10023"),
        ("true", "true"),
        ("NO", "false"),
        ("010", "8"),
        ("0129", "129"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        ("-5", "-5"),
        ("1e3", "1000"),
        ("1.50", "1.5"),
        ("0.00001", "1e-05"),
        ("0.0001", "0.0001"),
        ("999999.0", "999999"),
        ("1000000.0", "1e+06"),
        ("123456789.25", "1.2345679e+08"),
        ("1e40", "+Inf"),
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775809", "-9.223372e+18"),
    ] {
        let (config, findings) = read(&format!("vnetName: {written}\n"));
        assert_eq!(config.vnet_name, text, "{written}");
        let warning = format!("Warning vnetName = {text:?}: ");
        assert!(findings.len() == 1 && findings[0].starts_with(&warning), "{written}: {findings:?}");
        assert!(findings[0].contains("in quotes"), "{findings:?}");
        let (config, findings) = read(&format!("tagsMap: {{a.b: {written}}}\n"));
        assert_eq!(config.tags, [("a.b".to_owned(), text.to_owned())]);
        let warning = format!("Warning tagsMap[\"a.b\"] = {text:?}: ");
        assert!(findings.len() == 1 && findings[0].starts_with(&warning), "{written}: {findings:?}");
        assert_eq!(good(&format!("vnetName: {written:?}\n")).vnet_name, written);
    }
    assert_eq!(read("tagsMap: {a: ~}\n").0.tags, [("a".to_owned(), String::new())]);
    one("tagsMap: {a: [1]}\n", "Error tagsMap.a: expected text, found a list");
    one("tagsMap: a=b\n", "Error tagsMap: expected a map");
}

#[test]
fn numbers_are_no_texts_where_the_go_program_refuses_them() {
    for key in ["tenantId", "aadClientId", "userAgent", "cloud"] {
        one(&format!("{key}: 12\n"), &format!("Error {key}: expected text (in quotes), found the number 12"));
    }
    let (_, findings) = read(
        "loadBalancerBackendPoolConfigurationType: nodeIP\n\
         multipleStandardLoadBalancerConfigurations: [{name: a, primaryVMSet: 12}]\n",
    );
    let error = "Error multipleStandardLoadBalancerConfigurations[0].primaryVMSet: expected text";
    assert!(findings[0].starts_with(error), "{findings:?}");
    assert_eq!(good("userAgent: on\naadClientSecret: y\n").identity.secret.0, "y");
    let (_, findings) = read("aadClientSecret: 0123456\n");
    assert!(findings.iter().any(|finding| finding.starts_with("Error aadClientSecret")), "{findings:?}");
    assert!(findings.iter().all(|finding| !finding.contains("123456") && !finding.contains("42798")), "{findings:?}");
}

#[test]
fn a_balancer_may_have_a_number_as_its_name() {
    let (config, findings) = read(
        "loadBalancerBackendPoolConfigurationType: nodeIP\n\
         multipleStandardLoadBalancerConfigurations: [{name: 12, primaryVMSet: a}]\n",
    );
    assert_eq!(config.balancing.several[0].name, "12");
    let warning = "Warning multipleStandardLoadBalancerConfigurations[0].name = \"12\"";
    assert!(findings.len() == 1 && findings[0].starts_with(warning), "{findings:?}");
}

#[test]
fn yes_and_on_are_booleans_with_a_warning() {
    for word in ["yes", "Yes", "on", "ON", "y"] {
        let text = format!("useManagedIdentityExtension: {word}\n");
        assert!(read(&text).0.identity.managed, "{word}");
        one(&text, "Warning useManagedIdentityExtension = \"true\": read as YAML 1.1");
    }
    assert!(!read("excludeMasterFromStandardLB: off\n").0.balancing.exclude_masters);
    one("useManagedIdentityExtension: \"yes\"\n", "Error useManagedIdentityExtension: expected true or false");
}

#[test]
fn of_a_key_that_comes_twice_the_value_of_the_go_program_counts_with_a_warning() {
    for (text, name) in [
        ("vnetName: a\nvnetName: b\n", "b"),
        ("vnetName: a\nvnetname: b\n", "b"),
        ("vnetName: a\nVnetName: b\n", "a"),
        ("VNETNAME: b\nvnetName: a\n", "a"),
    ] {
        assert_eq!(read(text).0.vnet_name, name, "{text}");
        let (_, findings) = read(text);
        let [only] = &findings[..] else { panic!("{text}: {findings:?}") };
        assert!(only.starts_with("Warning vnet") && only.contains(&format!("= {name:?}: ")), "{only}");
        assert!(only.contains("keep one"), "{only}");
    }
    good("vnetName: a\nVNetName: ~\n");
    let (_, findings) = read("aadClientSecrets: s3cret\naadClientSecrets: s4cret\n");
    assert!(findings.len() == 2 && !findings.concat().contains("4cret"), "{findings:?}");
    for text in
        ["aadClientSecret: s3cret\naadClientSecret: s4cret\n", "aadClientSecret: s3cret\nAADClientSecret: s4cret\n"]
    {
        let (_, findings) = read(text);
        let [only] = &findings[..] else { panic!("{text}: {findings:?}") };
        assert!(
            only.starts_with("Warning aadClientSecret: ") && !only.contains("3cret") && !only.contains("4cret"),
            "{only}"
        );
    }
}

#[test]
fn a_text_that_is_no_map_is_an_error() {
    assert!(Config::parse("[1]", &none).unwrap_err().to_string().contains("expected a map"));
    assert!(Config::parse("a: [", &none).is_err());
    assert!(Config::parse("", &none).unwrap_err().to_string().contains("subscriptionId: needed"));
}

#[test]
fn values_that_cannot_be_meant_are_refused() {
    one("cloudConfigType: File\n", "Error cloudConfigType: unknown word");
    one("vmType: VMSS\ndisableAvailabilitySetNodes: true\n", "Error disableAvailabilitySetNodes");
    one("loadBalancerSku: Basic\n", "Error loadBalancerSku = \"Basic\": not supported: Azure has retired");
    one("loadBalancerSku: standart\ndisableOutboundSNAT: true\n", "Error loadBalancerSku = \"standart\"");
    one(
        "loadBalancerBackendPoolConfigurationType: nodeip2\n",
        "Error loadBalancerBackendPoolConfigurationType = \"nodeip2\"",
    );
    one("clusterServiceLoadBalancerHealthProbeMode: one\n", "Error clusterServiceLoadBalancerHealthProbeMode");
    one(
        "clusterServiceSharedLoadBalancerHealthProbePort: 65536\n",
        "Error clusterServiceSharedLoadBalancerHealthProbePort",
    );
    one(
        "preConfiguredBackendPoolLoadBalancerTypes: All\n",
        "Error preConfiguredBackendPoolLoadBalancerTypes: unknown word",
    );
    one("tagsMap: {a: b}\nTagsMap: {c: d}\n", "Error tagsMap: the same key as \"TagsMap\"");
    good("vmType: vmss\ndisableAvailabilitySetNodes: true\n");
    assert_eq!(good("loadBalancerBackendPoolConfigurationType: NODEIP\n").balancing.pools, PoolKind::Addresses);
}

#[test]
fn a_shared_probe_without_port_and_path_has_the_usual_ones() {
    let config = good(
        "clusterServiceSharedLoadBalancerHealthProbePort: 0\nclusterServiceSharedLoadBalancerHealthProbePath: \"\"\n",
    );
    assert_eq!((config.balancing.shared_probe_port, &*config.balancing.shared_probe_path), (10256, "/healthz"));
}

#[test]
fn an_edge_zone_has_a_name_and_a_type() {
    let config = good("extendedLocationName: edge\nextendedLocationType: edgezone\n");
    assert_eq!((&*config.extended_location_name, &*config.extended_location_type), ("edge", "EdgeZone"));
    let (config, findings) = read("extendedLocationName: edge\n");
    assert!(config.extended_location_name.is_empty(), "it has no effect, as upstream");
    assert!(findings.len() == 1 && findings[0].starts_with("Warning extendedLocationType"), "{findings:?}");
}

#[test]
fn what_is_left_out_names_the_alternative() {
    for (text, expected) in [
        ("serviceGatewayEnabled: true\n", "loadBalancerSku standard"),
        ("loadBalancerSku: service\n", "use standard"),
        ("loadBalancerBackendPoolConfigurationType: podIP\n", "use nodeIP"),
        ("aadMSIDataPlaneIdentityPath: /x\n", "useManagedIdentityExtension"),
        ("auxiliaryTokenProvider: {vaultName: v}\n", "client secret"),
        ("aadClientCertPassword: hidden\n", "openssl pkcs12"),
    ] {
        let (_, findings) = read(text);
        assert!(
            findings.len() == 1 && findings[0].starts_with("Error") && findings[0].contains(expected),
            "{findings:?}"
        );
        assert!(!findings[0].contains("hidden"));
    }
}

#[test]
fn unknown_keys_and_types_are_doubts() {
    one("vmTipe: vmss\n", "Warning vmTipe: unknown key, ignored; did you mean \"vmType\"?");
    one("vmType: vmas\n", "Warning vmType = \"vmas\": unknown; treated as standard");
    assert_eq!(read("vmType: vmas\n").0.vm_type, VmType::Standard);
    one("cloud: AzureGermanCloud\n", "Warning cloud = \"AzureGermanCloud\": unknown; treated as AzurePublicCloud");
    good("cloud: null\n");
    good("cloud: AzureGermanCloud\nresourceManagerEndpoint: https://arm\n");
    good("cloud: AzureStackCloud\n");
}

#[test]
fn keys_without_effect_are_named_unless_they_have_their_default() {
    for (text, expected) in [
        (
            "useInstanceMetadata: true\n",
            "useInstanceMetadata = \"true\": without effect: all nodes are read from the Resource",
        ),
        ("maximumLoadBalancerRuleCount: 148\n", "maximumLoadBalancerRuleCount = \"148\": without effect"),
        ("loadBalancerBackendPoolUpdateIntervalInSeconds: 30\n", "loadBalancerBackendPoolUpdateIntervalInSeconds"),
        ("putVMSSVMBatchSize: 5\n", "putVMSSVMBatchSize"),
        ("putVMSSVMBatchSize: -1\n", "putVMSSVMBatchSize = \"-1\""),
        ("routeUpdateIntervalInSeconds: -3\n", "routeUpdateIntervalInSeconds = \"-3\""),
        ("routeUpdateIntervalInSeconds: 5\n", "routeUpdateIntervalInSeconds"),
        ("routeUpdateWaitingInSeconds: -1\n", "routeUpdateWaitingInSeconds = \"-1\""),
        ("vmasCacheTTLInSeconds: 5\n", "vmasCacheTTLInSeconds = \"5\": without effect: availability sets are not read"),
        ("cloudConfigType: file\n", "cloudConfigType = \"file\": without effect: the flags name the source"),
        ("primaryScaleSetName: pool\n", "primaryScaleSetName = \"pool\": without effect"),
        ("routeRateLimit: {cloudProviderRateLimit: true}\n", "routeRateLimit: without effect: there are no such calls"),
        ("availabilitySetRateLimit: {cloudProviderRateLimit: true}\n", "availabilitySetRateLimit: without effect"),
        ("storageAccountRateLimit: {cloudProviderRateLimit: true}\n", "storageAccountRateLimit: without effect"),
    ] {
        one(text, &format!("Info {expected}"));
    }
    good(
        "useInstanceMetadata: false\nmaximumLoadBalancerRuleCount: 250\nvmCacheTTLInSeconds: 0\nprimaryScaleSetName: \"\"\n",
    );
    one("maximumLoadBalancerRuleCount: many\n", "Error maximumLoadBalancerRuleCount: expected");
}

#[test]
fn numbers_below_zero_are_taken_as_in_the_go_program_with_a_warning() {
    for key in [
        "nodeInstanceNotFoundGracePeriodInSeconds",
        "cloudProviderBackoffRetries",
        "cloudProviderBackoffDuration",
        "cloudProviderBackoffExponent",
        "cloudProviderBackoffJitter",
        "cloudProviderRateLimitQPS",
        "cloudProviderRateLimitBucketWrite",
    ] {
        one(&format!("{key}: -1\n"), &format!("Warning {key} = \"-1\": below 0: the default counts"));
    }
    let (config, _) = read(
        "nodeInstanceNotFoundGracePeriodInSeconds: -1\ncloudProviderBackoff: true\ncloudProviderBackoffRetries: -2\n\
         cloudProviderBackoffExponent: -0.5\n",
    );
    let retries = good("cloudProviderBackoff: true\n").limits.backoff.retries();
    assert_eq!((config.not_found_grace, config.limits.backoff.retries()), (Duration::from_secs(60), retries));
    let limit = "diskRateLimit: {cloudProviderRateLimit: true, cloudProviderRateLimitQPS: -3}\n";
    one(limit, "Warning diskRateLimit.cloudProviderRateLimitQPS = \"-3\": below 0");
    assert_eq!(read(limit).0.limits.rates()["disk"].read, Rate { per_second: 1.0, bucket: 5.0 });
    let off = "vmssCacheTTLInSeconds: -1\n";
    one(off, "Warning vmssCacheTTLInSeconds = \"-1\": below 0: nothing is used twice");
    assert_eq!(read(off).0.ttl("vmssCacheTTLInSeconds", Duration::from_secs(600)), Duration::ZERO);
    one("vmssCacheTTLInSeconds: never\n", "Error vmssCacheTTLInSeconds: expected a whole number");
    one("cloudProviderRateLimitQPS: fast\n", "Error cloudProviderRateLimitQPS: expected a number");
}

#[test]
fn blanks_around_the_name_of_the_cloud_do_not_count() {
    assert_eq!(good("cloud: \"AzureChinaCloud \"\n").identity.cloud, "AzureChinaCloud");
}

#[test]
fn a_file_of_cluster_api_has_one_note() {
    let text = r#"{"cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "resourceGroup": "RG1", "location": "westus",
        "securityGroupName": "node-nsg", "securityGroupResourceGroup": "", "vmType": "vmss", "vnetName": "v",
        "vnetResourceGroup": "RG1", "subnetName": "node-subnet", "routeTableName": "rt", "loadBalancerSku": "Standard",
        "loadBalancerName": "", "maximumLoadBalancerRuleCount": 250, "useManagedIdentityExtension": true,
        "useInstanceMetadata": true, "userAssignedIdentityID": "", "enableVmssFlexNodes": true, "cloudProviderBackoff": true,
        "cloudProviderBackoffRetries": 6, "cloudProviderBackoffDuration": 5, "cloudProviderBackoffExponent": 1.5,
        "cloudProviderBackoffJitter": 1, "cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 1.0,
        "cloudProviderRateLimitBucket": 5}"#;
    let (_, findings) = Config::read(text, &none);
    let [only] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((only.severity, &*only.key), (Severity::Info, "useInstanceMetadata"));
}

#[test]
fn retries_are_set_with_their_switch_and_zero_is_not_given() {
    let retries = |text: &str| good(text).limits.backoff.retries();
    assert_eq!(retries("cloudProviderBackoffRetries: 3\n"), None);
    let within = Duration::from_secs(45);
    let default = Retries { attempts: 7, first_pause: Duration::from_secs(5), factor: 1.5, spread: (1.0, 2.0), within };
    assert_eq!(retries("cloudProviderBackoff: true\n"), Some(default));
    let zeros = "cloudProviderBackoff: true\ncloudProviderBackoffRetries: 0\ncloudProviderBackoffDuration: 0\n\
                 cloudProviderBackoffExponent: 0\ncloudProviderBackoffJitter: 0\n";
    assert_eq!(retries(zeros), Some(default));
    let own = "cloudProviderBackoff: true\ncloudProviderBackoffRetries: 3\ncloudProviderBackoffDuration: 2\n\
               CloudProviderBackoffExponent: 3\ncloudProviderBackoffJitter: 0.5\n";
    let expected =
        Retries { attempts: 4, first_pause: Duration::from_secs(2), factor: 3.0, spread: (1.0, 1.5), within };
    assert_eq!(retries(own), Some(expected));
}

#[test]
fn rates_in_force_are_shown_in_words() {
    let text = "diskRateLimit: {cloudProviderRateLimit: true}\nloadBalancerRateLimit: {cloudProviderRateLimit: true, \
                cloudProviderRateLimitQPSWrite: 0.5}\n";
    let expected = "disk 1/s (at once 5); loadBalancer 1/s (at once 5), writes 0.5/s (at once 5)";
    assert_eq!(in_words(&good(text).limits.rates()), expected);
}

#[test]
fn the_environment_wins_over_the_file() {
    let environment = |name: &str| {
        let value = match name {
            "AZURE_TENANT_ID" => "t2",
            "AZURE_FEDERATED_TOKEN_FILE" => "/token",
            "AZURE_CLIENT_SECRET" => "other",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let text = format!("{LEAST}tenantId: t1\naadClientId: c\naadClientSecret: file\n");
    let identity = Config::parse(&text, &environment).unwrap().0.identity;
    assert_eq!((&*identity.tenant, &*identity.client, &*identity.federated_file), ("t2", "c", "/token"));
    assert!(identity.federated && identity.secret.0 == "other");
}

#[test]
fn rates_are_those_of_the_type_else_those_of_all() {
    let rates = |text: &str| good(text).limits.rates();
    assert_eq!(rates("loadBalancerRateLimit: {cloudProviderRateLimitQPS: 3}\n").len(), 0);
    let all = rates("cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 2\ncloudProviderRateLimitBucket: 7\n");
    let both = |per_second, bucket| Rate { per_second, bucket };
    assert_eq!((all["disk"].read, all["routeTable"].write), (both(2.0, 7.0), both(2.0, 7.0)));
    let one = rates("LoadBalancerRateLimit: {CloudProviderRateLimit: true, cloudProviderRateLimitQPS: 3}\n");
    assert_eq!(one.len(), 1);
    assert_eq!((one["loadBalancer"].read, one["loadBalancer"].write), (both(3.0, 5.0), both(1.0, 5.0)));
}

#[test]
fn a_rate_or_bucket_of_zero_is_not_given_and_a_type_has_its_own_switch() {
    // The example of cloud-provider-azure's documentation.
    let text = "cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 1\ncloudProviderRateLimitBucket: 1\n\
                virtualMachineScaleSetRateLimit: {cloudProviderRatelimit: true, cloudProviderRateLimitBucket: 2, \
                CloudProviderRateLimitBucketWrite: 2, cloudProviderRateLimitQPS: 0, CloudProviderRateLimitQPSWrite: 0}\n\
                loadBalancerRateLimit: {cloudProviderRatelimit: false}\ndiskRateLimit: {}\n";
    let rates = good(text).limits.rates();
    let both = |per_second, bucket| Rate { per_second, bucket };
    assert_eq!(rates["virtualMachineScaleSet"], Rates { read: both(1.0, 2.0), write: both(1.0, 2.0) });
    assert_eq!(rates["routeTable"], Rates { read: both(1.0, 1.0), write: both(1.0, 1.0) });
    assert!(!rates.contains_key("loadBalancer") && !rates.contains_key("disk"));
    let zeros = "cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 0\ncloudProviderRateLimitBucket: 0\n\
                 cloudProviderRateLimitQPSWrite: 0\ncloudProviderRateLimitBucketWrite: 0\n";
    assert_eq!(good(zeros).limits.rates()["routeTable"], Rates { read: both(1.0, 5.0), write: both(1.0, 5.0) });
}

#[test]
fn entries_of_several_balancers_must_differ() {
    let entries = |entries: &str| {
        format!(
            "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations:\n{entries}"
        )
    };
    let config = good(&entries(
        "- {Name: a, primaryVMSet: p, allowServicePlacement: false, nodeSelector: {matchLabels: {x: y}}}\n",
    ));
    let balancer = &config.balancing.several[0];
    assert!(
        balancer.name == "a" && !balancer.allows_placement && balancer.nodes.is_some() && balancer.services.is_none()
    );
    one(
        &entries("- {name: a, primaryVMSet: p}\n- {name: b, primaryVMSet: P}\n"),
        "Error multipleStandardLoadBalancerConfigurations[1].primaryVMSet = \"P\"",
    );
    one(
        "multipleStandardLoadBalancerConfigurations: [{name: a, primaryVMSet: p}]\n",
        "Error multipleStandardLoadBalancerConfigurations: needs",
    );
    for key in ["serviceLabelSelector", "serviceNamespaceSelector", "nodeSelector"] {
        one(
            &entries(&format!(
                "- {{name: a, primaryVMSet: p, {key}: {{matchExpressions: [{{key: k, operator: Like}}]}}}}\n"
            )),
            &format!("Error multipleStandardLoadBalancerConfigurations[0].{key}: unknown variant `Like`"),
        );
    }
}

#[test]
fn tags_are_pairs_and_the_map_wins() {
    let (config, findings) = read("tags: \"a=b=c, k = v ,n= null ,e=,=x\"\ntagsMap: {K: w}\nsystemTags: \" x, y\"\n");
    let pairs: Vec<(&str, &str)> = config.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(pairs, [("n", " null "), ("e", ""), ("K", "w")]);
    assert_eq!(config.system_tags, ["x", "y"]);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].starts_with("Warning tags = \"a=b=c\""), "{findings:?}");
}

#[test]
fn ages_of_data_come_from_the_file_unless_caching_is_off() {
    let default = Duration::from_secs(600);
    let ttl = |text: &str| good(text).ttl("vmssCacheTTLInSeconds", default);
    assert_eq!(ttl(""), default);
    assert_eq!(ttl("VmssCacheTTLInSeconds: 30\n"), Duration::from_secs(30));
    assert_eq!(ttl("vmssCacheTTLInSeconds: 0\n"), default);
    assert_eq!(ttl("vmssCacheTTLInSeconds: 30\ndisableAPICallCache: true\n"), Duration::ZERO);
}

#[test]
fn the_reference_lists_every_key() {
    let reference = reference();
    for key in ["`cloud`", "`loadBalancerRateLimit`", "`vmssCacheTTLInSeconds`", "`tagsMap` | map"] {
        assert!(reference.contains(key), "{key}");
    }
}
