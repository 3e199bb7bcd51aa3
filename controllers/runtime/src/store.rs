//! store
pub trait Kept {}
#[derive(Debug)]
pub struct Store;
