//! Controllers and features of this provider besides nodes, load balancers and routes.

pub(crate) mod prefix_ipam;
pub(crate) mod tagging;
pub(crate) mod volumes;
