//! Deadlines of calls to a provider.

use std::time::Duration;

use crate::error::ProviderError;

/// The limit for a call that writes to the cloud.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(600);
/// The limit for any other call.
pub const READ_DEADLINE: Duration = Duration::from_secs(120);

/// The result of a call; a call that takes longer than `limit` is dropped and fails with a distinct error.
///
/// # Errors
///
/// The error of the call, or [`ProviderError::deadline`].
pub async fn within<R>(
    call: &str,
    limit: Duration,
    answer: impl Future<Output = Result<R, ProviderError>>,
) -> Result<R, ProviderError> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(ProviderError::deadline(call, limit)))
}
