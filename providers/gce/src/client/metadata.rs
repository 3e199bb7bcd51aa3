//! The metadata server of the instance that this program runs on.

use std::time::Duration;

use bytes::Bytes;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::http::{Answer, Client, Settings, Tls};
use http::Request;

use super::failure::{malformed, refusal};

/// Overrides the address of the server.
pub(crate) const HOST_VARIABLE: &str = "GCE_METADATA_HOST";
/// An IP address needs no DNS.
const HOST: &str = "169.254.169.254";
/// The server is on the same host and answers immediately.
const TIMEOUT: Duration = Duration::from_secs(5);
const FLAVOR: &str = "metadata-flavor";
const GOOGLE: &str = "Google";

/// A client of the metadata server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    http: Client,
    base: String,
}

impl Metadata {
    /// The server at the address in the environment, or at the default one. It is never called through a proxy.
    pub(crate) fn new(environment: &dyn Fn(&str) -> Option<String>, user_agent: &str) -> Result<Self, String> {
        let host = environment(HOST_VARIABLE).filter(|host| !host.is_empty()).unwrap_or_else(|| HOST.to_owned());
        let settings = Settings {
            cloud: "the metadata server",
            environment: &|_| None,
            tls: Tls::default(),
            timeout: TIMEOUT,
            user_agent,
            request_ids: &[],
            refusal,
        };
        let base = if host.contains("://") { host } else { format!("http://{host}") };
        let base = format!("{}/computeMetadata/v1/", base.trim_end_matches('/'));
        Ok(Self { http: Client::new(&settings)?, base })
    }

    /// A value as text.
    pub(crate) async fn text(&self, path: &str) -> Result<String, Failure> {
        let answer = self.answer(path).await?;
        let text = std::str::from_utf8(&answer.body).map_err(|_| foreign(path))?;
        Ok(text.trim().to_owned())
    }

    /// A value as an unprocessed response.
    pub(crate) async fn answer(&self, path: &str) -> Result<Answer, Failure> {
        let request = Request::get(format!("{}{path}", self.base)).header(FLAVOR, GOOGLE).body(Bytes::new());
        let answer = self.http.send(request.map_err(|_| malformed(format!("{path:?} is not a path")))?).await?;
        // Any other server at this address, such as a captive portal, lacks the header.
        let is_google = answer.headers.get(FLAVOR).is_some_and(|flavor| flavor == GOOGLE);
        if is_google { Ok(answer) } else { Err(foreign(path)) }
    }
}

fn foreign(path: &str) -> Failure {
    let message = format!("what answered for {path} is not the metadata server of Google");
    Failure { message, cause: Cause::NoAnswer, ..Failure::default() }
}
