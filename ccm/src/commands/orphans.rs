//! `ccm orphans`: cloud objects that belong to this cluster and that no object in the cluster claims.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{Aspects, Claims, ErrorClass, Inspect, Lookup, Orphan, ProviderError, Step};
use ccm_runtime::Gate;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::output::{self, Color, Format, Output, counted, flat};
use super::previewed::step_text;
use super::progress::Progress;
use super::world::{Objects, World};
use super::{Call, Command, SECTION, kubeconfig};
use crate::exit::{Failure, Verdict};

const DELETE: Flag = Flag::new(
    SECTION,
    "delete",
    Kind::Bool,
    "false",
    "Delete them: print the plan, ask for confirmation, check again, then delete.",
);
const YES: Flag = Flag::new(SECTION, "yes", Kind::Bool, "false", "With --delete: do not ask.");
pub(super) const GONE: Flag = Flag::new(
    SECTION,
    "cluster-is-gone",
    Kind::Bool,
    "false",
    "The cluster and its API server no longer exist: every cloud object that belongs to the cluster is an orphan.",
);

pub(super) const COMMAND: Command = Command {
    name: "orphans",
    words: "",
    about: "Lists cloud objects of this cluster that nothing claims. These are leftovers of crashes and of deleted clusters.",
    details: "\
The cloud is read first and the cluster after it, twice: objects still being created are not reported.
--delete shows what it would do and asks; every object is checked again right before its deletion.

Exit codes: 0 there is none (or all are deleted), 2 there are some, 1 something failed, 255 no provider.

  ccm orphans --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm orphans --delete …
  ccm orphans --cluster-is-gone --cloud-provider=aws --cloud-config=cloud.conf      after the cluster was deleted",
    flags: &[DELETE, YES, GONE],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[Format::Name, Format::Wide],
    like_running: true,
    run,
};

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        if !call.words.is_empty() {
            return Err(Failure::error(format!("orphans takes no arguments, got {:?}", call.words.join(" "))));
        }
        let (delete, ask) = (call.values.bool(DELETE.name), !call.values.bool(YES.name));
        if !ask && !delete {
            return Err(Failure::error("--yes is about --delete, which is not given"));
        }
        let search = Search::begin(&call).await?;
        let orphans = search.find().await?;
        if !delete {
            super::deliver(&list(&orphans, call.output))?;
            return Ok(if orphans.is_empty() { Verdict::Clean } else { Verdict::Findings });
        }
        search.delete(orphans, ask, call.output).await
    }
    .boxed()
}

type Deletion = (Orphan, Result<(), String>);

/// The time limit for retries of a deletion after a temporary error, such as a dependency.
const HELD: Duration = Duration::from_secs(180);

struct Search {
    world: World,
    inspect: Arc<dyn Inspect>,
    /// `--cluster-is-gone`: there are no claims.
    gone: bool,
}

impl Search {
    async fn begin(call: &Call) -> Result<Self, Failure> {
        let gone = call.values.bool(GONE.name);
        for server in ["kubeconfig", "master", "context", "as"] {
            let value = call.values.text(server);
            if gone && !value.is_empty() {
                return Err(Failure::error(format!(
                    "--cluster-is-gone and --{server}={value} contradict each other: leave out --cluster-is-gone as long as there \
                     is an API server to ask, else --{server}"
                )));
            }
        }
        let progress = Progress::at("reading the flags");
        let world =
            if gone { World::without_cluster(call, &progress).await? } else { World::open(call, &progress).await? };
        let Some(inspect) = world.provider.inspect() else {
            let name = world.provider.name();
            return Err(Failure::error(format!("the provider {name} cannot list this cluster's cloud objects")));
        };
        Ok(Self { world, inspect, gone })
    }

    /// The orphans of two consecutive reads. The cluster is listed after the first read of the cloud, so that the list
    /// contains the claims to all objects of that read.
    async fn find(&self) -> Result<Vec<Orphan>, Failure> {
        let progress = Progress::at("listing the cluster's objects in the cloud");
        let first = self.look(&self.world.claims()).await?;
        if first.is_empty() {
            return Ok(first);
        }
        progress.go_on("listing nodes and Services again");
        let claims = self.claims().await?;
        progress.go_on("listing the cloud again");
        let again = self.look(&claims).await?;
        let seen: BTreeSet<(&str, &str)> = first.iter().map(|orphan| (&*orphan.kind, &*orphan.id)).collect();
        let confirmed = |orphan: &Orphan| seen.contains(&(&*orphan.kind, &*orphan.id));
        Ok(again.into_iter().filter(confirmed).collect())
    }

    async fn look(&self, claims: &Claims) -> Result<Vec<Orphan>, Failure> {
        let read = self.inspect.orphans(&self.world.shared.cluster, claims);
        let found = deadline::within("looking for orphans", READ_DEADLINE * 5, read).await;
        found.map_err(|error| failed("cannot look for orphans", &error))
    }

    /// The current claims of the cluster.
    async fn claims(&self) -> Result<Claims, Failure> {
        if self.gone {
            return Ok(Claims::default());
        }
        let Objects { nodes, services } = Objects::list(&self.world.client, &*self.world.provider).await?;
        Ok(Claims { nodes: nodes.list(), services: services.list() })
    }

    async fn delete(&self, orphans: Vec<Orphan>, ask: bool, output: Output) -> Result<Verdict, Failure> {
        let document = output.format.is_document();
        // Printed if nothing is deleted.
        let listed = list(&orphans, output);
        let (to_delete, kept): (Vec<Orphan>, Vec<Orphan>) =
            orphans.into_iter().partition(|orphan| orphan.kept.is_none());
        match document {
            true if ask => super::eprint(plan(&to_delete, &kept, output).trim_end()),
            true => {}
            false => {
                super::deliver(&plan(&to_delete, &kept, output))?;
            }
        }
        if to_delete.is_empty() {
            return end(&[], &kept, output);
        }
        self.is_the_cluster().await?;
        let why_not = if self.world.options.dry_run {
            Some("--dry-run: nothing is deleted.")
        } else if ask && !confirmed(to_delete.len())? {
            Some("Nothing is deleted.")
        } else {
            None
        };
        if let Some(why) = why_not {
            if document {
                super::deliver(&listed)?;
            }
            super::eprint(why);
            return Ok(Verdict::Findings);
        }
        let done = self.delete_all(to_delete, output).await?;
        end(&done, &kept, output)
    }

    /// Deletes one by one and prints each at once: after an interruption the user must know which objects were deleted.
    async fn delete_all(&self, to_delete: Vec<Orphan>, output: Output) -> Result<Vec<Deletion>, Failure> {
        // The confirmation may have taken a long time.
        let again = self.find().await?;
        let shared = &self.world.shared;
        let gate = Gate::new(self.world.client.clone(), shared.leadership.clone(), false, shared.metrics.clone());
        let mut done = Vec::new();
        let mut progress = Some(Progress::at("deleting"));
        for orphan in to_delete {
            let result = match still_orphan(&orphan, &again) {
                Ok(()) => {
                    let progress = progress.get_or_insert_with(|| Progress::at("deleting"));
                    self.delete_one(&gate, &orphan, progress).await
                }
                Err(why_not) => Err(why_not),
            };
            let deletion = (orphan, result);
            if !output.format.is_document() {
                // Clears the progress line first.
                progress = None;
                super::print(&deleted_text(&deletion, output));
            }
            done.push(deletion);
        }
        Ok(done)
    }

    /// One deletion. Retries after temporary errors, such as a dependency that the cloud still reports.
    async fn delete_one(&self, gate: &Gate, orphan: &Orphan, progress: &Progress) -> Result<(), String> {
        let give_up = Instant::now() + HELD;
        let what = format!("deleting {} {}", orphan.kind, orphan.id);
        progress.go_on(&*what);
        loop {
            let deletion = self.inspect.delete_orphan(&self.world.shared.cluster, orphan);
            let ended = gate.cloud(tokio::time::timeout(WRITE_DEADLINE, deletion)).await.map_err(|e| e.to_string())?;
            let error = match ended {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => return Err(reason(&ProviderError::deadline("the deletion", WRITE_DEADLINE))),
            };
            match error.retry_after() {
                Some(after) if Instant::now() + after < give_up => {
                    progress.go_on(format!("{what}, which waits: {}", flat(&error.to_string())));
                    tokio::time::sleep(after).await;
                }
                _ => return Err(reason(&error)),
            }
        }
    }

    /// With the kubeconfig of another cluster, all objects in use would look like orphans: at least one node must have
    /// an instance in this cloud.
    async fn is_the_cluster(&self) -> Result<(), Failure> {
        if self.gone {
            return Ok(());
        }
        let nodes = self.world.shared.nodes.list();
        let fix =
            "check --kubeconfig and --cloud-config, or use --cluster-is-gone when the cluster does not exist any more";
        let Some(view) = &self.world.shared.view else {
            let name = self.world.provider.name();
            return Err(Failure::error(format!(
                "nothing is deleted: the provider {name} knows no instances, so that it cannot be checked whether these are its nodes; \
                 {fix}"
            )));
        };
        let answers = view.get(&nodes, Aspects::LIFECYCLE).await;
        if answers.iter().any(|answer| matches!(answer, Lookup::Found(_))) {
            return Ok(());
        }
        let unknown = answers.iter().find_map(|answer| match answer {
            Lookup::Unknown(error) => Some(error),
            _ => None,
        });
        if let Some(error) = unknown {
            return Err(failed(
                "nothing is deleted: the cloud gave no answer whether it has the nodes of this cluster",
                error,
            ));
        }
        Err(Failure::error(format!(
            "nothing is deleted: none of the {} nodes of this cluster has an instance in this cloud, so that the \
             objects may belong to another cluster; {fix}",
            nodes.len()
        )))
    }
}

/// Whether an orphan that was shown is still one after the second read; the error is the reason why not.
fn still_orphan(shown: &Orphan, again: &[Orphan]) -> Result<(), String> {
    match again.iter().find(|orphan| (&orphan.kind, &orphan.id) == (&shown.kind, &shown.id)) {
        None => Err("it is no longer an orphan: not deleted".to_owned()),
        Some(Orphan { kept: Some(why), .. }) => Err(format!("kept by now: {why}")),
        Some(_) => Ok(()),
    }
}

fn end(done: &[Deletion], kept: &[Orphan], output: Output) -> Result<Verdict, Failure> {
    if output.format.is_document() {
        super::deliver(&output.document("OrphansDeleted", deleted_json(done, kept)))?;
    }
    let failed = done.iter().filter(|(_, result)| result.is_err()).count();
    match (failed, kept.is_empty()) {
        (0, true) => Ok(Verdict::Clean),
        (0, false) => Ok(Verdict::Findings),
        _ => Err(Failure::error(format!("{failed} of {} were not deleted", counted(done.len(), "object")))),
    }
}

fn reason(error: &ProviderError) -> String {
    let class = error.class();
    let fix = match class {
        // The error has only a message.
        ErrorClass::Unknown => return error.to_string(),
        // Nothing retries automatically: the user has to run the command again.
        ErrorClass::Throttled { .. }
        | ErrorClass::Transient { .. }
        | ErrorClass::InProgress { .. }
        | ErrorClass::Conflict => "run it again".to_owned(),
        _ => class.remediation(),
    };
    format!("{error} ({}: {fix})", class.as_str())
}

fn failed(context: &str, error: &ProviderError) -> Failure {
    Failure::error(format!("{context}: {}", reason(error)))
}

/// Asks for confirmation and reads the answer from stdin; any answer except yes means no.
fn confirmed(count: usize) -> Result<bool, Failure> {
    let unreadable = |error: std::io::Error| Failure::error(format!("cannot ask: {error}"));
    let mut err = std::io::stderr();
    write!(err, "Delete {} in the cloud? This cannot be undone. Type yes: ", counted(count, "object"))
        .map_err(unreadable)?;
    err.flush().map_err(unreadable)?;
    let mut answer = String::new();
    if std::io::stdin().lock().read_line(&mut answer).map_err(unreadable)? == 0 {
        return Err(Failure::error("nothing is deleted: no answer on stdin; add --yes to delete without being asked"));
    }
    Ok(matches!(answer.trim(), "yes" | "y"))
}

fn list(orphans: &[Orphan], output: Output) -> String {
    match output.format {
        Format::Json | Format::Yaml => return output.document("Orphans", json!({"orphans": orphans})),
        Format::Name => {
            return orphans.iter().map(|o| format!("{}\n", flat(&format!("{}/{}", o.kind, o.id)))).collect();
        }
        _ => {}
    }
    if orphans.is_empty() {
        return "No orphans: every cloud object of this cluster is claimed.\n".to_owned();
    }
    if output.format == Format::Wide {
        return wide(orphans);
    }
    let mut text = String::new();
    for orphan in orphans {
        let name = if orphan.name.is_empty() { String::new() } else { format!(" ({})", orphan.name) };
        let what = flat(&format!("{} {}{name}", orphan.kind, orphan.id));
        let _ = writeln!(text, "{}", output.paint(Color::Bold, &what));
        let mut rows = vec![("made for", orphan.owner.clone()), ("orphan because", orphan.reason.clone())];
        rows.extend(orphan.created.map(|created| ("made at", created.to_string())));
        rows.extend(orphan.cost.clone().map(|cost| ("costs", cost)));
        rows.extend(orphan.kept.clone().map(|kept| ("kept because", kept)));
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| vec![format!("  {key}"), flat(&value)])
            .collect();
        text.push_str(&output::table(&rows));
    }
    let deletable = orphans.iter().filter(|orphan| orphan.kept.is_none()).count();
    let _ = writeln!(text, "\n{}; --delete removes {deletable} of them.", counted(orphans.len(), "orphan"));
    text
}

/// One line for each, with a heading.
fn wide(orphans: &[Orphan]) -> String {
    let heading = ["KIND", "ID", "NAME", "OWNER", "CREATED", "COST", "KEPT", "REASON"].map(str::to_owned).to_vec();
    let row = |orphan: &Orphan| {
        let created = orphan.created.map(|created| created.to_string());
        let cells = [
            orphan.kind.to_string(),
            orphan.id.clone(),
            orphan.name.clone(),
            orphan.owner.clone(),
            created.unwrap_or_default(),
            orphan.cost.clone().unwrap_or_default(),
            orphan.kept.clone().unwrap_or_default(),
            orphan.reason.clone(),
        ];
        cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { flat(&cell) }).to_vec()
    };
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(orphans.iter().map(row)).collect();
    output::table(&rows)
}

fn plan(to_delete: &[Orphan], kept: &[Orphan], output: Output) -> String {
    let mut text = String::new();
    for orphan in to_delete {
        let step = Step { id: flat(&orphan.step.id), ..orphan.step.clone() };
        let _ = writeln!(text, "{}", step_text(&step, output));
        for change in &orphan.step.changes {
            let _ = writeln!(text, "      {}", flat(&change.to_string()));
        }
        let _ = writeln!(text, "      {}", output.paint(Color::Dim, &flat(&format!("because {}", orphan.reason))));
    }
    for orphan in kept {
        let why = orphan.kept.as_deref().unwrap_or_default();
        let line = flat(&format!("keep {} {}: {why}", orphan.kind, orphan.id));
        let _ = writeln!(text, "{}", output.paint(Color::Dim, &format!("  {line}")));
    }
    if to_delete.is_empty() {
        text.push_str("Nothing to delete.\n");
    }
    text
}

fn deleted_text((orphan, result): &Deletion, output: Output) -> String {
    let what = flat(&format!("{} {}", orphan.kind, orphan.id));
    match result {
        Ok(()) => format!("{} {what}\n", output.paint(Color::Green, "deleted")),
        Err(why) => format!("{} {what}: {}\n", output.paint(Color::Red, "not deleted"), flat(why)),
    }
}

fn deleted_json(done: &[Deletion], kept: &[Orphan]) -> Value {
    let one = |(orphan, result): &Deletion| json!({"orphan": orphan, "deleted": result.is_ok(), "error": result.as_ref().err()});
    json!({"results": done.iter().map(one).collect::<Vec<_>>(), "kept": kept})
}

#[cfg(test)]
mod tests {
    use ccm_provider::{Risk, Verb};

    use super::*;

    #[test]
    fn objects_claimed_or_kept_since_are_not_deleted() {
        let orphan = |kind: &str, id: &str, kept: Option<&str>| Orphan {
            kind: kind.into(),
            id: id.into(),
            name: String::new(),
            owner: String::new(),
            reason: String::new(),
            created: None,
            cost: None,
            kept: kept.map(str::to_owned),
            step: Step {
                verb: Verb::Delete,
                kind: kind.to_owned().into(),
                id: id.into(),
                changes: Vec::new(),
                reason: String::new(),
                risk: Risk::None,
            },
            handle: Value::Null,
        };
        let shown = orphan("LoadBalancer", "a", None);
        assert_eq!(still_orphan(&shown, &[orphan("LoadBalancer", "b", None), shown.clone()]), Ok(()));
        let claimed = [orphan("LoadBalancer", "b", None), orphan("TargetGroup", "a", None)];
        assert_eq!(still_orphan(&shown, &claimed), Err("it is no longer an orphan: not deleted".to_owned()));
        let kept = [orphan("LoadBalancer", "a", Some("somebody uses it"))];
        assert_eq!(still_orphan(&shown, &kept), Err("kept by now: somebody uses it".to_owned()));
    }
}
