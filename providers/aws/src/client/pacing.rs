//! When calls are sent.

use std::future::Future;

use super::Answer;
use super::operation::Operation;

#[derive(Debug, Default)]
pub(crate) struct Pacing {}

impl Pacing {
    pub(crate) async fn run<T, F, Fut>(&self, _operation: Operation, mut attempt: F) -> Answer<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Answer<T>>,
    {
        attempt().await
    }
}
