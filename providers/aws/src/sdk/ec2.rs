//! Operations of EC2.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use aws_sdk_ec2::types as sdk;

use super::{SdkApi, all_known, convert, known, malformed, some, split};
use crate::client::ec2::{
    AvailabilityZone, Instance, NetworkInterface, Permission, RouteTable, SecurityGroup, Subnet, Volume,
};
use crate::client::operation::{Operation, Service};
use crate::client::write::{Ec2Write, RouteTarget};
use crate::client::{Answer, Query, ReadEc2};

const fn read(name: &'static str) -> Operation {
    Operation::new(Service::Ec2, name)
}

/// Entries per page. EC2 refuses a page size together with IDs.
const PAGE: i32 = 1_000;
/// Route tables have a smaller page size.
const ROUTE_TABLE_PAGE: i32 = 100;

/// A describe call with a query: all its parts, all their pages, each object once. The closure takes entries and next
/// token from a page.
macro_rules! describe {
    ($api:ident, $query:ident, $name:expr, $call:ident, $set_ids:ident, $page:expr, $take:expr) => {{
        let mut all = Vec::new();
        let parts = split($query);
        let several = parts.len() > 1;
        for part in &parts {
            let size = part.ids.is_empty().then_some($page);
            let send = |token: Option<String>| {
                let request = $api.clients.ec2.$call().$set_ids(some(part.ids.iter().cloned().collect()));
                let request = request.set_filters(some(part.filters.iter().map(convert::filter).collect()));
                request.set_max_results(size).set_next_token(token).send()
            };
            all.append(&mut $api.pages(read($name), send, $take).await?);
        }
        if several {
            // An object with several values of the split filter is in several answers.
            let mut seen = BTreeSet::new();
            all.retain(|entry| seen.insert(entry.id.clone()));
        }
        Ok(all)
    }};
}

#[async_trait]
impl ReadEc2 for SdkApi {
    async fn instances(&self, query: &Query) -> Answer<Vec<Instance>> {
        describe!(self, query, "DescribeInstances", describe_instances, set_instance_ids, PAGE, |page| {
            let reservations = page.reservations.unwrap_or_default().into_iter();
            let instances = reservations.flat_map(|reservation| reservation.instances.unwrap_or_default());
            (instances.map(convert::instance).collect(), page.next_token)
        })
    }

    async fn instance_topology(&self, ids: &[String]) -> Answer<BTreeMap<String, Vec<String>>> {
        let send = |token| {
            let request = self.clients.ec2.describe_instance_topology();
            request.set_instance_ids(some(ids.to_vec())).set_next_token(token).send()
        };
        let nodes = |from: sdk::InstanceTopology| Some((from.instance_id?, from.network_nodes.unwrap_or_default()));
        let all = self.pages(read("DescribeInstanceTopology"), send, |page| {
            (page.instances.unwrap_or_default().into_iter().filter_map(nodes).collect(), page.next_token)
        });
        Ok(all.await?.into_iter().collect())
    }

    async fn network_interfaces(&self, query: &Query) -> Answer<Vec<NetworkInterface>> {
        let operation = "DescribeNetworkInterfaces";
        describe!(self, query, operation, describe_network_interfaces, set_network_interface_ids, PAGE, |page| {
            let interfaces = page.network_interfaces.unwrap_or_default().into_iter();
            (interfaces.map(convert::network_interface).collect(), page.next_token)
        })
    }

    async fn availability_zones(&self) -> Answer<Vec<AvailabilityZone>> {
        let send = || self.clients.ec2.describe_availability_zones().send();
        let answer = self.call(read("DescribeAvailabilityZones"), send).await?;
        Ok(answer.availability_zones.unwrap_or_default().into_iter().filter_map(convert::zone).collect())
    }

    async fn subnets(&self, query: &Query) -> Answer<Vec<Subnet>> {
        describe!(self, query, "DescribeSubnets", describe_subnets, set_subnet_ids, PAGE, |page| {
            (page.subnets.unwrap_or_default().into_iter().map(convert::subnet).collect(), page.next_token)
        })
    }

    async fn route_tables(&self, query: &Query) -> Answer<Vec<RouteTable>> {
        let page = ROUTE_TABLE_PAGE;
        describe!(self, query, "DescribeRouteTables", describe_route_tables, set_route_table_ids, page, |page| {
            (page.route_tables.unwrap_or_default().into_iter().map(convert::route_table).collect(), page.next_token)
        })
    }

    async fn security_groups(&self, query: &Query) -> Answer<Vec<SecurityGroup>> {
        describe!(self, query, "DescribeSecurityGroups", describe_security_groups, set_group_ids, PAGE, |page| {
            let groups = page.security_groups.unwrap_or_default().into_iter();
            (groups.map(convert::security_group).collect(), page.next_token)
        })
    }

    async fn volumes(&self, query: &Query) -> Answer<Vec<Volume>> {
        describe!(self, query, "DescribeVolumes", describe_volumes, set_volume_ids, PAGE, |page| {
            (page.volumes.unwrap_or_default().into_iter().map(convert::volume).collect(), page.next_token)
        })
    }
}

/// `dry` is sent as `DryRun`: with `true`, EC2 returns an error whose code says whether the write would have succeeded.
pub(super) async fn write(
    api: &SdkApi,
    operation: Operation,
    write: &Ec2Write,
    dry: Option<bool>,
) -> Answer<Option<String>> {
    let ec2 = &api.clients.ec2;
    macro_rules! send {
        ($request:expr) => {{
            let request = $request.set_dry_run(dry);
            api.call(operation, || request.clone().send()).await?
        }};
    }
    macro_rules! ingress {
        ($call:ident, $group:ident, $permissions:ident) => {{
            let request = ec2.$call().group_id(known(operation, $group)?);
            drop(send!(request.set_ip_permissions(some(ip_permissions(operation, $permissions)?))))
        }};
    }
    macro_rules! route {
        ($call:ident, $table:ident, $destination:ident) => {{
            let is_ipv6 = $destination.contains(':');
            let request = ec2.$call().route_table_id($table);
            let request = request.set_destination_cidr_block((!is_ipv6).then(|| $destination.clone()));
            request.set_destination_ipv6_cidr_block(is_ipv6.then(|| $destination.clone()))
        }};
        ($call:ident, $table:ident, $destination:ident, $target:ident) => {{
            let request = route!($call, $table, $destination);
            drop(send!(match $target {
                RouteTarget::Instance(id) => request.instance_id(id),
                RouteTarget::Interface(id) => request.network_interface_id(id),
            }))
        }};
    }
    match write {
        Ec2Write::CreateSecurityGroup { name, description, vpc, tags } => {
            let tags = (!tags.is_empty()).then(|| {
                let tags = Some(convert::tag_list(tags));
                sdk::TagSpecification::builder().resource_type(sdk::ResourceType::SecurityGroup).set_tags(tags).build()
            });
            let request = ec2.create_security_group().group_name(name).description(description).vpc_id(vpc);
            let answer = send!(request.set_tag_specifications(tags.map(|tags| vec![tags])));
            return Ok(convert::present(answer.group_id));
        }
        Ec2Write::DeleteSecurityGroup { group } => {
            drop(send!(ec2.delete_security_group().group_id(known(operation, group)?)));
        }
        Ec2Write::AuthorizeSecurityGroupIngress { group, permissions } => {
            ingress!(authorize_security_group_ingress, group, permissions);
        }
        Ec2Write::RevokeSecurityGroupIngress { group, permissions } => {
            ingress!(revoke_security_group_ingress, group, permissions);
        }
        Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions } => {
            ingress!(update_security_group_rule_descriptions_ingress, group, permissions);
        }
        Ec2Write::CreateTags { resources, tags } => {
            let request = ec2.create_tags().set_resources(some(all_known(operation, resources)?));
            drop(send!(request.set_tags(some(convert::tag_list(tags)))));
        }
        // Without tags EC2 would remove all of them.
        Ec2Write::DeleteTags { tags, .. } if tags.is_empty() => {
            return Err(malformed(operation, "no tags are named"));
        }
        Ec2Write::DeleteTags { resources, tags } => {
            let request = ec2.delete_tags().set_resources(some(resources.clone()));
            drop(send!(request.set_tags(some(convert::tag_list(tags)))));
        }
        Ec2Write::CreateRoute { table, destination, target } => route!(create_route, table, destination, target),
        Ec2Write::ReplaceRoute { table, destination, target } => route!(replace_route, table, destination, target),
        Ec2Write::DeleteRoute { table, destination } => drop(send!(route!(delete_route, table, destination))),
        Ec2Write::ModifyInstanceAttribute { instance } => {
            drop(send!(ec2.modify_instance_attribute().instance_id(instance).source_dest_check(off())));
        }
        Ec2Write::ModifyNetworkInterfaceAttribute { interface } => {
            let request = ec2.modify_network_interface_attribute();
            drop(send!(request.network_interface_id(interface).source_dest_check(off())));
        }
    }
    Ok(None)
}

fn ip_permissions(operation: Operation, permissions: &[Permission]) -> Answer<Vec<sdk::IpPermission>> {
    permissions.iter().map(|permission| convert::ip_permission(operation, permission)).collect()
}

fn off() -> sdk::AttributeBooleanValue {
    sdk::AttributeBooleanValue::builder().value(false).build()
}
