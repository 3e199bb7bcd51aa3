//! Implements [`Api`] with the AWS SDK. The SDK's types stay in this module.

pub(crate) mod connect;
mod convert;
mod credentials;
mod ec2;
mod elb;
mod elbv2;
mod endpoint;
mod failure;
mod http;
mod intercept;
mod metadata;

use std::collections::BTreeSet;
use std::future::Future;

use async_trait::async_trait;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use ccm_kit::call::{Caller, ErrorKind};

use crate::client::metrics::Metrics;
use crate::client::operation::Operation;
use crate::client::{Answer, Api, ApiError, FILTER_VALUES, Id, Query, Write};

/// The clients of the services. The SDK's retries must be off: this module retries.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) elb: aws_sdk_elasticloadbalancing::Client,
    pub(crate) elbv2: aws_sdk_elasticloadbalancingv2::Client,
}

#[derive(Debug)]
pub(crate) struct SdkApi {
    clients: Clients,
    caller: Caller<Operation>,
}

impl SdkApi {
    pub(crate) fn new(clients: &Clients, caller: Caller<Operation>, metrics: &Metrics) -> Self {
        Self { clients: clients.watched(metrics), caller }
    }

    /// Calls an operation without pages.
    async fn call<O, E, F, Fut>(&self, operation: Operation, send: F) -> Answer<O>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<O, SdkError<E, HttpResponse>>> + Send,
        O: Send,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let attempt = || {
            let sent = send();
            async move { sent.await.map_err(|error| failure::of(&error)) }
        };
        self.caller.call(operation, attempt).await
    }

    /// All pages of a read. `send` requests the page after a token, `take` extracts the entries and the next token.
    async fn pages<T, O, E, F, Fut>(
        &self,
        operation: Operation,
        send: F,
        take: impl Fn(O) -> (Vec<T>, Option<String>) + Send + Sync,
    ) -> Answer<Vec<T>>
    where
        F: Fn(Option<String>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<O, SdkError<E, HttpResponse>>> + Send,
        O: Send,
        T: Send,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let attempt = |token| {
            let sent = send(token);
            async move { sent.await.map_err(|error| failure::of(&error)) }
        };
        self.caller.pages(operation, attempt, take).await
    }
}

impl Clients {
    /// Counts and checks the answers of the clients.
    fn watched(&self, metrics: &Metrics) -> Self {
        let answers = || intercept::Answers(metrics.clone());
        let ec2 = self.ec2.config().to_builder().interceptor(answers()).build();
        let elb = self.elb.config().to_builder().interceptor(answers()).build();
        let elbv2 = self.elbv2.config().to_builder().interceptor(answers()).build();
        Self {
            ec2: aws_sdk_ec2::Client::from_conf(ec2),
            elb: aws_sdk_elasticloadbalancing::Client::from_conf(elb),
            elbv2: aws_sdk_elasticloadbalancingv2::Client::from_conf(elbv2),
        }
    }
}

/// A request that cannot be made.
fn malformed(operation: Operation, why: impl std::fmt::Display) -> ApiError {
    ApiError::of_kind(operation, ErrorKind::Malformed, why.to_string())
}

/// The ID or ARN, which must be known at this time.
fn known(operation: Operation, id: &Id) -> Answer<String> {
    id.known().map(str::to_owned).ok_or_else(|| malformed(operation, format!("{id} is not made yet")))
}

fn all_known(operation: Operation, ids: &[Id]) -> Answer<Vec<String>> {
    ids.iter().map(|id| known(operation, id)).collect()
}

/// The value of an enumeration; empty if AWS left it out.
fn word(from: Option<impl AsRef<str>>) -> String {
    from.map(|word| word.as_ref().to_owned()).unwrap_or_default()
}

/// To the second: AWS returns no fractions.
fn time(from: aws_smithy_types::DateTime) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(from.secs()).ok()
}

/// `None` for an empty list: the SDK would send an empty parameter.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Chunks of at most `size`; an empty list gives one empty chunk.
fn chunks<T>(list: &[T], size: usize) -> Vec<&[T]> {
    if list.is_empty() { vec![list] } else { list.chunks(size).collect() }
}

#[async_trait]
impl Api for SdkApi {
    async fn write(&self, write: &Write) -> Answer<Option<String>> {
        let operation = write.operation();
        match write {
            Write::Ec2(write) => ec2::write(self, operation, write, None).await,
            Write::Elb(write) => elb::write(self, operation, write).await.map(|()| None),
            Write::ElbV2(write) => elbv2::write(self, operation, write).await,
        }
    }

    async fn dry_run(&self, write: &crate::client::write::Ec2Write) -> Answer<()> {
        let operation = Operation::new(crate::client::operation::Service::Ec2, write.name()).dry_run();
        match ec2::write(self, operation, write, Some(true)).await {
            Err(error) if error.is(&["DryRunOperation"]) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(malformed(operation, "the endpoint does not know dry runs")),
        }
    }
}

/// Splits a query into calls, each with at most [`MAX_IDS`] IDs and [`FILTER_VALUES`] filter values.
fn split(query: &Query) -> Vec<Query> {
    let total: usize = query.filters.iter().map(|filter| filter.values.len()).sum();
    let long = query.filters.iter().enumerate().max_by_key(|(_, filter)| filter.values.len());
    if let Some((at, long)) = long.filter(|_| total > FILTER_VALUES) {
        let distinct: BTreeSet<&String> = long.values.iter().collect();
        let distinct: Vec<&String> = distinct.into_iter().collect();
        let size = FILTER_VALUES.saturating_sub(total - long.values.len()).max(1);
        let part = |values: &[&String]| {
            let mut part = query.clone();
            if let Some(filter) = part.filters.get_mut(at) {
                filter.values = values.iter().map(|value| (*value).clone()).collect();
            }
            part
        };
        return distinct.chunks(size).map(part).collect();
    }
    let ids: Vec<&String> = query.ids.iter().collect();
    let part = |ids: &[&String]| {
        let ids = ids.iter().map(|id| (*id).clone()).collect();
        Query { ids, filters: query.filters.clone() }
    };
    chunks(&ids, MAX_IDS).into_iter().map(part).collect()
}

/// EC2 accepts up to 1,000 IDs in a call.
const MAX_IDS: usize = 1_000;

#[cfg(test)]
mod tests;
