//! Calls of Elastic Load Balancing for many objects.
//!
//! One unknown name makes AWS refuse a whole call, without saying which it was. So that one Service which is new or gone
//! tells nothing about the others, such a call is made again without names, and the list is complete.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::{Blame, Bulk, Interrupted};

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

/// The answer for these names: none when the only one is unknown, all there is when one of several is.
async fn named<T>(named: Answer<Vec<T>>, names: usize, all: impl Future<Output = Answer<Vec<T>>>) -> Answer<Vec<T>> {
    match named {
        Err(error) if error.is(NOT_FOUND) && names == 1 => Ok(Vec::new()),
        Err(error) if error.is(NOT_FOUND) => all.await,
        answer => answer,
    }
}

#[async_trait]
impl Bulk for Classic {
    type Group = ();
    type Item = String;
    type Answer = elb::LoadBalancer;
    type Error = ApiError;

    async fn call(&self, (): &(), names: &[String]) -> Answer<BTreeMap<String, elb::LoadBalancer>> {
        let found = named(self.0.classic_balancers(names).await, names.len(), self.0.classic_balancers(&[])).await?;
        Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
    }

    fn blame(&self, _: &ApiError, _: &[String]) -> Blame<String> {
        Blame::Nobody
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::Elb, "DescribeLoadBalancers", how)
    }
}

#[async_trait]
impl Bulk for Network {
    type Group = ();
    type Item = String;
    type Answer = elbv2::LoadBalancer;
    type Error = ApiError;

    async fn call(&self, (): &(), names: &[String]) -> Answer<BTreeMap<String, elbv2::LoadBalancer>> {
        let by_name = self.0.balancers(&Which::Names(names.to_vec())).await;
        let found = named(by_name, names.len(), self.0.balancers(&Which::All)).await?;
        Ok(found.into_iter().map(|balancer| (balancer.name.clone(), balancer)).collect())
    }

    fn blame(&self, _: &ApiError, _: &[String]) -> Blame<String> {
        Blame::Nobody
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
    type Group = ();
    type Item = String;
    type Answer = Tags;
    type Error = ApiError;

    async fn call(&self, (): &(), names: &[String]) -> Answer<BTreeMap<String, Tags>> {
        match self.0.classic_tags(names).await {
            Err(error) if error.is(NOT_FOUND) && names.len() > 1 => {
                singly(names, |one| async move { self.0.classic_tags(&one).await }).await
            }
            Err(error) if error.is(NOT_FOUND) => Ok(BTreeMap::new()),
            answer => answer,
        }
    }

    fn blame(&self, _: &ApiError, _: &[String]) -> Blame<String> {
        Blame::Nobody
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::Elb, "DescribeTags", how)
    }
}

#[async_trait]
impl Bulk for NetworkTags {
    type Group = ();
    type Item = String;
    type Answer = Tags;
    type Error = ApiError;

    async fn call(&self, (): &(), arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
        match self.0.balancer_tags(arns).await {
            Err(error) if error.is(NOT_FOUND) && arns.len() > 1 => {
                singly(arns, |one| async move { self.0.balancer_tags(&one).await }).await
            }
            Err(error) if error.is(NOT_FOUND) => Ok(BTreeMap::new()),
            answer => answer,
        }
    }

    fn blame(&self, _: &ApiError, _: &[String]) -> Blame<String> {
        Blame::Nobody
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        interrupted(Service::ElbV2, "DescribeTags", how)
    }
}
