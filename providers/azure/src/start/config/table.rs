//! The keys: one entry each is the source of the reader, the reference and the findings.

use ccm_kit::document::{Value, did_you_mean};
use ccm_kit::gcfg::Secret;
use ccm_provider::{Finding, Severity};
use std::collections::BTreeMap;
use std::time::Duration;

use super::text::text;
use super::{BalancerConfig, Config, RateConfig, read_map};
use crate::client::id::same;
use crate::start::selector::Selector;

/// A key.
struct Key {
    name: &'static str,
    field: Field,
    /// As the reference shows it.
    default: &'static str,
    doc: &'static str,
}

/// The type of a key, and the field that stores its value.
enum Field {
    /// A number or boolean is also a text.
    Text(fn(&mut Config) -> &mut String),
    /// A number or boolean is refused, as upstream, which takes it as text only in fields of its outermost struct.
    Strict(fn(&mut Config) -> &mut String),
    Secret(fn(&mut Config) -> &mut Secret),
    Flag(fn(&mut Config) -> &mut bool),
    Seconds(fn(&mut Config) -> &mut Duration),
    Pairs(fn(&mut Config) -> &mut BTreeMap<String, String>),
    /// The age up to which data is used.
    Age,
    /// A key without effect: its type, and whether a value has that type. The text of the key says why.
    Idle(&'static str, fn(&Value<'_>) -> bool),
    /// One of the keys of the limit of all types of objects.
    Rate(fn(&mut RateConfig, &Value<'_>, &mut Vec<Finding>)),
    /// Any value, read by this function.
    Other(&'static str, fn(&mut Config, &Value<'_>, &mut Vec<Finding>)),
}

/// The types of objects whose calls have a limit of their own: the first parts of keys.
pub(super) const LIMITED: [&str; 11] = [
    "subnets",
    "interface",
    "routeTable",
    "loadBalancer",
    "publicIPAddress",
    "securityGroup",
    "virtualMachine",
    "virtualMachineScaleSet",
    "privateLinkService",
    "virtualNetwork",
    "disk",
];
/// Limits of calls that this program does not make.
const UNLIMITED: [&str; 11] = [
    "route",
    "availabilitySet",
    "virtualMachineSize",
    "privateEndpoint",
    "privateDNS",
    "privateDNSZoneGroup",
    "storageAccount",
    "snapshot",
    "attachDetachDisk",
    "containerService",
    "deployment",
];
const LIMIT: &str = "RateLimit";
const DEFAULT_COUNTS: &str = "the default counts";
const NO_CALLS: &str = "without effect: there are no such calls";
macro_rules! keys {
    ($($name:literal $field:expr, $default:literal, $doc:literal;)*) => {
        static KEYS: &[Key] = &[$(Key { name: $name, field: $field, default: $default, doc: $doc }),*];
    };
}

use Field::{Age, Flag, Idle, Other, Pairs, Rate, Seconds, Strict, Text};

const FLAG: Field = Idle("boolean", |value| value.flag().is_some());
const INTEGER: Field = Idle("integer", |value| is_below_zero(value) || value.count().is_some());
const TEXT: Field = Idle("string", |value| text(value, &mut Vec::new()).is_some());

keys! {
    "cloud" Strict(|c| &mut c.identity.cloud), "AzurePublicCloud", "The cloud: `AzurePublicCloud`, `AzureChinaCloud`, `AzureUSGovernmentCloud`, or the name in the answer of `resourceManagerEndpoint`. `AzureStackCloud` has API versions of its own and no zones.";
    "resourceManagerEndpoint" Strict(|c| &mut c.identity.endpoint), "", "The URL of the Resource Manager; it is asked for the other endpoints.";
    "disableAzureStackCloud" Flag(|c| &mut c.identity.disable_stack), "false", "`AzureStackCloud` is a cloud like the others.";
    "tenantId" Strict(|c| &mut c.identity.tenant), "", "The tenant of the identity. `AZURE_TENANT_ID` wins.";
    "subscriptionId" Strict(|c| &mut c.identity.subscription), "", "Needed. The subscription of the machines.";
    "networkResourceTenantID" Strict(|c| &mut c.identity.network_tenant), "tenantId", "The tenant of network objects, with a client secret or certificate.";
    "networkResourceSubscriptionID" Strict(|c| &mut c.identity.network_subscription), "subscriptionId", "The subscription of network objects; interfaces of machines are in `subscriptionId`.";
    "identitySystem" Strict(|c| &mut c.identity.system), "azure_ad", "`adfs`: tokens of AD FS.";
    "aadClientId" Strict(|c| &mut c.identity.client), "", "The application. `AZURE_CLIENT_ID` wins.";
    "aadClientSecret" Field::Secret(|c| &mut c.identity.secret), "", "Its secret. `AZURE_CLIENT_SECRET` wins.";
    "aadClientCertPath" Strict(|c| &mut c.identity.certificate), "", "A PEM file with its key and certificate, without a password.";
    "aadClientCertPassword" Field::Secret(|c| &mut c.identity.certificate_password), "", "Refused: make a PEM file without a password.";
    "useManagedIdentityExtension" Flag(|c| &mut c.identity.managed), "false", "Tokens of the managed identity of the machine.";
    "userAssignedIdentityID" Strict(|c| &mut c.identity.user_assigned), "", "The client ID or the ID of a user-assigned identity.";
    "useFederatedWorkloadIdentityExtension" Flag(|c| &mut c.identity.federated), "false", "Workload identity.";
    "aadFederatedTokenFile" Strict(|c| &mut c.identity.federated_file), "", "Its token, read for each login. Used with `useFederatedWorkloadIdentityExtension`. `AZURE_FEDERATED_TOKEN_FILE` wins, and switches it on.";
    "aadMSIDataPlaneIdentityPath" Strict(|c| &mut c.raw.data_plane_path), "", "Refused.";
    "auxiliaryTokenProvider" Other("map", |c, _, _| c.raw.auxiliary = true), "", "Refused: a second tenant needs a client secret or certificate.";
    "userAgent" Strict(|c| &mut c.user_agent), "kubernetes-cloudprovider/<version>", "The user agent of calls.";
    "enableMinimumRetryAfter" Flag(|c| &mut c.limits.minimum_retry_after), "false", "Operations are looked at every 5 s at most.";
    "cloudProviderBackoff" Flag(|c| &mut c.limits.backoff.on), "false", "The next four keys set how a call without an answer is retried. Else it is retried twice at most, after pauses of less than a second.";
    "cloudProviderBackoffRetries" Other("integer", |c, v, f| c.limits.backoff.retries = count(v, f)), "6", "The most retries of a call, within 45 s. 0, here and in the next three, means the default.";
    "cloudProviderBackoffDuration" Other("integer", |c, v, f| c.limits.backoff.seconds = count(v, f)), "5", "The first pause in seconds. No pause is longer than 20 s.";
    "cloudProviderBackoffExponent" Other("number", |c, v, f| c.limits.backoff.exponent = number(v, f)), "1.5", "The factor by which each further pause is longer.";
    "cloudProviderBackoffJitter" Other("number", |c, v, f| c.limits.backoff.jitter = number(v, f)), "1.0", "Each pause is longer by a random part of it, up to this one.";
    "cloudProviderRateLimit" Rate(|r, v, _| r.on = v.flag()), "false", "Limits the rate of the calls of each type of objects. A call waits for its turn, for a minute at most. Keys such as `loadBalancerRateLimit` hold the same five keys for one type: `cloudProviderRateLimit` in them is its own switch, and the others default to those of all types.";
    "cloudProviderRateLimitQPS" Rate(|r, v, f| r.qps = number(v, f)), "1.0", "Reads per second. 0, here and in the next three, means the default.";
    "cloudProviderRateLimitBucket" Rate(|r, v, f| r.bucket = number(v, f)), "5", "Reads at once.";
    "cloudProviderRateLimitQPSWrite" Rate(|r, v, f| r.qps_write = number(v, f)), "cloudProviderRateLimitQPS", "Writes per second.";
    "cloudProviderRateLimitBucketWrite" Rate(|r, v, f| r.bucket_write = number(v, f)), "cloudProviderRateLimitBucket", "Writes at once.";
    "cloudConfigType" Idle("string", config_type), "merge", "the flags name the source. One of `file`, `secret` and `merge`.";
    "resourceGroup" Text(|c| &mut c.resource_group), "", "Needed. The resource group of the cluster.";
    "location" Text(|c| &mut c.location), "", "Needed. The region.";
    "extendedLocationName" Text(|c| &mut c.extended_location_name), "", "An edge zone: there are no availability zones.";
    "extendedLocationType" Text(|c| &mut c.extended_location_type), "", "`EdgeZone`. Without it the name has no effect.";
    "vnetName" Text(|c| &mut c.vnet_name), "", "The virtual network, for internal load balancers, IP pools and private links.";
    "vnetResourceGroup" Text(|c| &mut c.vnet_resource_group), "resourceGroup", "Its resource group.";
    "subnetName" Text(|c| &mut c.subnet_name), "", "The default subnet of internal load balancers.";
    "securityGroupName" Text(|c| &mut c.security_group_name), "", "The network security group. Needed for Services.";
    "securityGroupResourceGroup" Text(|c| &mut c.security_group_resource_group), "resourceGroup", "Its resource group.";
    "routeTableName" Text(|c| &mut c.route_table_name), "", "The route table. Needed for routes.";
    "routeTableResourceGroup" Text(|c| &mut c.route_table_resource_group), "resourceGroup", "Its resource group.";
    "primaryAvailabilitySetName" TEXT, "", "it names the members of a basic load balancer.";
    "primaryScaleSetName" TEXT, "", "it names the members of a basic load balancer.";
    "vmType" Text(|c| &mut c.raw.vm_type), "vmss", "`vmss`, `standard` or `vmssflex`. Another value means `standard`, with a warning.";
    "disableAvailabilitySetNodes" Flag(|c| &mut c.disable_availability_set_nodes), "false", "With `vmss`: no node is in an availability set.";
    "enableVmssFlexNodes" Flag(|c| &mut c.enable_vmss_flex_nodes), "false", "With `vmss`: some nodes are in flexible scale sets.";
    "nodeInstanceNotFoundGracePeriodInSeconds" Seconds(|c| &mut c.not_found_grace), "60", "The machine of a younger node is never gone. At least 60.";
    "useInstanceMetadata" FLAG, "false", "all nodes are read from the Resource Manager.";
    "listVmssVirtualMachinesWithoutInstanceView" Flag(|c| &mut c.without_instance_view), "false", "Scale sets are listed without the states of their instances; stopped ones are then not seen.";
    "disableCloudProvider" Flag(|c| &mut c.disable_cloud_provider), "false", "With `--enable-dynamic-reloading`: no controller runs.";
    "disableAPICallCache" Flag(|c| &mut c.disable_api_call_cache), "false", "Nothing is used twice.";
    "routeUpdateIntervalInSeconds" INTEGER, "30", "changes of a second are written together.";
    "routeUpdateWaitingInSeconds" Idle("integer", |_| true), "30", "a route is ready when the write has ended.";
    "tags" Text(|c| &mut c.raw.tags), "", "Tags of managed objects: `a=b,c=d`.";
    "tagsMap" Pairs(|c| &mut c.raw.tags_map), "", "More tags; they override `tags`.";
    "systemTags" Text(|c| &mut c.raw.system_tags), "", "Names and prefixes of tags that are never removed. If empty, no tag is removed.";
    "loadBalancerSku" Text(|c| &mut c.raw.sku), "standard", "`standard`. `basic` is refused: Azure has retired such load balancers.";
    "loadBalancerName" Text(|c| &mut c.balancing.name), "name of the cluster", "The name of the load balancer.";
    "loadBalancerResourceGroup" Text(|c| &mut c.balancing.resource_group), "resourceGroup", "Its resource group.";
    "preConfiguredBackendPoolLoadBalancerTypes" Other("string", unmanaged_pools), "", "`internal`, `external` or `all`: the members of these load balancers are never changed.";
    "excludeMasterFromStandardLB" Flag(|c| &mut c.balancing.exclude_masters), "true", "Control-plane nodes are not members of standard load balancers.";
    "disableOutboundSNAT" Flag(|c| &mut c.balancing.disable_outbound_snat), "false", "Rules give no outbound connections.";
    "maximumLoadBalancerRuleCount" INTEGER, "250", "it concerns basic load balancers. Azure's own limits are checked before each write.";
    "loadBalancerBackendPoolConfigurationType" Text(|c| &mut c.raw.pool_type), "nodeIPConfiguration", "`nodeIPConfiguration`: members are network interfaces; `nodeIP`: addresses.";
    "enableMigrateToIPBasedBackendPoolAPI" FLAG, "false", "pools always change to addresses by Azure's own operation, in which they are never empty.";
    "putVMSSVMBatchSize" INTEGER, "0", "up to 100 instances are changed in one call, 10 while Services wait for it, those of a scale set at the same time.";
    "multipleStandardLoadBalancerConfigurations" Other("list", balancers), "", "Several standard load balancers. The program then needs the permission to list and watch EndpointSlices, and with `serviceNamespaceSelector` also Namespaces.";
    "loadBalancerBackendPoolUpdateIntervalInSeconds" INTEGER, "2", "members are written as soon as nodes or endpoints change.";
    "loadBalancerBackendPoolUpdateMaxRetries" INTEGER, "3", "a write is repeated with growing pauses until it succeeds.";
    "clusterServiceLoadBalancerHealthProbeMode" Text(|c| &mut c.raw.probe_mode), "servicenodeport", "`servicenodeport`, or `shared`: one probe for all Services.";
    "clusterServiceSharedLoadBalancerHealthProbePort" Other("integer", probe_port), "10256", "Its port.";
    "clusterServiceSharedLoadBalancerHealthProbePath" Text(|c| &mut c.balancing.shared_probe_path), "/healthz", "Its path.";
    "privateLinkServiceResourceGroup" Text(|c| &mut c.balancing.private_link_resource_group), "resourceGroup", "The resource group of private link services.";
    "enableIPTagMutationForExistingPublicIP" Flag(|c| &mut c.balancing.mutates_ip_tags), "false", "IP tags of existing public IPs are changed.";
    "serviceGatewayEnabled" Flag(|c| &mut c.raw.gateway), "false", "Refused.";
    "loadBalancerCacheTTLInSeconds" Age, "120", "The age up to which load balancers that were read are used. 0, here and in the next six, means the default; a number below 0: nothing is used twice.";
    "publicIPCacheTTLInSeconds" Age, "120", "The same for public IP addresses.";
    "nsgCacheTTLInSeconds" Age, "120", "The same for the network security group.";
    "routeTableCacheTTLInSeconds" Age, "120", "The same for the route table.";
    "vmssCacheTTLInSeconds" Age, "600", "The same for scale sets of both kinds.";
    "vmssVirtualMachinesCacheTTLInSeconds" Age, "600", "The same for the instances of uniform scale sets.";
    "nonVmssUniformNodesCacheTTLInSeconds" Age, "900", "The same for all other machines.";
    "vmCacheTTLInSeconds" INTEGER, "60", "set `nonVmssUniformNodesCacheTTLInSeconds`.";
    "vmssFlexCacheTTLInSeconds" INTEGER, "600", "set `vmssCacheTTLInSeconds`.";
    "vmssFlexVMCacheTTLInSeconds" INTEGER, "600", "set `nonVmssUniformNodesCacheTTLInSeconds`.";
    "availabilitySetNodesCacheTTLInSeconds" INTEGER, "900", "set `nonVmssUniformNodesCacheTTLInSeconds`.";
    "availabilitySetsCacheTTLInSeconds" INTEGER, "600", "availability sets are not read.";
    "vmasCacheTTLInSeconds" INTEGER, "600", "availability sets are not read.";
    "plsCacheTTLInSeconds" INTEGER, "120", "private link services are always read again.";
}

fn is_below_zero(value: &Value<'_>) -> bool {
    value.json().as_f64().is_some_and(|number| number < 0.0)
}

/// The warning about a number below 0, which upstream takes.
fn below_zero(value: &Value<'_>, meaning: &str) -> Option<Finding> {
    let finding = || Finding::warning(value.path(), format!("below 0: {meaning}")).value(value.json().to_string());
    is_below_zero(value).then(finding)
}

/// A whole number. 0, and with a warning a number below it, means the default.
fn count(value: &Value<'_>, findings: &mut Vec<Finding>) -> Option<u64> {
    let Some(warning) = below_zero(value, DEFAULT_COUNTS) else { return value.count() };
    findings.push(warning);
    Some(0)
}

/// Like [`count`], for a number with a fraction.
fn number(value: &Value<'_>, findings: &mut Vec<Finding>) -> Option<f64> {
    findings.extend(below_zero(value, DEFAULT_COUNTS));
    let number = value.json().as_f64();
    if number.is_none() {
        value.problem(format_args!("expected a number, found {}", value.json()));
    }
    number
}

/// Compared exactly, as upstream.
fn config_type(value: &Value<'_>) -> bool {
    value.json().as_str() == Some("") || value.word(&[("file", ()), ("secret", ()), ("merge", ())]).is_some()
}

fn unmanaged_pools(config: &mut Config, value: &Value<'_>, _: &mut Vec<Finding>) {
    let words = [("", (false, false)), ("internal", (true, false)), ("external", (false, true)), ("all", (true, true))];
    if let Some((internal, external)) = value.word(&words) {
        config.balancing.preconfigured = super::Preconfigured { internal, external };
    }
}

fn probe_port(config: &mut Config, value: &Value<'_>, _: &mut Vec<Finding>) {
    match value.count().map(u16::try_from) {
        // As upstream: the default.
        Some(Ok(0)) => {}
        Some(Ok(port)) => config.balancing.shared_probe_port = port,
        Some(Err(_)) => value.problem("expected a port, 1 to 65535"),
        None => {}
    }
}

fn balancers(config: &mut Config, value: &Value<'_>, findings: &mut Vec<Finding>) {
    for entry in value.list().unwrap_or_default() {
        let Some(map) = entry.json().as_object() else {
            entry.problem("expected a map");
            continue;
        };
        let mut balancer = BalancerConfig { allows_placement: true, ..BalancerConfig::default() };
        let read = |key: &str, value: &serde_json::Value, findings: &mut Vec<Finding>| {
            let found = entry.at_key(key, value);
            match &*key.to_ascii_lowercase() {
                "name" => balancer.name = text(&found, findings).unwrap_or_default(),
                "primaryvmset" => balancer.primary_vm_set = found.text().unwrap_or_default(),
                "allowserviceplacement" => balancer.allows_placement = found.flag().unwrap_or(true),
                "servicelabelselector" => balancer.services = selector(&found),
                "servicenamespaceselector" => balancer.namespaces = selector(&found),
                "nodeselector" => balancer.nodes = selector(&found),
                _ => findings.push(Finding::new(Severity::Warning, found.path(), "unknown key, ignored")),
            }
        };
        read_map(map, read, findings);
        config.balancing.several.push(balancer);
    }
}

/// `None` if it is empty or wrong.
fn selector(value: &Value<'_>) -> Option<Selector> {
    let parsed = Selector::parse(value.json());
    parsed.unwrap_or_else(|problem| {
        value.problem(problem);
        None
    })
}

/// Stores the value of a key; an unknown one is a finding.
pub(super) fn set(config: &mut Config, key: &str, value: &Value<'_>, findings: &mut Vec<Finding>) {
    if let Some(known) = KEYS.iter().find(|known| same(known.name, key)) {
        return known.set(config, value, findings);
    }
    let lower = key.to_ascii_lowercase();
    if let Some(kind) = lower.strip_suffix(&LIMIT.to_ascii_lowercase()) {
        let is = |known: &&&str| same(known, kind);
        if let Some(known) = LIMITED.iter().find(is) {
            return single_limit(config, known, value, findings);
        }
        if UNLIMITED.iter().any(|known| is(&known)) {
            return findings.push(Finding::new(Severity::Info, key, NO_CALLS));
        }
    }
    let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    let hint = did_you_mean(key, &names).unwrap_or_default();
    findings.push(Finding::new(Severity::Warning, key, format!("unknown key, ignored{hint}")));
}

fn single_limit(config: &mut Config, kind: &str, value: &Value<'_>, findings: &mut Vec<Finding>) {
    let Some(map) = value.json().as_object() else { return value.problem("expected a map") };
    let mut rates = RateConfig::default();
    let read = |key: &str, found: &serde_json::Value, findings: &mut Vec<Finding>| {
        let found = value.at_key(key, found);
        let known = KEYS.iter().find(|known| same(known.name, key));
        match known.map(|known| &known.field) {
            Some(Rate(set)) => set(&mut rates, &found, findings),
            _ => findings.push(Finding::new(Severity::Warning, found.path(), "unknown key, ignored")),
        }
    };
    read_map(map, read, findings);
    config.limits.single.insert(kind.to_owned(), rates);
}

impl Key {
    fn set(&self, config: &mut Config, value: &Value<'_>, findings: &mut Vec<Finding>) {
        match &self.field {
            Text(field) => store(field(config), text(value, findings)),
            Strict(field) => store(field(config), value.text()),
            Field::Secret(field) => match value.json().as_str() {
                Some(text) => *field(config) = Secret(text.to_owned()),
                // Not the value itself.
                None => value.problem("expected text (in quotes)"),
            },
            Flag(field) => store(field(config), value.flag()),
            Seconds(field) => store(field(config), count(value, findings).map(Duration::from_secs)),
            Pairs(field) => {
                let Some(map) = value.json().as_object() else { return value.problem("expected a map of texts") };
                for (key, found) in map {
                    let found = text(&value.at_key(key, found), findings);
                    field(config).extend(found.map(|text| (key.clone(), text)));
                }
            }
            Rate(set) => set(&mut config.limits.all, value, findings),
            Age => match below_zero(value, "nothing is used twice") {
                Some(warning) => {
                    findings.push(warning);
                    config.caches.insert(self.name, Duration::ZERO);
                }
                None => {
                    let seconds = value.count().filter(|seconds| *seconds > 0);
                    config.caches.extend(seconds.map(|seconds| (self.name, Duration::from_secs(seconds))));
                }
            },
            Idle(_, is_good) => findings.extend(self.idle(value).filter(|_| is_good(value))),
            Other(_, read) => read(config, value, findings),
        }
    }

    /// The finding for a key without effect whose value asks for another one than the default.
    fn idle(&self, value: &Value<'_>) -> Option<Finding> {
        let text = value.json().as_str().map_or_else(|| value.json().to_string(), str::to_owned);
        let message = format!("without effect: {}", self.doc.trim_end_matches('.'));
        let finding = Finding::new(Severity::Info, self.name, message);
        (!["", "0", "false", self.default].contains(&&*text)).then(|| finding.value(text))
    }
}

/// Also for misspelled keys.
pub(super) fn is_secret(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    ["secret", "password"].iter().any(|word| lower.contains(word))
}

/// Whether upstream takes no number or boolean as text at this path.
pub(super) fn is_strict(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let is_strict = |known: &Key| same(known.name, path) && matches!(known.field, Strict(_) | Field::Secret(_));
    lower.contains("selector.") || lower.ends_with(".primaryvmset") || KEYS.iter().any(is_strict)
}

fn store<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// The keys as a table in Markdown.
pub(super) fn reference() -> String {
    let mut text = "| Key | Type | Default | Effect |\n| --- | --- | --- | --- |\n".to_owned();
    for Key { name, field, default, doc } in KEYS {
        let kind = match field {
            Text(_) | Strict(_) | Field::Secret(_) => "string",
            Flag(_) => "boolean",
            Seconds(_) | Age => "integer",
            Rate(_) => "number",
            Pairs(_) => "map",
            Idle(kind, _) | Other(kind, _) => kind,
        };
        let kind = if *name == "cloudProviderRateLimit" { "boolean" } else { kind };
        let default = if default.is_empty() { "–".to_owned() } else { format!("`{default}`") };
        let idle = if matches!(field, Idle(..)) { "Without effect: " } else { "" };
        text.push_str(&format!("| `{name}` | {kind} | {default} | {idle}{doc} |\n"));
    }
    for kind in LIMITED {
        text.push_str(&format!("| `{kind}{LIMIT}` | map | – | The rate limit of these calls. |\n"));
    }
    for kind in UNLIMITED {
        text.push_str(&format!("| `{kind}{LIMIT}` | map | – | Without effect: there are no such calls. |\n"));
    }
    text
}
