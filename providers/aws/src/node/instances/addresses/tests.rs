use super::*;
use AddressType::{ExternalDns, ExternalIp, Hostname, InternalDns, InternalIp};

fn interface(device_index: Option<i32>, ips: &[&str], ipv6: &[&str]) -> InstanceInterface {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    InstanceInterface {
        status: "in-use".into(),
        device_index,
        private_ips: texts(ips),
        ipv6: texts(ipv6),
        ..InstanceInterface::default()
    }
}

fn instance(interfaces: Vec<InstanceInterface>) -> Instance {
    Instance {
        id: "i-1".into(),
        private_dns_name: "ip-10-0-0-1.ec2.internal".into(),
        public_dns_name: "ec2-1-2-3-4.example".into(),
        public_ip: Some("1.2.3.4".into()),
        interfaces,
        ..Instance::default()
    }
}

fn list(addresses: &[(AddressType, &str)]) -> Vec<NodeAddress> {
    addresses.iter().map(|(kind, address)| NodeAddress::new(kind.clone(), *address)).collect()
}

#[test]
fn addresses_come_by_family_and_device_index_whatever_the_order_of_the_answer() {
    let instance = instance(vec![
        interface(Some(1), &["10.0.1.1"], &["fd00::1:1", "fd00::1:2"]),
        interface(Some(0), &["10.0.0.1", "10.0.0.2"], &["fd00::1"]),
        interface(None, &["10.0.9.9"], &[]),
    ]);
    let v4 = [
        (InternalIp, "10.0.0.1"),
        (InternalIp, "10.0.0.2"),
        (InternalIp, "10.0.1.1"),
        (InternalIp, "10.0.9.9"),
        (ExternalIp, "1.2.3.4"),
        (InternalDns, "ip-10-0-0-1.ec2.internal"),
        (Hostname, "ip-10-0-0-1.ec2.internal"),
        (ExternalDns, "ec2-1-2-3-4.example"),
    ];
    let v6 = [(InternalIp, "fd00::1"), (InternalIp, "fd00::1:1")];
    let both = [&v6[..], &v4[..]].concat();
    assert_eq!(of_instance(&instance, &[Family::Ipv6, Family::Ipv4]).unwrap(), list(&both));
    assert_eq!(of_instance(&instance, &[Family::Ipv6]).unwrap(), list(&v6));
    assert_eq!(of_instance(&instance, &[Family::Ipv4]).unwrap(), list(&v4));
}

#[test]
fn an_interface_that_is_detaching_gives_no_address_and_the_names_remain() {
    let leaving = InstanceInterface { status: "detaching".into(), ..interface(Some(0), &["10.0.0.1"], &[]) };
    let addresses = of_instance(&Instance { public_ip: None, ..instance(vec![leaving]) }, &[Family::Ipv4]).unwrap();
    let kinds: Vec<_> = addresses.iter().map(|address| address.kind.clone()).collect();
    assert_eq!(kinds, [InternalDns, Hostname, ExternalDns]);
}

#[test]
fn leading_zeros_are_tolerated_and_normalized() {
    let bare = Instance { id: "i-1".into(), ..Instance::default() };
    let old = Instance { interfaces: vec![interface(Some(0), &["010.000.0.001"], &["fd00:0::01"])], ..bare };
    let addresses = of_instance(&old, &[Family::Ipv4, Family::Ipv6]).unwrap();
    assert_eq!(addresses, list(&[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")]));
}

#[test]
fn what_is_no_address_is_an_error_that_names_it() {
    let odd = instance(vec![interface(Some(0), &["10.0.0.x"], &[])]);
    let error = of_instance(&odd, &[Family::Ipv4]).unwrap_err();
    assert_eq!(error.to_string(), "EC2 gives \"10.0.0.x\" as an address of i-1, which is not an IP address");
}

#[test]
fn a_fargate_node_has_its_address_and_its_name_in_each_family() {
    let both = NetworkInterface {
        private_ip: Some("10.0.0.1".into()),
        private_dns_name: "ip-10-0-0-1.ec2.internal".into(),
        ipv6: vec!["fd00::1".into(), "fd00::2".into()],
        ..NetworkInterface::default()
    };
    let dns = (InternalDns, "ip-10-0-0-1.ec2.internal");
    assert_eq!(
        of_interface(&both, &[Family::Ipv4, Family::Ipv6]).unwrap(),
        list(&[(InternalIp, "10.0.0.1"), dns.clone(), (InternalIp, "fd00::1"), dns.clone()])
    );
    let v4_only = NetworkInterface { ipv6: Vec::new(), ..both };
    assert_eq!(of_interface(&v4_only, &[Family::Ipv6, Family::Ipv4]).unwrap(), list(&[(InternalIp, "10.0.0.1"), dns]));
}
