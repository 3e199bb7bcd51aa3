//! AWS's error codes, and what each means: the one table for pacing, errors and idempotence.

/// What a code means to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Fewer calls are wanted.
    Throttle,
    /// The server failed; a write may have taken place.
    Server,
    /// The keys are not taken.
    Keys,
    /// The signature is not taken, mostly because of the clock.
    Clock,
    /// The account is not ready for the service.
    Account,
    /// A permission is missing.
    Denied,
    /// Something that the request names is not there.
    NotFound,
    /// The world is not as it was when it was looked at.
    Conflict,
    /// Something else must end first.
    Passing,
    /// A limit of the account.
    Quota,
    /// The request must change.
    Invalid,
    /// AWS has no such thing here.
    Unsupported,
    /// A code that has no meaning of its own here.
    Other,
}

/// The meaning of a code.
pub(crate) fn meaning(code: &str) -> Meaning {
    TABLE.iter().find(|(_, codes)| codes.contains(&code)).map_or_else(|| by_shape(code), |(meaning, _)| *meaning)
}

/// EC2 has hundreds of codes of one shape: `InvalidVpcID.NotFound`. That a code begins with `Invalid` says nothing by itself:
/// much of that passes without a change of the request.
fn by_shape(code: &str) -> Meaning {
    if code.starts_with("Invalid") && code.ends_with(".NotFound") {
        Meaning::NotFound
    } else if code.starts_with("Invalid") && code.ends_with(".Duplicate") {
        Meaning::Conflict
    } else if code.ends_with("LimitExceeded") {
        Meaning::Quota
    } else if code.ends_with(".Malformed") {
        Meaning::Invalid
    } else {
        Meaning::Other
    }
}

#[rustfmt::skip]
const TABLE: &[(Meaning, &[&str])] = &[
    (Meaning::Throttle, &[
        "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
        "RequestLimitExceeded", "TooManyRequestsException", "TooManyRequests", "SlowDown", "EC2ThrottledException",
        "BandwidthLimitExceeded", "PriorRequestNotComplete", "ProvisionedThroughputExceededException",
        "TransactionInProgressException", "DependencyThrottle",
    ]),
    (Meaning::Server, &[
        "InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "ServiceUnavailableException",
        "Unavailable", "RequestTimeout", "RequestTimeoutException",
    ]),
    (Meaning::Keys, &[
        "AuthFailure", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidAccessKeyId",
        "UnrecognizedClientException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "InvalidSecurityToken", "InvalidToken", "MissingSecurityHeader",
    ]),
    (Meaning::Clock, &[
        "RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", "SignatureDoesNotMatch",
        "InvalidSignatureException", "IncompleteSignature",
    ]),
    (Meaning::Account, &["OptInRequired", "PendingVerification", "Blocked", "SubscriptionRequiredException"]),
    (Meaning::Denied, &[
        "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedAccess", "NotAuthorized",
    ]),
    (Meaning::NotFound, &[
        "LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "ListenerNotFound", "PolicyNotFound",
        "LoadBalancerAttributeNotFound", "InvalidInstance", "SubnetNotFound", "RuleNotFound",
    ]),
    (Meaning::Conflict, &[
        "DuplicateLoadBalancerName", "DuplicateTargetGroupName", "DuplicateListener", "DuplicatePolicyName",
        "DuplicateTagKeys", "RouteAlreadyExists", "IncorrectState", "IncorrectInstanceState",
        "TargetGroupAssociationLimit",
    ]),
    (Meaning::Passing, &[
        "DependencyViolation", "ResourceInUse", "OperationInProgress", "InvalidTarget",
        "HealthUnavailable", "ConcurrentTagAccess", "InvalidGroup.InUse",
        // What the request names may appear later.
        "CertificateNotFound", "AllocationIdNotFound",
    ]),
    (Meaning::Quota, &[
        "TooManyLoadBalancers", "TooManyTargetGroups", "TooManyListeners", "TooManyTargets", "TooManyCertificates",
        "TooManyRegistrationsForTargetId", "TooManyUniqueTargetGroupsPerLoadBalancer", "TooManyPolicies", "TooManyTags",
        "TooManyActions", "RulesPerSecurityGroupLimitExceeded", "SecurityGroupsPerInterfaceLimitExceeded",
        "InsufficientFreeAddressesInSubnet", "ResourceCountLimitExceeded", "TagLimitExceeded",
    ]),
    (Meaning::Invalid, &[
        "ValidationError", "ValidationException", "MissingParameter", "UnknownParameter", "MalformedQueryString",
        "InvalidConfigurationRequest", "InvalidScheme", "InvalidParameterCombination",
        "UnsupportedCertificate", "UnsupportedProtocol", "SSLPolicyNotFound",
        "PolicyTypeNotFound", "IncompatibleProtocols", "AvailabilityZoneNotSupported",
        "VPCIdNotSpecified", "ResourceAlreadyAssociated", "FilterLimitExceeded", "NoSuchVersion",
        "OperationNotPermitted",
    ]),
    (Meaning::Unsupported, &["UnsupportedOperation", "Unsupported", "UnsupportedFeature", "InvalidAction"]),
];
