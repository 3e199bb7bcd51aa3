//! Converts failed attempts of the SDK to the kit's classes of errors.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_types::request_id::RequestId;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::http::{causes, is_web_page, retry_after, web_page};

pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let response = error.raw_response();
    let in_header = response.and_then(|response| response.headers().request_id()).map(str::to_owned);
    let mut failure = Failure {
        status: response.map(|response| response.status().as_u16()),
        after: response.and_then(|response| response.headers().get("retry-after")).and_then(retry_after),
        request_id: in_header.or_else(|| response.and_then(request_id)),
        ..Failure::default()
    };
    let html = response.and_then(|response| response.body().bytes()).is_some_and(is_web_page);
    if let (SdkError::ServiceError(answer), false) = (error, html) {
        failure.code = answer.err().code().unwrap_or_default().to_owned();
        failure.message = answer.err().message().unwrap_or_default().to_owned();
    }
    if failure.code.is_empty() {
        failure.cause = cause(error);
        failure.message = if html { web_page("AWS", failure.status) } else { causes(error, failure.status) };
    }
    failure
}

fn cause<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> Cause {
    let sources = || std::iter::successors(error.source(), |error| (*error).source());
    if sources().any(<dyn Error>::is::<CredentialsError>) {
        return Cause::Credentials;
    }
    match error {
        SdkError::ConstructionFailure(_) => Cause::Malformed,
        SdkError::DispatchFailure(_) if sources().any(is_unconnected) => Cause::NotSent,
        _ => Cause::NoAnswer,
    }
}

/// Without a connection nothing was sent.
fn is_unconnected(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
}

/// Errors of the query protocols contain the request ID in their text too.
fn request_id(response: &HttpResponse) -> Option<String> {
    let text = std::str::from_utf8(response.body().bytes()?).ok()?;
    let (_, rest) = text.split_once("<RequestID>").or_else(|| text.split_once("<RequestId>"))?;
    let (id, _) = rest.split_once('<')?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty() && id.len() <= 64)
}
