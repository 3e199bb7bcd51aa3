//! The network objects of machines: by lists or, where the role has the permissions of the Go program alone, of each
//! instance.

use std::collections::BTreeMap;
use std::sync::{Arc, Once};
use std::time::Duration;

use ccm_kit::Stamped;
use ccm_kit::call::Operation as _;
use ccm_provider::ProviderError;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{Holder, Lists, Read, Reader};
use crate::client::id::ArmId;
use crate::client::{ApiError, is_forbidden};

/// Reads of single objects at once, and the time for all of them: a look-up has two minutes. What is not read by then
/// is read by the next look-up, after a pause.
const EACH: usize = 16;
pub(crate) const EACH_DEADLINE: Duration = Duration::from_secs(25);
const EACH_PAUSE: Duration = Duration::from_secs(5);
/// How long the objects of instances that nobody asks for are kept.
const EACH_KEPT: Duration = Duration::from_secs(3600);

/// What is asked of the network objects of a holder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) holder: &'a Holder,
    /// The objects that are needed.
    pub(crate) ids: &'a [ArmId],
    /// The end of the time for reads of single objects.
    pub(crate) until: Instant,
    pub(crate) age: Duration,
    pub(crate) not_before: Option<Instant>,
}

/// The network objects of a holder.
#[derive(Debug)]
pub(crate) struct Objects<V> {
    by_id: BTreeMap<ArmId, V>,
    /// Those that may exist and could not be read.
    unread: BTreeMap<ArmId, ProviderError>,
}

impl<V> Objects<V> {
    pub(crate) fn new(by_id: BTreeMap<ArmId, V>) -> Self {
        Self { by_id, unread: BTreeMap::new() }
    }

    pub(crate) fn has(&self, id: &ArmId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(crate) fn get(&self, id: &ArmId) -> Result<Option<&V>, ProviderError> {
        match (self.by_id.get(id), self.unread.get(id)) {
            (None, Some(error)) => Err(error.clone()),
            (found, _) => Ok(found),
        }
    }
}

/// The network objects of one kind.
#[derive(Debug)]
pub(super) struct Network<V> {
    lists: Lists<Permitted<V>>,
    each: Each<V>,
    /// Whether the log names the permission for the list of a scale set.
    warned: Once,
}

impl<V: Clone + Send + Sync + 'static> Network<V> {
    pub(super) fn new(list: Read<Permitted<V>>) -> Self {
        Self { lists: Lists::new(list), each: Each(Mutex::default()), warned: Once::new() }
    }

    /// Those of the holder; if Azure refuses to list those of a scale set, the ones with the IDs.
    pub(super) async fn get<F: Future<Output = Result<Option<V>, ApiError>>>(
        &self,
        reader: &Reader,
        asked: Asked<'_>,
        read: impl Fn(ArmId) -> F,
    ) -> Result<Stamped<Objects<V>>, ApiError> {
        let Stamped { began, value } = self.lists.get(reader, asked.holder, asked.age, asked.not_before).await?;
        let denied = match &*value {
            Ok(listed) => return Ok(Stamped { began, value: listed.clone() }),
            Err(denied) => denied,
        };
        let read = self.each.get(asked, denied, read).await;
        // A new role may permit the list by the next look-up.
        let read = read.inspect_err(|_| self.lists.of(reader, asked.holder).forget())?;
        self.warned.call_once(|| tracing::warn!(error = %denied, "network objects of each instance are read alone"));
        Ok(Stamped { began: Instant::now(), value: Arc::new(read) })
    }
}

/// The list of a holder's network objects, or why Azure refuses it.
pub(super) type Permitted<V> = Result<Arc<Objects<V>>, ApiError>;

/// The network objects of single instances, with the time of each read, for scale sets whose lists Azure refuses: the
/// Go program reads them of each instance, and roles for it grant no more.
#[derive(Debug)]
struct Each<V>(Mutex<BTreeMap<ArmId, (Instant, V)>>);

impl<V: Clone> Each<V> {
    /// The objects with the IDs. Until the time is over, first those are read that are not known, then those that are
    /// older than `age`.
    /// `denied`: why they cannot be listed, and the error if these reads are refused as well.
    async fn get<F: Future<Output = Result<Option<V>, ApiError>>>(
        &self,
        Asked { ids, until, age, .. }: Asked<'_>,
        denied: &ApiError,
        read: impl Fn(ArmId) -> F,
    ) -> Result<Objects<V>, ApiError> {
        let mut due: Vec<(Option<Instant>, ArmId)> = {
            let mut known = self.0.lock();
            known.retain(|_, (at, _)| at.elapsed() < EACH_KEPT);
            let asked = ids.iter().map(|id| (known.get(id).map(|(at, _)| *at), id.clone()));
            asked.filter(|(at, _)| at.is_none_or(|at| at.elapsed() > age)).collect()
        };
        due.sort();
        let permission = denied.operation.permission();
        let late = format!("not read yet: without {permission} instances are read one by one");
        let late = ProviderError::in_progress(late, EACH_PAUSE);
        let mut unread: BTreeMap<ArmId, ProviderError> = due.iter().map(|(_, id)| (id.clone(), late.clone())).collect();
        let reads = due.into_iter().map(|(_, id)| {
            let answer = read(id.clone());
            async move { (id, Instant::now(), answer.await) }
        });
        let reads = stream::iter(reads).buffer_unordered(EACH).take_until(sleep_until(until));
        let mut reads = std::pin::pin!(reads);
        while let Some((id, at, answer)) = reads.next().await {
            match answer {
                Ok(Some(object)) => drop(self.0.lock().insert(id.clone(), (at, object))),
                Ok(None) => drop(self.0.lock().remove(&id)),
                Err(error) if is_forbidden(&error) => return Err(denied.clone()),
                Err(error) => {
                    unread.insert(id, error.into());
                    continue;
                }
            }
            unread.remove(&id);
        }
        let known = self.0.lock();
        let by_id = ids.iter().filter_map(|id| Some((id.clone(), known.get(id)?.1.clone()))).collect();
        Ok(Objects { by_id, unread })
    }
}
