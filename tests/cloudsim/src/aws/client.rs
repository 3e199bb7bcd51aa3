//! A client of the query protocols with a dummy signature: no server verifies its value.

use super::model::Element;
use crate::core::client::send;
use std::net::SocketAddr;

/// The region of the signatures.
pub const REGION: &str = "us-west-2";

/// Calls an operation, named as `service:Operation`, with form parameters. Returns the contents of the answer, without
/// the wrapper element of ELB.
pub fn call(address: SocketAddr, operation: &str, form: &str) -> Result<Element, String> {
    let (service, action) = operation.split_once(':').unwrap_or_default();
    let (scope, version) = match service {
        "ec2" => ("ec2", "2016-11-15"),
        "elb" => ("elasticloadbalancing", "2012-06-01"),
        "elbv2" => ("elasticloadbalancing", "2015-12-01"),
        _ => return Err(format!("{operation}: unknown service")),
    };
    let authorization = authorization(scope);
    let headers = [
        ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("X-Amz-Date", "20261121T120000Z"),
        ("Authorization", authorization.as_str()),
    ];
    let body = format!("Action={action}&Version={version}{}{form}", if form.is_empty() { "" } else { "&" });
    let answer = send("POST", &format!("http://{address}/"), &headers, &body).map_err(|error| error.to_string())?;
    let mut document = match (answer.status, Element::parse(&answer.text)) {
        (200, Ok(document)) => document,
        (200, Err(error)) => return Err(format!("an answer that is no XML: {error}: {}", answer.text)),
        (status, Ok(document)) => {
            let code = document.at("Error/Code").or_else(|| document.at("Errors/Error/Code"));
            return Err(code.map_or_else(|| format!("an answer of status {status}"), |code| code.text.clone()));
        }
        (status, Err(_)) => return Err(format!("a page of status {status}")),
    };
    let wrapper = format!("{action}Result");
    let found = document.children.iter().position(|child| child.name == wrapper);
    Ok(found.map(|index| document.children.swap_remove(index)).unwrap_or(document))
}

/// The header of a call to this service.
pub fn authorization(scope: &str) -> String {
    let credential = format!("AKIAEXAMPLE/20261121/{REGION}/{scope}/aws4_request");
    format!(
        "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature={}",
        "0123456789abcdef".repeat(4)
    )
}
