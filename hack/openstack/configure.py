"""Writes the configuration of the services: configure.py BED

Every service listens on 127.0.0.1. The ports are those of bed.sh. The passwords protect nothing: each user of the machine
can reach the services.
"""
import configparser
import pathlib
import sys

BED = pathlib.Path(sys.argv[1])
RUN = BED / 'run'
DATA = BED / 'data'
KEYSTONE = 'http://127.0.0.1:15000/v3'
RABBIT = 'rabbit://guest:guest@127.0.0.1:15673/'


def database(name):
    return {'connection': f'mysql+pymysql://bed:bed@127.0.0.1:13306/{name}'}


def login(user, **more):
    """How one service logs in to the others."""
    return {'auth_type': 'password', 'auth_url': KEYSTONE, 'www_authenticate_uri': KEYSTONE, 'username': user, 'password': 'bed',
            'project_name': 'service', 'project_domain_id': 'default', 'user_domain_id': 'default', 'region_name': 'RegionOne',
            **more}


SILENT = {'oslo_messaging_notifications': {'driver': 'noop'}}


def keystone():
    return {
        'DEFAULT': {'use_stderr': True},
        # With the cache, a thread can miss a role that another one has just granted.
        'cache': {'enabled': False},
        'database': database('keystone'),
        'token': {'provider': 'fernet'},
        'fernet_tokens': {'key_repository': DATA / 'keys/tokens'},
        # Without it, Keystone writes to /etc/keystone.
        'fernet_receipts': {'key_repository': DATA / 'keys/tokens'},
        'credential': {'key_repository': DATA / 'keys/credentials'},
        **SILENT,
    }


def neutron():
    return {
        'DEFAULT': {
            'core_plugin': 'ml2', 'service_plugins': 'router,trunk,qos,port_forwarding', 'transport_url': RABBIT,
            'api_paste_config': BED / 'venv/etc/neutron/api-paste.ini', 'auth_strategy': 'keystone', 'state_path': RUN,
            'notify_nova_on_port_status_changes': False, 'notify_nova_on_port_data_changes': False,
            'dhcp_agent_notification': False, 'rpc_workers': 0, 'api_workers': 1, 'use_stderr': True,
        },
        'database': database('neutron'),
        'keystone_authtoken': login('neutron'),
        'oslo_concurrency': {'lock_path': RUN},
        'quotas': dict.fromkeys(('quota_network', 'quota_subnet', 'quota_port', 'quota_router', 'quota_floatingip',
                                 'quota_security_group', 'quota_security_group_rule'), -1),
        **SILENT,
    }


def ml2():
    return {
        # openvswitch binds nothing here; the trunk plugin does not load without it.
        'ml2': {'type_drivers': 'flat,vlan,local', 'tenant_network_types': 'local', 'mechanism_drivers': 'ccm_bed,openvswitch',
                'extension_drivers': 'port_security,qos'},
        'ml2_type_flat': {'flat_networks': 'public'},
        'securitygroup': {'enable_security_group': True, 'firewall_driver': 'noop'},
    }


def octavia(network_driver):
    certificates = DATA / 'certificates'
    return {
        'DEFAULT': {'transport_url': RABBIT, 'use_stderr': True},
        'api_settings': {'bind_host': '127.0.0.1', 'bind_port': 19876, 'allow_tls_terminated_listeners': True,
                         'default_provider_driver': 'amphora',
                         'enabled_provider_drivers': 'amphora: amphora, octavia: the former name of amphora'},
        'database': database('octavia'),
        'service_auth': login('octavia'),
        'keystone_authtoken': login('octavia'),
        'oslo_messaging': {'topic': 'octavia_prov'},
        'controller_worker': {
            'network_driver': network_driver, 'loadbalancer_topology': 'SINGLE', 'workers': 1,
            **{f'{kind}_driver': f'{kind}_noop_driver' for kind in ('amphora', 'compute', 'image', 'volume', 'distributor')},
            # Nothing looks at these.
            'amp_image_tag': 'amphora', 'amp_flavor_id': 1, 'amp_boot_network_list': '00000000-0000-0000-0000-000000000000',
            'client_ca': certificates / 'ca.pem',
        },
        'certificates': {'cert_manager': 'local_cert_manager', 'cert_generator': 'local_cert_generator',
                         'ca_certificate': certificates / 'ca.pem', 'ca_private_key': certificates / 'ca.key',
                         'server_certs_key_passphrase': 'insecure-key-do-not-use-this-key'},
        'driver_agent': {f'{name}_socket_path': RUN / f'{name}.sock' for name in ('status', 'stats', 'get')},
        'neutron': {'region_name': 'RegionOne', 'valid_interfaces': 'public'},
        **SILENT,
    }


def glance():
    return {
        'DEFAULT': {'enabled_backends': 'files:file', 'transport_url': RABBIT},
        'database': database('glance'),
        'keystone_authtoken': login('glance'),
        'paste_deploy': {'flavor': 'keystone', 'config_file': BED / 'venv/etc/glance/glance-api-paste.ini'},
        'glance_store': {'default_backend': 'files'},
        'files': {'filesystem_store_datadir': DATA / 'images'},
        **SILENT,
    }


def placement():
    return {'placement_database': database('placement'), 'api': {'auth_strategy': 'keystone'},
            'keystone_authtoken': login('placement')}


def nova_compute():
    return {
        'DEFAULT': {
            # The one fake driver whose node keeps its ID, which is in state_path, when nova-compute starts again.
            'transport_url': RABBIT, 'compute_driver': 'fake.FakeDriverWithoutFakeNodes', 'host': 'bed', 'my_ip': '127.0.0.1',
            'state_path': DATA / 'nova',
            'instances_path': RUN / 'instances', 'osapi_compute_workers': 1, 'vif_plugging_is_fatal': False,
            'vif_plugging_timeout': 0, 'use_stderr': True,
        },
        'api': {'auth_strategy': 'keystone'},
        'wsgi': {'api_paste_config': BED / 'venv/etc/nova/api-paste.ini'},
        'keystone_authtoken': login('nova'),
        'service_user': login('nova', send_service_user_token=True),
        'neutron': login('neutron'),
        'placement': login('placement'),
        'glance': {'region_name': 'RegionOne'},
        'oslo_concurrency': {'lock_path': RUN},
        'vnc': {'enabled': False},
        **SILENT,
    }


def nova():
    return {
        **nova_compute(),
        'api_database': database('nova_api'),
        'database': database('nova'),
        'scheduler': {'workers': 1, 'discover_hosts_in_cells_interval': 5},
        'conductor': {'workers': 1},
        'filter_scheduler': {'track_instance_changes': False},
        'quota': {'instances': -1, 'cores': -1, 'ram': -1},
    }


FILES = {
    'keystone/keystone.conf': keystone(),
    'neutron/neutron.conf': neutron(),
    'neutron/ml2_conf.ini': ml2(),
    # The API makes real VIP ports, so that floating IPs can be associated with them.
    'octavia/octavia.conf': octavia('allowed_address_pairs_driver'),
    'octavia/octavia-worker.conf': octavia('ccm_bed'),
    'glance/glance-api.conf': glance(),
    'placement/placement.conf': placement(),
    'nova/nova.conf': nova(),
    # nova-compute refuses to know the databases.
    'nova/nova-compute.conf': nova_compute(),
}

for name, sections in FILES.items():
    parser = configparser.RawConfigParser()
    for section, values in sections.items():
        if section != 'DEFAULT':
            parser.add_section(section)
        for key, value in values.items():
            parser.set(section, key, str(value))
    path = BED / 'etc' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w') as file:
        parser.write(file)

# Nova wants it beside nova.conf, whatever api_paste_config says.
(BED / 'etc/nova/api-paste.ini').write_bytes((BED / 'venv/etc/nova/api-paste.ini').read_bytes())
(BED / 'etc/rabbitmq.conf').write_text('listeners.tcp.1 = 127.0.0.1:15673\n')
(BED / 'etc/openrc').write_text(
    f'export OS_AUTH_URL={KEYSTONE} OS_USERNAME=admin OS_PASSWORD=bed OS_PROJECT_NAME=admin OS_USER_DOMAIN_ID=default\n'
    'export OS_PROJECT_DOMAIN_ID=default OS_REGION_NAME=RegionOne OS_IDENTITY_API_VERSION=3\n'
    f'export PATH={BED}/venv/bin:$PATH\n')
