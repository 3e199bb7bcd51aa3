//! Deadlines of calls to a provider.

use std::time::Duration;

use crate::error::ProviderError;

/// A call that writes to the cloud.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(600);
/// Any other call.
pub const READ_DEADLINE: Duration = Duration::from_secs(120);

/// The answer of a call; one that takes longer than `limit` is dropped, and is an error of its own.
///
/// # Errors
///
/// Those of the call, and that it took too long.
pub async fn within<R>(
    call: &str,
    limit: Duration,
    answer: impl Future<Output = Result<R, ProviderError>>,
) -> Result<R, ProviderError> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(ProviderError::deadline(call, limit)))
}
