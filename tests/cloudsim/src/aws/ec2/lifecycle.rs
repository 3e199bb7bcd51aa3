//! The lifecycle of instances: run, stop, start, terminate, and the attributes for routing.

use super::instances::{check_ids, known, reservation, state};
use super::interfaces::Change;
use super::model::{Attachment, Instance, InstanceState, Tags};
use super::network::{NewInterface, create_interface, remove_interface};
use super::security_groups::by_name;
use super::{Due, made_before, remember, tags_for};
use crate::aws::query::Params;
use crate::aws::{ApiError, Call, World, Xml, world};
use std::net::Ipv4Addr;

/// The parameters of a new instance.
#[derive(Debug, Clone)]
pub struct Launch {
    pub instance_type: String,
    pub image: String,
    /// The interfaces by device index; the first has index 0.
    pub interfaces: Vec<NewInterface>,
    pub tags: Tags,
}

/// The private DNS name of an IP address in a region.
pub fn ip_name(region: &str, ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    let domain = if region == "us-east-1" { "ec2.internal".to_owned() } else { format!("{region}.compute.internal") };
    format!("ip-{a}-{b}-{c}-{d}.{domain}")
}

/// The DNS name of a public address in a region.
pub fn public_name(region: &str, ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    let middle = if region == "us-east-1" { "compute-1".to_owned() } else { format!("{region}.compute") };
    format!("ec2-{a}-{b}-{c}-{d}.{middle}.amazonaws.com")
}

pub(super) fn run(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    if let Some(made) = made_before(world, call)? {
        return Ok(launched(world, &made));
    }
    let launch = read_launch(world, call)?;
    let count = |name: &str| -> Result<i64, ApiError> {
        call.params.required(name)?;
        Ok(call.params.int(name)?.unwrap_or_default())
    };
    let (least, most) = (count("MinCount")?, count("MaxCount")?);
    if least < 1 || most < least {
        return Err(ApiError::bad_value("maxCount", &most.to_string(), "It must be at least minCount, and that 1."));
    }
    let reservation = world.new_id("r-");
    let mut made = Vec::new();
    for index in 0..most {
        match place(world, launch.clone(), &reservation, u32::try_from(index).unwrap_or(u32::MAX)) {
            Ok(id) => {
                go_on(world, &id);
                made.push(id);
            }
            Err(_) if index >= least => break,
            Err(error) => {
                // Fewer than the requested minimum: terminate all of them.
                for id in made {
                    discard(world, &id);
                }
                return Err(error);
            }
        }
    }
    remember(world, call, &made);
    Ok(launched(world, &made))
}

fn launched(world: &World, ids: &[String]) -> Xml {
    let found: Vec<_> = ids.iter().filter_map(|id| world.ec2.instances.get_key_value(id)).collect();
    let mut xml = Xml::new();
    let id = found.first().map(|(_, instance)| instance.reservation.as_str()).unwrap_or_default();
    reservation(&mut xml, &world.ec2, id, &found);
    xml.count(found.len());
    xml
}

fn read_launch(world: &World, call: &Call) -> Result<Launch, ApiError> {
    let params = &call.params;
    let specs = params.items("NetworkInterface");
    let mut interfaces = Vec::new();
    if specs.is_empty() {
        interfaces.push(read_interface(world, params)?);
    } else {
        if params.has("SubnetId") || params.has("SecurityGroupId") {
            let text = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
            return Err(ApiError::new("InvalidParameterCombination", text));
        }
        let mut ordered = specs
            .into_iter()
            .map(|spec| Ok((spec.int("DeviceIndex")?.unwrap_or(0), spec)))
            .collect::<Result<Vec<_>, ApiError>>()?;
        ordered.sort_by_key(|(index, _)| *index);
        for (_, spec) in ordered {
            interfaces.push(read_interface(world, spec)?);
        }
    }
    Ok(Launch {
        instance_type: params.get("InstanceType").unwrap_or("m1.small").to_owned(),
        image: params.required("ImageId")?.to_owned(),
        interfaces,
        tags: tags_for(world, call, "instance")?,
    })
}

/// Reads an interface from its own specification, or from the instance-level parameters.
fn read_interface(world: &World, spec: &Params) -> Result<NewInterface, ApiError> {
    let subnet = spec.get("SubnetId");
    let subnet =
        subnet.ok_or_else(|| ApiError::new("MissingInput", "No subnets found for the default VPC."))?.to_owned();
    let mut groups = spec.texts("SecurityGroupId");
    if let (true, Some(found)) = (groups.is_empty(), world.ec2.subnets.get(&subnet)) {
        groups.extend(by_name(world, &found.vpc, "default"));
    }
    let number = |name: &str| -> Result<usize, ApiError> {
        Ok(spec.int(name)?.and_then(|number| usize::try_from(number).ok()).unwrap_or(0))
    };
    let ip = |text: &str| text.parse().map_err(|_| ApiError::bad_value("privateIpAddress", text, "Not an address."));
    Ok(NewInterface {
        groups,
        description: spec.get("Description").unwrap_or_default().to_owned(),
        private_ip: spec.get("PrivateIpAddress").map(ip).transpose()?,
        ipv6: number("Ipv6AddressCount")?,
        ipv6_prefix: match number("Ipv6PrefixCount")? {
            0 => false,
            1 => true,
            _ => return Err(ApiError::new("InvalidParameterValue", "Only one IPv6 prefix is simulated.")),
        },
        public: spec.flag("AssociatePublicIpAddress")? == Some(true),
        subnet,
        ..NewInterface::default()
    })
}

/// Creates one instance with its interfaces in the state pending; [`go_on`] schedules the next state. After an error of
/// an interface nothing is created.
pub(super) fn place(world: &mut World, launch: Launch, reservation: &str, index: u32) -> Result<String, ApiError> {
    let id = world.new_id("i-");
    let mut interfaces: Vec<String> = Vec::new();
    for (device, new) in (0..).zip(launch.interfaces) {
        match create_interface(world, new) {
            Ok(interface) => {
                attach(world, &interface, &id, device);
                interfaces.push(interface);
            }
            Err(error) => {
                for interface in interfaces {
                    remove_interface(world, &interface);
                }
                return Err(error);
            }
        }
    }
    let now = world.now();
    let Some(primary) = interfaces.first().and_then(|id| world.ec2.interfaces.get(id)) else {
        return Err(ApiError::missing("NetworkInterface"));
    };
    let region = &world.ec2.region;
    let private_dns = match primary.private_ips.first() {
        Some(ip) => ip_name(region, *ip),
        None => String::new(),
    };
    let instance = Instance {
        reservation: reservation.to_owned(),
        launch_index: index,
        image: launch.image,
        topology: topology(&launch.instance_type, &primary.zone, world.ec2.instances.len()),
        instance_type: launch.instance_type,
        state: InstanceState::Pending,
        created: now,
        vpc: primary.vpc.clone(),
        subnet: primary.subnet.clone(),
        zone: primary.zone.clone(),
        public_dns: primary.public_ip.map(|ip| public_name(region, ip)).unwrap_or_default(),
        private_dns,
        interfaces,
        metadata_hops: 2,
        metadata_tokens_optional: false,
        tags: launch.tags,
    };
    world.ec2.index.by_dns.entry(instance.private_dns.clone()).or_default().insert(id.clone());
    world.ec2.instances.insert(id.clone(), instance);
    Ok(id)
}

/// Schedules the final state of an instance that is in a transitional state.
pub(super) fn go_on(world: &mut World, id: &str) {
    match world.ec2.instances.get(id).map(|instance| instance.state) {
        Some(InstanceState::Pending) => move_on(world, id, InstanceState::Running),
        Some(InstanceState::Stopping) => move_on(world, id, InstanceState::Stopped),
        Some(InstanceState::ShuttingDown) => move_on(world, id, InstanceState::Terminated),
        _ => {}
    }
}

/// Attaches an interface to an instance.
pub(super) fn attach(world: &mut World, interface: &str, instance: &str, device: u32) {
    let (id, since) = (world.new_id("eni-attach-"), world.now());
    if let Some(found) = world.ec2.interfaces.get_mut(interface) {
        found.attachment =
            Some(Attachment { id, instance: Some(instance.to_owned()), device, status: "attached".to_owned(), since });
    }
}

/// The network nodes from the top, for instance types that report them; 8 instances share the lowest node.
fn topology(instance_type: &str, zone: &str, count: usize) -> Vec<String> {
    let letters: String = instance_type.chars().take_while(char::is_ascii_alphabetic).collect();
    if !["hpc", "trn", "p"].contains(&letters.as_str()) {
        return Vec::new();
    }
    let zone: String = zone.chars().rev().take(1).collect();
    vec![
        format!("nn-1{zone}{:015x}", 0),
        format!("nn-2{zone}{:015x}", count / 64),
        format!("nn-3{zone}{:015x}", count / 8),
    ]
}

fn discard(world: &mut World, id: &str) {
    let Some(instance) = world.ec2.instances.remove(id) else { return };
    drop_name(world, id, &instance.private_dns);
    for interface in instance.interfaces {
        remove_interface(world, &interface);
    }
}

fn drop_name(world: &mut World, id: &str, name: &str) {
    if let Some(ids) = world.ec2.index.by_dns.get_mut(name) {
        ids.remove(id);
        if ids.is_empty() {
            world.ec2.index.by_dns.remove(name);
        }
    }
}

/// Schedules a state of an instance after the delay for that state.
fn move_on(world: &mut World, id: &str, to: InstanceState) {
    let delays = &world.options.delays;
    let delay = match to {
        InstanceState::Running => delays.pending,
        InstanceState::Stopped => delays.stopping,
        _ => delays.shutting_down,
    };
    world.after(delay, world::Due::Ec2(Due::Instance { id: id.to_owned(), to }));
}

/// Changes an instance to a state, if it is still in the transition to it.
pub(super) fn reach(world: &mut World, id: &str, to: InstanceState) {
    let Some(instance) = world.ec2.instances.get_mut(id) else { return };
    match (instance.state, to) {
        (InstanceState::Pending, InstanceState::Running) => instance.state = to,
        (InstanceState::Stopping, InstanceState::Stopped) => {
            instance.state = to;
            instance.public_dns.clear();
            let primary = instance.interfaces.first().and_then(|id| world.ec2.interfaces.get_mut(id));
            if let Some(primary) = primary.filter(|primary| primary.allocation.is_none()) {
                primary.public_ip = None;
            }
        }
        (InstanceState::ShuttingDown, InstanceState::Terminated) => {
            instance.state = to;
            let name = std::mem::take(&mut instance.private_dns);
            instance.public_dns.clear();
            let interfaces = std::mem::take(&mut instance.interfaces);
            drop_name(world, id, &name);
            for interface in interfaces {
                remove_interface(world, &interface);
            }
            let gone = world.options.delays.gone;
            world.after(gone, world::Due::Ec2(Due::Forget(id.to_owned())));
        }
        _ => {}
    }
}

/// Removes a terminated instance.
pub(super) fn forget(world: &mut World, id: &str) {
    if world.ec2.instances.get(id).is_some_and(|instance| instance.state == InstanceState::Terminated) {
        world.ec2.instances.remove(id);
    }
}

pub(super) fn terminate(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    change(world, call, |state| match state {
        InstanceState::Terminated | InstanceState::ShuttingDown => Some(None),
        _ => Some(Some((InstanceState::ShuttingDown, InstanceState::Terminated))),
    })
}

pub(super) fn stop(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    change(world, call, |state| match state {
        InstanceState::Stopped | InstanceState::Stopping => Some(None),
        InstanceState::Running => Some(Some((InstanceState::Stopping, InstanceState::Stopped))),
        _ => None,
    })
}

/// Changes the state of instances. `rule` returns `None` if the change is rejected, `Some(None)` for no change, or the
/// next two states.
fn change(
    world: &mut World,
    call: &Call,
    rule: impl Fn(InstanceState) -> Option<Option<(InstanceState, InstanceState)>>,
) -> Result<Xml, ApiError> {
    let ids = call.params.list("InstanceId");
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    check_ids(world, &ids)?;
    let mut steps = Vec::new();
    for id in ids {
        let Some(instance) = known(world, id) else { continue };
        let Some(step) = rule(instance.state) else {
            let text = format!("The instance '{id}' is not in a state from which it can be changed so.");
            return Err(ApiError::new("IncorrectInstanceState", text));
        };
        steps.push((id, instance.state, step));
    }
    for (id, _, step) in &steps {
        let Some((now, then)) = step else { continue };
        if let Some(instance) = world.ec2.instances.get_mut(*id) {
            instance.state = *now;
        }
        move_on(world, id, *then);
    }
    let mut xml = Xml::new();
    xml.list("instancesSet", "item", &steps, |xml, (id, before, step)| {
        xml.text("instanceId", id);
        state(xml, "currentState", step.map_or(*before, |(now, _)| now));
        state(xml, "previousState", *before);
    });
    Ok(xml)
}

pub(super) fn modify_attribute(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("InstanceId")?;
    check_ids(world, &[id])?;
    let Some(instance) = known(world, id) else { return Ok(Xml::done()) };
    let change = Change::read(call, "GroupId")?;
    if instance.interfaces.len() > 1 {
        return Err(several_interfaces(id));
    }
    let (vpc, interface) = (instance.vpc.clone(), instance.interfaces.first().cloned());
    super::network::check_groups(world, &change.groups, &vpc)?;
    let Some(interface) = interface.and_then(|id| world.ec2.interfaces.get_mut(&id)) else {
        // unverified: the answer for a terminated instance.
        return Err(ApiError::new("IncorrectInstanceState", format!("The instance '{id}' is terminated.")));
    };
    change.apply(interface);
    Ok(Xml::done())
}

/// The error of instance-level operations that require exactly one interface.
pub(super) fn several_interfaces(id: &str) -> ApiError {
    let text = format!(
        "There are multiple interfaces attached to instance '{id}'. Please specify an interface ID for the operation instead."
    );
    ApiError::new("InvalidInstanceID", text)
}
