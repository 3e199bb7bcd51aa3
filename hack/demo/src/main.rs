//! `cargo demo`: a guided tour of the cloud-controller-manager.
//!
//! No account, no cluster, no root. The API server is the in-memory one of the tests, over HTTP on 127.0.0.1; the cloud
//! is the fake provider with a file that the tour edits, or a simulated OpenStack, Azure, Compute Engine or AWS (see
//! [`scene::cloud`]); the manager is the real one, with real flags. [`scene::kubelet`] simulates the other parts of a cluster: kubelets, pod
//! ranges, the detection of silent kubelets.
//!
//! ```text
//! tour ── changes the cloud, creates and deletes objects ──> scene (API server, cloud, kubelets, manager)
//!   └─ waits for ── world <── watches, call log, manager's log ──────┘
//!                     └──> feed ──> view (a screen, or a log)
//! ```

mod act;
mod args;
mod feed;
mod scene;
mod sdk;
mod summary;
mod text;
mod tour;
mod view;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Args, CloudName};
use crate::feed::{Feed, Item};
use crate::scene::Scene;
use crate::tour::Tour;
use crate::view::{View, say};

/// The time limit for the manager to stop.
const STOP: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => {
            let _closed = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if args.cloud == CloudName::Aws
        && let Some(code) = sdk::elsewhere()
    {
        return code;
    }
    // One TLS provider per process. An error means that it is already set.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(args)).unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    });
    runtime.shutdown_background();
    code
}

/// Signals that end the demo, with the usual exit codes of shells.
struct Signals([(Signal, u8); 3]);

impl Signals {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("cannot receive signals");
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [int, term, hup] = kinds.map(on);
        Ok(Self([(int?, 130), (term?, 143), (hup?, 129)]))
    }

    async fn next(&mut self) -> u8 {
        let Self([(int, a), (term, b), (hup, c)]) = self;
        tokio::select! {
            _ = int.recv() => *a,
            _ = term.recv() => *b,
            _ = hup.recv() => *c,
        }
    }
}

enum Ended {
    Finished,
    Failed(anyhow::Error),
    Signal(u8),
}

async fn run(args: Args) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let feed = Arc::new(Feed::new());
    let scene = Scene::start(args, &feed).await?;
    let live = !args.plain && view::is_terminal();
    let head = head(&scene, args);
    if !live {
        head.iter().for_each(|line| say(line));
    }
    let footer: Vec<String> = head.into_iter().skip(2).collect();
    let view = View::start(live, &feed, &scene.world, scene.cloud.profile().acts.len(), footer)?;
    let mut tour = Tour::new(scene, args, feed.clone());
    let mut ended = tokio::select! {
        ended = tour.run() => ended.map_or_else(Ended::Failed, |()| Ended::Finished),
        code = signals.next() => Ended::Signal(code),
    };
    if args.keep && matches!(ended, Ended::Finished) {
        feed.add(keep(&tour));
        // A requested exit.
        let _code = signals.next().await;
    }
    // A second signal ends the wait, but created files are always removed.
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(STOP, tour.stop_manager()) => stopped.unwrap_or(Ok(())),
        _ = signals.next() => Ok(()),
    };
    if let (Ended::Finished, Err(error)) = (&ended, stopped) {
        ended = Ended::Failed(error.context("the manager did not end well"));
    }
    view.end().await;
    Ok(finish(tour, ended, live).await)
}

async fn finish(mut tour: Tour, ended: Ended, live: bool) -> ExitCode {
    let code = match ended {
        Ended::Finished => {
            say(&summary::summary(&tour, live));
            ExitCode::SUCCESS
        }
        Ended::Signal(code) => {
            say("\nEnded before the end of the tour. Nothing is left behind.");
            ExitCode::from(code)
        }
        Ended::Failed(error) => {
            tour.scene.keep_files();
            say("");
            eprintln!("Error: {error:#}");
            eprintln!("The files stay for a look: {}; the manager's log is manager.log", tour.scene.folder().display());
            ExitCode::FAILURE
        }
    };
    tour.scene.end().await;
    code
}

/// The addresses of the running parts.
fn head(scene: &Scene, args: Args) -> Vec<String> {
    let config = scene.cloud.config().file_name().unwrap_or_default().display();
    let mut lines = vec![
        format!(
            "ccm demo: an in-memory Kubernetes API ({}), a simulated cloud ({}) of {} machines, and the real manager.",
            scene.server.url(),
            scene.cloud.profile().name,
            args.nodes
        ),
        "The demo plays the kubelets. Nothing leaves this machine. Look on with kubectl from another terminal:"
            .to_owned(),
        format!("  export KUBECONFIG={}", scene.kubeconfig().display()),
        format!("  files: {}/ ({config}, manager.log, calls.jsonl)", scene.folder().display()),
    ];
    let age = scene.cloud.profile().age;
    if !age.is_zero() {
        let behind = age.as_secs() / 60;
        lines.push(format!(
            "  The clock of the API is {behind} minutes behind, since the absence of an instance is not evidence for a young node: \
             kubectl counts times from that clock."
        ));
    }
    lines.extend(scene.cloud.windows());
    lines
}

/// Suggestions while everything keeps running.
fn keep(tour: &Tour) -> Item {
    let folder = tour.scene.folder().display();
    let text = format!(
        "The tour is over, and everything stays up until Ctrl-C. Try, from another terminal: kubectl get nodes,services -o wide; \
         kubectl apply -f {folder}/shop.yaml; kubectl get events; kubectl delete service shop. {} The commands of ccm, such as \
         plan, orphans and, while there is a shop, explain service default/shop, need these flags: {}",
        tour.scene.cloud.try_next(),
        tour.scene.command_args().join(" ")
    );
    Item::Act { number: tour.scene.cloud.profile().acts.len() + 1, title: "Now you", text }
}
