//! A process that dies after any of its writes: see [`ccm_provider_contract::crash`].

use async_trait::async_trait;
use ccm_provider_contract::{Simulation, crash};

use super::*;
use crate::bed::contents;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
const LINK: (&str, &str) = ("azure-pls-create", "true");

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
}

impl Life {
    /// A cluster in which the process is about to work.
    async fn begin(self) -> Work {
        use Life::*;
        let is_of_interfaces =
            matches!(self, Create | CreateOfMachines | CreateDual | Change | ChangeNodes | Delete | DeleteOfMachines);
        let more = if is_of_interfaces { "" } else { BY_ADDRESS };
        let mut scene = match self {
            CreateDual => Scene::dual(more, 2).await,
            CreateOfMachines | DeleteOfMachines => {
                let mut scene = Scene::new(more, 0).await;
                scene.nodes = ["vm0", "vm1"].map(|name| machine_node(&scene, name)).into();
                scene
            }
            _ => Scene::new(more, 3).await,
        };
        let all = scene.nodes.clone();
        scene.nodes.truncate(2);
        scene.bed.cluster.set_nodes(all.clone());
        rule_of_users(&scene);
        scene.service("web", self.annotations(), port(80));
        // One private link only: the order of two decides on their addresses.
        let other: Vec<(&str, &str)> = self.annotations().iter().copied().filter(|key| *key != LINK).collect();
        scene.service("api", &other, port(90));
        match self {
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
            ToInternal => scene.service("web", &[INTERNAL], port(80)),
            ToExternal => scene.service("web", &[], port(80)),
            WithoutLink => scene.service("web", &[INTERNAL, ("azure-pls-create", "false")], port(80)),
            _ => {}
        }
        Work { services: scene.services.clone(), scene }
    }

    fn action(self) -> ServiceAction {
        match self {
            Self::ChangeNodes => ServiceAction::UpdateHosts,
            Self::Delete | Self::DeleteOfMachines | Self::DeleteByAddress | Self::DeleteLink => ServiceAction::Delete,
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
    );
}
