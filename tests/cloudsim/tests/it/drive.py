"""Drives a simulated AWS with boto3: drive.py ENDPOINT CERTIFICATE_ARN. Fails at the first answer that is not as expected."""

import sys

import boto3
import botocore.config
import botocore.exceptions

endpoint, certificate = sys.argv[1:]


def client(service):
    return boto3.client(
        service,
        region_name="us-west-2",
        endpoint_url=endpoint,
        aws_access_key_id="AKIAEXAMPLE",
        aws_secret_access_key="example",
        config=botocore.config.Config(retries={"max_attempts": 1}),
    )


def equal(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def fails(code, call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        equal(error.response["Error"]["Code"], code)
    else:
        raise AssertionError(f"{call.__name__} succeeded instead of {code}")


def network(ec2):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone=f"us-west-2{zone}")["Subnet"]["SubnetId"]
        for n, zone in enumerate("ab")
    ]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    equal([v["VpcId"] for v in ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]], [vpc])
    found = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Subnets"]
    equal({s["SubnetId"] for s in found}, set(subnets))
    assert ec2.describe_availability_zones()["AvailabilityZones"][0]["ZoneId"]
    return vpc, subnets


def groups(ec2, vpc):
    tags = [{"ResourceType": "security-group", "Tags": [{"Key": "a", "Value": "<&>"}]}]
    group = ec2.create_security_group(GroupName="g", Description="d", VpcId=vpc, TagSpecifications=tags)["GroupId"]
    permission = {
        "IpProtocol": "tcp",
        "FromPort": 80,
        "ToPort": 80,
        "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "all"}],
        "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
    }
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])
    fails("InvalidPermission.Duplicate", ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=[permission])
    found = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
    equal(found["Tags"], [{"Key": "a", "Value": "<&>"}])
    equal(found["IpPermissions"][0]["IpRanges"], [{"CidrIp": "0.0.0.0/0", "Description": "all"}])
    equal(found["IpPermissions"][0]["Ipv6Ranges"], [{"CidrIpv6": "::/0"}])
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[permission])
    equal(ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"], [])
    spare = ec2.create_security_group(GroupName="spare", Description="d", VpcId=vpc)["GroupId"]
    ec2.delete_security_group(GroupId=spare)
    fails("InvalidGroup.NotFound", ec2.describe_security_groups, GroupIds=[spare])
    return group


def instances(ec2, subnet, group):
    run = ec2.run_instances(
        ImageId="ami-1", InstanceType="m5.large", MinCount=3, MaxCount=3, SubnetId=subnet, SecurityGroupIds=[group]
    )
    ids = [i["InstanceId"] for i in run["Instances"]]
    pages = list(ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
    equal({i["InstanceId"] for i in found}, set(ids))
    equal({i["State"]["Name"] for i in found}, {"running"})
    ec2.create_tags(Resources=ids, Tags=[{"Key": "k", "Value": "v"}])
    by_tag = ec2.describe_instances(Filters=[{"Name": "tag:k", "Values": ["v*"]}])["Reservations"]
    equal(sum(len(r["Instances"]) for r in by_tag), 3)
    ec2.delete_tags(Resources=ids, Tags=[{"Key": "k", "Value": "v"}])
    equal(ec2.describe_instances(Filters=[{"Name": "tag-key", "Values": ["k"]}])["Reservations"], [])
    fails("InvalidInstanceID.NotFound", ec2.describe_instances, InstanceIds=["i-0123456789abcdef0"])
    ec2.modify_instance_attribute(InstanceId=ids[0], SourceDestCheck={"Value": False})
    ec2.describe_instance_topology(InstanceIds=[ids[0]])
    address = ec2.describe_instances(InstanceIds=[ids[0]])["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
    interface = ec2.describe_network_interfaces(Filters=[{"Name": "private-ip-address", "Values": [address]}])
    equal(interface["NetworkInterfaces"][0]["SourceDestCheck"], False)
    return ids


def routes(ec2, vpc, instance):
    table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="100.64.0.0/24", InstanceId=instance)
    found = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    equal([r["InstanceId"] for r in found if "InstanceId" in r], [instance])
    ec2.delete_route(RouteTableId=table, DestinationCidrBlock="100.64.0.0/24")
    fails("InvalidRoute.NotFound", ec2.delete_route, RouteTableId=table, DestinationCidrBlock="100.64.0.0/24")


def classic(elb, subnets, group, ids):
    listener = {"Protocol": "tcp", "LoadBalancerPort": 80, "InstanceProtocol": "tcp", "InstancePort": 30080}
    made = elb.create_load_balancer(
        LoadBalancerName="lb", Listeners=[listener], Subnets=subnets[:1], SecurityGroups=[group], Tags=[{"Key": "a", "Value": "1"}]
    )
    assert made["DNSName"].startswith("lb-")
    named = {"LoadBalancerName": "lb"}
    elb.attach_load_balancer_to_subnets(**named, Subnets=subnets[1:])
    elb.detach_load_balancer_from_subnets(**named, Subnets=subnets[:1])
    elb.apply_security_groups_to_load_balancer(**named, SecurityGroups=[group])
    secure = {"Protocol": "SSL", "LoadBalancerPort": 443, "InstanceProtocol": "TCP", "InstancePort": 30443, "SSLCertificateId": certificate}
    elb.create_load_balancer_listeners(**named, Listeners=[secure])
    elb.delete_load_balancer_listeners(**named, LoadBalancerPorts=[80])
    proxy = [{"AttributeName": "ProxyProtocol", "AttributeValue": "true"}]
    elb.create_load_balancer_policy(**named, PolicyName="p", PolicyTypeName="ProxyProtocolPolicyType", PolicyAttributes=proxy)
    elb.set_load_balancer_policies_for_backend_server(**named, InstancePort=30443, PolicyNames=["p"])
    elb.set_load_balancer_policies_for_backend_server(**named, InstancePort=30443, PolicyNames=[])
    security = [{"AttributeName": "Reference-Security-Policy", "AttributeValue": "ELBSecurityPolicy-TLS-1-2-2017-01"}]
    elb.create_load_balancer_policy(**named, PolicyName="s", PolicyTypeName="SSLNegotiationPolicyType", PolicyAttributes=security)
    elb.set_load_balancer_policies_of_listener(**named, LoadBalancerPort=443, PolicyNames=["s"])
    equal(elb.describe_load_balancer_policies(**named, PolicyNames=["s"])["PolicyDescriptions"][0]["PolicyName"], "s")
    check = {"Target": "tcp:30443", "Interval": 10, "Timeout": 5, "UnhealthyThreshold": 6, "HealthyThreshold": 2}
    equal(elb.configure_health_check(**named, HealthCheck=check)["HealthCheck"], {**check, "Target": "TCP:30443"})
    elb.register_instances_with_load_balancer(**named, Instances=[{"InstanceId": i} for i in ids])
    elb.deregister_instances_from_load_balancer(**named, Instances=[{"InstanceId": ids[0]}])
    elb.modify_load_balancer_attributes(**named, LoadBalancerAttributes={"CrossZoneLoadBalancing": {"Enabled": True}})
    attributes = elb.describe_load_balancer_attributes(**named)["LoadBalancerAttributes"]
    equal(attributes["CrossZoneLoadBalancing"], {"Enabled": True})
    equal(attributes["ConnectionDraining"], {"Enabled": False, "Timeout": 300})
    elb.add_tags(LoadBalancerNames=["lb"], Tags=[{"Key": "b", "Value": "2"}])
    assert {"Key": "b", "Value": "2"} in elb.describe_tags(LoadBalancerNames=["lb"])["TagDescriptions"][0]["Tags"]
    found = elb.describe_load_balancers(LoadBalancerNames=["lb"])["LoadBalancerDescriptions"][0]
    equal([d["Listener"]["LoadBalancerPort"] for d in found["ListenerDescriptions"]], [443])
    equal(found["ListenerDescriptions"][0]["PolicyNames"], ["s"])
    equal(found["Subnets"], subnets[1:])
    elb.delete_load_balancer(**named)
    fails("LoadBalancerNotFound", elb.describe_load_balancers, LoadBalancerNames=["lb"])


def network_balancer(v2, vpc, subnets, group, ids):
    made = v2.create_load_balancer(
        Name="nlb", Type="network", SubnetMappings=[{"SubnetId": s} for s in subnets], SecurityGroups=[group], Tags=[{"Key": "a", "Value": "1"}]
    )["LoadBalancers"][0]
    arn = made["LoadBalancerArn"]
    equal(v2.describe_load_balancers(Names=["nlb"])["LoadBalancers"][0]["State"], {"Code": "active"})
    v2.set_security_groups(LoadBalancerArn=arn, SecurityGroups=[group])
    tg = v2.create_target_group(Name="tg", Protocol="TCP", Port=30080, VpcId=vpc, HealthCheckProtocol="HTTP")["TargetGroups"][0]
    equal((tg["HealthCheckPath"], tg["HealthCheckTimeoutSeconds"]), ("/", 6))
    tg_arn = tg["TargetGroupArn"]
    v2.register_targets(TargetGroupArn=tg_arn, Targets=[{"Id": i, "Port": 30080} for i in ids])
    forward = [{"Type": "forward", "TargetGroupArn": tg_arn}]
    listener = v2.create_listener(LoadBalancerArn=arn, Port=443, Protocol="TCP", DefaultActions=forward)["Listeners"][0]
    tls = {"Protocol": "TLS", "SslPolicy": "ELBSecurityPolicy-2016-08", "Certificates": [{"CertificateArn": certificate}]}
    v2.modify_listener(ListenerArn=listener["ListenerArn"], **tls)
    found = v2.describe_listeners(LoadBalancerArn=arn)["Listeners"][0]
    equal((found["Protocol"], found["SslPolicy"]), ("TLS", "ELBSecurityPolicy-2016-08"))
    v2.modify_target_group(TargetGroupArn=tg_arn, HealthCheckPort="10256")
    equal(v2.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"][0]["HealthCheckPort"], "10256")
    health = v2.describe_target_health(TargetGroupArn=tg_arn)["TargetHealthDescriptions"]
    equal({h["TargetHealth"]["State"] for h in health}, {"healthy"})
    v2.deregister_targets(TargetGroupArn=tg_arn, Targets=[{"Id": ids[0], "Port": 30080}])
    v2.modify_target_group_attributes(TargetGroupArn=tg_arn, Attributes=[{"Key": "proxy_protocol_v2.enabled", "Value": "true"}])
    attributes = v2.describe_target_group_attributes(TargetGroupArn=tg_arn)["Attributes"]
    assert {"Key": "proxy_protocol_v2.enabled", "Value": "true"} in attributes
    v2.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=[{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}])
    attributes = v2.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
    assert {"Key": "load_balancing.cross_zone.enabled", "Value": "true"} in attributes
    v2.add_tags(ResourceArns=[arn, tg_arn], Tags=[{"Key": "b", "Value": "2"}])
    assert {"Key": "b", "Value": "2"} in v2.describe_tags(ResourceArns=[arn])["TagDescriptions"][0]["Tags"]
    fails("ResourceInUse", v2.delete_target_group, TargetGroupArn=tg_arn)
    v2.delete_listener(ListenerArn=listener["ListenerArn"])
    v2.delete_load_balancer(LoadBalancerArn=arn)
    v2.delete_target_group(TargetGroupArn=tg_arn)
    fails("LoadBalancerNotFound", v2.describe_load_balancers, LoadBalancerArns=[arn])


ec2, elb, v2 = client("ec2"), client("elb"), client("elbv2")
vpc, subnets = network(ec2)
group = groups(ec2, vpc)
ids = instances(ec2, subnets[1], group)
routes(ec2, vpc, ids[0])
classic(elb, subnets, group, ids)
network_balancer(v2, vpc, subnets, group, ids)
