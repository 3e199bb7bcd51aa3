//! AWS's error codes: their meanings and remediations.

use ccm_kit::call::Meaning;

pub(super) fn meaning(code: &str) -> Meaning {
    TABLE.iter().find(|(_, codes)| codes.contains(&code)).map_or_else(|| by_shape(code), |(meaning, _)| *meaning)
}

/// EC2 has hundreds of codes of one shape: `InvalidVpcID.NotFound`. The prefix `Invalid` alone means nothing: many of
/// these errors disappear without a change of the request.
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
    (Meaning::Credentials, &[
        "AuthFailure", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidAccessKeyId",
        "UnrecognizedClientException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "InvalidSecurityToken", "InvalidToken", "MissingSecurityHeader",
    ]),
    (Meaning::Credentials, SIGNATURE),
    (Meaning::Credentials, ACCOUNT),
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
    ]),
    (Meaning::Quota, &[
        "TooManyLoadBalancers", "TooManyTargetGroups", "TooManyListeners", "TooManyTargets", "TooManyCertificates",
        "TooManyRegistrationsForTargetId", "TooManyUniqueTargetGroupsPerLoadBalancer", "TooManyPolicies", "TooManyTags",
        "TooManyActions", "RulesPerSecurityGroupLimitExceeded", "SecurityGroupsPerInterfaceLimitExceeded",
        "InsufficientFreeAddressesInSubnet", "ResourceCountLimitExceeded", "TagLimitExceeded",
    ]),
    (Meaning::Invalid, &[
        "ValidationError", "ValidationException", "InvalidParameterValue", "MissingParameter", "UnknownParameter", "MalformedQueryString",
        "InvalidConfigurationRequest", "InvalidScheme", "InvalidParameterCombination",
        "UnsupportedCertificate", "UnsupportedProtocol", "SSLPolicyNotFound",
        "PolicyTypeNotFound", "IncompatibleProtocols", "AvailabilityZoneNotSupported",
        "VPCIdNotSpecified", "ResourceAlreadyAssociated", "FilterLimitExceeded", "NoSuchVersion",
        "OperationNotPermitted",
        // The named object may appear, or get free addresses, later.
        "CertificateNotFound", "AllocationIdNotFound", "InvalidSubnet", "InvalidSecurityGroup",
    ]),
    (Meaning::Unsupported, &["UnsupportedOperation", "Unsupported", "UnsupportedFeature", "InvalidAction"]),
];

/// The signature is refused, mostly because of a wrong clock.
#[rustfmt::skip]
const SIGNATURE: &[&str] = &[
    "RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", "SignatureDoesNotMatch", "InvalidSignatureException",
    "IncompleteSignature",
];

/// The account is not ready for the service.
const ACCOUNT: &[&str] = &["OptInRequired", "PendingVerification", "Blocked", "SubscriptionRequiredException"];

/// The remediation, in AWS's terms.
pub(super) fn remediation(meaning: Meaning, code: &str) -> Option<&'static str> {
    Some(match meaning {
        Meaning::Throttle => "other programs share the limits of this account and region",
        Meaning::Credentials if SIGNATURE.contains(&code) => {
            "AWS doesn't take the signature: check the clock of this host, then the keys"
        }
        Meaning::Credentials if ACCOUNT.contains(&code) => {
            "the AWS account is not ready for this service: look into its console"
        }
        Meaning::Credentials => "AWS doesn't take the credentials: renew them, or check the role that they come from",
        Meaning::Denied => {
            "add it to the policy of its role (manifests/aws/iam) and see that no boundary or service control policy denies it"
        }
        Meaning::Quota => "a quota of the account is exhausted: ask AWS for more or remove what is not needed",
        _ => return annotation(code),
    })
}

/// The annotations that can cause a code: AWS repeats the value but does not know the key.
fn annotation(code: &str) -> Option<&'static str> {
    Some(match code {
        "CertificateNotFound" | "UnsupportedCertificate" => {
            "correct service.beta.kubernetes.io/aws-load-balancer-ssl-cert"
        }
        "SSLPolicyNotFound" => "correct service.beta.kubernetes.io/aws-load-balancer-ssl-negotiation-policy",
        "InvalidSecurityGroup" => {
            "correct service.beta.kubernetes.io/aws-load-balancer-security-groups or \
             service.beta.kubernetes.io/aws-load-balancer-extra-security-groups"
        }
        "AllocationIdNotFound" | "InvalidAllocationID.NotFound" => {
            "correct service.beta.kubernetes.io/aws-load-balancer-eip-allocations"
        }
        _ => return None,
    })
}

/// The action that a refusal names: for example, the creation of a load balancer may lack
/// `iam:CreateServiceLinkedRole`.
pub(super) fn lacking(message: &str) -> Option<String> {
    let (_, named) = message.split_once("not authorized to perform: ")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-');
    let action = named.split(|c| !is_name(c)).next().unwrap_or_default();
    action.contains(':').then(|| action.to_owned())
}

/// A message of AWS without the encoded authorization message, which differs each time, and without the canonical
/// request of a signature error, which contains the session token.
pub(super) fn redact(mut message: &str) -> &str {
    for start in ["Encoded authorization failure message", "The Canonical String", "The String-to-Sign"] {
        if let Some((before, _)) = message.split_once(start) {
            message = before.trim_end();
        }
    }
    message
}

#[cfg(test)]
mod tests;
