"""What an administrator sets up once: catalog.py users|all

`users` needs Keystone alone: roles, users of the services, and the catalog. `all` waits until every service answers, and then
makes an image `image`, a flavor `small`, the availability zone `zone-1`, and the external network `public`. Both can be
repeated.
"""
import sys
import time

import openstack

ENDPOINTS = {'network': ('neutron', '19696'), 'load-balancer': ('octavia', '19876'), 'compute': ('nova', '18774/v2.1'),
             'placement': ('placement', '18778'), 'image': ('glance', '19292')}


def connect():
    return openstack.connect(auth_url='http://127.0.0.1:15000/v3', username='admin', password='bed', project_name='admin',
                             user_domain_id='default', project_domain_id='default', region_name='RegionOne')


def users(identity):
    project = identity.find_project('service') or identity.create_project(name='service', domain_id='default')
    for role in ('service', 'member', 'reader', 'load-balancer_member'):
        identity.find_role(role) or identity.create_role(name=role)
    present = {service.type for service in identity.services()}
    for kind, (name, address) in ENDPOINTS.items():
        user = identity.find_user(name) or identity.create_user(name=name, password='bed', domain_id='default')
        for role in ('admin', 'service'):
            identity.assign_project_role_to_user(project, user, identity.find_role(role))
        if kind not in present:
            service = identity.create_service(name=name, type=kind)
            for interface in ('public', 'internal', 'admin'):
                identity.create_endpoint(service_id=service.id, interface=interface, url=f'http://127.0.0.1:{address}',
                                         region_id='RegionOne')


def wait(cloud):
    """Until each service answers and a server could be scheduled, for some minutes."""
    last = None
    for _ in range(360):
        try:
            for answer in (cloud.image.images(), cloud.network.networks(), cloud.load_balancer.load_balancers()):
                list(answer)
            if any(s.binary == 'nova-compute' and s.state == 'up' for s in cloud.compute.services()) and \
                    list(cloud.compute.hypervisors()) and list(cloud.placement.resource_providers()):
                return
            last = 'nova-compute is not up'
        except Exception as error:  # whatever a service says before it is ready
            last = error
        time.sleep(0.5)
    raise SystemExit(f'the services do not answer: {last}')


def objects(cloud):
    if not cloud.image.find_image('image'):
        cloud.create_image('image', disk_format='raw', container_format='bare', visibility='public', data=b'\0' * 1024,
                           wait=False)
    if not cloud.compute.find_flavor('small'):
        cloud.compute.create_flavor(name='small', ram=512, vcpus=1, disk=1, id='1')
    # The zone of a server is fixed when it boots, so the zone comes first.
    zone = cloud.compute.find_aggregate('zone-1') or \
        cloud.compute.create_aggregate(name='zone-1', availability_zone='zone-1')
    if 'bed' not in (zone.hosts or []):
        cloud.compute.add_host_to_aggregate(zone, 'bed')
    network = cloud.network.find_network('public') or cloud.network.create_network(
        name='public', is_router_external=True, provider_network_type='flat', provider_physical_network='public')
    cloud.network.find_subnet('public') or cloud.network.create_subnet(
        name='public', network_id=network.id, cidr='172.24.4.0/24', ip_version=4, is_dhcp_enabled=False)


cloud = connect()
if sys.argv[1] == 'users':
    users(cloud.identity)
else:
    wait(cloud)
    objects(cloud)
