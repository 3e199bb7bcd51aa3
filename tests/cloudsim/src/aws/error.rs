//! Errors of the simulated AWS and their two XML formats.

use super::Service;
use super::xml::Xml;

/// An error of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    /// The error code, e.g. `InvalidGroup.NotFound`.
    pub code: String,
    pub message: String,
}

impl ApiError {
    /// A client error (400), like nearly all errors of AWS.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        ApiError::with_status(400, code, message)
    }

    /// An error with another status.
    pub fn with_status(status: u16, code: &str, message: impl Into<String>) -> Self {
        ApiError { status, code: code.to_owned(), message: message.into() }
    }

    /// The error for an operation that is not simulated.
    pub fn unknown_action(action: &str) -> Self {
        ApiError::new("InvalidAction", format!("The action {action} is not valid for this web service."))
    }

    /// A parameter is missing. ELB calls this a `ValidationError` (see [`ApiError::render`]).
    pub fn missing(name: &str) -> Self {
        ApiError::new("MissingParameter", format!("The request must contain the parameter {name}"))
    }

    /// A parameter has an invalid value. ELB calls this a `ValidationError` (see [`ApiError::render`]).
    pub fn bad_value(name: &str, value: &str, why: &str) -> Self {
        ApiError::new("InvalidParameterValue", format!("Value ({value}) for parameter {name} is invalid. {why}"))
    }

    /// The caller is not authenticated: EC2 has its own code for that.
    pub(super) fn unauthorized(service: Service, code: &str, message: impl Into<String>) -> Self {
        match service {
            Service::Ec2 => ApiError::with_status(401, "AuthFailure", message),
            Service::Elb | Service::Elbv2 => ApiError::with_status(403, code, message),
        }
    }

    /// The error code in the service's vocabulary.
    pub fn code_for(&self, service: Service) -> &str {
        match (service, self.code.as_str()) {
            (Service::Ec2, code) => code,
            (_, "MissingParameter" | "InvalidParameterValue") => "ValidationError",
            (_, code) => code,
        }
    }

    /// The body of the error answer in the service's format.
    pub fn render(&self, service: Service, request_id: &str) -> String {
        let mut xml = Xml::document();
        if service == Service::Ec2 {
            xml.elem("Response", |xml| {
                xml.elem("Errors", |xml| {
                    xml.elem("Error", |xml| {
                        xml.text("Code", self.code_for(service));
                        xml.text("Message", &self.message);
                    });
                });
                xml.text("RequestID", request_id);
            });
        } else {
            xml.open_with("ErrorResponse", service.namespace());
            xml.elem("Error", |xml| {
                xml.text("Type", if self.status < 500 { "Sender" } else { "Receiver" });
                xml.text("Code", self.code_for(service));
                xml.text("Message", &self.message);
            });
            xml.text("RequestId", request_id);
            xml.close("ErrorResponse");
        }
        xml.into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_own_dialect() {
        let error = ApiError::missing("GroupId");
        let ec2 = error.render(Service::Ec2, "r-1");
        assert!(ec2.contains("<Response><Errors><Error><Code>MissingParameter</Code>"), "{ec2}");
        assert!(ec2.ends_with("<RequestID>r-1</RequestID></Response>"), "{ec2}");
        let elb = error.render(Service::Elb, "r-1");
        assert!(elb.contains("<Error><Type>Sender</Type><Code>ValidationError</Code>"), "{elb}");
        assert!(elb.ends_with("<RequestId>r-1</RequestId></ErrorResponse>"), "{elb}");
    }
}
