"""Nova's fake driver, whose node keeps its ID when nova-compute starts again: Placement knows the node by it. Here, because
Nova loads drivers from its own package only."""
from nova.virt import fake
from nova.virt import node


class Driver(fake.FakeDriver):
    def get_nodenames_by_uuid(self, refresh=False):
        return {node.read_local_node_uuid(): name for name in self.get_available_nodes()}

    def get_available_resource(self, nodename):
        return {**super().get_available_resource(nodename), 'uuid': node.read_local_node_uuid()}
