//! One call: its service, operation, caller and parameters.

use super::Service;
use super::error::ApiError;
use super::options::Options;
use super::query::Params;
use super::sigv4::{self, Caller};
use http::HeaderMap;

/// A parsed and authorized call.
#[derive(Debug)]
pub struct Call {
    pub service: Service,
    /// The operation, e.g. `DescribeInstances`.
    pub action: String,
    pub params: Params,
    /// The request ID.
    pub id: String,
    /// The signer; `None` for a call from inside a test.
    pub caller: Option<Caller>,
}

impl Call {
    /// Parses a request: form body (or query string), signature, service.
    pub fn parse(headers: &HeaderMap, form: &str, options: &Options) -> Result<Call, (Service, ApiError)> {
        let params = Params::parse(form).map_err(|error| (Service::Ec2, error))?;
        let version = params.get("Version").unwrap_or_default().to_owned();
        let action = params.get("Action").unwrap_or_default().to_owned();
        let by_version = Service::of_version(&version);
        let guess = by_version.unwrap_or(Service::Ec2);
        let caller = sigv4::parse(headers).map_err(|error| (guess, error))?;
        let Some(signer) = &caller else { return Err((guess, missing_token(guess))) };
        let name = &signer.service;
        let service = Service::of_scope(name, &version).ok_or_else(|| (guess, wrong_scope(guess, name)))?;
        sigv4::check(signer, headers, service, options).map_err(|error| (service, error))?;
        if by_version != Some(service) {
            // unverified: the error code for a version that the service doesn't have.
            let text = format!("The version {version} is not valid for this web service.");
            return Err((service, ApiError::new("NoSuchVersion", text)));
        }
        if action.is_empty() {
            return Err((service, ApiError::with_status(400, "MissingAction", "The request is missing an action.")));
        }
        Ok(Call { service, action, params, id: String::new(), caller })
    }

    /// Whether the call changes something. With `DryRun`, EC2 only checks whether it could.
    pub fn mutating(&self) -> bool {
        let dry = self.service == Service::Ec2 && self.params.get("DryRun") == Some("true");
        mutating(&self.action) && !dry
    }

    /// A call from inside a test: no signature, parameters as a form.
    pub fn direct(service: Service, action: &str, form: &str) -> Result<Call, ApiError> {
        Ok(Call { service, action: action.to_owned(), params: Params::parse(form)?, id: String::new(), caller: None })
    }
}

/// Whether the name is that of an operation that changes something.
pub fn mutating(action: &str) -> bool {
    !["Describe", "Get", "List"].iter().any(|prefix| action.starts_with(prefix))
}

fn missing_token(service: Service) -> ApiError {
    let text = match service {
        Service::Ec2 => "AWS was not able to validate the provided access credentials",
        Service::Elb | Service::Elbv2 => "Request is missing Authentication Token",
    };
    ApiError::unauthorized(service, "MissingAuthenticationToken", text)
}

fn wrong_scope(service: Service, name: &str) -> ApiError {
    let text = format!("Credential should be scoped to correct service, not '{name}'.");
    ApiError::unauthorized(service, "SignatureDoesNotMatch", text)
}
