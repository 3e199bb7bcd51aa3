//! Calls of Elastic Load Balancing for many objects.
//!
//! One unknown name makes AWS refuse a whole call. So that one Service which is new or gone tells nothing about the others,
//! such a call is made again without the names that AWS's text holds. Only where that doesn't end soon are all balancers of
//! the account listed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::{Bulk, Interrupted};

use super::interrupted;
use crate::client::elbv2::Which;
use crate::client::operation::Service;
use crate::client::{Answer, Api, ApiError, Tags, elb, elbv2};

/// Codes of a call that names something which isn't there.
const NOT_FOUND: &[&str] = &["LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "ListenerNotFound"];

/// Classic balancers by name.
#[derive(Debug)]
pub(super) struct Classic(pub(super) Arc<dyn Api>);

/// Balancers of the v2 API by name.
#[derive(Debug)]
pub(super) struct Network(pub(super) Arc<dyn Api>);

/// Tags of classic balancers by name.
#[derive(Debug)]
pub(super) struct ClassicTags(pub(super) Arc<dyn Api>);

/// Tags of v2 objects by ARN.
#[derive(Debug)]
pub(super) struct NetworkTags(pub(super) Arc<dyn Api>);

/// Calls for names of which some are unknown. AWS may name only one of them in each refusal.
const ROUNDS: usize = 4;

/// The balancers of these names that are there.
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
                left.retain(|name| before > 1 && !names_it(&error.message, name));
                match left.len() {
                    0 => return Ok(Vec::new()),
                    // It names none of them.
                    after if after == before => break,
                    _ => {}
                }
            }
            answer => return answer,
        }
    }
    all.await
}

/// Whether AWS's text names a balancer, and not merely a longer name.
fn names_it(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == name)
}

#[async_trait]
impl Bulk for Classic {
    type Item = String;
    type Answer = elb::LoadBalancer;
    type Error = ApiError;

    async fn call(&self, names: &[String]) -> Answer<BTreeMap<String, elb::LoadBalancer>> {
        let by_name = |names: Vec<String>| async move { self.0.classic_balancers(&names).await };
        let found = named(names, by_name, self.0.classic_balancers(&[])).await?;
        Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::Elb, "DescribeLoadBalancers", how)
    }
}

#[async_trait]
impl Bulk for Network {
    type Item = String;
    type Answer = elbv2::LoadBalancer;
    type Error = ApiError;

    async fn call(&self, names: &[String]) -> Answer<BTreeMap<String, elbv2::LoadBalancer>> {
        let by_name = |names| async move { self.0.balancers(&Which::Names(names)).await };
        let found = named(names, by_name, self.0.balancers(&Which::All)).await?;
        Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::ElbV2, "DescribeLoadBalancers", how)
    }
}

/// Tags one by one: the objects of a batch were all there a moment ago, so this is rare.
async fn singly<F: Future<Output = Answer<BTreeMap<String, Tags>>>>(
    items: &[String],
    call: impl Fn(Vec<String>) -> F,
) -> Answer<BTreeMap<String, Tags>> {
    let mut found = BTreeMap::new();
    for item in items {
        match call(vec![item.clone()]).await {
            Ok(tags) => found.extend(tags),
            Err(error) if error.is(NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[async_trait]
impl Bulk for ClassicTags {
    type Item = String;
    type Answer = Tags;
    type Error = ApiError;

    async fn call(&self, names: &[String]) -> Answer<BTreeMap<String, Tags>> {
        match self.0.classic_tags(names).await {
            Err(error) if error.is(NOT_FOUND) && names.len() > 1 => {
                singly(names, |one| async move { self.0.classic_tags(&one).await }).await
            }
            Err(error) if error.is(NOT_FOUND) => Ok(BTreeMap::new()),
            answer => answer,
        }
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::Elb, "DescribeTags", how)
    }
}

#[async_trait]
impl Bulk for NetworkTags {
    type Item = String;
    type Answer = Tags;
    type Error = ApiError;

    async fn call(&self, arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
        match self.0.balancer_tags(arns).await {
            Err(error) if error.is(NOT_FOUND) && arns.len() > 1 => {
                singly(arns, |one| async move { self.0.balancer_tags(&one).await }).await
            }
            Err(error) if error.is(NOT_FOUND) => Ok(BTreeMap::new()),
            answer => answer,
        }
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::ElbV2, "DescribeTags", how)
    }
}
