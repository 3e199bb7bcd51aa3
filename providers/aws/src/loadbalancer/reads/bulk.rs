//! Calls of Elastic Load Balancing for many objects.
//!
//! AWS refuses a whole call if one name is unknown. So that a new or deleted Service does not affect others, the call
//! is repeated without the names in the error message. If that does not end soon, all balancers are listed. A call that
//! is refused for another reason is divided, so that one object fails alone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::call::ErrorKind;
use ccm_kit::{Bulk, Interrupted, split_refused};

use super::interrupted;
use crate::client::elbv2::Which;
use crate::client::operation::Service;
use crate::client::{self, Answer, Api, ApiError, Tags, elb, elbv2};

const NOT_FOUND: &[&str] = &["LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "ListenerNotFound"];

/// Repeated calls, at most. AWS may name only one unknown name in each refusal.
const ROUNDS: usize = 4;

/// Types for one call each, with the function that makes it.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident -> $answer:ty = $call:ident, $service:ident $operation:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(pub(super) Arc<dyn Api>);

        #[async_trait]
        impl Bulk for $name {
            type Item = String;
            type Answer = Answer<$answer>;
            type Error = ApiError;

            async fn call(&self, names: &[String]) -> Answer<BTreeMap<String, Answer<$answer>>> {
                divided(names, |part| async move { $call(&*self.0, &part).await }).await
            }

            fn interrupted(&self, how: Interrupted) -> ApiError {
                interrupted(Service::$service, $operation, how)
            }
        }
    )*};
}

calls! {
    Classic -> elb::LoadBalancer = classic, Elb "DescribeLoadBalancers";
    Network -> elbv2::LoadBalancer = network, ElbV2 "DescribeLoadBalancers";
    ClassicTags -> Tags = classic_tags, Elb "DescribeTags";
    NetworkTags -> Tags = network_tags, ElbV2 "DescribeTags";
}

/// The answers for all names. An error if all are refused.
async fn divided<T, F: Future<Output = Answer<BTreeMap<String, T>>>>(
    names: &[String],
    call: impl Fn(Vec<String>) -> F,
) -> Answer<BTreeMap<String, Answer<T>>> {
    let concerns_some = |error: &ApiError| error.kind == ErrorKind::Refused;
    let is_named = |error: &ApiError, name: &String| client::names(&error.message, name);
    let (mut answers, mut refused) = (BTreeMap::new(), None);
    for (part, answer) in split_refused(names.to_vec(), concerns_some, is_named, call).await {
        match answer {
            Ok(found) => answers.extend(found.into_iter().map(|(name, found)| (name, Ok(found)))),
            Err(error) => {
                answers.extend(part.into_iter().map(|name| (name, Err(error.clone()))));
                refused = Some(error);
            }
        }
    }
    let is_common = answers.len() == names.len() && answers.values().all(Result::is_err);
    refused.filter(|_| is_common).map_or(Ok(answers), Err)
}

async fn classic(api: &dyn Api, names: &[String]) -> Answer<BTreeMap<String, elb::LoadBalancer>> {
    let by_name = |names: Vec<String>| async move { api.classic_balancers(&names).await };
    let found = named(names, by_name, api.classic_balancers(&[])).await?;
    Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
}

async fn network(api: &dyn Api, names: &[String]) -> Answer<BTreeMap<String, elbv2::LoadBalancer>> {
    let by_name = |names| async move { api.balancers(&Which::Names(names)).await };
    let found = named(names, by_name, api.balancers(&Which::All)).await?;
    Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
}

async fn classic_tags(api: &dyn Api, names: &[String]) -> Answer<BTreeMap<String, Tags>> {
    tags(names, |names| async move { api.classic_tags(&names).await }).await
}

async fn network_tags(api: &dyn Api, arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
    tags(arns, |arns| async move { api.balancer_tags(&arns).await }).await
}

async fn named<T, F: Future<Output = Answer<Vec<T>>>>(
    names: &[String],
    by_name: impl Fn(Vec<String>) -> F,
    all: impl Future<Output = Answer<Vec<T>>>,
) -> Answer<Vec<T>> {
    let mut left = names.to_vec();
    for _ in 0..ROUNDS {
        match by_name(left.clone()).await {
            Err(error) if error.is(NOT_FOUND) => {
                let before = left.len();
                left.retain(|name| before > 1 && !client::names(&error.message, name));
                match left.len() {
                    0 => return Ok(Vec::new()),
                    // The message names none of them.
                    after if after == before => break,
                    _ => {}
                }
            }
            answer => return answer,
        }
    }
    all.await
}

/// Tags of all objects that exist; one by one if some do not, which is rare: all of a batch existed a moment ago.
async fn tags<F: Future<Output = Answer<BTreeMap<String, Tags>>>>(
    items: &[String],
    call: impl Fn(Vec<String>) -> F,
) -> Answer<BTreeMap<String, Tags>> {
    match call(items.to_vec()).await {
        Err(error) if error.is(NOT_FOUND) => {}
        answer => return answer,
    }
    let mut found = BTreeMap::new();
    for item in items.iter().filter(|_| items.len() > 1) {
        match call(vec![item.clone()]).await {
            Ok(tags) => found.extend(tags),
            Err(error) if error.is(NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
