//! x
pub(crate) mod login;
