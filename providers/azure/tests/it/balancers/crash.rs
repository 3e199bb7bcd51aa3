//! A process that dies after any of its writes: see [`ccm_provider_contract::crash`].

use async_trait::async_trait;
use ccm_provider_contract::{Simulation, crash};

use super::several::on;
use super::*;
use crate::bed::contents;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
const LINK: (&str, &str) = ("azure-pls-create", "true");

/// Several load balancers, of which one has the nodes with a label.
const SELECTING: &str = "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations:\n\
                         - name: kubernetes\n  primaryVMSet: none\n- name: second\n  primaryVMSet: other\n  nodeSelector:\n    \
                         matchLabels:\n      pool: b\n";

/// All types of objects that the work changes.
const KINDS: [&str; 7] = [
    "Microsoft.Network/loadBalancers",
    "Microsoft.Network/publicIPAddresses",
    "Microsoft.Network/networkSecurityGroups",
    "Microsoft.Network/privateLinkServices",
    "Microsoft.Network/networkInterfaces",
    "Microsoft.Compute/virtualMachineScaleSets",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
];

/// The work during which a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Create,
    CreateOfMachines,
    CreateByAddress,
    CreateInternal,
    CreateDual,
    CreateLink,
    Change,
    ChangeNodes,
    ToInternal,
    ToExternal,
    WithoutLink,
    Delete,
    DeleteOfMachines,
    DeleteByAddress,
    DeleteLink,
    CreateSeveral,
    Move,
    Exchange,
    DeleteSeveral,
    CreateLocal,
    ChangeLocal,
    MoveLocal,
    DeleteLocal,
}

impl Life {
    /// A cluster in which the process is about to work.
    async fn begin(self) -> Work {
        use Life::*;
        let is_of_interfaces =
            matches!(self, Create | CreateOfMachines | CreateDual | Change | ChangeNodes | Delete | DeleteOfMachines);
        let more = match () {
            () if self.is_several() => SELECTING,
            () if is_of_interfaces => "",
            () => BY_ADDRESS,
        };
        let mut scene = match self {
            CreateDual => Scene::dual(more, 2).await,
            CreateOfMachines | DeleteOfMachines => {
                let mut scene = Scene::new(more, 0).await;
                scene.nodes = ["vm0", "vm1"].map(|name| machine_node(&scene, name)).into();
                scene
            }
            _ => Scene::new(more, 3).await,
        };
        if self.is_several() {
            let mut node = (*scene.nodes[1]).clone();
            node.labels = [("pool", "b")].into_iter().collect();
            scene.nodes[1] = node.into();
        }
        let all = scene.nodes.clone();
        scene.nodes.truncate(2);
        scene.bed.cluster.set_nodes(all.clone());
        rule_of_users(&scene);
        let second = if self == Move { CLUSTER } else { "second" };
        self.service(&mut scene, "web", CLUSTER, 80);
        self.service(&mut scene, "api", second, 90);
        match self {
            CreateSeveral | CreateLocal => {}
            Create | CreateOfMachines | CreateByAddress | CreateInternal | CreateLink => {}
            CreateDual => {
                let spec = json!({"ports": port(80), "ipFamilies": ["IPv4", "IPv6"]});
                scene.spec("web", &[], spec);
            }
            _ => scene.ensure(&["web", "api"]).await,
        }
        match self {
            Change => {
                let spec = json!({"ports": port(81), "loadBalancerSourceRanges": ["10.0.0.0/8"]});
                scene.spec("web", &[], spec);
                scene.nodes = all[1..].to_vec();
            }
            ChangeNodes => scene.nodes = all[1..].to_vec(),
            Move | MoveLocal => self.service(&mut scene, "web", "second", 80),
            Exchange => {
                self.service(&mut scene, "web", "second", 80);
                self.service(&mut scene, "api", CLUSTER, 90);
            }
            ChangeLocal => scene.nodes = all[1..].to_vec(),
            ToInternal => scene.service("web", &[INTERNAL], port(80)),
            ToExternal => scene.service("web", &[], port(80)),
            WithoutLink => scene.service("web", &[INTERNAL, ("azure-pls-create", "false")], port(80)),
            _ => {}
        }
        Work { services: scene.services.clone(), scene }
    }

    /// Whether the Services are on several load balancers.
    fn is_several(self) -> bool {
        use Life::*;
        matches!(self, CreateSeveral | Move | Exchange | DeleteSeveral) || self.is_local()
    }

    /// Whether the Services have pools of their own.
    fn is_local(self) -> bool {
        use Life::*;
        matches!(self, CreateLocal | ChangeLocal | MoveLocal | DeleteLocal)
    }

    /// Adds or changes a Service. `place`: its load balancer, where there are several.
    fn service(self, scene: &mut Scene, name: &str, place: &'static str, number: u16) {
        // One private link only: the order of two decides on their addresses.
        let has_link = name == "web";
        let mut annotations: Vec<_> =
            self.annotations().iter().copied().filter(|key| has_link || *key != LINK).collect();
        annotations.extend(self.is_several().then(|| on(place)));
        let mut spec = json!({"ports": port(number)});
        if self.is_local() {
            spec["externalTrafficPolicy"] = json!("Local");
            spec["healthCheckNodePort"] = json!(32000 + number);
        }
        scene.spec(name, &annotations, spec);
    }

    fn action(self) -> ServiceAction {
        match self {
            Self::ChangeNodes | Self::ChangeLocal => ServiceAction::UpdateHosts,
            Self::Delete
            | Self::DeleteOfMachines
            | Self::DeleteByAddress
            | Self::DeleteLink
            | Self::DeleteSeveral
            | Self::DeleteLocal => ServiceAction::Delete,
            _ => ServiceAction::Ensure,
        }
    }

    fn annotations(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::CreateInternal | Self::ToExternal => &[INTERNAL],
            Self::CreateLink | Self::WithoutLink | Self::DeleteLink => &[INTERNAL, LINK],
            _ => &[],
        }
    }
}

/// A rule whose destination is an application security group.
fn rule_of_users(scene: &Scene) {
    let group = format!("{GROUP}/Microsoft.Network/applicationSecurityGroups/asg");
    let rule = json!({"name": "theirs", "properties": {
        "priority": 500, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationPortRange": "22", "destinationApplicationSecurityGroups": [{"id": group}],
    }});
    scene.bed.cloud.world(|world| {
        world.put(&group, json!({}));
        let rules = json!({"properties": {"securityRules": [rule]}});
        world.alter(&format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg"), rules);
    });
}

/// A process that is about to work on two Services.
struct Work {
    scene: Scene,
    services: BTreeMap<String, Service>,
}

#[async_trait(?Send)]
impl crash::Stage for Work {
    fn simulation(&self) -> &dyn Simulation {
        &self.scene.bed.cloud
    }

    async fn work(&mut self, action: ServiceAction) -> Result<(), ProviderError> {
        for (name, service) in &self.services {
            self.scene.services.entry(name.clone()).or_insert_with(|| service.clone());
        }
        self.scene.settle(&["web", "api"], action).await
    }

    async fn restart(&mut self) {
        self.scene.restart().await;
    }

    async fn contents(&self) -> Vec<String> {
        assert_eq!(self.scene.bed.cloud.superseded(), Vec::<String>::new());
        contents(&self.scene.bed.cloud, &KINDS)
    }
}

async fn dies_after_each_write(life: Life, least: usize) {
    let reached = crash::every_prefix(life.action(), least, 16, async || life.begin().await).await;
    let is_theirs = |line: &String| line.contains("\"name\":\"theirs\"");
    assert!(reached.iter().any(is_theirs), "the rule of users is there");
    if life.action() == ServiceAction::Delete {
        let kinds = ["loadBalancers", "publicIPAddresses", "privateLinkServices"];
        let is_left =
            |line: &String| kinds.iter().any(|kind| line.contains(&format!("\"type\":\"Microsoft.Network/{kind}\"")));
        assert!(!reached.iter().any(is_left), "{reached:#?}");
    }
}

macro_rules! lives {
    ($($name:ident $life:ident $least:literal,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            dies_after_each_write(Life::$life, $least).await;
        })*
    };
}

lives!(
    a_creation_with_a_scale_set_survives_any_death Create 6,
    a_creation_with_addresses_survives_any_death CreateByAddress 5,
    a_change_survives_any_death Change 4,
    a_change_to_internal_survives_any_death ToInternal 4,
    a_deletion_with_a_scale_set_survives_any_death Delete 7,
    a_deletion_of_a_private_link_survives_any_death DeleteLink 2,
    a_move_to_another_load_balancer_survives_any_death Move 2,
    a_creation_of_local_services_on_several_load_balancers_survives_any_death CreateLocal 7,
);

mod long_lane {
    use super::*;

    lives!(
        a_creation_with_machines_survives_any_death CreateOfMachines 6,
        an_internal_creation_survives_any_death CreateInternal 2,
        a_creation_of_two_families_survives_any_death CreateDual 7,
        a_creation_of_a_private_link_survives_any_death CreateLink 4,
        a_change_of_nodes_survives_any_death ChangeNodes 2,
        a_change_to_external_survives_any_death ToExternal 4,
        the_end_of_a_private_link_survives_any_death WithoutLink 1,
        a_deletion_with_machines_survives_any_death DeleteOfMachines 4,
        a_deletion_with_addresses_survives_any_death DeleteByAddress 4,
        a_creation_on_several_load_balancers_survives_any_death CreateSeveral 5,
        an_exchange_of_load_balancers_survives_any_death Exchange 4,
        a_deletion_from_several_load_balancers_survives_any_death DeleteSeveral 4,
        a_change_of_nodes_of_local_services_survives_any_death ChangeLocal 2,
        a_move_of_a_local_service_survives_any_death MoveLocal 2,
        a_deletion_of_local_services_survives_any_death DeleteLocal 4,
    );
}
