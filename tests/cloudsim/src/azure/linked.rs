//! The permissions that a write needs on the objects which its body names.
//!
//! Azure asks for each of them whether the link is new or not: users without `subnets/join` could not add a probe to an
//! internal load balancer, and those without `routeTables/join` could not give a subnet another security group. The names
//! are those of the list of operations of `Microsoft.Network`; those for scale sets are also in the permissions of the
//! Azure Disk CSI driver, which writes whole machines and models as this program does.

use super::errors;
use super::ids::Id;
use super::json::text;
use super::login::may;
use super::routes;
use super::world::World;
use crate::core::rest::{Call, Problem};
use serde_json::Value;

/// Fields that refer to one object or to several, and the action on it.
const LINKS: [(&str, &str); 16] = [
    ("applicationGatewayBackendAddressPools", "applicationGateways/backendAddressPools/join"),
    ("applicationSecurityGroups", "applicationSecurityGroups/joinIpConfiguration"),
    ("destinationApplicationSecurityGroups", "applicationSecurityGroups/joinNetworkSecurityRule"),
    ("sourceApplicationSecurityGroups", "applicationSecurityGroups/joinNetworkSecurityRule"),
    ("healthProbe", "loadBalancers/probes/join"),
    ("loadBalancerBackendAddressPools", "loadBalancers/backendAddressPools/join"),
    ("loadBalancerInboundNatPools", "loadBalancers/inboundNatPools/join"),
    ("loadBalancerInboundNatRules", "loadBalancers/inboundNatRules/join"),
    ("natGateway", "natGateways/join"),
    ("networkSecurityGroup", "networkSecurityGroups/join"),
    ("publicIPAddress", "publicIPAddresses/join"),
    ("publicIPPrefix", "publicIPPrefixes/join"),
    ("routeTable", "routeTables/join"),
    ("serviceEndpointPolicies", "serviceEndpointPolicies/join"),
    ("subnet", "virtualNetworks/subnets/join"),
    ("virtualNetwork", "virtualNetworks/joinLoadBalancer"),
];

/// Checks the permissions on all objects that the body of a write names.
pub(super) fn check(world: &World, call: &Call, id: &Id, body: &Value) -> Result<(), Problem> {
    let mut links = Vec::new();
    collect(body, &mut links);
    for (action, target) in links {
        let right = format!("Microsoft.Network/{action}/action");
        if !may(world, &right, target) {
            let own = routes::right(call);
            return Err(errors::link_forbidden(&world.caller.client, [&own, &right], [&id.text(), target]));
        }
    }
    Ok(())
}

/// The action and the object of each link in a value. What stands in a link is the other object's.
fn collect<'a>(value: &'a Value, links: &mut Vec<(&'static str, &'a str)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, links)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match LINKS.iter().find(|(field, _)| field == name) {
                    Some((_, action)) => {
                        let one = std::slice::from_ref(value);
                        let targets = value.as_array().map_or(one, Vec::as_slice).iter().map(|link| text(link, "/id"));
                        links.extend(targets.filter(|target| !target.is_empty()).map(|target| (*action, target)));
                    }
                    None => collect(value, links),
                }
            }
        }
        _ => {}
    }
}
