//! A small VPC for the unit tests of load balancers, created without EC2's API.

use crate::aws::ec2::model::{Address, Gateway, Instance, InstanceState, SecurityGroup, Subnet, Tags, Vpc};
use crate::aws::model::Element;
use crate::aws::{Call, Options, Service, World, frame, handle};
use crate::core::clock::Mode;
use jiff::Timestamp;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// An existing certificate.
pub(in crate::aws) const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/1";

/// `vpc-1` with subnets `subnet-a`, `-b`, `-c` in the zones of these letters and `subnet-a2` in zone a; the security
/// groups `sg-1`, `sg-2`; the running instances `i-a`, `i-b`; the stopped `i-stopped`; the Elastic IP addresses
/// `eip-1`, `eip-2`. And `vpc-2` with `subnet-far`, `sg-far`, `i-far`. The clock is stopped.
pub(in crate::aws) fn scene(change: impl FnOnce(&mut Options)) -> World {
    let mut options = Options { clock: Mode::Stepped { start: Timestamp::UNIX_EPOCH }, ..Options::default() };
    change(&mut options);
    let mut world = World::new(Arc::new(options));
    for (index, vpc) in (0u8..).zip(["vpc-1", "vpc-2"]) {
        let block = format!("10.{index}.0.0/16");
        world.ec2.vpcs.insert(vpc.to_owned(), Vpc { cidr: block, ipv6_cidr: None, tags: Tags::new() });
        world.ec2.gateways.insert(format!("igw-{vpc}"), Gateway { vpc: Some(vpc.to_owned()), tags: Tags::new() });
    }
    let subnets = [
        ("subnet-a", "vpc-1", 'a', "10.0.1.0/24", None),
        ("subnet-b", "vpc-1", 'b', "10.0.2.0/24", Some("fd00:2::/64")),
        ("subnet-c", "vpc-1", 'c', "10.0.3.0/24", None),
        ("subnet-a2", "vpc-1", 'a', "10.0.4.0/24", None),
        ("subnet-far", "vpc-2", 'a', "10.1.1.0/24", None),
    ];
    for (id, vpc, zone, cidr, ipv6) in subnets {
        let subnet = Subnet {
            vpc: vpc.to_owned(),
            zone: format!("us-west-2{zone}"),
            cidr: cidr.to_owned(),
            ipv6_cidr: ipv6.map(str::to_owned),
            tags: Tags::new(),
            next_ip: 0,
        };
        world.ec2.subnets.insert(id.to_owned(), subnet);
    }
    for (id, name, vpc) in
        [("sg-0", "default", "vpc-1"), ("sg-1", "one", "vpc-1"), ("sg-2", "two", "vpc-1"), ("sg-far", "far", "vpc-2")]
    {
        let group = SecurityGroup {
            name: name.to_owned(),
            description: name.to_owned(),
            vpc: vpc.to_owned(),
            ..SecurityGroup::default()
        };
        world.ec2.groups.insert(id.to_owned(), group);
    }
    for (id, subnet, state) in [
        ("i-a", "subnet-a", InstanceState::Running),
        ("i-b", "subnet-b", InstanceState::Running),
        ("i-stopped", "subnet-a", InstanceState::Stopped),
        ("i-far", "subnet-far", InstanceState::Running),
    ] {
        let instance = instance(&world, subnet, state);
        world.ec2.instances.insert(id.to_owned(), instance);
    }
    for (index, id) in (1u8..).zip(["eip-1", "eip-2"]) {
        let address = Address { public_ip: Ipv4Addr::new(100, 64, 0, index), interface: None, tags: Tags::new() };
        world.ec2.addresses.insert(id.to_owned(), address);
    }
    world.elb.add_certificate(CERTIFICATE);
    world
}

fn instance(world: &World, subnet: &str, state: InstanceState) -> Instance {
    let place = &world.ec2.subnets[subnet];
    Instance {
        reservation: "r-1".to_owned(),
        image: "ami-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        state,
        vpc: place.vpc.clone(),
        subnet: subnet.to_owned(),
        zone: place.zone.clone(),
        metadata_hops: 1,
        ..Instance::default()
    }
}

/// Executes a call like the endpoint: the result of the answer, or the error code.
pub(in crate::aws) fn call(world: &mut World, service: Service, action: &str, form: &str) -> Result<Element, String> {
    world.settle();
    let call = Call::direct(service, action, form).unwrap();
    let xml = handle(world, &call).map_err(|error| error.code_for(service).to_owned())?;
    assert_eq!(call.params.unread(), Vec::<String>::new(), "{action} did not look at these");
    let document = Element::parse(&frame(service, action, "1", &xml)).unwrap();
    Ok(document.child(&format!("{action}Result")).unwrap().clone())
}

/// Advances the clock.
pub(in crate::aws) fn pass(world: &World, seconds: u64) {
    world.clock.step(Duration::from_secs(seconds));
}
