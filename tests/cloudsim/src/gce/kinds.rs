//! The kinds of objects: their names, scopes and rules.

use super::places::{Scope, Spot};
use super::world::World;
use super::{addresses, backend_services, firewalls, forwarding_rules, health_checks, instance_groups};
use super::{networks, operations, static_routes, target_pools};
use crate::core::rest::Problem;
use crate::core::rows::Row;
use serde_json::{Map, Value};

/// The collections of all load balancer resources.
pub const BALANCING: [&str; 8] = [
    "addresses",
    "backendServices",
    "firewalls",
    "forwardingRules",
    "healthChecks",
    "httpHealthChecks",
    "instanceGroups",
    "targetPools",
];

/// The fields of an object.
pub(super) type Fields = Map<String, Value>;

/// A kind of object.
pub(super) struct Kind {
    /// The resource in the API, which is the part of a method before its verb: `regionBackendServices`.
    pub(super) resource: &'static str,
    /// The collection in paths: `backendServices`.
    pub(super) collection: &'static str,
    /// The part of its `kind` after `compute#`: `backendService`.
    pub(super) one: &'static str,
    /// The scope of its objects.
    pub(super) scope: Scope,
    /// The metric of its quota.
    pub(super) quota: &'static str,
    pub(super) rules: Rules,
}

/// The rules of a kind of object.
pub(super) struct Rules {
    /// Checks a new object, and fills in the defaults.
    pub(super) make: fn(&mut World, &Spot, &mut Fields) -> Result<(), Problem>,
    /// Checks a changed object.
    pub(super) change: fn(&mut World, &Spot, &Row, &mut Fields) -> Result<(), Problem>,
    /// Whether it may be deleted.
    pub(super) free: fn(&World, &Spot) -> Result<(), Problem>,
    /// Adds the fields that answers show in addition to the stored ones; `None`: there are none.
    pub(super) show: Option<Show>,
}

/// Adds fields to the object with this key.
pub(super) type Show = fn(&World, &str, &mut Fields);

/// The rules of a kind without restrictions.
const PLAIN: Rules = Rules { make: made, change: changed, free: always, show: None };

fn made(_: &mut World, _: &Spot, _: &mut Fields) -> Result<(), Problem> {
    Ok(())
}

fn changed(_: &mut World, _: &Spot, _: &Row, _: &mut Fields) -> Result<(), Problem> {
    Ok(())
}

fn always(_: &World, _: &Spot) -> Result<(), Problem> {
    Ok(())
}

const fn kind(
    (resource, collection): (&'static str, &'static str),
    one: &'static str,
    scope: Scope,
    quota: &'static str,
    rules: Rules,
) -> Kind {
    Kind { resource, collection, one, scope, quota, rules }
}

/// All kinds.
pub(super) static KINDS: &[Kind] = &[
    kind(("instances", "instances"), "instance", Scope::Zone, "INSTANCES", PLAIN),
    kind(("networks", "networks"), "network", Scope::Global, "NETWORKS", Rules { show: Some(networks::show), ..PLAIN }),
    kind(("subnetworks", "subnetworks"), "subnetwork", Scope::Region, "SUBNETWORKS", PLAIN),
    kind(("disks", "disks"), "disk", Scope::Zone, "DISKS", PLAIN),
    kind(("regionDisks", "disks"), "disk", Scope::Region, "DISKS", PLAIN),
    kind(
        ("routes", "routes"),
        "route",
        Scope::Global,
        "ROUTES",
        Rules { make: static_routes::make, show: Some(static_routes::show), ..PLAIN },
    ),
    kind(
        ("firewalls", "firewalls"),
        "firewall",
        Scope::Global,
        "FIREWALLS",
        Rules { make: firewalls::make, change: firewalls::change, ..PLAIN },
    ),
    kind(("addresses", "addresses"), "address", Scope::Region, "STATIC_ADDRESSES", ADDRESS),
    kind(("globalAddresses", "addresses"), "address", Scope::Global, "STATIC_ADDRESSES", ADDRESS),
    kind(
        ("forwardingRules", "forwardingRules"),
        "forwardingRule",
        Scope::Region,
        "FORWARDING_RULES",
        Rules { make: forwarding_rules::make, change: forwarding_rules::change, ..PLAIN },
    ),
    kind(
        ("targetPools", "targetPools"),
        "targetPool",
        Scope::Region,
        "TARGET_POOLS",
        Rules { make: target_pools::make, free: target_pools::free, ..PLAIN },
    ),
    kind(
        ("httpHealthChecks", "httpHealthChecks"),
        "httpHealthCheck",
        Scope::Global,
        "HEALTH_CHECKS",
        Rules {
            make: health_checks::make_http,
            change: health_checks::change_http,
            free: health_checks::free_http,
            ..PLAIN
        },
    ),
    kind(
        ("healthChecks", "healthChecks"),
        "healthCheck",
        Scope::Global,
        "HEALTH_CHECKS",
        Rules { make: health_checks::make, change: health_checks::change, free: health_checks::free, ..PLAIN },
    ),
    kind(
        ("regionBackendServices", "backendServices"),
        "backendService",
        Scope::Region,
        "BACKEND_SERVICES",
        Rules {
            make: backend_services::make,
            change: backend_services::change,
            free: backend_services::free,
            show: Some(backend_services::show),
        },
    ),
    kind(
        ("instanceGroups", "instanceGroups"),
        "instanceGroup",
        Scope::Zone,
        "INSTANCE_GROUPS",
        Rules { make: instance_groups::make, free: instance_groups::free, show: Some(instance_groups::show), ..PLAIN },
    ),
    kind(("zoneOperations", "operations"), "operation", Scope::Zone, "", OPERATION),
    kind(("regionOperations", "operations"), "operation", Scope::Region, "", OPERATION),
    kind(("globalOperations", "operations"), "operation", Scope::Global, "", OPERATION),
];

const ADDRESS: Rules = Rules { make: addresses::make, free: addresses::free, show: Some(addresses::show), ..PLAIN };

const OPERATION: Rules = Rules { show: Some(operations::show), ..PLAIN };

/// The kind of a method, by the part before its verb.
pub(super) fn of_method(action: &str) -> Option<&'static Kind> {
    let resource = action.split_once('.').map_or(action, |(resource, _)| resource);
    KINDS.iter().find(|kind| kind.resource == resource)
}

/// The kind of an object.
pub(super) fn of(spot: &Spot) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.collection == spot.collection && kind.scope == spot.scope)
}

/// An object as shown in answers.
pub(super) fn shown(world: &World, kind: &Kind, key: &str, row: &Row) -> Fields {
    let mut fields = row.shown();
    if let Some(show) = kind.rules.show {
        show(world, key, &mut fields);
    }
    fields
}
