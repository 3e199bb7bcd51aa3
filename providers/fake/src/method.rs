//! Names of the provider's calls in upstream's Go interface.

/// A call that is logged and that faults can apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Initialize,
    SetInformers,
    /// The batch form of the three calls of `InstancesV2`.
    Lookup,
    InstanceExists,
    InstanceShutdown,
    InstanceMetadata,
    InstanceId,
    NodeAddresses,
    NodeAddressesByProviderId,
    InstanceType,
    InstanceTypeByProviderId,
    InstanceExistsByProviderId,
    InstanceShutdownByProviderId,
    GetZone,
    GetZoneByProviderId,
    GetZoneByNodeName,
    GetLoadBalancer,
    EnsureLoadBalancer,
    UpdateLoadBalancer,
    EnsureLoadBalancerDeleted,
    ListRoutes,
    CreateRoute,
    DeleteRoute,
    ListClusters,
    Master,
    GetLabelsForVolume,
}

impl Method {
    /// All calls, with their names.
    pub(crate) const ALL: [(Self, &'static str); 26] = [
        (Self::Initialize, "Initialize"),
        (Self::SetInformers, "SetInformers"),
        (Self::Lookup, "Lookup"),
        (Self::InstanceExists, "InstanceExists"),
        (Self::InstanceShutdown, "InstanceShutdown"),
        (Self::InstanceMetadata, "InstanceMetadata"),
        (Self::InstanceId, "InstanceID"),
        (Self::NodeAddresses, "NodeAddresses"),
        (Self::NodeAddressesByProviderId, "NodeAddressesByProviderID"),
        (Self::InstanceType, "InstanceType"),
        (Self::InstanceTypeByProviderId, "InstanceTypeByProviderID"),
        (Self::InstanceExistsByProviderId, "InstanceExistsByProviderID"),
        (Self::InstanceShutdownByProviderId, "InstanceShutdownByProviderID"),
        (Self::GetZone, "GetZone"),
        (Self::GetZoneByProviderId, "GetZoneByProviderID"),
        (Self::GetZoneByNodeName, "GetZoneByNodeName"),
        (Self::GetLoadBalancer, "GetLoadBalancer"),
        (Self::EnsureLoadBalancer, "EnsureLoadBalancer"),
        (Self::UpdateLoadBalancer, "UpdateLoadBalancer"),
        (Self::EnsureLoadBalancerDeleted, "EnsureLoadBalancerDeleted"),
        (Self::ListRoutes, "ListRoutes"),
        (Self::CreateRoute, "CreateRoute"),
        (Self::DeleteRoute, "DeleteRoute"),
        (Self::ListClusters, "ListClusters"),
        (Self::Master, "Master"),
        (Self::GetLabelsForVolume, "GetLabelsForVolume"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(method, _)| *method == self).map_or("", |(_, name)| *name)
    }
}
