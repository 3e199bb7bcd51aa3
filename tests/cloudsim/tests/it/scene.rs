//! The initial state of each case, created over the API in the same way for all servers.

use std::net::SocketAddr;

use ccm_cloudsim::aws::client::{REGION, authorization, call};
use ccm_cloudsim::core::client::send;

use crate::values::Values;

/// A VPC with two zones (`subnet_a`, `subnet_b`, and `subnet_a2` in the first zone), an internet gateway, the security
/// groups `sg1` and `sg2`, the running instances `i1` (in `subnet_a`) and `i2` (in `subnet_b`) in `sg1`, the main route
/// table `rtb`, the Elastic IP address `eip`; `vpc2` with `subnet_far`.
pub(crate) fn make(address: SocketAddr) -> Values {
    let mut values = Values::new();
    let mut made = |name: &str, operation: &str, form: String, path: &str| {
        let answer = call(address, operation, &form).unwrap_or_else(|code| panic!("{operation} {form}: {code}"));
        let id = answer.at(path).unwrap_or_else(|| panic!("{operation}: no {path} in {answer:?}")).text.clone();
        values.insert(name.to_owned(), id.clone());
        id
    };
    let vpc = made("vpc", "ec2:CreateVpc", "CidrBlock=10.0.0.0/16".to_owned(), "vpc/vpcId");
    let vpc2 = made("vpc2", "ec2:CreateVpc", "CidrBlock=10.1.0.0/16".to_owned(), "vpc/vpcId");
    let subnet =
        |vpc: &str, cidr: &str, zone: char| format!("VpcId={vpc}&CidrBlock={cidr}&AvailabilityZone={REGION}{zone}");
    let subnet_a = made("subnet_a", "ec2:CreateSubnet", subnet(&vpc, "10.0.1.0/24", 'a'), "subnet/subnetId");
    let subnet_b = made("subnet_b", "ec2:CreateSubnet", subnet(&vpc, "10.0.2.0/24", 'b'), "subnet/subnetId");
    made("subnet_a2", "ec2:CreateSubnet", subnet(&vpc, "10.0.3.0/24", 'a'), "subnet/subnetId");
    made("subnet_far", "ec2:CreateSubnet", subnet(&vpc2, "10.1.1.0/24", 'b'), "subnet/subnetId");
    let igw = made("igw", "ec2:CreateInternetGateway", String::new(), "internetGateway/internetGatewayId");
    call(address, "ec2:AttachInternetGateway", &format!("InternetGatewayId={igw}&VpcId={vpc}")).expect("a gateway");
    let group = |name: &str| format!("GroupName={name}&GroupDescription={name}&VpcId={vpc}");
    let sg1 = made("sg1", "ec2:CreateSecurityGroup", group("one"), "groupId");
    made("sg2", "ec2:CreateSecurityGroup", group("two"), "groupId");
    for (name, subnet) in [("i1", &subnet_a), ("i2", &subnet_b)] {
        let form = format!(
            "ImageId=ami-12345678&InstanceType=m5.large&MinCount=1&MaxCount=1&SubnetId={subnet}&SecurityGroupId.1={sg1}"
        );
        made(name, "ec2:RunInstances", form, "instancesSet/item/instanceId");
    }
    let main =
        format!("Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}&Filter.2.Name=association.main&Filter.2.Value.1=true");
    made("rtb", "ec2:DescribeRouteTables", main, "routeTableSet/item/routeTableId");
    made("eip", "ec2:AllocateAddress", "Domain=vpc".to_owned(), "allocationId");
    values
}

/// Creates a certificate in moto's ACM; returns its ARN.
pub(crate) fn certificate_in_moto(address: SocketAddr) -> String {
    let authorization = authorization("acm");
    let headers = [
        ("Content-Type", "application/x-amz-json-1.1"),
        ("X-Amz-Target", "CertificateManager.RequestCertificate"),
        ("X-Amz-Date", "20261121T120000Z"),
        ("Authorization", authorization.as_str()),
    ];
    let body = r#"{"DomainName": "example.test"}"#;
    let answer = send("POST", &format!("http://{address}/"), &headers, body).expect("an answer of ACM");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json["CertificateArn"].as_str().expect("an ARN").to_owned()
}
