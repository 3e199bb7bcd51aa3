//! Incomplete or malformed answers, and errors.

use ccm_provider::{ErrorClass, ProviderError};

use super::*;
use crate::client::elbv2::{Target, Which};
use crate::client::write::{Ec2Write, ElbV2Write};

fn register() -> Write {
    let target = Target { id: "i-1".to_owned(), port: 31_000 };
    Write::ElbV2(ElbV2Write::RegisterTargets { target_group: "arn:tg".into(), targets: vec![target] })
}

fn create() -> Write {
    Write::Ec2(Ec2Write::CreateSecurityGroup {
        name: "k8s-elb-a1".to_owned(),
        description: "x".to_owned(),
        vpc: "vpc-1".to_owned(),
        tags: Tags::from([("kubernetes.io/cluster/c1".to_owned(), "owned".to_owned())]),
    })
}

fn text(error: ApiError) -> String {
    ProviderError::from(error).to_string()
}

#[tokio::test]
async fn a_web_page_is_no_answer_whatever_its_status() {
    for status in [200, 403, 502] {
        let stub = Running::start(move |_, _| reply(status, "<!DOCTYPE html>\n<html><body>Gateway<br></body></html>"));
        let error = stub.api().instances(&Query::all()).await.unwrap_err();
        assert_eq!((error.kind, stub.forms().len()), (ErrorKind::NoAnswer, 3), "{status}: {error}");
        let text = text(error);
        assert!(text.contains(&format!("web page with HTTP {status}")) && text.contains("proxy"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let whole = "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item>\
                 </instancesSet></item><item><instancesSet><item><instanceId>i-2</instanceId></item></instancesSet></item>\
                 </reservationSet></DescribeInstancesResponse>";
    let cuts: Vec<usize> = (1..whole.len()).collect();
    for cut in cuts.iter().copied().filter(|cut| cut % 7 == 0 || whole.as_bytes()[cut - 1] == b'>') {
        // With the original length, and with the actual one, as a proxy passes it on.
        for honest in [false, true] {
            let stub =
                Running::start(
                    move |_, _| {
                        if honest { reply(200, &whole[..cut]) } else { Wire::Cut(response(200, whole), cut) }
                    },
                );
            let api = counted(&clients(&stub.server.url()), &Registry::new(), Caller::once);
            let error = api.instances(&Query::all()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NoAnswer, "after {cut} bytes: {error}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_repeated_only_where_that_is_safe() {
    let stub = Running::start(|nth, _| if nth == 0 { Wire::Reset } else { elb_answer("RegisterTargets", "") });
    assert_eq!(stub.api().write(&register()).await.unwrap(), None);
    assert_eq!(stub.forms().len(), 2);

    let stub = Running::start(|_, _| Wire::Reset);
    let error = stub.api().write(&create()).await.unwrap_err();
    assert_eq!((error.kind, stub.forms().len()), (ErrorKind::NoAnswer, 1), "{error}");
    assert!(matches!(ProviderError::from(error).class(), ErrorClass::Transient { .. }));
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let url = Running::start(|_, _| Wire::Reset).server.url();
    let error = api(&url).write(&create()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotSent, "{error}");
    let text = text(error);
    assert!(text.contains("no connection to AWS") && text.contains("check the endpoint"), "{text}");
}

#[tokio::test]
async fn both_shapes_of_refusals_are_read() {
    let stub = Running::start(|_, form| {
        if form.contains("DescribeInstances") {
            ec2_error(400, "InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist")
        } else {
            elb_error(400, "LoadBalancerNotFound", "One or more load balancers not found")
        }
    });
    let error = stub.api().instances(&Query::ids(["i-1"])).await.unwrap_err();
    assert_eq!(
        (&*error.code, error.request_id.as_deref(), error.status),
        ("InvalidInstanceID.NotFound", Some("6a0e-ec2"), Some(400))
    );
    assert_eq!(error.message, "The instance ID 'i-1' does not exist");
    let names = ["a1".to_owned()];
    for error in [
        stub.api().classic_balancers(&names).await.unwrap_err(),
        stub.api().balancers(&Which::Names(names.to_vec())).await.unwrap_err(),
    ] {
        assert_eq!((&*error.code, error.request_id.as_deref()), ("LoadBalancerNotFound", Some("6a0e-elb")));
        assert_eq!(ProviderError::from(error).class(), ErrorClass::NotFound);
    }
    assert_eq!(stub.forms().len(), 3, "a refusal is final");
}

#[tokio::test]
async fn expired_credentials_and_missing_permissions_say_what_to_do() {
    let stub = Running::start(|nth, _| match nth {
        0 => ec2_error(400, "RequestExpired", "Request has expired."),
        1 => elb_error(403, "ExpiredToken", "The security token included in the request is expired"),
        _ => ec2_error(
            403,
            "UnauthorizedOperation",
            "You are not authorized. Encoded authorization failure message: AbC-dEf",
        ),
    });
    let registry = Registry::new();
    let api = counted(&clients(&stub.server.url()), &registry, |caller| caller);
    assert!(text(api.instances(&Query::all()).await.unwrap_err()).contains("check the clock"));
    assert!(text(api.balancers(&Which::All).await.unwrap_err()).contains("renew them"));
    let denied = text(api.write(&create()).await.unwrap_err());
    assert!(denied.starts_with("ccm lacks ec2:CreateSecurityGroup: ") && !denied.contains("AbC-dEf"), "{denied}");
    let status = "cloudprovider_aws_api_response_status_total";
    for (name, labels) in [
        (status, &[("operation", "DescribeInstances"), ("service", "EC2"), ("status_code", "400")][..]),
        (
            status,
            &[("operation", "DescribeLoadBalancers"), ("service", "Elastic Load Balancing v2"), ("status_code", "403")],
        ),
        ("cloudprovider_aws_api_request_errors", &[("request", "create_security_group")]),
        (
            "ccm_aws_api_calls_total",
            &[("operation", "CreateSecurityGroup"), ("outcome", "refused"), ("service", "EC2")],
        ),
    ] {
        assert_eq!(registry.value(name, labels), Some(1.0), "{name} {labels:?}");
    }
}

#[tokio::test]
async fn throttling_of_both_services_is_seen_and_retry_after_is_read() {
    let stub = Running::start(|nth, form| match (nth, form.contains("DescribeInstances")) {
        (0 | 2, true) => ec2_error(503, "RequestLimitExceeded", "Request limit exceeded."),
        (_, true) => ec2_answer("DescribeInstances", ""),
        (_, false) => {
            let mut answer = response(
                400,
                "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>",
            );
            answer.headers_mut().insert("retry-after", "7".parse().unwrap());
            Wire::Reply(answer)
        }
    });
    let registry = Registry::new();
    let api = counted(&clients(&stub.server.url()), &registry, Caller::once);
    assert!(api.instances(&Query::all()).await.is_err());
    let error = api.balancers(&Which::All).await.unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Throttled { after: Some(after) } if after >= Duration::from_secs(6)),
        "{error:?}"
    );
    for name in ["DescribeInstances", "DescribeLoadBalancers"] {
        let throttled = "cloudprovider_aws_api_throttled_requests_total";
        assert_eq!(registry.value(throttled, &[("operation_name", name)]), Some(1.0), "{name}");
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let stub = Running::start(|_, _| Wire::Reset);
    let none = aws_credential_types::provider::SharedCredentialsProvider::new(NoKeys);
    let mut clients = clients(&stub.server.url());
    let config = clients.ec2.config().to_builder().credentials_provider(none).build();
    clients.ec2 = aws_sdk_ec2::Client::from_conf(config);
    let api = counted(&clients, &Registry::new(), |caller| caller);
    let error = api.instances(&Query::all()).await.unwrap_err();
    assert_eq!((error.kind, stub.forms().len()), (ErrorKind::Credentials, 0), "{error}");
    let text = text(error);
    assert!(text.contains("no credentials for AWS") && text.contains("nobody gave any"), "{text}");
}

#[derive(Debug)]
struct NoKeys;

impl aws_credential_types::provider::ProvideCredentials for NoKeys {
    fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        use aws_credential_types::provider::{error::CredentialsError, future::ProvideCredentials};
        ProvideCredentials::ready(Err(CredentialsError::not_loaded("nobody gave any")))
    }
}

#[tokio::test]
async fn an_object_that_is_not_made_yet_is_a_slip_of_ours() {
    let stub = Running::start(|_, _| Wire::Reset);
    let group = Id::Made(crate::client::Object::SecurityGroup("k8s-elb-a1".to_owned()));
    let error = stub.api().write(&Write::Ec2(Ec2Write::DeleteSecurityGroup { group })).await.unwrap_err();
    assert_eq!((error.kind, stub.forms().len()), (ErrorKind::Malformed, 0), "{error}");
    let tags = Write::Ec2(Ec2Write::DeleteTags { resources: vec!["i-1".to_owned()], tags: Tags::new() });
    assert_eq!(stub.api().write(&tags).await.unwrap_err().kind, ErrorKind::Malformed);
}

#[tokio::test]
async fn an_empty_text_of_a_listener_is_none() {
    let member = "<Port>80</Port><SslPolicy></SslPolicy><Certificates><member><CertificateArn/></member></Certificates>\
                  <DefaultActions><member><Type>forward</Type><TargetGroupArn></TargetGroupArn><ForwardConfig><TargetGroups>\
                  <member><TargetGroupArn>arn:tg</TargetGroupArn></member></TargetGroups></ForwardConfig></member>\
                  </DefaultActions>";
    let answer = format!("<Listeners><member>{member}</member></Listeners>");
    let stub = Running::start(move |_, _| elb_answer("DescribeListeners", &answer));
    let found = stub.api().listeners("arn:lb").await.unwrap().remove(0);
    assert_eq!((found.ssl_policy, found.certificates), (None, Vec::new()));
    assert_eq!(found.target_group.as_deref(), Some("arn:tg"));
}
