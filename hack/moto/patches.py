"""Corrections to moto 5.2.5, applied in the process that serves it.

Each is something that AWS documents otherwise and without which a cloud controller manager fails or never settles. What
moto does differently and does not matter for that stays as it is; the table of the behavior suite
(tests/cloudsim/tests/it/deviations/moto.rs) lists it. Nothing here checks input that no controller sends.
"""

import functools

from moto.ec2.exceptions import DependencyViolationError, InvalidInstanceIdError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.route_tables import Route
from moto.ec2.responses.tags import TagResponse
from moto.elb import models as elb
from moto.elb.exceptions import ELBClientError, LoadBalancerNotFoundError
from moto.elbv2 import models as elbv2
from moto.elbv2.exceptions import (
    DuplicateListenerError,
    DuplicateLoadBalancerName,
    DuplicateTargetGroupName,
    ELBClientError as ELBv2ClientError,
    InvalidTargetError,
    TargetNotRunning,
)


def apply():
    for patch in (ec2_groups, ec2_routes, ec2_tags, ec2_interfaces, ec2_instances):
        patch()
    for patch in (elb_lookup, elb_listeners, elb_instances, elb_attributes, elb_health_check):
        patch()
    for patch in (v2_balancers, v2_target_groups, v2_listeners, v2_targets):
        patch()


def around(cls, name):
    """Replaces a method by the decorated function, which gets the former method as its first argument."""
    original = getattr(cls, name)

    def decorate(function):
        @functools.wraps(original)
        def method(self, *args, **kwargs):
            return function(original, self, *args, **kwargs)

        setattr(cls, name, method)
        return function

    return decorate


# --- EC2 -----------------------------------------------------------------------------------------------------------------


def live_instances(backend):
    return [i for r in backend.all_reservations() for i in r.instances if i.state != "terminated"]


def ec2_groups():
    """A group in use can't be deleted. Without this the wait for a balancer's interfaces is never exercised."""

    def users(backend, group_id):
        account, region = backend.account_id, backend.region_name
        for group in (g for groups in backend.groups.values() for g in groups.values()):
            if group.id != group_id and any(
                (rule.source_group or {}).get("GroupId") == group_id for rule in group.ingress_rules
            ):
                yield group.id
        for instance in live_instances(backend):
            if any(group.id == group_id for nic in instance.nics.values() for group in nic.group_set):
                yield instance.id
        for balancer in elb.elb_backends[account][region].load_balancers.values():
            if group_id in balancer.security_groups:
                yield balancer.name
        for balancer in elbv2.elbv2_backends[account][region].load_balancers.values():
            if group_id in (balancer.security_groups or []):
                yield balancer.name

    @around(EC2Backend, "delete_security_group")
    def delete_security_group(original, self, name=None, group_id=None):
        user = next(users(self, group_id), None) if group_id else None
        if user:
            raise DependencyViolationError(f"resource {group_id} has a dependent object")
        return original(self, name=name, group_id=group_id)


def ec2_routes():
    """A route to an instance names the interface, and becomes a blackhole when the instance terminates."""

    def state(self):
        return "blackhole" if self.instance is not None and self.instance.state == "terminated" else "active"

    def network_interface_id(self):
        if self.interface:
            return self.interface.id
        if self.instance is not None and self.instance.state != "terminated":
            return self.instance.nics[0].id
        return None

    Route.state = property(state)
    Route.network_interface_id = property(network_interface_id)


def ec2_tags():
    """Tagging an instance that is unknown is an error: the tagging controller depends on the code."""

    for name in ("create_tags", "delete_tags"):

        @around(TagResponse, name)
        def checked(original, self):
            for resource in self._get_param("Resources", []):
                if resource.startswith("i-") and self.ec2_backend.get_instance_by_id(resource) is None:
                    raise InvalidInstanceIdError(resource)
            return original(self)


def ec2_interfaces():
    """The lookup of Fargate nodes filters by attachment.status, which moto doesn't know."""

    @around(NetworkInterface, "get_filter_value")
    def get_filter_value(original, self, filter_name, method_name=None):
        if filter_name == "attachment.status":
            return "attached" if self.attachment_id else "detached"
        return original(self, filter_name, method_name)


def ec2_instances():
    """An ID given twice is answered once; moto says that one of them does not exist."""

    @around(EC2Backend, "get_reservations_by_instance_ids")
    def get_reservations_by_instance_ids(original, self, instance_ids, filters=None):
        return original(self, list(dict.fromkeys(instance_ids)), filters=filters)


# --- Classic ELB ---------------------------------------------------------------------------------------------------------


def elb_lookup():
    """An unknown balancer is an error with a code in every call; moto answers some with an HTML page."""

    @around(elb.ELBBackend, "get_load_balancer")
    def get_load_balancer(original, self, load_balancer_name):
        balancer = original(self, load_balancer_name)
        if balancer is None:
            raise LoadBalancerNotFoundError(load_balancer_name)
        return balancer


def elb_listeners():
    """The instance protocol is kept; each instance port has a backend entry; several ports can be deleted at once."""

    elb.FakeListener.instance_protocol = property(lambda self: getattr(self, "own_instance_protocol", self.protocol))

    def complete(balancer, ports):
        wanted = {int(p["LoadBalancerPort"]): p.get("InstanceProtocol") for p in ports}
        for listener in balancer.listeners:
            protocol = wanted.get(int(listener.load_balancer_port))
            if protocol:
                listener.own_instance_protocol = protocol.upper()
            if not any(int(b.instance_port) == int(listener.instance_port) for b in balancer.backends):
                balancer.backends.append(elb.FakeBackend(listener.instance_port))

    @around(elb.ELBBackend, "create_load_balancer")
    def create_load_balancer(original, self, name, zones, ports, scheme="internet-facing", subnets=None, security_groups=None):
        balancer = original(self, name, zones, ports, scheme, subnets, security_groups)
        prefix = "internal-" if scheme == "internal" else ""
        balancer.dns_name = f"{prefix}{name}-1234567890.{self.region_name}.elb.amazonaws.com"
        complete(balancer, ports)
        return balancer

    @around(elb.ELBBackend, "create_load_balancer_listeners")
    def create_load_balancer_listeners(original, self, name, ports):
        balancer = original(self, name, ports)
        if balancer is None:
            raise LoadBalancerNotFoundError(name)
        complete(balancer, ports)
        return balancer

    def delete_load_balancer_listeners(self, name, ports):
        balancer = self.get_load_balancer(name)
        gone = {int(port) for port in ports}
        balancer.listeners = [l for l in balancer.listeners if int(l.load_balancer_port) not in gone]
        return balancer

    elb.ELBBackend.delete_load_balancer_listeners = delete_load_balancer_listeners


def elb_instances():
    """An instance is registered once however often that is asked for, and must exist."""

    @around(elb.ELBBackend, "register_instances")
    def register_instances(original, self, load_balancer_name, instance_ids, from_autoscaling=False):
        balancer = self.get_load_balancer(load_balancer_name)
        for instance_id in instance_ids:
            if elb.ec2_backends[self.account_id][self.region_name].get_instance_by_id(instance_id) is None:
                raise ELBClientError("InvalidInstance", f"Could not find EC2 instance {instance_id}.")
        new = [i for i in instance_ids if i not in balancer.instance_ids]
        return original(self, load_balancer_name, new, from_autoscaling)


def elb_attributes():
    """What was set earlier is kept, and what AWS fills in is there from the start."""

    def get_default_attributes(cls):
        return {
            "cross_zone_load_balancing": {"enabled": False},
            "connection_draining": {"enabled": False, "timeout": 300},
            "access_log": {"enabled": False},
            "connection_settings": {"idle_timeout": 60},
            "additional_attributes": [("elb.http.desyncmitigationmode", "defensive")],
        }

    elb.LoadBalancer.get_default_attributes = classmethod(get_default_attributes)

    def modify_load_balancer_attributes(
        self,
        load_balancer_name,
        cross_zone=None,
        connection_settings=None,
        connection_draining=None,
        access_log=None,
        additional_attributes=None,
    ):
        attributes = self.get_load_balancer(load_balancer_name).attributes
        lower = {"Enabled": "enabled", "Timeout": "timeout", "IdleTimeout": "idle_timeout"}

        def merge(key, new):
            for name, value in (new or {}).items():
                attributes[key][lower.get(name, name)] = value

        merge("cross_zone_load_balancing", cross_zone)
        merge("connection_settings", connection_settings)
        merge("connection_draining", connection_draining)
        if access_log:
            attributes["access_log"] = access_log
        for attribute in additional_attributes or []:
            others = [pair for pair in attributes["additional_attributes"] if pair[0] != attribute["Key"]]
            attributes["additional_attributes"] = [*others, (attribute["Key"], attribute["Value"])]

    elb.ELBBackend.modify_load_balancer_attributes = modify_load_balancer_attributes


def elb_health_check():
    """There is a health check from the start, and its protocol is reported in upper case."""

    @around(elb.FakeHealthCheck, "__init__")
    def init(original, self, timeout, healthy_threshold, unhealthy_threshold, interval, target):
        protocol, colon, rest = target.partition(":")
        original(self, timeout, healthy_threshold, unhealthy_threshold, interval, protocol.upper() + colon + rest)

    @around(elb.LoadBalancer, "__init__")
    def balancer(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self.listeners:
            self.health_check = elb.FakeHealthCheck("5", "10", "2", "30", f"TCP:{self.listeners[0].instance_port}")


# --- ELBv2 ---------------------------------------------------------------------------------------------------------------

DEFAULT_TLS_POLICY = "ELBSecurityPolicy-2016-08"


def v2_balancers():
    """Network balancers have their own ARN and host name; a repeated create finds what is there; addresses are kept."""

    make_arn = elbv2.make_arn_for_load_balancer
    kind = {"now": "app"}
    elbv2.make_arn_for_load_balancer = lambda **parts: make_arn(**parts).replace(
        ":loadbalancer/app/", f":loadbalancer/{kind['now']}/"
    )

    @around(elbv2.ELBv2Backend, "create_load_balancer")
    def create_load_balancer(original, self, name, security_groups, subnet_ids, subnet_mappings=None, scheme=None, **rest):
        mappings = subnet_mappings or []
        scheme = scheme or "internet-facing"
        network = rest.get("loadbalancer_type") == "network"
        subnets = [*subnet_ids, *(mapping["SubnetId"] for mapping in mappings)]
        for balancer in self.load_balancers.values():
            if balancer.name == name:
                same = (
                    balancer.scheme == scheme
                    and balancer.type == (rest.get("loadbalancer_type") or "application")
                    and {subnet.id for subnet in balancer.subnets} == set(subnets)
                    and set(balancer.security_groups or []) == set(security_groups or [])
                )
                if not same:
                    raise DuplicateLoadBalancerName()
                return balancer
        kind["now"] = "net" if network else "app"
        balancer = original(self, name, security_groups, subnet_ids, subnet_mappings, scheme, **rest)
        if network:
            unique = balancer.arn.rpartition("/")[2]
            balancer.dns_name = f"{name}-{unique}.elb.{self.region_name}.amazonaws.com"
        balancer.mappings = {mapping["SubnetId"]: mapping for mapping in mappings}
        return balancer

    def addresses(self, zone):
        mapping = self.__dict__.get("mappings", {}).get(zone.subnet_id, {})
        address = {}
        if "AllocationId" in mapping:
            address["AllocationId"] = mapping["AllocationId"]
        if "PrivateIPv4Address" in mapping:
            address["PrivateIPv4Address"] = mapping["PrivateIPv4Address"]
        return [address] if address else []

    def availability_zones(self):
        zones = [elbv2.AvailabilityZone(subnet) for subnet in self.subnets]
        for zone in zones:
            zone.load_balancer_addresses = addresses(self, zone)
        return zones

    elbv2.FakeLoadBalancer.availability_zones = property(availability_zones)

    @around(elbv2.FakeLoadBalancer, "__init__")
    def init(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.attrs["access_logs.s3.enabled"] = "false"


NETWORK_GROUP_ATTRIBUTES = {
    "deregistration_delay.timeout_seconds": "300",
    "deregistration_delay.connection_termination.enabled": "false",
    "load_balancing.cross_zone.enabled": "use_load_balancer_configuration",
    "preserve_client_ip.enabled": "true",
    "proxy_protocol_v2.enabled": "false",
    "stickiness.enabled": "false",
    "stickiness.type": "source_ip",
    "target_group_health.dns_failover.minimum_healthy_targets.count": "1",
    "target_group_health.dns_failover.minimum_healthy_targets.percentage": "off",
    "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count": "1",
    "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage": "off",
    "target_health_state.unhealthy.connection_termination.enabled": "true",
    "target_health_state.unhealthy.draining_interval_seconds": "0",
}
SETTINGS = (
    "vpc_id protocol port health_check_protocol health_check_port health_check_path health_check_interval_seconds "
    "healthy_threshold_count unhealthy_threshold_count target_type ip_address_type"
).split()


def v2_target_groups():
    """A group belongs to the balancers that forward to it now; network groups have their own defaults."""

    def load_balancer_arns(self):
        backend = elbv2.elbv2_backends[self.account_id][self.region_name]
        return [
            balancer.arn
            for balancer in backend.load_balancers.values()
            if any(
                self.arn in backend._get_target_group_arns_from(action.data)
                for listener in balancer.listeners.values()
                for action in listener.default_actions
            )
        ]

    # The setter is there for moto's constructor. moto appends to a copy.
    elbv2.FakeTargetGroup.load_balancer_arns = property(load_balancer_arns, lambda self, value: None)

    @around(elbv2.FakeTargetGroup, "__init__")
    def init(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self.protocol in ("TCP", "UDP", "TCP_UDP", "TLS"):
            self.attributes = dict(NETWORK_GROUP_ATTRIBUTES)

    @around(elbv2.ELBv2Backend, "create_target_group")
    def create_target_group(original, self, name, **kwargs):
        network = kwargs.get("protocol") in ("TCP", "UDP", "TCP_UDP", "TLS")
        check = kwargs.get("healthcheck_protocol") or "TCP"
        if network:
            kwargs["unhealthy_threshold_count"] = kwargs.get("unhealthy_threshold_count") or "2"
            kwargs["healthcheck_timeout_seconds"] = kwargs.get("healthcheck_timeout_seconds") or (6 if check == "HTTP" else 10)
            if check != "TCP":
                kwargs["healthcheck_path"] = kwargs.get("healthcheck_path") or "/"
                kwargs["matcher"] = kwargs.get("matcher") or {"HttpCode": "200-399"}
        existing = next((group for group in self.target_groups.values() if group.name == name), None)
        if existing is None:
            return original(self, name, **kwargs)
        tags = kwargs.pop("tags", None)
        wanted = elbv2.FakeTargetGroup(
            name=name, account_id=self.account_id, region_name=self.region_name, **{"vpc_id": None, "protocol": None, "port": None, **kwargs}
        )
        if any(str(getattr(existing, key)) != str(getattr(wanted, key)) for key in SETTINGS):
            raise DuplicateTargetGroupName()
        if tags:
            self.add_tags(resource_arns=[existing.arn], tags=tags)
        return existing

    @around(elbv2.ELBv2Backend, "modify_target_group_attributes")
    def modify_target_group_attributes(original, self, target_group_arn, attributes):
        group = self.target_groups.get(target_group_arn)
        if group is not None and group.protocol in ("TCP", "UDP", "TCP_UDP", "TLS"):
            for key in attributes:
                if key not in NETWORK_GROUP_ATTRIBUTES:
                    raise ELBv2ClientError("ValidationError", f"Target group attribute key '{key}' is not recognized")
        return original(self, target_group_arn, attributes)


def v2_listeners():
    """One listener per port and transport; a policy only with TLS; TLS and UDP can be modified."""

    transport = {"TCP": {"tcp"}, "TLS": {"tcp"}, "UDP": {"udp"}, "TCP_UDP": {"tcp", "udp"}}

    def refuse_duplicate(balancer, port, protocol, besides=None):
        for other in balancer.listeners.values():
            taken = transport.get(other.protocol, {"tcp"}) & transport.get(protocol, {"tcp"})
            if other is not besides and int(other.port) == int(port) and taken:
                raise DuplicateListenerError()

    def secure(protocol):
        return protocol in ("TLS", "HTTPS")

    @around(elbv2.ELBv2Backend, "create_listener")
    def create_listener(original, self, load_balancer_arn, protocol, port, ssl_policy, certificate, actions, **rest):
        balancer = self.load_balancers.get(load_balancer_arn)
        if balancer is not None and port is not None:
            refuse_duplicate(balancer, port, protocol)
        if protocol == "TLS" and certificate and not self._certificate_exists(certificate):
            raise ELBv2ClientError("CertificateNotFound", f"Certificate ARN '{certificate}' is not valid")
        policy = ssl_policy if secure(protocol) else None
        return original(self, load_balancer_arn, protocol, port, policy, certificate, actions, **rest)

    def modify_listener(self, arn, port=None, protocol=None, ssl_policy=None, certificates=None, actions=None):
        listener = self.describe_listeners(load_balancer_arn=None, listener_arns=[arn])[0]
        actions = [elbv2.FakeAction(action) for action in actions or []]
        self._validate_actions(actions)
        new_port, new_protocol = port or listener.port, protocol or listener.protocol
        refuse_duplicate(self.load_balancers[listener.load_balancer_arn], new_port, new_protocol, besides=listener)
        for certificate in certificates or []:
            if not self._certificate_exists(certificate["CertificateArn"]):
                raise ELBv2ClientError("CertificateNotFound", f"Certificate ARN '{certificate['CertificateArn']}' is not valid")
        if secure(new_protocol) and not certificates and not listener.certificates:
            raise ELBv2ClientError("InvalidConfigurationRequest", "A certificate must be specified for TLS listeners")
        listener.port, listener.protocol = new_port, new_protocol
        if not secure(new_protocol):
            listener.ssl_policy, listener.certificate, listener.certificates = None, None, []
        else:
            listener.ssl_policy = ssl_policy or listener.ssl_policy or DEFAULT_TLS_POLICY
            if certificates:
                listener.certificate = certificates[0]["CertificateArn"]
                listener.certificates = [certificate["CertificateArn"] for certificate in certificates]
        if actions:
            listener.default_actions = actions
            listener._default_rule[0].actions = actions
        return listener

    elbv2.ELBv2Backend.modify_listener = modify_listener


def v2_targets():
    """Registering takes all targets or none, and only instances that exist; deregistering a stranger is no error."""

    @around(elbv2.FakeTargetGroup, "register")
    def register(original, self, targets):
        for target in targets:
            if self.target_type != "instance":
                continue
            instance = self.ec2_backend.get_instance_by_id(target["Id"])
            if instance is None:
                raise InvalidTargetError()
            if instance.state != "running":
                raise TargetNotRunning(instance_id=target["Id"])
        original(self, targets)

    def deregister(self, targets):
        for target in targets:
            gone = self.targets.pop(target["Id"], None)
            if gone is not None:
                self.deregistered_targets[target["Id"]] = gone

    elbv2.FakeTargetGroup.deregister = deregister
