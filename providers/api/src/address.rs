//! Addresses of nodes.
use std::net::IpAddr;

/// Parses an IP address as Kubernetes does.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}
