//! Names of the provider's calls in upstream's Go interface.

/// Defines the calls, with their names.
macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $name:literal)*) => {
        /// A call that is logged and that faults can apply to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Method {
            $($(#[$doc])* $method,)*
        }

        impl Method {
            /// All calls, with their names.
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$method, $name)),*];
        }
    };
}

methods! {
    Initialize "Initialize"
    SetInformers "SetInformers"
    /// The batch form of the three calls of `InstancesV2`.
    Lookup "Lookup"
    InstanceExists "InstanceExists"
    InstanceShutdown "InstanceShutdown"
    InstanceMetadata "InstanceMetadata"
    InstanceId "InstanceID"
    NodeAddresses "NodeAddresses"
    NodeAddressesByProviderId "NodeAddressesByProviderID"
    InstanceType "InstanceType"
    InstanceTypeByProviderId "InstanceTypeByProviderID"
    InstanceExistsByProviderId "InstanceExistsByProviderID"
    InstanceShutdownByProviderId "InstanceShutdownByProviderID"
    GetZone "GetZone"
    GetZoneByProviderId "GetZoneByProviderID"
    GetZoneByNodeName "GetZoneByNodeName"
    GetLoadBalancer "GetLoadBalancer"
    EnsureLoadBalancer "EnsureLoadBalancer"
    UpdateLoadBalancer "UpdateLoadBalancer"
    EnsureLoadBalancerDeleted "EnsureLoadBalancerDeleted"
    ListRoutes "ListRoutes"
    CreateRoute "CreateRoute"
    DeleteRoute "DeleteRoute"
    ListClusters "ListClusters"
    Master "Master"
    GetLabelsForVolume "GetLabelsForVolume"
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(method, _)| *method == self).map_or("", |(_, name)| *name)
    }
}
