//! The metadata service of instances, `GET /metadata/instance` and `/metadata/loadbalancer`, on the same port as the rest.
//! [`World::asks`] sets whose it is.

use super::compute::{INSTANCE_INTERFACES, address_of};
use super::ids::Id;
use super::json::{at, list, number, same, text};
use super::login::from_metadata;
use super::store::Row;
use super::world::World;
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

impl World {
    /// Sets the machine or scale-set instance to which the metadata service belongs.
    pub fn asks(&mut self, id: &str) {
        self.metadata_of = id.to_lowercase();
    }
}

fn asking<'a>(world: &'a World, call: &Call) -> Result<&'a Row, Problem> {
    from_metadata(call)?;
    if call.get("api-version").is_none() {
        return Err(Problem::violation(
            400,
            "Bad Request",
            "Bad request. api-version is invalid or was not specified.",
        ));
    }
    let none = || Problem::new(404, "Not found", "No instance has this metadata service.");
    world.store.get(&world.metadata_of).ok_or_else(none)
}

/// Private and public addresses of each interface, by family.
fn interfaces(world: &World, row: &Row) -> Vec<Value> {
    let pair = |private: &str, public: &str| json!({"privateIpAddress": private, "publicIpAddress": public});
    let all = list(&row.fields, INSTANCE_INTERFACES).iter().map(|interface| {
        let mut pairs = (Vec::new(), Vec::new());
        for one in list(interface, "/properties/ipConfigurations") {
            let pointer = address_of(interface, one);
            let public = text(&row.fields, &pointer.replacen("/_addresses/", "/_public/", 1));
            let private = text(&row.fields, &pointer);
            if private.contains(':') { &mut pairs.1 } else { &mut pairs.0 }.push(pair(private, public));
        }
        pairs
    });
    let own = list(&row.fields, "/properties/networkProfile/networkInterfaces").iter();
    let own = own.filter_map(|one| world.store.get(&text(one, "/id").to_lowercase())).map(|interface| {
        let mut pairs = (Vec::new(), Vec::new());
        for one in list(&interface.fields, "/properties/ipConfigurations") {
            let public = world.store.get(&text(one, "/properties/publicIPAddress/id").to_lowercase());
            let public = public.map(|row| text(&row.fields, "/properties/ipAddress")).unwrap_or_default();
            let private = text(one, "/properties/privateIPAddress");
            if private.contains(':') { &mut pairs.1 } else { &mut pairs.0 }.push(pair(private, public));
        }
        pairs
    });
    let shown = all.chain(own).map(|(four, six)| {
        json!({"ipv4": {"ipAddress": four, "subnet": []}, "ipv6": {"ipAddress": six}, "macAddress": "000D3A000001"})
    });
    shown.collect()
}

/// `GET /metadata/instance`
pub(super) fn instance(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let row = asking(world, call)?;
    let set: Option<Id> = row.id.parent();
    let name = match &set {
        Some(set) => format!("{}_{}", set.name(), row.id.name()),
        None => row.id.name().to_owned(),
    };
    let machine = at(&row.fields, "/properties/hardwareProfile/vmSize").as_str();
    let machine = machine.unwrap_or_else(|| text(&row.fields, "/sku/name"));
    let body = json!({
        "compute": {
            "name": name, "location": text(&row.fields, "/location"), "vmSize": machine,
            "zone": list(&row.fields, "/zones").first().and_then(Value::as_str).unwrap_or_default(),
            "platformFaultDomain": number(&row.fields, "/_fault_domain").unwrap_or_default().to_string(),
            "platformSubFaultDomain": "", "subscriptionId": row.id.subscription, "resourceGroupName": row.id.group,
            "resourceId": row.id.text(), "vmScaleSetName": set.as_ref().map(Id::name).unwrap_or_default(),
            "osProfile": {"computerName": text(&row.fields, "/properties/osProfile/computerName")}, "tagsList": [],
        },
        "network": {"interface": interfaces(world, row)},
    });
    Ok(Reply::json(200, &body))
}

/// `GET /metadata/loadbalancer`: the public addresses of the load balancer in front of the instance.
pub(super) fn load_balancer(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let row = asking(world, call)?;
    let own = super::kinds::of(&row.kind).map(|kind| (kind.rules.refs)(&row.id, &row.fields)).unwrap_or_default();
    let private = own.iter().find_map(|one| one.address).map(|address| address.to_string()).unwrap_or_default();
    let mut pairs = Vec::new();
    for pool in own.iter().filter(|one| one.target.contains("/backendaddresspools/")) {
        let balancer = Id::parse(&pool.target).and_then(|id| world.store.get(&id.root().key()));
        let Some(balancer) = balancer else { continue };
        for frontend in list(&balancer.fields, "/properties/frontendIPConfigurations") {
            let address = world.store.get(&text(frontend, "/properties/publicIPAddress/id").to_lowercase());
            let address = address.map(|row| text(&row.fields, "/properties/ipAddress")).unwrap_or_default();
            let shown = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
            let known = pairs.iter().any(|pair: &Value| same(text(pair, "/frontendIpAddress"), &shown));
            if !shown.is_empty() && !known {
                pairs.push(json!({"frontendIpAddress": shown, "privateIpAddress": private}));
            }
        }
    }
    Ok(Reply::json(
        200,
        &json!({"loadbalancer": {"publicIpAddresses": pairs, "inboundRules": [], "outboundRules": []}}),
    ))
}
