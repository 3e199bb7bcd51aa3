//! Requests with a JSON body.

use ccm_cloudsim::core::client;
pub(crate) use ccm_cloudsim::core::client::Answer;

/// Sends one request on a new connection. An error means that the connection broke.
pub(crate) fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<Answer> {
    client::send(method, url, &[headers, &[("Content-Type", "application/json")]].concat(), body)
}
