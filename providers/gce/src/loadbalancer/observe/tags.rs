//! The reads of the network tags of instances, zone by zone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::batch::{Bulk, Interrupted};
use futures::future::join_all;
use tokio::time::Instant;

use super::super::hosts::Host;
use super::super::tags;
use super::{Reads, TAGS_AGE, Unread};
use crate::client::operation::INSTANCE_LIST;
use crate::client::resource::Collection;
use crate::client::{ApiError, Client};

/// The tag of each instance of a zone, by name, and when they were asked for; or why they are not known.
type Tags = Result<(Arc<BTreeMap<String, Option<String>>>, Instant), ApiError>;

/// The tags of the instances of zones.
#[derive(Debug, Clone)]
pub(super) struct ZoneTags(pub(super) Client);

#[async_trait]
impl Bulk for ZoneTags {
    type Item = String;
    type Answer = Tags;
    type Error = ApiError;

    async fn call(&self, zones: &[String]) -> Result<BTreeMap<String, Self::Answer>, ApiError> {
        let of_zone = async |zone: &String| {
            let asked = Instant::now();
            let list = self.0.instances(zone, "").await;
            let tag = |name: &str, tags: &[String]| tags::tag_of(name, tags).map(str::to_owned);
            let tags = list.map(|list| {
                let all = list.into_iter().map(|instance| (tag(&instance.name, &instance.tags.items), instance.name));
                (Arc::new(all.map(|(tag, name)| (name, tag)).collect()), asked)
            });
            (zone.clone(), tags)
        };
        Ok(join_all(zones.iter().map(of_zone)).await.into_iter().collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(INSTANCE_LIST, how)
    }
}

impl Reads {
    /// The tag of each of these hosts; `None` for one that does not exist.
    pub(super) async fn tags_of(
        &self,
        hosts: &BTreeSet<Host>,
        unread: &Unread,
    ) -> BTreeMap<Host, Option<Option<String>>> {
        if hosts.is_empty() {
            return BTreeMap::new();
        }
        let zones = hosts.iter().map(|host| host.zone.clone()).collect();
        let used = Instant::now();
        let mut known = self.zone_tags(&zones, TAGS_AGE, None).await;
        let lacks = |known: &BTreeMap<String, Tags>, host: &Host| {
            known
                .get(&host.zone)
                .is_some_and(|tags| tags.as_ref().is_ok_and(|(zone, _)| !zone.contains_key(&host.name)))
        };
        // A missing instance may be newer than the list.
        if hosts.iter().any(|host| lacks(&known, host) && !self.missing.contains(host)) {
            known = self.zone_tags(&zones, Duration::ZERO, Some(Instant::now())).await;
            hosts.iter().filter(|host| lacks(&known, host)).for_each(|host| self.missing.add(host.clone()));
        }
        for (zone, tags) in &known {
            match tags {
                Ok((_, asked)) => drop(self.tags_used.lock().insert(zone.clone(), (*asked, used))),
                Err(error) => unread.add(Collection::Instances, zone, error.clone().into()),
            }
        }
        let tag = |host: &Host| Some(known.get(&host.zone)?.as_ref().ok()?.0.get(&host.name).cloned());
        hosts.iter().filter_map(|host| Some((host.clone(), tag(host)?))).collect()
    }

    /// The time after which the tags of these hosts are looked at again: those that a balancer got were asked for earlier,
    /// and may have changed before.
    pub(in super::super) fn tags_again<'h>(
        &self,
        balancer: &str,
        hosts: impl Iterator<Item = &'h Host>,
    ) -> Option<Duration> {
        let (used, mut former) = (self.tags_used.lock(), self.former_tags.lock());
        let used: Vec<(Instant, Instant)> = hosts.filter_map(|host| used.get(&host.zone).copied()).collect();
        let since = former.get(balancer).copied();
        let is_current = |(asked, used): &(Instant, Instant)| *asked >= since.unwrap_or(*used);
        if used.iter().all(is_current) {
            former.remove(balancer);
            return None;
        }
        let now = used.iter().map(|(_, used)| *used).max()?;
        former.entry(balancer.to_owned()).or_insert(now);
        Some(TAGS_AGE)
    }

    /// The tags of zones. Errors are not kept.
    async fn zone_tags(
        &self,
        zones: &BTreeSet<String>,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> BTreeMap<String, Tags> {
        let known = self.tags.get(zones, max_age, not_before).await;
        let known = known.unwrap_or_else(|error| zones.iter().map(|zone| (zone.clone(), Err(error.clone()))).collect());
        known.iter().filter(|(_, tags)| tags.is_err()).for_each(|(zone, _)| self.tags.forget(zone));
        known
    }
}
