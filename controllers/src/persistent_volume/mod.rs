//! persistentvolume-label-controller: labels volumes with their topology, so that their pods are scheduled there.
//!
//! It replaces the controller of Kubernetes 1.8 to 1.13 and the admission plugin `PersistentVolumeLabel`: zone and
//! region as labels, and as node affinity where a volume has none. It handles volumes that users declare, with in-tree
//! sources or for the CSI driver of the same cloud; provisioned volumes have their topology already. It only adds
//! labels and affinity; it never changes or removes them.
//!
//! The program's webhook for the same purpose decides with the same functions ([`decide`]).

pub mod decide;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ccm_provider::deadline;
use ccm_provider::{
    CloudProvider, ErrorClass, EventSink, EventType, ObjectChange, PersistentVolume, ProviderError, Subject,
    VolumeLabels, VolumeSource, Volumes,
};
use ccm_runtime::client::Call;
use ccm_runtime::runner::{self, Limits, Outcome, Reconciler, SyncError};
use ccm_runtime::store::{FieldFilter, Reflector};
use ccm_runtime::{Client, GateError, Metrics, Permission, RateLimit, Store};
use parking_lot::Mutex;

use self::decide::When;
use crate::preview::{self, Preview, Unplanned};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "persistentvolume-label-controller";
/// RBAC permissions of this controller, without events.
pub const PERMISSIONS: &[Permission] = &[
    Permission::new("", "persistentvolumes", &["list", "watch"], "volumes that lack the labels of their zone"),
    Permission::new("", "persistentvolumes", &["patch"], "zone and region of a volume, as labels and node affinity"),
];
/// Concurrent writes.
const WORKERS: usize = 5;
/// The maximum time of the cloud's answer: for all waiting volumes at once, and then for each separately.
const READ_DEADLINE: Duration = Duration::from_secs(15);
/// The maximum time of all separate calls together, for a cloud that never answers.
const ALONE: Duration = Duration::from_secs(60);
/// The name of the call in the metric and in errors.
const CALL: &str = "GetLabelsForVolume";
/// The time until a volume whose disk does not exist is looked up again.
const NO_DISK: Duration = Duration::from_secs(300);
/// The time until a missing permission is tried again, and the hint if it is the permission to watch.
const NO_RIGHT: Duration = Duration::from_secs(300);
/// The time until a permission that is still missing has another event: the API server keeps one for an hour.
const NEWS: Duration = Duration::from_secs(3600);
const NO_WATCH: &str = "grant `list` and `watch` on persistentvolumes, or switch their labels off with \
                        --controllers=*,-persistentvolume-label-controller";

/// The cloud's answer for one volume: `Ok(None)` for one that is not of this cloud.
pub type Answer = Result<Option<VolumeLabels>, ProviderError>;

struct VolumeController {
    shared: Shared,
    volumes: Arc<Store<PersistentVolume>>,
    labeler: Arc<dyn Volumes>,
    events: Arc<dyn EventSink>,
    /// The time at which writes may be tried again after the API server refused one for lack of permission.
    forbidden_until: Mutex<Option<Instant>>,
    /// The permissions of the cloud that an event has named as missing.
    reported: Mutex<BTreeMap<String, Instant>>,
}

/// The observed state of a key.
enum Observed {
    /// Nothing to do.
    Settled,
    /// The API server is expected to refuse writes for this time.
    Forbidden(Duration),
    /// The volume lacks labels; the cloud's answer.
    Asked(Arc<PersistentVolume>, VolumeSource, Answer),
    /// The call for all waiting volumes timed out, so each volume gets a separate call until this time: one volume
    /// without an answer must not delay the others.
    Late(Arc<PersistentVolume>, VolumeSource, Instant),
}

/// Starts the controller with the provider's volumes; the future runs until no new work may begin. The controller has
/// its own watch of volumes, with its own permissions: no other controller reads them, and a cluster may not grant
/// that.
pub fn start(
    shared: Shared,
    labeler: Option<Arc<dyn Volumes>>,
    events: Arc<dyn EventSink>,
) -> Result<impl Future<Output = ()> + Send, NotStarted> {
    let labeler = labeler.ok_or_else(no_labeler)?;
    let volumes = Store::new(FieldFilter::default());
    let seed = shared.clock.wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    let reflector =
        Reflector::new(volumes.clone(), shared.gate.client().clone(), seed.into()).optional(NO_RIGHT, NO_WATCH);
    let queue = shared.queue("pvLabels", RateLimit::DEFAULT);
    let controller = Arc::new(VolumeController::new(shared.clone(), volumes.clone(), labeler, events));
    volumes.on_change({
        let (queue, controller) = (queue.clone(), controller.clone());
        move |change| {
            let (ObjectChange::Added(volume) | ObjectChange::Updated(_, volume)) = &change else { return };
            let same = matches!(&change, ObjectChange::Updated(old, new) if !decide::matters(old, new));
            if !same && controller.lacks_labels(volume).is_some() {
                queue.add(volume.metadata.name.clone());
            }
        }
    });
    Ok(async move {
        let leadership = shared.leadership.clone();
        let limits = Limits { batch: 5000, groups: WORKERS };
        let run = runner::run(controller, queue, limits, leadership.clone(), shared.metrics);
        futures::join!(leadership.until_ended(reflector.run()), run);
    })
}

/// Looks up volumes, all in one call.
///
/// One answer per volume, in order. If the call takes longer than `limit`, all answers are errors.
pub async fn ask(
    labeler: &dyn Volumes,
    volumes: &[PersistentVolume],
    limit: Duration,
    metrics: &Metrics,
) -> Vec<Answer> {
    match ask_in_time(labeler, volumes, limit, metrics).await {
        Ok(answers) => answers,
        Err(late) => volumes.iter().map(|_| Err(late.clone())).collect(),
    }
}

/// The same; the error means that the call took longer than `limit`.
async fn ask_in_time(
    labeler: &dyn Volumes,
    volumes: &[PersistentVolume],
    limit: Duration,
    metrics: &Metrics,
) -> Result<Vec<Answer>, ProviderError> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let began = tokio::time::Instant::now();
    let read = async { Ok(labeler.labels(volumes).await) };
    let answers = deadline::within(CALL, limit, read).await.map(|answers| match answers.len() == volumes.len() {
        true => answers,
        false => {
            let text = format!("the provider answered for {} of {} volumes", answers.len(), volumes.len());
            volumes.iter().map(|_| Err(ProviderError::bug(text.clone()))).collect()
        }
    });
    let error = match &answers {
        Ok(answers) => answers.iter().find_map(|answer| answer.as_ref().err()),
        Err(late) => Some(late),
    };
    metrics.provider_call(CALL, error, began.elapsed());
    answers
}

/// The subject of errors about all volumes.
pub const LIST: &str = "persistentvolumes";

/// The beginning of the error of [`list`] where the API server refuses it.
pub const REFUSED: &str = "the user of this command may not list persistentvolumes";

/// All volumes, as the controller keeps them.
///
/// # Errors
///
/// A message for users.
pub async fn list(client: &Client) -> Result<Arc<Store<PersistentVolume>>, String> {
    let listed = Store::new(FieldFilter::default());
    let filled = Reflector::new(listed.clone(), client.clone(), 0).fill().await;
    filled.map_err(|error| match error.is_forbidden() {
        true => format!("{REFUSED}: {error}"),
        false => format!("cannot list {LIST}: {error}"),
    })?;
    Ok(listed)
}

/// Prepares one pass that only shows its plans: over these volumes, else over those that the API server lists now.
pub fn preview(
    shared: Shared,
    volumes: Option<Arc<Store<PersistentVolume>>>,
    labeler: Option<Arc<dyn Volumes>>,
    events: Arc<dyn EventSink>,
) -> Result<Preview, NotStarted> {
    let labeler = labeler.ok_or_else(no_labeler)?;
    Ok(Box::pin(async move {
        let volumes = match volumes {
            Some(volumes) => volumes,
            None => match list(shared.gate.client()).await {
                Ok(listed) => listed,
                Err(error) => return vec![Unplanned { subject: LIST.into(), error: SyncError::Retry(error) }],
            },
        };
        let keys = volumes.list().iter().map(|volume| volume.metadata.name.clone()).collect();
        let controller = VolumeController::new(shared, volumes, labeler, events);
        preview::sync_once(&controller, keys).await
    }))
}

/// Checks that the controller can run with this provider; the error is the reason why not.
pub fn applies(provider: &dyn CloudProvider) -> Result<(), NotStarted> {
    provider.volumes().map(drop).ok_or_else(no_labeler)
}

fn no_labeler() -> NotStarted {
    NotStarted("cloud provider does not support labels of volumes".into())
}

#[async_trait]
impl Reconciler for VolumeController {
    type Key = Arc<str>;
    type Observed = Observed;
    type Group = Arc<str>;

    fn name(&self) -> &'static str {
        NAME
    }

    fn groups(&self, key: &Arc<str>) -> BTreeSet<Arc<str>> {
        [key.clone()].into()
    }

    fn subject(&self, key: &Arc<str>) -> String {
        decide::plan_subject(key)
    }

    async fn observe(&self, keys: &[Arc<str>]) -> Vec<Result<Observed, SyncError>> {
        if let Some(left) = self.forbidden() {
            return keys.iter().map(|_| Ok(Observed::Forbidden(left))).collect();
        }
        let known: Vec<Option<(Arc<PersistentVolume>, VolumeSource)>> = keys
            .iter()
            .map(|key| {
                let volume = self.volumes.get(key)?;
                let source = *self.lacks_labels(&volume)?;
                Some((volume, source))
            })
            .collect();
        let asked: Vec<PersistentVolume> = known.iter().flatten().map(|(volume, _)| (**volume).clone()).collect();
        let mut answers = match ask_in_time(&*self.labeler, &asked, READ_DEADLINE, &self.shared.metrics).await {
            Ok(answers) => answers.into_iter(),
            Err(late) if asked.len() == 1 => vec![Err(late)].into_iter(),
            Err(_) => Vec::new().into_iter(),
        };
        let until = self.shared.clock.now() + ALONE;
        let observed = known.into_iter().map(|known| {
            let Some((volume, source)) = known else { return Ok(Observed::Settled) };
            Ok(match answers.next() {
                Some(answer) => Observed::Asked(volume, source, answer),
                None => Observed::Late(volume, source, until),
            })
        });
        observed.collect()
    }

    async fn reconcile(&self, work: Vec<(Arc<str>, Observed)>) -> Vec<(Arc<str>, Result<Outcome, SyncError>)> {
        let mut answers = Vec::with_capacity(work.len());
        for (key, observed) in work {
            let answer = match observed {
                Observed::Settled => Ok(Outcome::Done),
                Observed::Forbidden(left) => Ok(Outcome::After(left)),
                Observed::Asked(volume, source, answer) => self.label(&volume, source, answer).await,
                Observed::Late(volume, source, until) => match self.shared.read(self.ask_alone(&volume, until)).await {
                    Ok(answer) => self.label(&volume, source, answer).await,
                    Err(ending) => Err(ending),
                },
            };
            answers.push((key, answer));
        }
        answers
    }
}

impl VolumeController {
    fn new(
        shared: Shared,
        volumes: Arc<Store<PersistentVolume>>,
        labeler: Arc<dyn Volumes>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        let (forbidden_until, reported) = Default::default();
        Self { shared, volumes, labeler, events, forbidden_until, reported }
    }

    fn lacks_labels(&self, volume: &PersistentVolume) -> Option<&VolumeSource> {
        decide::lacks_labels(volume, self.labeler.sources())
    }

    async fn ask_alone(&self, volume: &PersistentVolume, until: Instant) -> Answer {
        let limit = READ_DEADLINE.min(until.saturating_duration_since(self.shared.clock.now()));
        if limit.is_zero() {
            return Err(ProviderError::deadline(CALL, READ_DEADLINE));
        }
        let answers = ask(&*self.labeler, std::slice::from_ref(volume), limit, &self.shared.metrics).await;
        answers.into_iter().next().unwrap_or_else(|| Err(ProviderError::bug("no answer from the provider")))
    }

    async fn label(
        &self,
        volume: &PersistentVolume,
        source: VolumeSource,
        answer: Answer,
    ) -> Result<Outcome, SyncError> {
        let labels = match answer {
            Ok(labels) => labels.unwrap_or_default(),
            Err(error) => {
                let text = source.failed(volume, &error);
                if self.is_news(&error) {
                    self.tell_failure(volume, &text);
                }
                return Err(again(text, &error));
            }
        };
        let mutation = decide::mutate(volume, &labels, When::Later)
            .inspect_err(|error| self.tell_failure(volume, error))
            .map_err(SyncError::Retry)?;
        for (key, present, cloud) in &mutation.contradictions {
            let message = format!(
                "the label {key}={present} contradicts the cloud, which says {cloud}. It is left as it is: change it if pods \
                 of the volume don't start"
            );
            tracing::warn!(volume = %volume.metadata.name, "{message}");
            self.events.event(&subject(volume), EventType::Warning, "VolumeLabelContradictsCloud", &message);
        }
        self.shared.gate.show(&mutation.plan(volume));
        if mutation.is_empty() {
            return Ok(Outcome::Done);
        }
        // Another volume of the same batch may have been refused meanwhile.
        if let Some(left) = self.forbidden() {
            return Ok(Outcome::After(left));
        }
        let path = format!("/api/v1/persistentvolumes/{}", volume.metadata.name);
        match self.shared.gate.write(&Call::strategic(path, &mutation.merge_patch(volume)).metadata_only()).await {
            Ok(_) => {
                *self.forbidden_until.lock() = None;
                let labels: Vec<&str> = mutation.labels.iter().map(|(key, _, _)| key.as_str()).collect();
                let affinity = mutation.affinity.is_some();
                tracing::info!(volume = %volume.metadata.name, ?labels, affinity, "labeled the volume");
                Ok(Outcome::Done)
            }
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            Err(error) if lacks_right(&error) => Ok(Outcome::After(self.refused(&error))),
            Err(error) => {
                // A conflict or an outage is temporary; a volume that the API server rejects is reported.
                let stays = error.api().is_some_and(|api| api.is_refused() && !api.is_conflict());
                let error = SyncError::gate("failed to label the volume", error);
                if stays {
                    self.tell_failure(volume, &error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Whether an error concerns this volume, or is the first for some time about a permission: usually all volumes need it.
    fn is_news(&self, error: &ProviderError) -> bool {
        let ErrorClass::Denied { action } = error.class() else { return true };
        let (now, mut reported) = (self.shared.clock.now(), self.reported.lock());
        reported.retain(|_, at| now.saturating_duration_since(*at) < NEWS);
        let is_news = !reported.contains_key(&action);
        // Repetitions do not put the next event off.
        reported.entry(action).or_insert(now);
        is_news
    }

    /// Emits an event on the volume with the reason why it has no labels.
    fn tell_failure(&self, volume: &PersistentVolume, error: &str) {
        let error = error.trim_end_matches('.');
        let message =
            format!("{error}. The volume has no labels of its zone until this is resolved; the call is retried");
        self.events.event(&subject(volume), EventType::Warning, "FailedToLabelVolume", &message);
    }

    /// The time for which writes are paused for lack of permission.
    fn forbidden(&self) -> Option<Duration> {
        let until = (*self.forbidden_until.lock())?;
        Some(until.saturating_duration_since(self.shared.clock.now())).filter(|left| !left.is_zero())
    }

    /// Pauses writes after the API server refused one for lack of permission, since it would refuse all. Logs this
    /// once.
    fn refused(&self, error: &GateError) -> Duration {
        let mut until = self.forbidden_until.lock();
        if until.is_none() {
            tracing::warn!(
                %error,
                "volumes cannot be labeled: grant `patch` on persistentvolumes, or disable the controller with \
                 --controllers=*,-{NAME}; retried from time to time"
            );
        }
        *until = Some(self.shared.clock.now() + NO_RIGHT);
        NO_RIGHT
    }
}

/// The error with the delay after which the volume is looked up again.
fn again(text: String, error: &ProviderError) -> SyncError {
    match (error.root(), SyncError::provider("", error)) {
        (ProviderError::DiskNotFound, _) => SyncError::RetryAfter { message: text, after: NO_DISK },
        (_, SyncError::Provider { class, after, .. }) => {
            let after = if matches!(class, ErrorClass::Denied { .. }) { Some(NO_RIGHT) } else { after };
            SyncError::Provider { message: text, class, after }
        }
        _ => SyncError::Retry(text),
    }
}

/// Whether the API server refuses writes of all volumes. A refusal by an admission policy has the same code, but
/// concerns one volume.
fn lacks_right(error: &GateError) -> bool {
    error.api().is_some_and(|api| {
        let text = api.to_string();
        api.is_forbidden() && !text.contains("denied the request") && !text.contains("denied request")
    })
}

fn subject(volume: &PersistentVolume) -> Subject {
    Subject {
        kind: "PersistentVolume",
        api_version: "v1",
        namespace: Arc::from(""),
        name: volume.metadata.name.clone(),
        uid: volume.metadata.uid.clone(),
        resource_version: volume.metadata.resource_version.clone(),
    }
}
