//! The common part of all calls: rereads a changed file, logs the call, applies faults.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ccm_provider::{CloudConfig, ErrorClass, Node, ProviderError};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value as Json, json};

use crate::answer::Answer;
use crate::call_log::{CallLog, CallName, ErrorFields, OpenCall, Outcome};
use crate::config::{Config, StartConfig};
use crate::faults::{self, Counters, Rule, Subject};
use crate::method::Method;
use crate::reload::{Change, Watched};
use crate::state::{Balancer, Tables};

/// The cloud of all interfaces.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) start: StartConfig,
    log: CallLog,
    world: Mutex<World>,
}

#[derive(Debug)]
struct World {
    file: Option<Watched<Config>>,
    config: Arc<Config>,
    counters: Counters,
    tables: Tables,
}

/// A started call: the configuration at that time, and the open log entry.
struct Begun<'a> {
    config: Arc<Config>,
    line: OpenCall<'a>,
    at: SystemTime,
}

/// The answers of a batch call, and its start time.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) began: SystemTime,
    pub(crate) config: Arc<Config>,
    pub(crate) answers: Vec<Result<T, ProviderError>>,
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Logs settings in the file without effect.
fn log_findings(config: &Config) {
    for finding in config.doubts() {
        tracing::warn!(key = finding.key, value = finding.value, "cloud config: {}", finding.message);
    }
}

fn invalid(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, message)
}

impl Cloud {
    pub(crate) fn new(file: Option<&CloudConfig>) -> Result<Self, ProviderError> {
        let refuse = |error: &dyn std::fmt::Display| match file {
            Some(file) => invalid(format!("{}: {error}", file.path.display())),
            None => invalid(error.to_string()),
        };
        let config = match file {
            Some(file) => Config::parse(&file.text, folder_of(&file.path), None),
            None => Config::defaults(),
        }
        .map_err(|error| refuse(&error))?;
        log_findings(&config);
        let start = config.start.clone();
        let log = CallLog::open(start.call_log.as_deref()).map_err(|error| {
            let path = start.call_log.as_deref().unwrap_or(Path::new("")).display();
            refuse(&format_args!("callLog: cannot open {path}: {error}"))
        })?;
        let tables = Tables::at_start(&config).map_err(|error| refuse(&error))?;
        let (file, config) = match file {
            Some(file) => {
                let watched = Watched::new(file.path.clone(), &file.text, config);
                let config = Arc::clone(watched.current());
                (Some(watched), config)
            }
            None => (None, Arc::new(config)),
        };
        let world = World { file, config, counters: Counters::default(), tables };
        Ok(Self { start, log, world: Mutex::new(world) })
    }

    /// The lock is never held over an `await`. After a panic under it, at worst a change is not saved.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// Reads the file again if it changed, and returns the current configuration.
    fn reload(&self) -> Arc<Config> {
        let mut world = self.world();
        let World { file, config, counters, tables } = &mut *world;
        let Some(file) = file else { return Arc::clone(config) };
        let folder = folder_of(file.path()).to_owned();
        match file.poll(|text| Config::parse(text, &folder, Some(&self.start.provider_name))) {
            Change::None => {}
            Change::Refused(error) => {
                tracing::warn!(file = %file.path().display(), %error, "the last good content of the fake cloud stays in force");
                self.log.reload(Some(&error));
            }
            Change::Reloaded { old, new } => {
                tracing::info!(file = %file.path().display(), "read the fake cloud again");
                // Compared with the configuration at the start, so that reverting a change counts as no change.
                for key in self.start.changes(&new.start) {
                    tracing::warn!(key, "this key is read at the start only; the change takes effect at the next one");
                }
                log_findings(&new);
                counters.retain(&new.faults);
                let before = tables.clone();
                if old.load_balancers.initial != new.load_balancers.initial {
                    tables.set_balancers(&new.load_balancers.initial);
                }
                if old.routes.initial != new.routes.initial {
                    tables.routes.clone_from(&new.routes.initial);
                }
                if let Err(error) = self.save_changes(&before, tables) {
                    tracing::error!(%error, "cannot keep the tables of the fake cloud");
                }
                *config = new;
                self.log.reload(None);
            }
        }
        Arc::clone(config)
    }

    /// The current configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.reload()
    }

    /// The current load balancers. Not logged as a call; the caller logs one if needed.
    pub(crate) fn balancers(&self) -> BTreeMap<String, Balancer> {
        self.reload();
        self.world().tables.balancers.clone()
    }

    fn save_changes(&self, before: &Tables, after: &Tables) -> Result<(), ProviderError> {
        let Some(path) = self.start.state_file.as_deref().filter(|_| before != after) else { return Ok(()) };
        after
            .save(path)
            .map_err(|error| ProviderError::unknown(format!("stateFile: cannot write {}: {error}", path.display())))
    }

    fn begin(&self, name: CallName, args: Json) -> Begun<'_> {
        let at = SystemTime::now();
        let config = self.reload();
        Begun { config, at, line: self.log.start(name, args) }
    }

    /// One call with one subject.
    pub(crate) async fn call<T: Answer>(
        &self,
        method: Method,
        subject: Subject<'_>,
        args: Json,
        act: impl FnOnce(&Config, &mut Tables) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let Begun { config, mut line, .. } = self.begin(CallName { call: method.name(), stands_for: None }, args);
        let rule = self.world().counters.choose(&config.faults, &[method], &subject);
        if let Some(rule) = rule {
            line.fault(rule.id.clone());
            faults::wait(&[rule]).await;
        }
        let answer = judge(rule, || {
            let mut world = self.world();
            let before = self.start.state_file.is_some().then(|| world.tables.clone());
            let answer = act(&config, &mut world.tables);
            match before {
                Some(before) => self.save_changes(&before, &world.tables).and(answer),
                None => answer,
            }
        });
        line.end(match &answer {
            Ok(answer) => Outcome { result: answer.to_json(), error: ErrorFields::default() },
            Err(error) => Outcome { result: None, error: error.into() },
        });
        answer
    }

    /// One call for many nodes. Faults apply to each node; the call waits once for all.
    pub(crate) async fn batch<T: Answer>(
        &self,
        method: Method,
        nodes: &[&Node],
        act: impl Fn(&Config, &Node) -> Result<T, ProviderError> + Send,
    ) -> Batch<T> {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let name = CallName { call: Method::Lookup.name(), stands_for: Some(method.name()) };
        let Begun { config, mut line, at } = self.begin(name, json!({"nodes": names}));
        let rules: Vec<Option<&Rule>> = {
            let counters = &mut self.world().counters;
            let methods = [method, Method::Lookup];
            nodes.iter().map(|node| counters.choose(&config.faults, &methods, &node_subject(node))).collect()
        };
        let used: Vec<&Rule> = rules.iter().flatten().copied().collect();
        if !used.is_empty() {
            let mut ids: Vec<&str> = used.iter().map(|rule| rule.id.as_str()).collect();
            let mut seen = std::collections::HashSet::new();
            ids.retain(|id| seen.insert(*id));
            line.fault(ids.join(","));
            faults::wait(&used).await;
        }
        let answers: Vec<Result<T, ProviderError>> =
            nodes.iter().zip(&rules).map(|(node, rule)| judge(*rule, || act(&config, node))).collect();
        line.end(batch_outcome(&answers, &rules));
        Batch { began: at, config, answers }
    }
}

fn node_subject(node: &Node) -> Subject<'_> {
    Subject { node: Some(node.name.as_str()), provider_id: Some(node.provider_id_or_empty()), ..Subject::default() }
}

/// The answer of a call after applying the matching rule, if any.
fn judge<T: Answer>(rule: Option<&Rule>, act: impl FnOnce() -> Result<T, ProviderError>) -> Result<T, ProviderError> {
    let Some(rule) = rule else { return act() };
    if let Some(error) = rule.error() {
        if rule.applied {
            // The call takes effect, but its answer is lost.
            let _ = act();
        }
        return Err(error);
    }
    let answer = act()?;
    match &rule.result {
        None => Ok(answer),
        Some(result) => faults::decode(result, T::read)
            .map_err(|error| ProviderError::unknown(format!("fault {:?} does not fit this call: {error}", rule.id))),
    }
}

/// One entry per node in order: `{"result": …}` or `{"error": …, "kind": …}`, and `fault` if a rule was applied. If
/// every node failed, the error of the first is also that of the call.
fn batch_outcome<T: Answer>(answers: &[Result<T, ProviderError>], rules: &[Option<&Rule>]) -> Outcome {
    let entry = |(answer, rule): (&Result<T, ProviderError>, &Option<&Rule>)| {
        let mut entry = match answer {
            Ok(answer) => json!({"result": answer.to_json()}),
            Err(error) => json!(ErrorFields::from(error)),
        };
        if let (Some(entry), Some(rule)) = (entry.as_object_mut(), rule) {
            entry.insert("fault".to_owned(), Json::String(rule.id.clone()));
        }
        entry
    };
    let entries = answers.iter().zip(rules).map(entry).collect();
    let error = match answers.first() {
        Some(Err(error)) if answers.iter().all(Result::is_err) => error.into(),
        _ => ErrorFields::default(),
    };
    Outcome { result: Some(Json::Array(entries)), error }
}
