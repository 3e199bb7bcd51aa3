//! Converts EC2's types to ours. Lenient: missing or unknown values never fail a list.

use aws_sdk_ec2::types as sdk;

use super::{known, word};
use crate::client::ec2::{
    AvailabilityZone, Instance, InstanceInterface, NetworkInterface, Peer, Permission, Route, RouteTable,
    SecurityGroup, Source, Subnet, Volume,
};
use crate::client::operation::Operation;
use crate::client::{Answer, Filter, Tags};

pub(super) fn filter(filter: &Filter) -> sdk::Filter {
    sdk::Filter::builder().name(&filter.name).set_values(Some(filter.values.clone())).build()
}

/// Collects into a new vector: an in-place collection would keep the allocation of the SDK's large entries.
fn each<A, B>(from: Option<Vec<A>>, convert: impl FnMut(A) -> Option<B>) -> Vec<B> {
    let from = from.unwrap_or_default();
    let mut all = Vec::with_capacity(from.len());
    all.extend(from.into_iter().filter_map(convert));
    all
}

pub(super) fn tags(tags: Option<Vec<sdk::Tag>>) -> Tags {
    let pair = |tag: sdk::Tag| Some((tag.key?, tag.value.unwrap_or_default()));
    tags.unwrap_or_default().into_iter().filter_map(pair).collect()
}

pub(super) fn tag_list(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

pub(super) fn instance(from: sdk::Instance) -> Instance {
    Instance {
        id: from.instance_id.unwrap_or_default(),
        state: from.state.and_then(|state| state.name).map(|name| name.as_str().to_owned()),
        instance_type: word(from.instance_type),
        zone: from.placement.and_then(|placement| placement.availability_zone).unwrap_or_default(),
        vpc: from.vpc_id.unwrap_or_default(),
        subnet: from.subnet_id.unwrap_or_default(),
        private_dns_name: from.private_dns_name.unwrap_or_default(),
        public_dns_name: from.public_dns_name.unwrap_or_default(),
        private_ip: present(from.private_ip_address),
        public_ip: present(from.public_ip_address),
        interfaces: each(from.network_interfaces, |from| Some(interface(from))),
        security_groups: each(from.security_groups, |group| group.group_id),
        tags: tags(from.tags),
        source_dest_check: from.source_dest_check,
    }
}

fn interface(from: sdk::InstanceNetworkInterface) -> InstanceInterface {
    let mut private = from.private_ip_addresses.unwrap_or_default();
    // Stable sort: the primary address first, the others in EC2's order.
    private.sort_by_key(|address| address.primary != Some(true));
    let mut private_ips = each(Some(private), |address| address.private_ip_address);
    if private_ips.is_empty() {
        private_ips.extend(present(from.private_ip_address));
    }
    InstanceInterface {
        id: from.network_interface_id.unwrap_or_default(),
        status: word(from.status),
        device_index: from.attachment.and_then(|attachment| attachment.device_index),
        private_ips,
        ipv6: each(from.ipv6_addresses, |address| address.ipv6_address),
        ipv6_prefixes: each(from.ipv6_prefixes, |prefix| prefix.ipv6_prefix),
        source_dest_check: from.source_dest_check,
    }
}

pub(super) fn network_interface(from: sdk::NetworkInterface) -> NetworkInterface {
    let ipv6 = from.ipv6_addresses.unwrap_or_default();
    NetworkInterface {
        id: from.network_interface_id.unwrap_or_default(),
        zone: from.availability_zone.unwrap_or_default(),
        private_ip: present(from.private_ip_address),
        private_dns_name: from.private_dns_name.unwrap_or_default(),
        ipv6: ipv6.into_iter().filter_map(|address| address.ipv6_address).collect(),
        subnet: from.subnet_id.unwrap_or_default(),
    }
}

pub(super) fn zone(from: sdk::AvailabilityZone) -> Option<AvailabilityZone> {
    let kind = from.zone_type.unwrap_or_else(|| "availability-zone".to_owned());
    Some(AvailabilityZone { name: from.zone_name?, id: from.zone_id.unwrap_or_default(), kind })
}

pub(super) fn subnet(from: sdk::Subnet) -> Subnet {
    Subnet {
        id: from.subnet_id.unwrap_or_default(),
        vpc: from.vpc_id.unwrap_or_default(),
        zone: from.availability_zone.unwrap_or_default(),
        cidr: from.cidr_block.unwrap_or_default(),
        tags: tags(from.tags),
    }
}

pub(super) fn route_table(from: sdk::RouteTable) -> RouteTable {
    let associations = from.associations.unwrap_or_default();
    let main = associations.iter().any(|association| association.main == Some(true));
    RouteTable {
        id: from.route_table_id.unwrap_or_default(),
        vpc: from.vpc_id.unwrap_or_default(),
        subnets: associations.into_iter().filter_map(|association| association.subnet_id).collect(),
        main,
        routes: from.routes.unwrap_or_default().into_iter().map(route).collect(),
        tags: tags(from.tags),
    }
}

fn route(from: sdk::Route) -> Route {
    Route {
        destination: present(from.destination_cidr_block)
            .or(present(from.destination_ipv6_cidr_block))
            .unwrap_or_default(),
        gateway: from.gateway_id.unwrap_or_default(),
        instance: present(from.instance_id),
        interface: present(from.network_interface_id),
        blackhole: from.state.is_some_and(|state| state.as_str() == "blackhole"),
    }
}

pub(super) fn security_group(from: sdk::SecurityGroup) -> SecurityGroup {
    SecurityGroup {
        id: from.group_id.unwrap_or_default(),
        name: from.group_name.unwrap_or_default(),
        description: from.description.unwrap_or_default(),
        vpc: from.vpc_id.unwrap_or_default(),
        ingress: from.ip_permissions.unwrap_or_default().into_iter().map(permission).collect(),
        tags: tags(from.tags),
    }
}

fn permission(from: sdk::IpPermission) -> Permission {
    let source =
        |from: Peer, description: Option<String>| Source { from, description: description.unwrap_or_default() };
    let ipv4 = from.ip_ranges.unwrap_or_default().into_iter();
    let ipv4 = ipv4.filter_map(|range| Some(source(Peer::Ipv4(range.cidr_ip?), range.description)));
    let ipv6 = from.ipv6_ranges.unwrap_or_default().into_iter();
    let ipv6 = ipv6.filter_map(|range| Some(source(Peer::Ipv6(range.cidr_ipv6?), range.description)));
    let groups = from.user_id_group_pairs.unwrap_or_default().into_iter();
    let groups = groups.filter_map(|pair| {
        Some(source(Peer::Group { id: pair.group_id?.into(), account: present(pair.user_id) }, pair.description))
    });
    let lists = from.prefix_list_ids.unwrap_or_default().into_iter();
    let lists = lists.filter_map(|list| Some(source(Peer::PrefixList(list.prefix_list_id?), list.description)));
    Permission {
        protocol: from.ip_protocol.unwrap_or_default(),
        from_port: from.from_port,
        to_port: from.to_port,
        sources: ipv4.chain(ipv6).chain(groups).chain(lists).collect(),
    }
}

pub(super) fn ip_permission(operation: Operation, from: &Permission) -> Answer<sdk::IpPermission> {
    let mut to = sdk::IpPermission::builder()
        .ip_protocol(&from.protocol)
        .set_from_port(from.from_port)
        .set_to_port(from.to_port);
    for Source { from, description } in &from.sources {
        let description = present(Some(description.clone()));
        to = match from {
            Peer::Ipv4(cidr) => {
                to.ip_ranges(sdk::IpRange::builder().cidr_ip(cidr).set_description(description).build())
            }
            Peer::Ipv6(cidr) => {
                to.ipv6_ranges(sdk::Ipv6Range::builder().cidr_ipv6(cidr).set_description(description).build())
            }
            Peer::Group { id, account } => to.user_id_group_pairs(
                sdk::UserIdGroupPair::builder()
                    .group_id(known(operation, id)?)
                    .set_user_id(account.clone())
                    .set_description(description)
                    .build(),
            ),
            Peer::PrefixList(id) => {
                to.prefix_list_ids(sdk::PrefixListId::builder().prefix_list_id(id).set_description(description).build())
            }
        };
    }
    Ok(to.build())
}

pub(super) fn volume(from: sdk::Volume) -> Volume {
    Volume { id: from.volume_id.unwrap_or_default(), zone: from.availability_zone.unwrap_or_default() }
}

/// Treats an empty text as absent.
pub(super) fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
