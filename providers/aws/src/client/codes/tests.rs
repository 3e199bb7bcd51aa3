use ccm_kit::call::{ErrorKind, Failure};
use ccm_provider::{ErrorClass, ProviderError};

use crate::client::ApiError;
use crate::client::operation::{Operation, Service};

const DESCRIBE: Operation = Operation::new(Service::Ec2, "DescribeInstances");
const TAGS: Operation = Operation::new(Service::Ec2, "CreateTags");
const BALANCERS: Operation = Operation::new(Service::ElbV2, "DescribeLoadBalancers");
const REGISTER: Operation = Operation::new(Service::ElbV2, "RegisterTargets");

fn class(error: ApiError) -> &'static str {
    ProviderError::from(error).class().as_str()
}

fn answer(operation: Operation, status: u16, code: &str, message: &str) -> ApiError {
    let failure =
        Failure { status: Some(status), code: code.to_owned(), message: message.to_owned(), ..Failure::default() };
    ApiError::new(operation, failure)
}

fn text(error: ApiError) -> String {
    ProviderError::from(error).to_string()
}

#[test]
fn each_code_has_its_class() {
    for (operation, status, code, wanted) in [
        (DESCRIBE, 400, "InvalidInstanceID.NotFound", "not-found"),
        (DESCRIBE, 400, "InvalidInstanceID.Malformed", "invalid"),
        (DESCRIBE, 400, "InvalidID", "unknown"),
        (DESCRIBE, 400, "InvalidGroup.NotFound", "not-found"),
        (DESCRIBE, 400, "InvalidVolume.NotFound", "not-found"),
        (DESCRIBE, 400, "InvalidSubnetID.NotFound", "not-found"),
        (DESCRIBE, 400, "InvalidParameterValue", "invalid"),
        (REGISTER, 400, "InvalidSubnet", "invalid"),
        (REGISTER, 400, "InvalidSecurityGroup", "invalid"),
        (DESCRIBE, 400, "FilterLimitExceeded", "invalid"),
        (DESCRIBE, 503, "RequestLimitExceeded", "throttled"),
        (DESCRIBE, 400, "RequestLimitExceeded", "throttled"),
        (BALANCERS, 400, "Throttling", "throttled"),
        (BALANCERS, 400, "ThrottlingException", "throttled"),
        (BALANCERS, 400, "TooManyRequestsException", "throttled"),
        (BALANCERS, 400, "RequestThrottled", "throttled"),
        (BALANCERS, 503, "SlowDown", "throttled"),
        (BALANCERS, 429, "Whatever", "throttled"),
        (BALANCERS, 400, "LoadBalancerNotFound", "not-found"),
        (BALANCERS, 400, "TargetGroupNotFound", "not-found"),
        (BALANCERS, 400, "ListenerNotFound", "not-found"),
        (BALANCERS, 400, "PolicyNotFound", "not-found"),
        (DESCRIBE, 403, "UnauthorizedOperation", "denied"),
        (BALANCERS, 403, "AccessDenied", "denied"),
        (BALANCERS, 403, "AccessDeniedException", "denied"),
        (DESCRIBE, 400, "UnsupportedOperation", "unsupported"),
        (DESCRIBE, 401, "AuthFailure", "unknown"),
        (DESCRIBE, 400, "RequestExpired", "unknown"),
        (BALANCERS, 403, "SignatureDoesNotMatch", "unknown"),
        (BALANCERS, 403, "ExpiredToken", "unknown"),
        (BALANCERS, 403, "InvalidClientTokenId", "unknown"),
        (DESCRIBE, 401, "OptInRequired", "unknown"),
        (DESCRIBE, 500, "InternalError", "transient"),
        (DESCRIBE, 503, "Unavailable", "transient"),
        (BALANCERS, 503, "ServiceUnavailable", "transient"),
        (DESCRIBE, 502, "NeverSeen", "transient"),
        (DESCRIBE, 400, "NeverSeen", "unknown"),
        // A write names several objects: the missing one need not be the caller's.
        (REGISTER, 400, "TargetGroupNotFound", "conflict"),
        (TAGS, 400, "InvalidInstanceID.NotFound", "conflict"),
        (TAGS, 400, "InvalidPermission.Duplicate", "conflict"),
        (TAGS, 400, "InvalidPermission.NotFound", "conflict"),
        (TAGS, 400, "InvalidGroup.Duplicate", "conflict"),
        (TAGS, 400, "InvalidRoute.NotFound", "conflict"),
        (TAGS, 400, "RouteAlreadyExists", "conflict"),
        (REGISTER, 400, "DuplicateTargetGroupName", "conflict"),
        (REGISTER, 400, "DuplicateListener", "conflict"),
        (REGISTER, 400, "DuplicatePolicyName", "conflict"),
        (TAGS, 400, "DependencyViolation", "transient"),
        (REGISTER, 400, "ResourceInUse", "transient"),
        (REGISTER, 400, "InvalidTarget", "transient"),
        (REGISTER, 400, "TooManyTargets", "unknown"),
        (TAGS, 400, "RulesPerSecurityGroupLimitExceeded", "unknown"),
        (TAGS, 400, "SecurityGroupLimitExceeded", "unknown"),
        (REGISTER, 400, "CertificateNotFound", "invalid"),
        (REGISTER, 400, "AllocationIdNotFound", "invalid"),
        (REGISTER, 400, "ValidationError", "invalid"),
        (REGISTER, 400, "InvalidConfigurationRequest", "invalid"),
    ] {
        assert_eq!(class(answer(operation, status, code, "text")), wanted, "{code} with HTTP {status}");
    }
}

#[test]
fn a_missing_permission_is_named_with_the_next_step() {
    let message = "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/ccm/i-1 \
                   is not authorized to perform: ec2:CreateTags. Encoded authorization failure message: 4GbX-abc_123";
    let error = ProviderError::from(answer(TAGS, 403, "UnauthorizedOperation", message));
    assert_eq!(error.class(), ErrorClass::Denied { action: "ec2:CreateTags".to_owned() });
    let text = error.to_string();
    assert!(
        text.starts_with("ccm lacks ec2:CreateTags: add it to the policy of its role (manifests/aws/iam)"),
        "{text}"
    );
    assert!(text.contains("assumed-role/ccm/i-1") && !text.contains("4GbX"), "{text}");
    // AWS names the action that is missing, which may be another one.
    let message = "User: arn:aws:sts::123456789012:assumed-role/ccm/i-1 is not authorized to perform: \
                   iam:CreateServiceLinkedRole on resource: arn:aws:iam::123456789012:role/x";
    let error = ProviderError::from(answer(REGISTER, 403, "AccessDenied", message));
    assert_eq!(error.class(), ErrorClass::Denied { action: "iam:CreateServiceLinkedRole".to_owned() });
    let action = ErrorClass::Denied { action: "elasticloadbalancing:RegisterTargets".to_owned() };
    assert_eq!(ProviderError::from(answer(REGISTER, 403, "AccessDenied", "")).class(), action);
}

#[test]
fn each_error_has_its_remediation() {
    let html = "a web page with HTTP 502 instead of an answer: a proxy or portal stands between this host and AWS";
    for (error, wanted) in [
        (answer(DESCRIBE, 400, "RequestExpired", "Request has expired."), "check the clock of this host"),
        (answer(BALANCERS, 403, "SignatureDoesNotMatch", "x"), "check the clock of this host"),
        (answer(DESCRIBE, 401, "AuthFailure", "AWS was not able to validate the keys"), "renew them"),
        (answer(BALANCERS, 403, "ExpiredToken", "The security token has expired"), "renew them"),
        (answer(DESCRIBE, 401, "OptInRequired", "x"), "look into its console"),
        (answer(REGISTER, 400, "TooManyTargets", "x"), "quota"),
        (answer(DESCRIBE, 503, "RequestLimitExceeded", "x"), "retried later"),
        (ApiError::of_kind(DESCRIBE, ErrorKind::NotSent, "connection refused"), "check the endpoint, DNS, proxy"),
        (ApiError::of_kind(DESCRIBE, ErrorKind::NoAnswer, html), "a proxy or portal"),
        (ApiError::of_kind(DESCRIBE, ErrorKind::Credentials, "no providers in chain"), "no credentials for AWS"),
        (
            answer(REGISTER, 400, "CertificateNotFound", "x"),
            "correct service.beta.kubernetes.io/aws-load-balancer-ssl-cert;",
        ),
        (answer(REGISTER, 400, "InvalidSecurityGroup", "x"), "aws-load-balancer-security-groups or"),
        (answer(TAGS, 400, "NeverSeen", "Something else"), "ec2:CreateTags; AWS says NeverSeen: Something else"),
    ] {
        let text = text(error);
        assert!(text.contains(wanted), "want {wanted:?} in {text:?}");
    }
}

#[test]
fn what_came_with_a_wrong_signature_is_not_repeated() {
    let message = "The request signature we calculated does not match.\n\nThe Canonical String for this request should have \
                   been\n'POST\n/\n\nx-amz-security-token:IQoJb3JpZ2luX2VjSECRET\n'\n\nThe String-to-Sign should have been\n'AWS4'";
    let error = ProviderError::from(answer(BALANCERS, 403, "SignatureDoesNotMatch", message));
    let ProviderError::Cloud(cloud) = &error else { panic!("{error:?}") };
    assert!(!cloud.message.contains("SECRET") && !cloud.detail.contains("SECRET"), "{cloud:?}");
    assert!(cloud.message.contains("does not match"), "{}", cloud.message);
}
