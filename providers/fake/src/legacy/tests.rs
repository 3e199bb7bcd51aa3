use super::*;
use crate::tests::Bed;
use ccm_provider::CloudProvider;

const ON: &str = "interfaces: {instances: true, zones: true, instancesV2: false}\n";

const FILE: &str = "
unlisted: missing
zone: {failureDomain: z, region: r}
instances:
- {name: a, type: t, instanceID: i-a, zone: za, addresses: [{type: InternalIP, address: 10.0.0.1}]}
- {name: b, shutdown: true}
- {name: gone, exists: false}
";

fn bed(text: &str) -> Bed {
    Bed::new(&format!("{ON}{text}"))
}

#[tokio::test]
async fn answers_by_name_and_by_id_are_the_same() {
    let bed = bed(FILE);
    let cloud = bed.cloud();
    let (instances, zones) = (cloud.legacy_instances().unwrap(), cloud.zones().unwrap());
    assert_eq!(instances.instance_id("a").await.unwrap(), "i-a");
    assert_eq!(instances.instance_id("b").await.unwrap(), "b");
    assert_eq!(instances.instance_type("a").await.unwrap(), "t");
    assert_eq!(instances.instance_type_by_provider_id("fake://a").await.unwrap(), "t");
    let addresses = instances.node_addresses("a").await.unwrap();
    assert_eq!((addresses.len(), &*addresses[0].address), (1, "10.0.0.1"));
    assert_eq!(instances.node_addresses_by_provider_id("fake://a").await.unwrap(), addresses);
    assert!(instances.instance_exists_by_provider_id("fake://b").await.unwrap());
    assert!(instances.instance_shutdown_by_provider_id("fake://b").await.unwrap());
    assert!(!instances.instance_shutdown_by_provider_id("fake://a").await.unwrap());
    let zone = |domain: &str| ZoneInfo { failure_domain: domain.into(), region: "r".into() };
    assert_eq!(zones.zone().await.unwrap(), zone("z"));
    assert_eq!(zones.zone_by_node_name("a").await.unwrap(), zone("za"));
    assert_eq!(zones.zone_by_provider_id("fake://b").await.unwrap(), zone("z"));
    let calls: Vec<String> =
        bed.ends().iter().map(|e| format!("{} {} {}", e["call"], e["args"], e["result"])).collect();
    assert_eq!(
        calls,
        [
            r#""InstanceID" {"node":"a"} "i-a""#,
            r#""InstanceID" {"node":"b"} "b""#,
            r#""InstanceType" {"node":"a"} "t""#,
            r#""InstanceTypeByProviderID" {"providerID":"fake://a"} "t""#,
            r#""NodeAddresses" {"node":"a"} [{"address":"10.0.0.1","type":"InternalIP"}]"#,
            r#""NodeAddressesByProviderID" {"providerID":"fake://a"} [{"address":"10.0.0.1","type":"InternalIP"}]"#,
            r#""InstanceExistsByProviderID" {"providerID":"fake://b"} true"#,
            r#""InstanceShutdownByProviderID" {"providerID":"fake://b"} true"#,
            r#""InstanceShutdownByProviderID" {"providerID":"fake://a"} false"#,
            r#""GetZone" {} {"FailureDomain":"z","Region":"r"}"#,
            r#""GetZoneByNodeName" {"node":"a"} {"FailureDomain":"za","Region":"r"}"#,
            r#""GetZoneByProviderID" {"providerID":"fake://b"} {"FailureDomain":"z","Region":"r"}"#,
        ]
    );
}

#[tokio::test]
async fn a_missing_instance_is_no_error_for_existence_only() {
    let bed = bed(FILE);
    let cloud = bed.cloud();
    let (instances, zones) = (cloud.legacy_instances().unwrap(), cloud.zones().unwrap());
    for (name, id) in [("gone", "fake://gone"), ("x", "fake://x"), ("", "")] {
        assert!(!instances.instance_exists_by_provider_id(id).await.unwrap());
        let errors = [
            instances.instance_id(name).await.err(),
            instances.instance_type(name).await.err(),
            instances.node_addresses(name).await.err(),
            instances.instance_type_by_provider_id(id).await.err(),
            instances.node_addresses_by_provider_id(id).await.err(),
            instances.instance_shutdown_by_provider_id(id).await.err(),
            zones.zone_by_node_name(name).await.err(),
            zones.zone_by_provider_id(id).await.err(),
        ];
        for error in errors {
            assert!(matches!(error, Some(ProviderError::InstanceNotFound)), "{error:?}");
        }
    }
}

#[tokio::test]
async fn an_empty_id_finds_nothing_even_when_instances_are_invented() {
    let bed = bed("instances: [{name: a, providerID: ''}]");
    let instances = bed.cloud().legacy_instances().unwrap();
    assert!(!instances.instance_exists_by_provider_id("").await.unwrap());
    assert!(instances.node_addresses_by_provider_id("").await.unwrap_err().is_instance_not_found());
    assert!(instances.instance_exists_by_provider_id("fake://invented").await.unwrap());
}

#[tokio::test]
async fn results_replace_texts_lists_and_zones() {
    let bed = bed(
        "faults:\n- {call: InstanceID, result: other}\n- {call: NodeAddresses, result: [{type: Hostname, address: h}]}\n\
         - {call: GetZone, result: {FailureDomain: f}}",
    );
    let cloud = bed.cloud();
    let (instances, zones) = (cloud.legacy_instances().unwrap(), cloud.zones().unwrap());
    assert_eq!(instances.instance_id("a").await.unwrap(), "other");
    assert_eq!(&*instances.node_addresses("a").await.unwrap()[0].address, "h");
    assert_eq!(zones.zone().await.unwrap().failure_domain, "f");
}
