//! Failed attempts of the SDK, as the kit judges them.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_types::request_id::RequestId;
use ccm_kit::call::{Cause, Failure};

/// A failed attempt.
pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let response = error.raw_response();
    let mut failure = Failure {
        status: response.map(|response| response.status().as_u16()),
        after: response.and_then(retry_after),
        request_id: response.and_then(|response| response.headers().request_id()).map(str::to_owned),
        ..Failure::default()
    };
    let html = response.is_some_and(is_html);
    if failure.request_id.is_none() {
        failure.request_id = response.and_then(request_id);
    }
    if let (SdkError::ServiceError(answer), false) = (error, html) {
        failure.code = answer.err().code().unwrap_or_default().to_owned();
        failure.message = answer.err().message().unwrap_or_default().to_owned();
    }
    if failure.code.is_empty() {
        failure.cause = cause(error);
        failure.message = if html { html_text(failure.status) } else { chain(error, failure.status) };
    }
    failure
}

fn cause<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> Cause {
    let sources = || causes(error);
    if sources().any(<dyn Error>::is::<CredentialsError>) {
        return Cause::Credentials;
    }
    match error {
        SdkError::ConstructionFailure(_) => Cause::Malformed,
        SdkError::DispatchFailure(_) if sources().any(refused) => Cause::NotSent,
        _ => Cause::NoAnswer,
    }
}

/// Everything below the SDK's own error.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |error| (*error).source())
}

/// The other side took no connection: nothing was sent.
fn refused(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What went wrong, outermost first, each cause once.
pub(super) fn chain(error: &(dyn Error + 'static), status: Option<u16>) -> String {
    let mut texts: Vec<String> = status.map(|status| format!("HTTP {status}")).into_iter().collect();
    // The SDK's own words for the phase say nothing to an operator.
    for cause in causes(error) {
        let text = cause.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

fn is_html(response: &HttpResponse) -> bool {
    let head = response.body().bytes().unwrap_or_default();
    let head = head.get(..head.len().min(256)).unwrap_or_default().to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head);
    let head = head.trim_start();
    head.starts_with("<!doctype html") || head.starts_with("<html")
}

fn html_text(status: Option<u16>) -> String {
    let status = status.map(|status| format!(" with HTTP {status}")).unwrap_or_default();
    format!("a web page{status} instead of an answer: a proxy or portal stands between this host and AWS")
}

/// Refusals of the query protocols name it in their text too.
fn request_id(response: &HttpResponse) -> Option<String> {
    let text = std::str::from_utf8(response.body().bytes()?).ok()?;
    let (_, rest) = text.split_once("<RequestID>").or_else(|| text.split_once("<RequestId>"))?;
    let (id, _) = rest.split_once('<')?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty() && id.len() <= 64)
}

/// Seconds only: AWS sends no dates.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
