//! Known differences of moto 5.2.5 (with the corrections of hack/moto/patches.py) from AWS. The corrections cover what
//! controllers depend on; the rest is listed here.

use super::{Deviation, differs};

pub(crate) const OF_MOTO: &[Deviation] = &[
    differs(
        "ec2: a malformed ID",
        &["step 1 ec2:DescribeInstances: answers InvalidInstanceID.NotFound, instead of InvalidInstanceID.Malformed"],
        "moto doesn't look at the form of IDs",
    )
    .decided_by("https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html"),
    differs(
        "ec2: an unknown filter",
        &["step 1 ec2:DescribeInstances: answers a page of status 500, instead of InvalidParameterValue"],
        "a filter that moto lacks and one that there isn't are the same to it",
    )
    .decided_by("https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html"),
    differs(
        "ec2: a terminated instance stays visible without addresses",
        &["step 2 ec2:DescribeInstances: reservationSet/item/instancesSet/item/privateIpAddress is *"],
        "moto keeps the interface of a terminated instance",
    )
    .decided_by("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html"),
    differs(
        "ec2: topology of an instance",
        &["step 1 ec2:DescribeInstanceTopology: answers a page of status 500"],
        "moto lacks the operation",
    )
    .decided_by("https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTopology.html"),
    differs(
        "elb: a new balancer has zones and a hosted zone",
        &[
            "step 2 elb:DescribeLoadBalancers: LoadBalancerDescriptions/member/AvailabilityZones/ are [], not *",
            "step 2 elb:DescribeLoadBalancers: LoadBalancerDescriptions/member/CanonicalHostedZoneNameID is None, not *",
        ],
        "moto reports the zones of the request, and no hosted zone",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_LoadBalancerDescription.html"),
    differs(
        "elb: a name longer than 32",
        &["step 1 elb:CreateLoadBalancer: succeeds, instead of ValidationError"],
        "moto takes any name",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elb: an unknown subnet",
        &["step 1 elb:CreateLoadBalancer: answers InvalidSubnetID.NotFound, instead of SubnetNotFound"],
        "moto lets the error of its EC2 through",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elb: an unknown security group",
        &["step 1 elb:CreateLoadBalancer: answers ValidationError, instead of InvalidSecurityGroup"],
        "the operation declares InvalidSecurityGroup",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elb: a second subnet in a zone",
        &["step 2 elb:AttachLoadBalancerToSubnets: succeeds, instead of InvalidConfigurationRequest"],
        "moto doesn't look at zones",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-manage-subnets.html"),
    differs(
        "elb: the last subnet stays",
        &["step 2 elb:DetachLoadBalancerFromSubnets: succeeds, instead of InvalidConfigurationRequest"],
        "moto lets a balancer have no subnet",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-manage-subnets.html"),
    differs(
        "elb: security groups are replaced",
        &["step 4 elb:ApplySecurityGroupsToLoadBalancer: answers ValidationError, instead of InvalidSecurityGroup"],
        "the operation declares InvalidSecurityGroup",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_ApplySecurityGroupsToLoadBalancer.html"),
    differs(
        "elb: a balancer has an interface",
        &["step 2 ec2:DescribeNetworkInterfaces: networkInterfaceSet/subnetId are [], not *"],
        "moto's balancers take no part in the network",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-internet-facing-load-balancers.html"),
    differs(
        "elb: an unknown policy",
        &["step 3 elb:SetLoadBalancerPoliciesForBackendServer: succeeds, instead of PolicyNotFound"],
        "moto doesn't look whether the policy is there",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_SetLoadBalancerPoliciesForBackendServer.html"),
    differs(
        "elb: a policy name is taken once",
        &["step 3 elb:CreateLoadBalancerPolicy: succeeds, instead of DuplicatePolicyName"],
        "moto keeps the former policy without a word",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_CreateLoadBalancerPolicy.html"),
    differs(
        "elb: registering answers with all instances",
        &["step 3 elb:RegisterInstancesWithLoadBalancer: Instances/InstanceId are [], not *"],
        "moto nests its answer wrongly; controllers don't read it",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_RegisterInstancesWithLoadBalancer.html"),
    differs(
        "elb: a health check whose timeout is not below its interval",
        &["step 2 elb:ConfigureHealthCheck: succeeds, instead of ValidationError"],
        "moto looks at the protocol of the target only",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_HealthCheck.html"),
    differs(
        "elb: a health check outside of its limits",
        &["step 2 elb:ConfigureHealthCheck: succeeds, instead of ValidationError"],
        "moto looks at the protocol of the target only",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_HealthCheck.html"),
    differs(
        "elbv2: a name longer than 32",
        &["step 1 elbv2:CreateLoadBalancer: succeeds, instead of ValidationError"],
        "moto takes any name",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: a name with a bad character",
        &["step 1 elbv2:CreateLoadBalancer: succeeds, instead of ValidationError"],
        "moto takes any name",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: no subnet",
        &["step 1 elbv2:CreateLoadBalancer: answers SubnetNotFound, instead of ValidationError"],
        "there is no subnet that could not be found",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: unknown words for scheme and address type",
        &[
            "step 1 elbv2:CreateLoadBalancer: succeeds, instead of InvalidScheme",
            "step 2 elbv2:CreateLoadBalancer: answers DuplicateLoadBalancerName, instead of ValidationError",
        ],
        "moto takes any scheme, and then the name is taken",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: an unknown subnet",
        &["step 1 elbv2:CreateLoadBalancer: answers InvalidSubnetID.NotFound, instead of SubnetNotFound"],
        "moto lets the error of its EC2 through",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: two subnets in a zone",
        &["step 1 elbv2:CreateLoadBalancer: succeeds, instead of InvalidConfigurationRequest"],
        "moto looks at zones in SetSubnets only",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: an unknown security group",
        &["step 1 elbv2:CreateLoadBalancer: succeeds, instead of InvalidSecurityGroup"],
        "moto looks at groups in SetSecurityGroups only",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: an unknown elastic address",
        &["step 1 elbv2:CreateLoadBalancer: succeeds, instead of AllocationIdNotFound"],
        "moto doesn't look at addresses",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html"),
    differs(
        "elbv2: no security groups for a balancer born without",
        &["step 2 elbv2:SetSecurityGroups: succeeds, instead of InvalidConfigurationRequest"],
        "moto doesn't know the rule of network balancers",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_SetSecurityGroups.html"),
    differs(
        "elbv2: a balancer has an interface",
        &["step 2 ec2:DescribeNetworkInterfaces: networkInterfaceSet/subnetId are [], not *"],
        "moto's balancers take no part in the network",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/network-load-balancers.html"),
    differs(
        "elbv2: a group's port outside of its limits",
        &["step 1 elbv2:CreateTargetGroup: succeeds, instead of ValidationError"],
        "moto doesn't look at numbers",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateTargetGroup.html"),
    differs(
        "elbv2: thresholds outside of their limits",
        &["step 1 elbv2:CreateTargetGroup: succeeds, instead of ValidationError"],
        "moto doesn't look at numbers",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateTargetGroup.html"),
    differs(
        "elbv2: an unknown target group",
        &["step 2 elbv2:DeleteTargetGroup: answers TargetGroupNotFound"],
        "the operation declares ResourceInUse only",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_DeleteTargetGroup.html"),
    differs(
        "elbv2: the same listener again",
        &["step 4 elbv2:CreateListener: answers DuplicateListener"],
        "the operation is idempotent",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateListener.html"),
    differs(
        "elbv2: protocols of listener and group",
        &["step 3 elbv2:CreateListener: succeeds, instead of IncompatibleProtocols"],
        "moto doesn't compare protocols",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-target-groups.html"),
    differs(
        "elbv2: a listener needs a group",
        &[
            "step 2 elbv2:CreateListener: succeeds, instead of ValidationError",
            "step 3 elbv2:CreateListener: answers DuplicateListener, instead of TargetGroupNotFound",
        ],
        "moto takes a listener without action, and then the port is taken",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateListener.html"),
    differs(
        "elbv2: a group for one balancer",
        &["step 5 elbv2:CreateListener: succeeds, instead of TargetGroupAssociationLimit"],
        "a target group is for one network balancer",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateListener.html"),
    differs(
        "elbv2: a target in a zone without the balancer",
        &["step 5 elbv2:DescribeTargetHealth: *TargetHealth/State is Some(\"healthy\"), not \"unused\""],
        "every running target of moto is healthy",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/target-group-health-checks.html"),
    differs(
        "elbv2: a target of an unused group",
        &[
            "step 3 elbv2:DescribeTargetHealth: *TargetHealth/State is Some(\"healthy\"), not \"unused\"",
            "step 3 elbv2:DescribeTargetHealth: *TargetHealth/Reason is None, not \"Target.NotInUse\"",
        ],
        "every running target of moto is healthy",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/target-group-health-checks.html"),
    differs(
        "elbv2: an instance on two ports",
        &["step 3 elbv2:DescribeTargetHealth: TargetHealthDescriptions/Target/Port are [\"2\"], not *"],
        "moto keeps one target for each ID",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/target-group-register-targets.html"),
    differs(
        "elbv2: balancer attributes",
        &["step 2 elbv2:DescribeLoadBalancerAttributes: Attributes/Key are *, not *"],
        "moto reports the attributes that all kinds of balancers share",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_LoadBalancerAttribute.html"),
    differs(
        "elbv2: a balancer attribute is set",
        &["step 4 elbv2:DeleteLoadBalancer: succeeds, instead of OperationNotPermitted"],
        "moto keeps the attribute and doesn't heed it",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_DeleteLoadBalancer.html"),
    differs(
        "elbv2: an unknown balancer attribute",
        &["step 2 elbv2:ModifyLoadBalancerAttributes: answers InvalidConfigurationRequest, instead of ValidationError"],
        "a key that there isn't fails before the configuration is looked at",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/CommonErrors.html"),
    differs(
        "elbv2: UDP keeps client addresses",
        &["step 2 elbv2:ModifyTargetGroupAttributes: succeeds, instead of InvalidConfigurationRequest"],
        "moto doesn't know the rule",
    )
    .decided_by("https://docs.aws.amazon.com/elasticloadbalancing/latest/network/edit-target-group-attributes.html"),
];
