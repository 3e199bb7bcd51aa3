//! The state reported by the leader: its `/debug/state`.

use std::time::Duration;

use ccm_controllers::preview::Scope;
use ccm_provider::flag::FlagValues;
use ccm_provider::{Fact, FactState};
use ccm_runtime::client::{Call, ConnectOptions, RemoteServer, Trust};
use ccm_runtime::recent::RecentEntry;
use ccm_runtime::{ApiError, Client, Metrics};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::output::flat;
use super::super::previewed::concerns;
use super::report::Story;
use super::{LEADER, LEADER_CA, LEADER_INSECURE};
use crate::clients;
use crate::exit::Failure;
use crate::options::Options;

/// The time limit for its answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Names of error classes that say little about the cause.
const VAGUE: &[&str] = &["unknown", "not-found"];

/// The replica to query.
pub(super) struct Leader {
    url: String,
    server: RemoteServer,
}

/// The leader that the flags specify; `None` without `--leader`.
pub(super) fn flags(values: &FlagValues) -> Result<Option<Leader>, Failure> {
    let (url, file) = (values.text(LEADER.name), values.text(LEADER_CA.name));
    let insecure = values.bool(LEADER_INSECURE.name);
    if url.is_empty() {
        if insecure || !file.is_empty() {
            return Err(Failure::error("--leader-ca and --leader-insecure are about --leader, which is not given"));
        }
        return Ok(None);
    }
    let trust = match (insecure, &*file) {
        (true, "") => Trust::Anybody,
        (true, _) => {
            return Err(Failure::error(format!(
                "--leader-ca={file} and --leader-insecure contradict each other: leave one out"
            )));
        }
        (false, "") => Trust::Same,
        (false, path) => Trust::Authorities(authorities(path)?),
    };
    Ok(Some(Leader { server: RemoteServer { address: address(&url)?, trust }, url }))
}

/// Only https: the credentials are sent to this address.
fn address(url: &str) -> Result<http::Uri, Failure> {
    let fail =
        |reason: &str| Failure::error(format!("--leader={url}: {reason}; give something like https://127.0.0.1:10258"));
    let address: http::Uri = url.parse().map_err(|_| fail("not an address"))?;
    match (address.scheme_str(), address.host()) {
        (Some("https"), Some(host)) if !host.is_empty() => Ok(address),
        (Some("http"), _) => Err(fail("without https the credentials could be read on the way")),
        _ => Err(fail("not an https address")),
    }
}

fn authorities(path: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let fail =
        |reason: String| Failure::error(format!("--leader-ca={path}: {reason}; give a PEM file of certificates"));
    let text = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found: Vec<Vec<u8>> =
        read.map_err(|error| fail(error.to_string()))?.iter().map(|certificate| certificate.to_vec()).collect();
    if found.is_empty() { Err(fail("no certificate in it".into())) } else { Ok(found) }
}

impl Leader {
    /// Reads its state and adds the part about the object. If it is unreachable, the command continues without it.
    pub(super) async fn ask(&self, options: &Options, scope: &Scope, story: &mut Story) -> Result<(), Failure> {
        let connect = ConnectOptions {
            kubeconfig: options.kubeconfig.clone(),
            master: options.master.clone(),
            user_agent: clients::user_agent("explain"),
            access: options.access.clone(),
        };
        let client = Client::connect_elsewhere(&connect, &self.server, Metrics::new()).await;
        let client = client.map_err(|error| Failure::error(format!("{}: {error}", self.label())))?;
        match client.read::<Value>(&Call::get("/debug/state").within(DEADLINE)).await {
            Ok(answer) => self.add(&answer, options, scope, story),
            Err(error) => story.unseen.push(format!("{}: {}", self.label(), refused(&error))),
        }
        Ok(())
    }

    fn label(&self) -> String {
        format!("--leader={}", self.url)
    }

    pub(super) fn add(&self, answer: &Value, options: &Options, scope: &Scope, story: &mut Story) {
        match State::deserialize(answer) {
            Ok(state) => {
                story.facts.extend(facts(&state, scope, options));
                for failure in state.recent_failures.iter().filter(|failure| concerns(scope, &failure.subject)) {
                    let class = failure.failure.as_ref().and_then(|failure| failure.class.as_deref());
                    let fact = failed(failure);
                    // The same rule as for failures of this pass.
                    let vague = fact.state == FactState::Bad && class.is_none_or(|class| VAGUE.contains(&class));
                    if vague { &mut story.effects } else { &mut story.facts }.push(fact);
                }
                story.leader = Some(said(&self.url, answer, scope, &state));
            }
            Err(error) => {
                let text = format!("{}: its answer is not a state of this program: {error}", self.label());
                story.unseen.push(text);
            }
        }
    }
}

/// The reason why it did not answer. The client's error texts name the API server; these name the leader.
fn refused(error: &ApiError) -> String {
    match error {
        ApiError::Status { code: 401, .. } => "it does not accept the credentials of the kubeconfig".to_owned(),
        ApiError::Status { code: 403, .. } => {
            "the user of the kubeconfig may not see it: grant get on the nonResourceURL /debug/state".to_owned()
        }
        ApiError::Status { code: 404, .. } => "it has no /debug/state: is it this program?".to_owned(),
        ApiError::Status { code, .. } => format!("it answers {code} for /debug/state"),
        // The client's text names the API server's address.
        ApiError::Transport(text) => {
            let text = text
                .replace("the address in the kubeconfig or --master", "the address in --leader, and the tunnel to it");
            let distrust = text.contains("certificate");
            let hint = if distrust { " (trust its certificate with --leader-ca, or --leader-insecure)" } else { "" };
            format!("cannot be reached: {text}{hint}")
        }
        ApiError::Deadline(limit) => format!("no answer within {}", ccm_provider::duration::format(*limit)),
        error => error.to_string(),
    }
}

/// The parts of `/debug/state` that this command reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    provider: String,
    cluster_name: String,
    dry_run: bool,
    leadership: Leadership,
    enabled_controllers: Vec<String>,
    queues: Vec<Queue>,
    recent_plans: Vec<RecentEntry>,
    recent_failures: Vec<RecentEntry>,
}

#[derive(Debug, Deserialize)]
struct Leadership {
    state: String,
    identity: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Queue {
    name: String,
    ready: u64,
    working: u64,
    waiting: u64,
}

/// The facts about an object in the state of a replica, except failures.
fn facts(state: &State, scope: &Scope, options: &Options) -> Vec<Fact> {
    let who = state.leadership.identity.as_deref().unwrap_or("it");
    let about = "the asked replica";
    let mut facts = vec![match &*state.leadership.state {
        "leading" => Fact::good(about, format!("{who} leads")),
        other => {
            let hint = "ask the one that holds the lease; its name begins with that of its host or pod";
            Fact {
                hint: Some(hint.into()),
                ..Fact::good(about, format!("{who} does not lead ({other}), so it does nothing"))
            }
        }
    }];
    for (what, theirs, ours) in [
        ("--cloud-provider", &state.provider, &options.cloud_provider),
        ("--cluster-name", &state.cluster_name, &options.cluster_name),
    ] {
        if theirs != ours {
            let text = format!("runs with {what}={theirs}, this command with {ours}");
            facts.push(Fact::bad(about, text, "give this command the flags of the controller manager"));
        }
    }
    if state.dry_run {
        facts.push(Fact::bad(about, "runs with --dry-run: it writes nothing", "remove --dry-run from its flags"));
    }
    let busy = |queue: &&Queue| queue.ready + queue.working + queue.waiting > 0;
    let queue = |queue: &Queue| {
        format!("{}: {} ready, {} in progress, {} delayed", queue.name, queue.ready, queue.working, queue.waiting)
    };
    let queues: Vec<String> = state.queues.iter().filter(busy).map(queue).collect();
    facts.push(Fact::good("its queues", if queues.is_empty() { "empty".to_owned() } else { queues.join("; ") }));
    let off = |name: &&str| !state.enabled_controllers.iter().any(|enabled| enabled == name);
    let off: Vec<&str> = options.switched_on().map(|controller| controller.name).filter(off).collect();
    if !off.is_empty() {
        let text = format!("does not run what the flags of this command switch on: {}", off.join(", "));
        facts.push(Fact::bad(about, text, "compare its --controllers"));
    }
    for plan in state.recent_plans.iter().filter(|plan| concerns(scope, &plan.subject)) {
        facts.push(Fact::good("its last plan", format!("{}s ago: {}", plan.seconds_ago, flat(&plan.text))));
    }
    facts
}

fn failed(happened: &RecentEntry) -> Fact {
    let times = if happened.count > 1 { format!("{} times, last ", happened.count) } else { String::new() };
    let mut text = format!("{times}{}s ago: {}", happened.seconds_ago, happened.text);
    let Some(failure) = &happened.failure else { return Fact::bad("its last failure", text, "see its log") };
    if let Some(class) = &failure.class {
        text.push_str(&format!(" ({class})"));
    }
    if failure.settled {
        return Fact::good("its last failure", format!("{text}; it went well since"));
    }
    text.push_str(&match failure.next_try_seconds {
        Some(0) => "; retried now".to_owned(),
        Some(next) => format!("; retried in {next}s"),
        None => "; retried when the object changes".to_owned(),
    });
    let state = if failure.is_passing() { FactState::Waiting } else { FactState::Bad };
    let hint = failure.remediation.clone().unwrap_or_else(|| "see the message, and its log".to_owned());
    Fact { about: format!("{} of the leader", failure.controller), state, text, hint: Some(hint) }
}

/// For the JSON document: the queried replica and the parts of its answer that concern the object.
fn said(url: &str, answer: &Value, scope: &Scope, state: &State) -> Value {
    let about =
        |all: &[RecentEntry]| all.iter().filter(|one| concerns(scope, &one.subject)).cloned().collect::<Vec<_>>();
    json!({
        "url": url,
        "leadership": answer.get("leadership"),
        "queues": answer.get("queues"),
        "plans": about(&state.recent_plans),
        "failures": about(&state.recent_failures),
    })
}
