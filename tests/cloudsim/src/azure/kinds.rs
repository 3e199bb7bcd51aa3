//! The types of resources: their collections, and the rules of each.

use super::ids::Id;
use super::json::{list, text};
use super::world::World;
use super::{
    compute, interfaces, load_balancers, networks, pools, private_links, public_ips, route_tables, security_groups,
};
use crate::core::rest::Problem;
use serde_json::Value;
use std::net::IpAddr;

/// A reference from one resource to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ref {
    /// The key of the referenced resource.
    pub(super) target: String,
    /// The ID of the referring resource, or of a part of it.
    pub(super) user: String,
    /// The address that it has, if the referenced resource is a subnet.
    pub(super) address: Option<IpAddr>,
}

/// A type of resources.
#[derive(Debug)]
pub(super) struct Kind {
    /// The type in lower case.
    pub(super) kind: &'static str,
    /// Its name in answers.
    pub(super) shown: &'static str,
    /// The name of the collection, for lag and quotas.
    pub(super) resource: &'static str,
    /// The name in operations: `PutLoadBalancerOperation`.
    pub(super) operation: &'static str,
    /// Lists of named parts in `properties`, with their type.
    pub(super) parts: &'static [&'static str],
    /// Fields of answers that a write ignores, by pointer; `*` stands for all elements of a list.
    pub(super) ignored: &'static [&'static str],
    /// Whether a PUT keeps what it lacks; a list in it replaces the whole list all the same.
    pub(super) merges: bool,
    pub(super) rules: Rules,
}

/// The rules of a type.
#[derive(Debug)]
pub(super) struct Rules {
    /// Checks the new fields of a resource, and completes them.
    pub(super) check: fn(&mut World, &Id, Option<&Value>, &mut Value) -> Result<(), Problem>,
    /// Checks that a resource can be deleted.
    pub(super) removal: fn(&mut World, &Id) -> Result<(), Problem>,
    /// The references of a resource.
    pub(super) refs: fn(&Id, &Value) -> Vec<Ref>,
    /// Adds what answers have in addition.
    pub(super) show: fn(&World, &Id, &mut Value),
}

impl Kind {
    /// Whether a resource of this type has a `resourceGuid`.
    pub(super) fn has_guid(&self, id: &Id) -> bool {
        !self.merges && id.parts.len() == 1
    }
}

fn may_go(_: &mut World, _: &Id) -> Result<(), Problem> {
    Ok(())
}

fn no_refs(_: &Id, _: &Value) -> Vec<Ref> {
    Vec::new()
}

fn no_more(_: &World, _: &Id, _: &mut Value) {}

fn any(_: &mut World, _: &Id, _: Option<&Value>, _: &mut Value) -> Result<(), Problem> {
    Ok(())
}

/// All types.
pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "microsoft.network/loadbalancers",
        shown: "Microsoft.Network/loadBalancers",
        resource: "loadBalancers",
        operation: "LoadBalancer",
        parts: &[
            "frontendIPConfigurations",
            "backendAddressPools",
            "loadBalancingRules",
            "probes",
            "inboundNatRules",
            "inboundNatPools",
            "outboundRules",
        ],
        ignored: load_balancers::IGNORED,
        merges: false,
        rules: Rules {
            check: load_balancers::check,
            removal: load_balancers::removal,
            refs: load_balancers::refs,
            show: load_balancers::show,
        },
    },
    Kind {
        kind: "microsoft.network/publicipaddresses",
        shown: "Microsoft.Network/publicIPAddresses",
        resource: "publicIPAddresses",
        operation: "PublicIpAddress",
        parts: &[],
        ignored: &["/properties/ipConfiguration", "/properties/natGateway"],
        merges: false,
        rules: Rules {
            check: public_ips::check,
            removal: public_ips::removal,
            refs: public_ips::refs,
            show: public_ips::show,
        },
    },
    Kind {
        kind: "microsoft.network/publicipprefixes",
        shown: "Microsoft.Network/publicIPPrefixes",
        resource: "publicIPPrefixes",
        operation: "PublicIpPrefix",
        parts: &[],
        ignored: &["/properties/publicIPAddresses", "/properties/loadBalancerFrontendIpConfiguration"],
        merges: false,
        rules: Rules { check: any, removal: may_go, refs: no_refs, show: public_ips::show_prefix },
    },
    Kind {
        kind: "microsoft.network/networksecuritygroups",
        shown: "Microsoft.Network/networkSecurityGroups",
        resource: "networkSecurityGroups",
        operation: "NetworkSecurityGroup",
        parts: &["securityRules"],
        ignored: &[
            "/properties/defaultSecurityRules",
            "/properties/networkInterfaces",
            "/properties/subnets",
            "/properties/flowLogs",
        ],
        merges: false,
        rules: Rules {
            check: security_groups::check,
            removal: security_groups::removal,
            refs: security_groups::refs,
            show: security_groups::show,
        },
    },
    Kind {
        kind: "microsoft.network/applicationsecuritygroups",
        shown: "Microsoft.Network/applicationSecurityGroups",
        resource: "applicationSecurityGroups",
        operation: "ApplicationSecurityGroup",
        parts: &[],
        ignored: &[],
        merges: false,
        rules: Rules { check: any, removal: may_go, refs: no_refs, show: no_more },
    },
    Kind {
        kind: "microsoft.network/routetables",
        shown: "Microsoft.Network/routeTables",
        resource: "routeTables",
        operation: "RouteTable",
        parts: &["routes"],
        ignored: &["/properties/subnets", "/properties/routes/*/properties/hasBgpOverride"],
        merges: false,
        rules: Rules {
            check: route_tables::check,
            removal: route_tables::removal,
            refs: no_refs,
            show: route_tables::show,
        },
    },
    Kind {
        kind: "microsoft.network/virtualnetworks",
        shown: "Microsoft.Network/virtualNetworks",
        resource: "virtualNetworks",
        operation: "VirtualNetwork",
        parts: &[],
        ignored: &[],
        merges: false,
        rules: Rules { check: any, removal: may_go, refs: no_refs, show: networks::show },
    },
    Kind {
        kind: "microsoft.network/virtualnetworks/subnets",
        shown: "Microsoft.Network/virtualNetworks/subnets",
        resource: "subnets",
        operation: "Subnet",
        parts: &[],
        ignored: &["/properties/ipConfigurations", "/properties/purpose", "/properties/privateEndpoints"],
        merges: false,
        rules: Rules {
            check: networks::check_subnet,
            removal: may_go,
            refs: networks::subnet_refs,
            show: networks::show_subnet,
        },
    },
    Kind {
        kind: "microsoft.network/networkinterfaces",
        shown: "Microsoft.Network/networkInterfaces",
        resource: "networkInterfaces",
        operation: "Nic",
        parts: &["ipConfigurations"],
        ignored: &[
            "/properties/virtualMachine",
            "/properties/macAddress",
            "/properties/primary",
            "/properties/hostedWorkloads",
            "/properties/vnetEncryptionSupported",
            "/properties/tapConfigurations",
        ],
        merges: false,
        rules: Rules {
            check: interfaces::check,
            removal: interfaces::removal,
            refs: interfaces::refs,
            show: interfaces::show,
        },
    },
    Kind {
        kind: "microsoft.network/privatelinkservices",
        shown: "Microsoft.Network/privateLinkServices",
        resource: "privateLinkServices",
        operation: "PrivateLinkService",
        parts: &["ipConfigurations"],
        ignored: &["/properties/privateEndpointConnections", "/properties/networkInterfaces", "/properties/alias"],
        merges: false,
        rules: Rules {
            check: private_links::check,
            removal: private_links::removal,
            refs: private_links::refs,
            show: private_links::show,
        },
    },
    Kind {
        kind: "microsoft.compute/virtualmachines",
        shown: "Microsoft.Compute/virtualMachines",
        resource: "virtualMachines",
        operation: "VirtualMachine",
        parts: &[],
        ignored: &["/properties/instanceView", "/properties/vmId", "/properties/timeCreated"],
        merges: true,
        rules: Rules { check: any, removal: may_go, refs: compute::machine_refs, show: compute::show_machine },
    },
    Kind {
        kind: "microsoft.compute/virtualmachinescalesets",
        shown: "Microsoft.Compute/virtualMachineScaleSets",
        resource: "virtualMachineScaleSets",
        operation: "VirtualMachineScaleSet",
        parts: &[],
        ignored: &["/properties/uniqueId", "/properties/timeCreated"],
        merges: true,
        rules: Rules { check: compute::check_set, removal: may_go, refs: compute::set_refs, show: no_more },
    },
    Kind {
        kind: "microsoft.compute/virtualmachinescalesets/virtualmachines",
        shown: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        resource: "virtualMachineScaleSetVMs",
        operation: "VirtualMachineScaleSetVM",
        parts: &[],
        ignored: compute::IGNORED_OF_INSTANCES,
        merges: true,
        rules: Rules {
            check: compute::check_instance,
            removal: may_go,
            refs: compute::instance_refs,
            show: compute::show_instance,
        },
    },
    Kind {
        kind: "microsoft.compute/availabilitysets",
        shown: "Microsoft.Compute/availabilitySets",
        resource: "availabilitySets",
        operation: "AvailabilitySet",
        parts: &[],
        ignored: &["/properties/virtualMachines", "/properties/statuses"],
        merges: true,
        rules: Rules { check: any, removal: may_go, refs: no_refs, show: compute::show_availability_set },
    },
    Kind {
        kind: "microsoft.compute/disks",
        shown: "Microsoft.Compute/disks",
        resource: "disks",
        operation: "Disk",
        parts: &[],
        ignored: &["/properties/uniqueId", "/properties/timeCreated"],
        merges: true,
        rules: Rules { check: any, removal: may_go, refs: no_refs, show: compute::show_disk },
    },
];

/// The type with this name in lower case.
pub(super) fn of(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.kind == kind)
}

/// The reference at a pointer to `{"id": …}`, if any.
pub(super) fn reference(value: &Value, pointer: &str, user: &str) -> Option<Ref> {
    let target = text(value, &format!("{pointer}/id"));
    let found = Ref { target: target.to_lowercase(), user: user.to_owned(), address: None };
    (!target.is_empty()).then_some(found)
}

/// The references of an IP configuration: to its subnet with its address, to its public IP address and pools.
pub(super) fn of_configuration(configuration: &Value, user: &str) -> Vec<Ref> {
    let address = text(configuration, "/properties/privateIPAddress").parse().ok();
    let subnet = reference(configuration, "/properties/subnet", user);
    let mut found: Vec<Ref> = subnet.map(|subnet| Ref { address, ..subnet }).into_iter().collect();
    found.extend(reference(configuration, "/properties/publicIPAddress", user));
    for name in pools::MEMBERSHIPS {
        let all = list(configuration, &format!("/properties/{name}")).iter();
        found.extend(all.filter_map(|pool| reference(pool, "", user)));
    }
    found
}
