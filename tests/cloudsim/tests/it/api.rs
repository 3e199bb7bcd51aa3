//! Requests of the query protocols over plain HTTP with a dummy signature: no server verifies its value.

use std::net::SocketAddr;

use ccm_cloudsim::aws::model::Element;
use ccm_cloudsim::moto;

pub(crate) const REGION: &str = "us-west-2";

/// A server with the AWS API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
}

/// An answer: the document of a success, or the code of an error.
pub(crate) type Answer = Result<Element, String>;

impl Api {
    /// Calls an operation, named as `service:Operation`, with form parameters.
    pub(crate) fn call(self, operation: &str, form: &str) -> Answer {
        let (service, action) = operation.split_once(':').expect("service:Operation");
        let (scope, version) = match service {
            "ec2" => ("ec2", "2016-11-15"),
            "elb" => ("elasticloadbalancing", "2012-06-01"),
            "elbv2" => ("elasticloadbalancing", "2015-12-01"),
            "sts" => ("sts", "2011-06-15"),
            other => panic!("unknown service {other}"),
        };
        let body = format!("Action={action}&Version={version}{}{form}", if form.is_empty() { "" } else { "&" });
        let authorization = authorization(scope);
        let headers = [
            ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("X-Amz-Date", "20261121T120000Z"),
            ("Authorization", authorization.as_str()),
        ];
        let (status, body) = moto::post(self.address, "/", &headers, &body).expect("an answer");
        match (status, Element::parse(&body)) {
            (200, Ok(document)) => Ok(result_of(document, action)),
            (200, Err(error)) => panic!("{operation} answered what is no XML: {error}: {body}"),
            (_, Ok(document)) => {
                let code = document.at("Error/Code").or_else(|| document.at("Errors/Error/Code"));
                Err(code.map_or_else(|| format!("an answer of status {status}"), |code| code.text.clone()))
            }
            (_, Err(_)) => Err(format!("a page of status {status}")),
        }
    }
}

/// The contents of the answer, without the wrapper element of ELB and STS.
fn result_of(mut document: Element, action: &str) -> Element {
    let wrapper = format!("{action}Result");
    let found = document.children.iter().position(|child| child.name == wrapper);
    found.map(|index| document.children.swap_remove(index)).unwrap_or(document)
}

pub(crate) fn authorization(scope: &str) -> String {
    let credential = format!("AKIAEXAMPLE/20261121/{REGION}/{scope}/aws4_request");
    format!(
        "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature={}",
        "0123456789abcdef".repeat(4)
    )
}
