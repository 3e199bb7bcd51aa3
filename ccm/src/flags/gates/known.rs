//! Names of Kubernetes feature gates that have no effect on this program.
//!
//! The Go programs link the generic API server and therefore accept its gates; old manifests may contain removed gates.
//! Taken from `k8s.io/{apiserver,component-base,controller-manager,kubernetes}` of 1.20 to 1.38.

/// In alphabetical order.
const KNOWN: &str = "\
    APIListChunking APIPriorityAndFairness APIResponseCompression APIServerIdentity APIServerTracing \
    APIServerWebhookAuthenticationToken APIServingWithRoutine AdmissionWebhookMatchConditions AdvancedAuditing \
    AggregatedDiscoveryEndpoint AggregatedDiscoveryRemoveBetaType AllocatorPoolBufferCap AllowDNSOnlyNodeCSR \
    AllowInsecureKubeletCertificateSigningRequests AllowOverwriteTerminationGracePeriodSeconds \
    AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs AllowUnsafeMalformedObjectDeletion \
    AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors \
    AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors BtreeWatchCache CBORServingAndStorage \
    CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CPUManagerPolicyOptions CRIListStreaming \
    CSIServiceAccountTokenSecrets CSIVolumeHealth ChangeContainerStatusOnKubeletRestart \
    ClearingNominatedNodeNameAfterBinding CloudDualStackNodeIPs ClusterTrustBundle ClusterTrustBundleProjection \
    ComponentFlagz ComponentSLIs ComponentStatusz ConcurrentWatchObjectDecode ConditionalAuthorization \
    ConsistentGetFromCache ConsistentListFromCache ConsistentListFromCacheSkipTimeoutFallback \
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals \
    ControllerManagerLeaderMigration CoordinatedLeaderElection CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod \
    CustomResourceValidationExpressions DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions \
    DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAListTypeAttributes DRANodeAllocatableResources \
    DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus \
    DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRASchedulerFilterTimeout \
    DRAWorkloadResourceClaims DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover \
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite \
    DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion DryRun DynamicResourceAllocation \
    EfficientWatchResumption EnvFiles EtcdRangeStream EventedPLEG ExcludeAdmissionWebhookVirtualResources \
    ExecProbeTimeout ExtendWebSocketsToKubelet ExternalServiceAccountTokenSigner FeatureD GangScheduling \
    GenericWorkload GitRepoVolumeDriver GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority \
    HPAConfigurableTolerance HPAScaleToZero HostnameOverride IPv6DualStack ImageMaximumGCAge ImageVolume \
    ImageVolumeWithDigest InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling \
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory \
    InPlacePodVerticalScalingInitContainers JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy \
    JobSuccessPolicy KMSv1 KMSv2 KMSv2KDF KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax \
    KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz KubeletInUserNamespace KubeletPSI \
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPodResourcesListUseActivePods \
    KubeletRegistrationGetOnExistsOnly KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders \
    KubeletTracing LegacyNodeRoleBehavior ListFromCacheSnapshot LocalStorageCapacityIsolationFSQuotaMonitoring \
    LogarithmicScaleDown LoggingStableOptions ManagedFieldsOptOut ManifestBasedAdmissionControlConfig \
    MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge \
    MaxUnavailableStatefulSet MemoryQoS MultiCIDRServiceAllocator MutableCSINodeAllocatableCount \
    MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs \
    MutatingAdmissionPolicy NFTablesProxyMode NativeHistograms NodeDeclaredFeatures \
    NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap NominatedNodeNameForExpectation OpenAPIEnums \
    OpenAPIV2LazyBuild OpenAPIV3 OpportunisticBatching OrderedNamespaceDeletion PLEGOnDemandRelist \
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodCertificateRequest PodDeletionCost \
    PodLevelResourceManagers PodLevelResources PodLifecycleSleepAction PodLifecycleSleepActionAllowZero \
    PodLogsQuerySplitStreams PodObservedGenerationTracking PodReadyToStartContainersCondition PodSchedulingReadiness \
    PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets PreferSameTrafficDistribution \
    PreventStaticPodAPIReferences ProcMountType QOSReserved RecoverVolumeExpansionFailure RecursiveReadOnlyMounts \
    ReduceDefaultCrashLoopBackOffDecay RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation \
    RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemainingItemCount \
    RemoteRequestHeaderUID RemoveSelfLink RequestCostAggregation ResilientWatchCacheInitialization \
    ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits RetryGenerateName \
    RotateKubeletServerCertificate RuntimeClassInImageCriApi SELinuxChangePolicy SELinuxMount \
    SELinuxMountReadWriteOncePod SchedulerAsyncAPICalls SchedulerAsyncPreemption SchedulerPopFromBackoffQ \
    SchedulerQueueingHints SelectorIndex SeparateCacheWatchRPC SeparateTaintEvictionController ServerSideApply \
    ServerSideFieldValidation ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI \
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo \
    ServiceCIDRStatusFieldWiping ServiceNodeExclusion ShardedListAndWatch SidecarContainers SizeBasedListCostEstimate \
    StableLoadBalancerNodeSet StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob \
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison \
    StorageCapacityScoring StorageNamespaceIndex StorageVersionAPI StorageVersionHash StorageVersionMigrator \
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StreamingProxyRedirects \
    StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks StrictIPCIDRValidation \
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector \
    StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthorizationConfiguration SupplementalGroupsPolicy \
    TaintTolerationComparisonOperators TokenRequestServiceAccountUIDValidation TopologyAwareWorkloadScheduling \
    TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions \
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy \
    UserNamespacesHostNetworkSupport UserNamespacesSupport ValidateProxyRedirects ValidatingAdmissionPolicy \
    VolumeAttributesClass VolumeLimitScaling WarningHeaders WatchBookmark WatchCacheInitializationPostStartHook \
    WatchFromStorageWithoutPrevKV WatchFromStorageWithoutResourceVersion WatchList WatchListCompression \
    WebhookRoundTripLoadBalancing WinDSR WinOverlay WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown \
    WindowsHostNetwork WorkloadAwarePreemption WorkloadWithJob ZeroLimitedNominalConcurrencyShares";

pub(super) fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.split(' ')
}
