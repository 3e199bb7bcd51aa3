//! EC2 (API 2016-11-15): instances, networks, security groups, routes, volumes, tags.

use super::{ApiError, Call, Options, World, Xml};
use serde::{Deserialize, Serialize};

/// State of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ec2State {}

impl Ec2State {
    /// An empty account.
    #[must_use]
    pub fn new(_options: &Options) -> Self {
        Ec2State::default()
    }

    /// Rebuilds what is derived from the state.
    pub fn reindex(&mut self) {}
}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// The next state of an instance.
    Instance(String),
}

/// Lets something happen that was due.
pub fn settle(_world: &mut World, due: &Due) {
    match due {
        Due::Instance(_) => {}
    }
}

/// Carries out a call.
///
/// # Errors
/// As AWS answers them.
pub fn handle(_world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    Err(ApiError::unknown_action(&call.action))
}
