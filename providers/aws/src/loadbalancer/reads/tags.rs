//! The tags of balancers and target groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::{AT_ONCE, LONG, Reads, SHORT};
use crate::client::operation::Service;
use crate::client::{Answer, ApiError, Tags};
use crate::loadbalancer::marks::{Marks, Unread};

/// After this time, tags that AWS refused to show are asked for again: the permission may have been granted.
const DENIED_KEPT: Duration = Duration::from_secs(300);
/// Maximum ages for the question whose a balancer is.
pub(in crate::loadbalancer) const WHOSE: Age = Age { own: LONG, foreign: SHORT };

/// Maximum ages of remembered tags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age {
    /// If they contain the cluster's tag.
    own: Duration,
    /// Otherwise: the user may just have added it.
    foreign: Duration,
}

/// Tags without the cluster's are read now.
impl From<Duration> for Age {
    fn from(own: Duration) -> Self {
        Self { own, foreign: Duration::ZERO }
    }
}

impl Reads {
    /// The tags of a classic balancer.
    pub(crate) async fn classic_tags(&self, name: &str, max_age: impl Into<Age>) -> Answer<Marks> {
        if let Some(tags) = self.remembered_tags(name, max_age.into()) {
            return Ok(Marks::Read(tags));
        }
        if let Some(why) = self.refused(Service::Elb) {
            return Ok(Marks::Unread(why));
        }
        let asked = Instant::now();
        let answer = self.classic_tags.ask_one(name.to_owned()).await;
        Ok(self.marks(name, asked, answer)?.unwrap_or_else(|| self.not_shown(name)))
    }

    /// The tags from the answer to a call for many objects, or to the part of it that is about one. `None` is an object
    /// that does not exist.
    fn marks(&self, of: &str, asked: Instant, answer: Answer<Option<Answer<Tags>>>) -> Answer<Option<Marks>> {
        let tags = match answer {
            Err(error) => return self.accept(error).map(|why| Some(Marks::Unread(why))),
            Ok(Some(Err(error))) => return Unread::refused(&error).map(|why| Some(Marks::Unread(why))).ok_or(error),
            Ok(answer) => answer.transpose()?,
        };
        let Some(tags) = tags else { return Ok(None) };
        if !self.env.ownership.is_member(&tags) && self.is_new(of) {
            return Ok(Some(Marks::Unread(Unread::NotShown)));
        }
        let remembered = &mut self.remembered.lock();
        remembered.hidden.remove(of);
        remembered.tags.retain(|_, (asked, _)| asked.elapsed() < LONG);
        remembered.tags.insert(of.to_owned(), (asked, tags.clone()));
        Ok(Some(Marks::Read(tags)))
    }

    /// The marks of an object that AWS shows without its tags.
    pub(crate) fn not_shown(&self, of: &str) -> Marks {
        let now = self.cluster.now();
        let hidden = &mut self.remembered.lock().hidden;
        hidden.retain(|_, (_, last)| now.saturating_duration_since(*last) < LONG);
        let (first, last) = hidden.entry(of.to_owned()).or_insert((now, now));
        *last = now;
        let is_late = now.saturating_duration_since(*first) >= SHORT;
        Marks::Unread(if is_late { Unread::Hidden } else { Unread::NotShown })
    }

    /// The reason for which AWS refused a moment ago to show tags.
    fn refused(&self, service: Service) -> Option<Unread> {
        let refused = self.remembered.lock().refused.get(&service).copied();
        refused.filter(|(at, _)| at.elapsed() < DENIED_KEPT).map(|(_, why)| why)
    }

    /// Accepts that AWS refuses to show tags; any other error is returned.
    fn accept(&self, error: ApiError) -> Answer<Unread> {
        let Some(why) = Unread::refused(&error) else { return Err(error) };
        let before = self.remembered.lock().refused.insert(error.operation.service, (Instant::now(), why));
        if before.is_none() {
            tracing::warn!(%error, "names decide which load balancers are this cluster's");
        }
        Ok(why)
    }

    /// The tags of v2 objects by ARN; deleted objects are left out.
    pub(crate) async fn network_tags(
        &self,
        arns: impl IntoIterator<Item = String>,
        max_age: impl Into<Age>,
    ) -> Answer<BTreeMap<String, Marks>> {
        let max_age = max_age.into();
        let mut found = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for arn in arns {
            match self.remembered_tags(&arn, max_age) {
                Some(tags) => drop(found.insert(arn, Marks::Read(tags))),
                None => drop(missing.insert(arn)),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        if let Some(why) = self.refused(Service::ElbV2) {
            found.extend(missing.into_iter().map(|arn| (arn, Marks::Unread(why))));
            return Ok(found);
        }
        let asked = Instant::now();
        let wanted = self.with_neighbors(&missing);
        for (arn, answer) in self.network_tags.ask(wanted).await {
            let marks = self.marks(&arn, asked, answer);
            if missing.contains(&arn) {
                found.extend(marks?.map(|marks| (arn, marks)));
            }
        }
        Ok(found)
    }

    /// Fills up a call for tags with those that other Services will need next: the target groups named like this
    /// program's that follow in a recent list, and their balancers. After a restart Services come one by one at the
    /// pace of their other calls, and each would need its own call.
    fn with_neighbors(&self, missing: &BTreeSet<String>) -> BTreeSet<String> {
        let mut wanted = missing.clone();
        let not_before = self.remembered.lock().target_groups;
        let is_young = |began: Instant| began.elapsed() < SHORT && not_before.is_none_or(|written| began >= written);
        let Some(listed) = self.target_groups.last().filter(|listed| is_young(listed.began)) else { return wanted };
        let own = listed.value.iter().position(|group| missing.contains(&group.arn)).unwrap_or_default();
        let (before, behind) = listed.value.split_at(own);
        let ours = behind.iter().chain(before).filter(|group| group.name.starts_with("k8s-"));
        for arn in ours.flat_map(|group| group.balancers.iter().chain([&group.arn])) {
            if wanted.len() >= AT_ONCE {
                break;
            }
            if self.remembered_tags(arn, LONG.into()).is_none() {
                wanted.insert(arn.clone());
            }
        }
        wanted
    }

    fn remembered_tags(&self, of: &str, max_age: Age) -> Option<Tags> {
        let remembered = self.remembered.lock();
        let (asked, tags) = remembered.tags.get(of)?;
        let max_age = if self.env.ownership.is_member(tags) { max_age.own } else { max_age.foreign };
        (asked.elapsed() < max_age).then(|| tags.clone())
    }
}
