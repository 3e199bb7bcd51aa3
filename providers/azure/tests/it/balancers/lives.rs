//! Random lives of Services in the simulated Azure: see [`ccm_provider_contract::lives`].

use async_trait::async_trait;
use ccm_cloudsim::azure::SetSeed;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider_contract::Simulation;
use ccm_provider_contract::lives::LivingCloud;
use rand::Rng;
use rand::rngs::StdRng;

use super::*;
use crate::bed::stable;

const SET: &str = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool";

/// What others change is seen after this time.
const AGE: std::time::Duration = std::time::Duration::from_secs(1);
const AGES: &str = "loadBalancerCacheTTLInSeconds: 1\npublicIPCacheTTLInSeconds: 1\nnsgCacheTTLInSeconds: 1\n";

/// The simulated Azure, shared with another cluster and with users.
struct Living {
    bed: Bed,
    config: String,
    nodes: Vec<NodeRef>,
}

impl Living {
    /// A load balancer of another cluster, and what users have in the security group.
    fn neighbors(&self) {
        let nsg = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg");
        let rule = |name: &str, priority: i64, port: &str| {
            json!({"name": name, "properties": {
                "priority": priority, "protocol": "Tcp", "access": "Allow", "direction": "Inbound",
                "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationPortRange": port,
                "destinationAddressPrefix": "10.240.0.4",
            }})
        };
        let rules = json!([rule("theirs", 500, "22"), rule("theirs-too", 4095, "23")]);
        let balancer = format!("{GROUP}/Microsoft.Network/loadBalancers/theirs");
        self.bed.cloud.world(|world| {
            world.alter(&nsg, json!({"properties": {"securityRules": rules}}));
            let ip = world.public_ip("sub", "rg", "theirs", json!({"location": "eastus"}));
            let frontends = json!([{"name": "theirs", "properties": {"publicIPAddress": {"id": ip}}}]);
            world.put(&balancer, json!({"properties": {"frontendIPConfigurations": frontends}}));
        });
    }

    /// The rules of the security group, a line each.
    fn rules(&self) -> impl Iterator<Item = String> {
        let group = self.bed.cloud.object(&format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg"));
        items(&group, "securityRules").into_iter().map(|mut rule| {
            // The state is that of the group, which holds the rules of all.
            rule["properties"]["provisioningState"] = Value::Null;
            stable(rule).to_string()
        })
    }

    /// The object without members that are no nodes: their instances may still run.
    fn with_nodes(&self, mut object: Value) -> Value {
        let is_of_node = |id: &str| {
            let of = |node: &NodeRef| {
                let id_of_node = node.provider_id_or_empty().trim_start_matches("azure://").to_lowercase();
                id.to_lowercase().starts_with(&format!("{id_of_node}/"))
            };
            self.nodes.iter().any(of)
        };
        let pools = object.pointer_mut("/properties/backendAddressPools").and_then(Value::as_array_mut);
        for pool in pools.into_iter().flatten() {
            for (list, id) in [
                ("/properties/backendIPConfigurations", "/id"),
                ("/properties/loadBalancerBackendAddresses", "/properties/networkInterfaceIPConfiguration/id"),
            ] {
                if let Some(list) = pool.pointer_mut(list).and_then(Value::as_array_mut) {
                    list.retain(|it| it.pointer(id).and_then(Value::as_str).is_none_or(is_of_node));
                }
            }
        }
        object
    }
}

#[async_trait]
impl LivingCloud for Living {
    const CLUSTER: &'static str = CLUSTER;
    const AT_ONCE: usize = 16;

    async fn start(seed: u64, rng: &mut StdRng) -> Self {
        let operations = [0, 3, 20][rng.random_range(0..3)];
        let bed = Bed::dual(Options {
            seed,
            operation: std::time::Duration::from_millis(operations),
            etag_on_end: rng.random_bool(0.5),
            succeeds_at_once: seed % 2 == 1,
            throttle_after: 0,
            ..Options::default()
        });
        let seed = SetSeed { name: "pool", zones: &["1"], dual: true, ..SetSeed::default() };
        bed.cloud.world(|world| world.scale_set(&seed));
        let mut config = AGES.to_owned();
        if rng.random_bool(0.5) {
            config.push_str(BY_ADDRESS);
        }
        if rng.random_bool(0.3) {
            config.push_str("clusterServiceLoadBalancerHealthProbeMode: shared\n");
        }
        if rng.random_bool(0.3) {
            config.push_str("tags: team=a\n");
        }
        let living = Self { bed, config, nodes: Vec::new() };
        living.neighbors();
        living
    }

    fn description(&self) -> String {
        format!("config {:?}", self.config)
    }

    fn simulation(&self) -> &dyn Simulation {
        &self.bed.cloud
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        self.bed.cluster.set_nodes(self.nodes.clone());
        // A new process that gets no answer tries again, as its Deployment does.
        loop {
            if let Ok(provider) = self.bed.build(self.bed.config(&self.config)).await
                && provider.initialize(self.bed.cluster.context(CLUSTER)).await.is_ok()
            {
                return provider.load_balancer().unwrap();
            }
        }
    }

    fn nodes(&mut self) -> &mut Vec<NodeRef> {
        &mut self.nodes
    }

    fn add_node(&mut self, number: usize) {
        self.bed.cloud.world(|world| world.scale_out(SET, 1));
        self.nodes.push(node_of(SET, number - 1, true));
        self.bed.cluster.set_nodes(self.nodes.clone());
    }

    fn remove_instance(&mut self, node: &NodeRef) {
        let id = node.provider_id_or_empty().trim_start_matches("azure://").to_owned();
        self.bed.cloud.world(|world| world.delete_machine(&id));
        self.bed.cluster.set_nodes(self.nodes.clone());
    }

    /// With floating IP: without it, rules have the addresses of all nodes, and which of their ports are used only the
    /// cluster's list of Services says, which is empty here.
    fn service(&mut self, rng: &mut StdRng, name: &str, _: bool) -> Service {
        let number: u32 = name[1..].parse().unwrap();
        let base = 30000 + 500 * i32::from(name.as_bytes()[0] - b'a');
        let mut may = |chance: f64| rng.random_bool(chance);
        let mut annotations = BTreeMap::new();
        let mut annotate = |key: &str, value: &str| {
            annotations.insert(format!("service.beta.kubernetes.io/{key}"), value.to_owned());
        };
        if may(0.3) {
            annotate("azure-load-balancer-internal", "true");
        }
        if may(0.2) {
            annotate("azure-load-balancer-tcp-idle-timeout", "10");
        }
        if may(0.2) {
            annotate("azure-allowed-service-tags", "AzureCloud");
        }
        let protocol = if may(0.3) { "UDP" } else { "TCP" };
        let all: [&[i32]; 3] = [&[80], &[80, 443], &[443, 444, 445]];
        let ports = all[usize::from(may(0.5)) + usize::from(may(0.3))];
        let port = |port: &i32| json!({"port": port, "nodePort": base + port, "protocol": protocol});
        let mut spec = json!({"type": "LoadBalancer", "ports": ports.iter().map(port).collect::<Vec<_>>()});
        if may(0.3) {
            spec["loadBalancerSourceRanges"] = json!(["10.0.0.0/8", "fd00::/8"]);
            if may(0.5) {
                annotate("azure-deny-all-except-load-balancer-source-ranges", "true");
            }
        }
        if may(0.3) {
            spec["sessionAffinity"] = json!("ClientIP");
        }
        if may(0.3) {
            spec["externalTrafficPolicy"] = json!("Local");
            spec["healthCheckNodePort"] = json!(32000 + number);
        }
        if may(0.3) {
            spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        }
        let uid = format!("{number:08}-1111-2222-3333-444444444444");
        let meta = json!({"namespace": "default", "name": name, "uid": uid, "annotations": annotations});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn rough(&mut self, rng: &mut StdRng) -> bool {
        if rng.random_bool(0.6) {
            return false;
        }
        let time = std::time::Duration::from_millis([5, 300, 3000][rng.random_range(0..3)]);
        let kinds = ["loadBalancers", "publicIPAddresses", "networkSecurityGroups", "virtualMachineScaleSets"];
        let lag = kinds.iter().fold(Lag::default(), |lag, kind| lag.with(kind, time));
        self.bed.cloud.change(|options| options.lag = lag);
        true
    }

    fn calm(&mut self) {
        std::thread::sleep(AGE);
        self.bed.cloud.change(|options| options.lag = Lag::default());
    }

    fn disrupt(&mut self, rng: &mut StdRng) -> String {
        let nth = rng.random_range(0..6);
        let code = |status: u16, code: &str| Fault::Code { status, code: code.to_owned(), message: String::new() };
        let later = |status: u16, code: &str| {
            let message = "outage".to_owned();
            Fault::Operation { status, code: code.to_owned(), message }
        };
        let fault = match rng.random_range(0..6) {
            0 => code(412, "PreconditionFailed"),
            1 => code(429, "RetryableError"),
            2 => Fault::Throttle,
            3 => later(500, "InternalServerError"),
            4 => later(409, "CanceledAndSupersededDueToAnotherOperation"),
            _ => {
                self.bed.cloud.expire_tokens();
                return "all tokens expire".to_owned();
            }
        };
        let text = format!("write {nth}: {fault:?}");
        self.bed.cloud.fault(Rule::writes_from(1, fault).window(nth, 1));
        text
    }

    fn change_by_hand(&mut self, rng: &mut StdRng, _: &[String]) -> String {
        let (kind, name, lists) = match rng.random_range(0..3) {
            0 => ("networkSecurityGroups", "nsg", &["securityRules"][..]),
            1 => ("loadBalancers", "kubernetes", &["loadBalancingRules", "probes"][..]),
            _ => ("loadBalancers", "kubernetes-internal", &["loadBalancingRules"][..]),
        };
        let path = format!("{GROUP}/Microsoft.Network/{kind}/{name}");
        let mut object = self.bed.cloud.object(&path);
        let list = lists[rng.random_range(0..lists.len())];
        let at = format!("/properties/{list}");
        let Some(all) = object.pointer_mut(&at).and_then(Value::as_array_mut) else { return "nothing".to_owned() };
        all.retain(|one| one["name"].as_str().is_some_and(|name| name.starts_with("theirs")));
        if list == "probes" {
            for rule in object["properties"]["loadBalancingRules"].as_array_mut().unwrap() {
                rule["properties"]["probe"] = Value::Null;
            }
        }
        let changed = self.bed.cloud.by_hand("PUT", &path, &object).map(drop);
        format!("all {list} of {name} are gone: {changed:?}")
    }

    async fn wait(&self, error: &ProviderError) -> bool {
        if error.is_in_progress() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        error.is_in_progress()
    }

    fn contents(&self) -> Vec<String> {
        let kinds = ["loadBalancers", "publicIPAddresses"].map(|kind| format!("Microsoft.Network/{kind}"));
        let mut sets = self.bed.cloud.objects("Microsoft.Compute/virtualMachineScaleSets");
        sets.iter_mut().for_each(|set| set["properties"]["provisioningState"] = Value::Null);
        let objects = kinds.iter().flat_map(|kind| self.bed.cloud.objects(kind)).chain(sets);
        objects.map(|object| stable(self.with_nodes(object)).to_string()).chain(self.rules()).collect()
    }

    fn is_theirs(line: &str) -> bool {
        line.contains("theirs")
    }

    /// No operation may have been superseded: later ones wait for the earlier ones of their object.
    fn foreign(&self) -> Vec<String> {
        let theirs = self.contents().into_iter().filter(|line| Self::is_theirs(line));
        theirs.chain(self.bed.cloud.superseded()).collect()
    }

    /// Without private addresses and how they were chosen, priorities, the number of instances, and the order of parts.
    fn plain(line: String) -> String {
        fn sorted(mut value: Value) -> Value {
            match &mut value {
                Value::Object(fields) => {
                    let ignored = ["privateIPAllocationMethod", "privateIPAddress", "priority", "capacity"];
                    fields.retain(|key, _| !ignored.contains(&&**key));
                    fields.values_mut().for_each(|field| *field = sorted(field.take()));
                    fields.retain(|_, field| field.as_array().is_none_or(|list| !list.is_empty()));
                }
                Value::Array(list) => {
                    // The pool of IPv6 stays after the last Service that needs it.
                    let id = |one: &Value| one["id"].as_str().unwrap_or_default().to_owned();
                    list.retain(|one| !id(one).ends_with("/backendAddressPools/kubernetes-IPv6"));
                    list.iter_mut().for_each(|one| *one = sorted(one.take()));
                    list.sort_by_key(ToString::to_string);
                }
                Value::String(text) if text.parse::<std::net::IpAddr>().is_ok() => "an address".clone_into(text),
                _ => {}
            }
            value
        }
        sorted(serde_json::from_str(&line).unwrap()).to_string()
    }
}

ccm_provider_contract::lives!(Living, "CCM_AZURE_SEEDS", 1..=4, 100);
