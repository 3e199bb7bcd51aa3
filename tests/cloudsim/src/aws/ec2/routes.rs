//! Route tables and routes.

use super::filters::{Filters, Page, listing};
use super::instances::check_ids;
use super::lifecycle::several_interfaces;
use super::model::{Association, InstanceState, Route, RouteTable, Target};
use super::{check_known, tag_set};
use crate::aws::{ApiError, Call, World, Xml};
use ipnet::{Ipv4Net, Ipv6Net};

const FILTERS: &[&str] = &["association.main", "route-table-id", "vpc-id"];

fn known<'a>(world: &'a World, id: &str) -> Option<&'a RouteTable> {
    world.ec2.route_tables.get(id).filter(|table| world.known("route-table", table.created))
}

pub(super) fn check(world: &World, ids: &[&str]) -> Result<(), ApiError> {
    check_known(ids, "InvalidRouteTableID.NotFound", "routeTable", |id| known(world, id).is_some())
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, FILTERS)?;
    let ids = call.params.list("RouteTableId");
    check(world, &ids)?;
    let page = Page::parse(call, 5..=100)?;
    let passes = |id: &String, table: &RouteTable| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && known(world, id).is_some()
            && filters.pass(&table.tags, |name, is| has(id, table, name, is))
    };
    let found = page.take(world.ec2.route_tables.iter().filter(|(id, table)| passes(id, table)));
    Ok(listing("routeTableSet", found, |xml, id, table| item(xml, world, id, table)))
}

fn has(id: &str, table: &RouteTable, name: &str, is: &dyn Fn(&str) -> bool) -> bool {
    match name {
        "association.main" => {
            table.associations.values().any(|used| is(if *used == Association::Main { "true" } else { "false" }))
        }
        "route-table-id" => is(id),
        "vpc-id" => is(&table.vpc),
        _ => false,
    }
}

/// `blackhole` if the target is unusable: the interface is deleted or unattached, its instance is stopped or
/// terminated, or the gateway is detached. unverified: a route to a stopping or stopped instance already is a
/// blackhole.
fn state(world: &World, route: &Route) -> &'static str {
    let works = match &route.target {
        Target::Local => true,
        Target::Gateway(id) if id.starts_with("igw-") => {
            world.ec2.gateways.get(id).is_some_and(|gateway| gateway.vpc.is_some())
        }
        Target::Gateway(_) => true,
        Target::Interface { interface, .. } => {
            world.ec2.interfaces.get(interface).and_then(|interface| interface.attachment.as_ref()).is_some_and(
                |attachment| match &attachment.instance {
                    None => true,
                    Some(id) => world.ec2.instances.get(id).is_some_and(|instance| {
                        matches!(instance.state, InstanceState::Pending | InstanceState::Running)
                    }),
                },
            )
        }
    };
    if works { "active" } else { "blackhole" }
}

/// The instance that a route shows. unverified: a blackhole still shows its instance after the instance is gone.
fn shown_instance<'a>(world: &'a World, route: &'a Route) -> Option<&'a str> {
    let Target::Interface { interface, instance } = &route.target else { return None };
    let now = world.ec2.interfaces.get(interface).and_then(|found| found.attachment.as_ref()?.instance.as_deref());
    now.or(instance.as_deref())
}

fn item(xml: &mut Xml, world: &World, id: &str, table: &RouteTable) {
    xml.text("routeTableId", id);
    xml.text("vpcId", &table.vpc);
    xml.text("ownerId", &world.ec2.account);
    let routes = table.routes.iter().filter(|route| world.known("route", route.created));
    xml.list("routeSet", "item", routes, |xml, route| {
        let name = match route.destination.as_str() {
            list if list.starts_with("pl-") => "destinationPrefixListId",
            v6 if v6.contains(':') => "destinationIpv6CidrBlock",
            _ => "destinationCidrBlock",
        };
        xml.text(name, &route.destination);
        match &route.target {
            Target::Local => xml.text("gatewayId", "local"),
            Target::Gateway(id) if id.starts_with("nat-") => xml.text("natGatewayId", id),
            Target::Gateway(id) => xml.text("gatewayId", id),
            Target::Interface { interface, .. } => {
                if let Some(instance) = shown_instance(world, route) {
                    xml.text("instanceId", instance);
                    xml.text("instanceOwnerId", &world.ec2.account);
                }
                xml.text("networkInterfaceId", interface);
            }
        }
        xml.text("state", state(world, route));
        xml.text("origin", if route.target == Target::Local { "CreateRouteTable" } else { "CreateRoute" });
    });
    xml.list("associationSet", "item", &table.associations, |xml, (association, used)| {
        xml.text("routeTableAssociationId", association);
        xml.text("routeTableId", id);
        if let Association::Subnet(subnet) = used {
            xml.text("subnetId", subnet);
        }
        xml.value("main", *used == Association::Main);
        xml.raw("<associationState><state>associated</state></associationState>");
    });
    xml.raw("<propagatingVgwSet/>");
    tag_set(xml, &table.tags);
}

/// Creates a route table with the local routes of its VPC.
pub(super) fn insert(world: &mut World, vpc: &str, tags: super::Tags) -> Result<String, ApiError> {
    let Some(found) = world.ec2.vpcs.get(vpc) else {
        return Err(ApiError::new("InvalidVpcID.NotFound", format!("The vpc ID '{vpc}' does not exist")));
    };
    let blocks: Vec<String> = std::iter::once(found.cidr.clone()).chain(found.ipv6_cidr.clone()).collect();
    let created = world.now();
    let routes = blocks.into_iter().map(|destination| Route { destination, target: Target::Local, created }).collect();
    let id = world.new_id("rtb-");
    let table = RouteTable { vpc: vpc.to_owned(), associations: Default::default(), routes, tags, created };
    world.ec2.route_tables.insert(id.clone(), table);
    Ok(id)
}

/// The destination of a route call in canonical form.
fn destination(call: &Call) -> Result<String, ApiError> {
    let params = &call.params;
    let bad = |text: &str| {
        let text = format!("The destination CIDR block {text} is not a valid CIDR block.");
        ApiError::new("InvalidParameterValue", text)
    };
    let given = (
        params.get("DestinationCidrBlock"),
        params.get("DestinationIpv6CidrBlock"),
        params.get("DestinationPrefixListId"),
    );
    match given {
        (Some(v4), None, None) => Ok(v4.parse::<Ipv4Net>().map_err(|_| bad(v4))?.trunc().to_string()),
        (None, Some(v6), None) => Ok(v6.parse::<Ipv6Net>().map_err(|_| bad(v6))?.trunc().to_string()),
        (None, None, Some(list)) => Ok(list.to_owned()),
        (None, None, None) => Err(ApiError::missing("destinationCidrBlock or destinationIpv6CidrBlock")),
        _ => {
            let text = "The parameters destinationCidrBlock and destinationIpv6CidrBlock cannot be used together";
            Err(ApiError::new("InvalidParameterCombination", text))
        }
    }
}

/// The target of a route call.
fn target(world: &World, call: &Call) -> Result<Target, ApiError> {
    let params = &call.params;
    if let Some(id) = params.get("InstanceId") {
        check_ids(world, &[id])?;
        let interfaces = world.ec2.instances.get(id).map(|found| found.interfaces.as_slice()).unwrap_or_default();
        return match interfaces {
            [] => Err(ApiError::new("InvalidInstanceID", format!("The instance '{id}' has no network interface."))),
            [one] => Ok(Target::Interface { interface: one.clone(), instance: Some(id.to_owned()) }),
            _ => Err(several_interfaces(id)),
        };
    }
    if let Some(id) = params.get("NetworkInterfaceId") {
        super::interfaces::check(world, &[id])?;
        let attachment = world.ec2.interfaces.get(id).and_then(|found| found.attachment.as_ref());
        let instance = attachment.and_then(|attachment| attachment.instance.clone());
        return Ok(Target::Interface { interface: id.to_owned(), instance });
    }
    if let Some(id) = params.get("GatewayId") {
        if id.starts_with("igw-") && !world.ec2.gateways.contains_key(id) {
            return Err(ApiError::new("InvalidGatewayID.NotFound", format!("The gateway ID '{id}' does not exist")));
        }
        return Ok(if id == "local" { Target::Local } else { Target::Gateway(id.to_owned()) });
    }
    if let Some(id) = params.get("NatGatewayId") {
        // NAT gateways are not simulated: any ID is accepted as a target.
        return Ok(Target::Gateway(id.to_owned()));
    }
    Err(ApiError::missing("gatewayId, natGatewayId, networkInterfaceId or instanceId"))
}

fn table_mut<'a>(world: &'a mut World, id: &str) -> Result<&'a mut RouteTable, ApiError> {
    check(world, &[id])?;
    world.ec2.route_tables.get_mut(id).ok_or_else(|| ApiError::missing("RouteTableId"))
}

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("RouteTableId")?;
    let (destination, target, created) = (destination(call)?, target(world, call)?, world.now());
    let limit = world.options.limits.routes_per_table;
    let table = table_mut(world, id)?;
    if table.routes.iter().any(|route| route.destination == destination) {
        // unverified: a repetition with the same target also fails.
        let text = format!("The route identified by {destination} already exists.");
        return Err(ApiError::new("RouteAlreadyExists", text));
    }
    if table.routes.len() >= limit {
        let text = format!("The maximum number of routes has been reached in {id}.");
        return Err(ApiError::new("RouteLimitExceeded", text));
    }
    table.routes.push(Route { destination, target, created });
    Ok(Xml::done())
}

pub(super) fn replace(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("RouteTableId")?;
    let (destination, target, created) = (destination(call)?, target(world, call)?, world.now());
    let Some(route) = table_mut(world, id)?.routes.iter_mut().find(|route| route.destination == destination) else {
        let text = format!("There is no route defined for '{destination}' in the route table.");
        return Err(ApiError::new("InvalidParameterValue", text));
    };
    *route = Route { destination, target, created };
    Ok(Xml::done())
}

pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("RouteTableId")?;
    let destination = destination(call)?;
    let table = table_mut(world, id)?;
    let Some(at) = table.routes.iter().position(|route| route.destination == destination) else {
        let text = format!("no route with destination-cidr-block {destination} in route table {id}");
        return Err(ApiError::new("InvalidRoute.NotFound", text));
    };
    if table.routes.get(at).is_some_and(|route| route.target == Target::Local) {
        let text = format!("cannot remove local route {destination} in route table {id}");
        return Err(ApiError::new("InvalidParameterValue", text));
    }
    table.routes.remove(at);
    Ok(Xml::done())
}
