"""The network driver of the Octavia worker: it plugs nothing, as the no-op driver, but deletes the VIP port together with its
load balancer, as the real one does. A creation fails, which puts the load balancer into ERROR, if its name contains a line of
the file $CCM_BED_FAIL/<project ID>."""
import os
import pathlib

from octavia.network.drivers.neutron import allowed_address_pairs
from octavia.network.drivers.noop_driver import driver


class Driver(driver.NoopNetworkDriver):
    real = None

    def allocate_vip(self, loadbalancer):
        try:
            lines = (pathlib.Path(os.environ['CCM_BED_FAIL']) / loadbalancer.project_id).read_text().splitlines()
        except (FileNotFoundError, KeyError):
            lines = []
        if any(line and line in loadbalancer.name for line in lines):
            raise RuntimeError('a failure that a test asked for')
        return super().allocate_vip(loadbalancer)

    def deallocate_vip(self, vip):
        # Not in the constructor: it logs in to Keystone.
        if Driver.real is None:
            Driver.real = allowed_address_pairs.AllowedAddressPairsDriver()
        Driver.real.deallocate_vip(vip)
        return super().deallocate_vip(vip)
