//! view
#[derive(Debug)]
pub struct InstanceView;
