//! Network load balancers and target groups (API 2015-12-01).

use super::{ApiError, Call, World, Xml};
use serde::{Deserialize, Serialize};

/// State of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElbV2State {}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Due {}

/// Lets something happen that was due.
pub fn settle(_world: &mut World, due: &Due) {
    match *due {}
}

/// Carries out a call.
///
/// # Errors
/// As AWS answers them.
pub fn handle(_world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    Err(ApiError::unknown_action(&call.action))
}
