//! runner
#[derive(Debug)]
pub enum Outcome {}
#[derive(Debug)]
pub enum SyncError {}
