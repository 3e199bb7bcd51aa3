//! Everything before the first controller runs: the configuration file, clouds.yaml, the login, the environment.

pub(crate) mod clouds;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod login;
