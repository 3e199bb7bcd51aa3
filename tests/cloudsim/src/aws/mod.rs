//! A simulated AWS: EC2, Classic ELB and ELBv2 on one endpoint, instance metadata on separate ports.

mod balancing;
pub mod call;
pub mod client;
pub mod ec2;
pub mod elb;
pub mod elbv2;
mod endpoint;
pub mod error;
pub mod iam;
pub mod imds;
mod lbnet;
pub mod model;
pub mod options;
pub mod query;
mod running;
pub mod sigv4;
pub mod sts;
pub mod world;
pub mod xml;

pub use call::Call;
pub use error::ApiError;
pub use options::Options;
pub use running::Aws;
pub use world::{Due, World};
pub use xml::Xml;

use serde::{Deserialize, Serialize};

/// A service of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// EC2, API 2016-11-15.
    Ec2,
    /// Classic Load Balancers, API 2012-06-01.
    Elb,
    /// Network Load Balancers, API 2015-12-01.
    Elbv2,
}

impl Service {
    /// The name in ledger, faults and throttles.
    pub fn name(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb => "elb",
            Service::Elbv2 => "elbv2",
        }
    }

    /// The name in IAM policies.
    pub fn iam(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb | Service::Elbv2 => "elasticloadbalancing",
        }
    }

    /// The XML namespace of the answers.
    pub fn namespace(self) -> &'static str {
        match self {
            Service::Ec2 => "http://ec2.amazonaws.com/doc/2016-11-15/",
            Service::Elb => "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/",
            Service::Elbv2 => "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
        }
    }

    /// The service of an API version.
    pub fn of_version(version: &str) -> Option<Self> {
        match version {
            "2016-11-15" => Some(Service::Ec2),
            "2012-06-01" => Some(Service::Elb),
            "2015-12-01" => Some(Service::Elbv2),
            _ => None,
        }
    }

    /// The service of a name in a credential scope; both kinds of load balancers have the same name.
    pub fn of_scope(name: &str, version: &str) -> Option<Self> {
        match name {
            "ec2" => Some(Service::Ec2),
            "elasticloadbalancing" if version == "2015-12-01" => Some(Service::Elbv2),
            "elasticloadbalancing" => Some(Service::Elb),
            _ => None,
        }
    }
}

/// Executes a call: the body of the answer, or an error. Every state change is made here.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.service {
        Service::Ec2 => ec2::handle(world, call),
        Service::Elb => elb::handle(world, call),
        Service::Elbv2 => elbv2::handle(world, call),
    }
}

/// A complete successful answer around the XML from the handler.
fn frame(service: Service, action: &str, request_id: &str, inside: &Xml) -> String {
    let mut xml = Xml::with_capacity(inside.as_str().len() + 512);
    xml.raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let response = format!("{action}Response");
    xml.open_with(&response, service.namespace());
    if service == Service::Ec2 {
        xml.text("requestId", request_id);
        xml.raw(inside.as_str());
    } else {
        let result = format!("{action}Result");
        xml.elem(&result, |xml| xml.raw(inside.as_str()));
        xml.elem("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    }
    xml.close(&response);
    xml.into_string()
}

#[cfg(test)]
mod tests;
