//! The order of a run: the checks of one cluster at once, then those of a second cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ccm_test_bed::{Audit, ControllerManager, Process};
use tokio::task::JoinSet;

use crate::arguments::Options;
use crate::checks::{CHECKS, Check, Place, beside};
use crate::report::{Outcome, Report};
use crate::world::{RANGE, World, end, ended_by_itself, exit};

/// The program of the first cluster: all controllers, with short periods.
const ALL: &[&str] = &[
    "--controllers=*",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--route-reconciliation-period=1s",
    "--node-monitor-period=1s",
    "--node-status-update-frequency=1s",
];

type Results = BTreeMap<usize, (Outcome, f64)>;

/// `None` if this machine has no API server.
pub(crate) async fn run(options: Options) -> Result<Option<Report>> {
    let began = Instant::now();
    let options = Arc::new(options);
    let mut results = Results::new();
    let Some(mut report) = first(&options, &mut results).await? else { return Ok(None) };
    if wanted(&options, Place::Second).next().is_some() {
        second(&options, &mut results).await?;
    }
    report.results = results.into_iter().filter_map(|(at, (o, s))| Some((CHECKS.get(at)?, o, s))).collect();
    report.seconds = began.elapsed().as_secs_f64();
    Ok(Some(report))
}

/// The positions of the checks of a place.
fn wanted(options: &Options, place: Place) -> impl Iterator<Item = usize> {
    let all = CHECKS.iter().enumerate().filter(move |(_, check)| check.place == place);
    all.filter(|(_, check)| options.only.is_empty() || options.only.iter().any(|g| g == check.group)).map(|(at, _)| at)
}

async fn first(options: &Arc<Options>, results: &mut Results) -> Result<Option<Report>> {
    let Some(world) = World::start(options, Audit::Off).await? else { return Ok(None) };
    let (succeeded, version) = world.ended("version", &["--version"]).await?;
    anyhow::ensure!(succeeded, "{} --version failed: {version}", options.program.display());
    let (_, raw) = world.ended("raw-version", &["--version=raw"]).await?;
    let server = world.get("/version").await?.context("the API server has no /version")?;
    let report = Report {
        program: options.program.display().to_string(),
        version: version.lines().next().unwrap_or_default().to_owned(),
        commit: commit(&raw).unwrap_or_default().to_owned(),
        provider: options.provider.clone(),
        reference: options.reference,
        kubernetes: server.get("gitVersion").and_then(|v| v.as_str()).unwrap_or_default().to_owned(),
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        ..Report::default()
    };

    let world = Arc::new(world);
    let kubeconfig = world.bed.kubeconfig().display().to_string();
    let serving = [
        format!("--secure-port={}", world.port),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--cluster-cidr={RANGE}"),
    ];
    let mut arguments: Vec<&str> = serving.iter().map(String::as_str).collect();
    if options.provider == "fake" {
        arguments.extend(ALL);
    }
    let mut program = world.launch_as_admin("program", &arguments);
    let places = wanted(options, Place::Alone).chain(wanted(options, Place::First)).collect();
    together(&world, Some(&mut program), places, results).await;
    note_end(&mut program, results);
    drop(program);
    Ok(Some(report))
}

/// The commit in a `version.Info` of Go, if the build knew it.
fn commit(raw: &str) -> Option<&str> {
    let (commit, _) = raw.split_once("GitCommit:\"")?.1.split_once('"')?;
    (commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(commit)
}

/// All at once: most checks wait. Those on a program that ends by itself end with it.
async fn together(world: &Arc<World>, mut program: Option<&mut Process>, places: Vec<usize>, results: &mut Results) {
    let (mut tasks, mut of_program) = (JoinSet::new(), Vec::new());
    let mut running = BTreeMap::new();
    for at in places {
        let Some(check) = CHECKS.get(at) else { continue };
        if check.needs_cloud() && world.options.provider != "fake" {
            results.insert(at, (Outcome::NotRun("it needs the provider fake".into()), 0.0));
            continue;
        }
        let world = Arc::clone(world);
        let task = tasks.spawn(async move {
            let began = Instant::now();
            let outcome = (check.run)(&world).await;
            (at, outcome, began.elapsed().as_secs_f64())
        });
        running.insert(task.id(), at);
        if check.place != Place::Alone {
            of_program.push(task);
        }
    }
    loop {
        let joined = tokio::select! {
            joined = tasks.join_next() => joined,
            _ = end(program.as_deref_mut()) => {
                program = None;
                of_program.iter().for_each(tokio::task::AbortHandle::abort);
                continue;
            }
        };
        let Some(joined) = joined else { return };
        match joined {
            Ok((at, Ok(()), seconds)) => results.insert(at, (Outcome::Passed, seconds)),
            Ok((at, Err(error), seconds)) => results.insert(at, (Outcome::Failed(format!("{error:#}")), seconds)),
            Err(lost) => {
                let at = running.get(&lost.id()).copied().unwrap_or_default();
                let why = match lost.is_cancelled() {
                    true => "it did not happen".to_owned(),
                    false => format!("the check itself failed: {lost}"),
                };
                results.insert(at, (Outcome::Failed(why), 0.0))
            }
        };
    }
}

/// A program that ended by itself explains many failures.
fn note_end(program: &mut Process, results: &mut Results) {
    let Some(status) = program.exited() else { return };
    let note = format!("\n{}", ended_by_itself(status, program));
    for (at, (outcome, _)) in results {
        let alone = CHECKS.get(*at).is_none_or(|check| check.place == Place::Alone);
        if let (Outcome::Failed(message), false) = (outcome, alone) {
            message.push_str(&note);
        }
    }
}

/// Beside a kube-controller-manager, as the service account with the documented role.
async fn second(options: &Arc<Options>, results: &mut Results) -> Result<()> {
    let places: Vec<usize> = wanted(options, Place::Second).collect();
    if options.provider != "fake" {
        let why = || Outcome::NotRun("it needs the provider fake".into());
        results.extend(places.into_iter().map(|at| (at, (why(), 0.0))));
        return Ok(());
    }
    let Some(world) = World::start(options, Audit::Metadata).await? else { return Ok(()) };
    beside::grant(&world).await?;
    let world = Arc::new(world);
    let other: Option<ControllerManager> = world.bed.start_controller_manager(beside::CONTROLLER_MANAGER).await?;
    let kubeconfig = world.bed.kubeconfig_with(&world.bed.ccm_token)?;
    let range = format!("--cluster-cidr={RANGE}");
    let mut program = world.launch("program", &kubeconfig, &[ALL, &["--leader-elect=true", &range]].concat());
    let (last, mut early): (Vec<usize>, Vec<usize>) =
        places.into_iter().partition(|at| CHECKS.get(*at).is_some_and(Check::is_last));
    if other.is_none() {
        let beside = |at: &usize| CHECKS.get(*at).is_some_and(|check| check.group == "beside");
        let why = || Outcome::NotRun("this machine has no kube-controller-manager".into());
        results.extend(early.iter().filter(|at| beside(at)).map(|at| (*at, (why(), 0.0))));
        early.retain(|at| !beside(at));
    }
    together(&world, Some(&mut program), early, results).await;
    note_end(&mut program, results);
    if program.exited().is_none() {
        program.terminate();
        exit(&mut program, crate::world::LIMIT).await.context("after SIGTERM")?;
    }
    // The audit log is complete only now.
    together(&world, None, last, results).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_hash_is_a_commit() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(super::commit(&format!("version.Info{{Major:\"0\", GitCommit:\"{hash}\", X:\"\"}}")), Some(hash));
        for raw in ["", "Kubernetes v1", "GitCommit:\"unknown\"", "GitCommit:\"$Format:%H$\""] {
            assert_eq!(super::commit(raw), None, "{raw}");
        }
    }

    mod real_apiserver {
        use crate::arguments::{Command, parse};
        use crate::report::Outcome;

        /// It accepts every flag and says nothing.
        #[tokio::test(flavor = "multi_thread")]
        async fn a_program_that_does_nothing_fails() {
            let arguments = ["--program=/bin/true", "--only=flags"].map(str::to_owned);
            let Command::Run(options) = parse(arguments.into_iter()).unwrap() else { panic!("not a run") };
            let Some(report) = super::super::run(options).await.unwrap() else { return };
            let passed = report.results.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Passed));
            let passed: Vec<_> = passed.map(|(check, ..)| check.name).collect();
            assert_eq!(passed, [""; 0]);
            assert_eq!(report.failed(), report.results.len());
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_program_that_ends_is_not_waited_for() {
            let arguments = ["--program=/bin/true", "--only=election,serving,node"].map(str::to_owned);
            let Command::Run(options) = parse(arguments.into_iter()).unwrap() else { panic!("not a run") };
            let Some(report) = super::super::run(options).await.unwrap() else { return };
            for (check, outcome, seconds) in &report.results {
                let Outcome::Failed(why) = outcome else { panic!("{} did not fail", check.name) };
                assert!(why.contains("the program ended by itself"), "{}: {why}", check.name);
                assert!(*seconds < crate::world::LIMIT.as_secs_f64(), "{} took {seconds} s", check.name);
            }
        }
    }
}
