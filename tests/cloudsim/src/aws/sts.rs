//! Temporary credentials, which the metadata service issues, and their end.

use super::{ApiError, Call, Service, World};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The issued credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StsState {
    /// The ends of the sessions by access key ID.
    pub sessions: BTreeMap<String, Timestamp>,
}

/// The error for expired credentials in the service's vocabulary.
pub fn expired_error(service: Service) -> ApiError {
    match service {
        Service::Ec2 => ApiError::new("RequestExpired", "Request has expired."),
        Service::Elb | Service::Elbv2 => {
            ApiError::with_status(403, "ExpiredToken", "The security token included in the request is expired")
        }
    }
}

/// The error for a caller whose session has expired.
pub fn expired(world: &World, call: &Call) -> Option<ApiError> {
    let ends = world.sts.sessions.get(&call.caller.as_ref()?.access_key)?;
    (*ends <= world.now()).then(|| expired_error(call.service))
}
