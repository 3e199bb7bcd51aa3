//! The cloud-controller-manager that runs in the cluster: commands take its arguments and its configuration, so that
//! `kubectl ccm explain svc/web` needs no other flag, or run in its pod.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::process::{Command, ExitStatus, Stdio};

use ccm_controllers::preview::Scope;
use ccm_provider::flag::FlagValues;
use ccm_runtime::permission::SYSTEM_NAMESPACE;
use ccm_runtime::{Client, election};

use super::ACCOUNT;
use super::objects::{Container, Pod};
use super::read;
use super::running::{self, Component, Running};
use super::source::{self, ConfigOfPod};
use crate::commands::orphans::GONE;
use crate::commands::{Call, kubeconfig, page, target};
use crate::exit::{Exit, Failure, Verdict};
use crate::flags::value;
use crate::options::parse;

const CONFIG: &str = "cloud-config";
/// The flags of commands that name a file of the user's machine, and what to do instead with `--in-cluster`.
const LOCAL: [(&str, &str); 5] = [
    ("file", "leave out --file and redirect stdout"),
    ("html", "give --html=- and redirect stdout"),
    ("rbac", ELSEWHERE),
    ("from-snapshot", ELSEWHERE),
    ("leader-ca", ELSEWHERE),
];
const ELSEWHERE: &str = "leave out --in-cluster";
/// How many of kubectl's last bytes on stderr are kept.
const KEPT: usize = 16 * 1024;
/// The beginnings of names of namespaces that only administrators create, by convention.
const RESERVED: [&str; 2] = ["kube-", "openshift-"];

/// A pod of the installation.
struct Installed {
    pod: Pod,
    container: Container,
    running: Running,
    /// Why variables of its environment are unknown.
    unread: Vec<String>,
}

impl Installed {
    fn args(&self) -> &[String] {
        &self.running.args
    }
}

/// Takes the arguments and the configuration of the installation, except what the user gave. `namespace`: where it runs.
pub(in crate::commands) async fn take_flags(call: &mut Call, namespace: Option<&str>) -> Result<(), Failure> {
    let client = kubeconfig::client(call).await?;
    let found = only_one(find(&client, namespace).await?, namespace)?;
    let theirs = flags(call, &found)?;
    let given = |name: &str| theirs.given(name) && !call.values.given(name);
    let path = theirs.text(CONFIG);
    let config = given(CONFIG) && !path.is_empty();
    let config = config.then(|| ConfigOfPod::new(path, &found.pod, &found.container));
    let taken: Vec<(&'static str, Vec<String>)> = theirs
        .iter()
        .filter(|(name, values)| given(name) && !is_of_pod(name, values))
        .map(|(name, values)| (name, values.to_vec()))
        .collect();
    for (name, values) in taken {
        call.values.insert(name, values, true);
    }
    call.config = config;
    Ok(())
}

/// The flags of the installation.
///
/// # Errors
///
/// A value is only known in the pod: a variable of its environment that comes from elsewhere.
fn flags(call: &Call, found: &Installed) -> Result<FlagValues, Failure> {
    let (theirs, _) = parse::read_on(&call.program.flags, found.args().iter().map(OsString::from));
    // A shell replaces more than the kubelet.
    let marks: &[&str] = if found.running.in_shell { &["$", "`", "\\"] } else { &["$("] };
    let is_unknown = |text: &String| marks.iter().any(|mark| text.contains(mark));
    let fail = |what: &str, fix: &str| {
        Err(Failure::error(format!(
            "pod {} has {what}, with a variable whose value is not in the pod's specification{}: add {fix}",
            found.pod.metadata.name,
            found.unread.concat()
        )))
    };
    let unknown = theirs
        .iter()
        .find(|(name, values)| theirs.given(name) && !call.values.given(name) && values.iter().any(is_unknown));
    if let Some((name, values)) = unknown {
        return fail(&format!("--{name}={}", values.join(",")), &format!("--{name}=VALUE"));
    }
    // Such a word may stand for several flags.
    let is_value = |arg: &String| theirs.iter().any(|(_, values)| values.contains(arg));
    match found.args().iter().find(|arg| arg.starts_with(['$', '`']) && is_unknown(arg) && !is_value(arg)) {
        Some(arg) => fail(&format!("the argument {arg}"), "the flags of the program: --cloud-provider=NAME …"),
        None => Ok(theirs),
    }
}

/// Whether a flag makes sense in the pod only: its way to the API server, and its files.
fn is_of_pod(name: &str, values: &[String]) -> bool {
    matches!(name, "kubeconfig" | "master") || name != CONFIG && values.iter().any(|value| value.starts_with('/'))
}

/// All pods of cloud-controller-managers: those of the usual namespace, else those of the other namespaces that are
/// reserved for the system. What runs elsewhere may be anybody's: its arguments would send the user's credentials to the
/// cloud that it names, unless the user names the namespace.
async fn find(client: &Client, namespace: Option<&str>) -> Result<Vec<Installed>, Failure> {
    let mut pods = Vec::new();
    let places = namespace.map_or_else(|| vec![SYSTEM_NAMESPACE, ""], |namespace| vec![namespace]);
    for path in places.into_iter().map(read::pods) {
        let is_taken = |pod: &Pod| namespace.is_some() || is_reserved(&pod.metadata.namespace);
        let listed = page::each(client, &path, |pod: Pod| {
            pods.extend(Some(pod).filter(|pod| is_taken(pod) && of(pod, Vec::new()).is_some()));
        });
        let listed = listed.await;
        listed.map_err(|error| {
            let fix = match error.is_forbidden() {
                true => "; you need `list` on pods, or the flags of the program: --cloud-provider=NAME …",
                false => "",
            };
            Failure::error(format!("cannot look for the cloud-controller-manager of this cluster: {error}{fix}"))
        })?;
        if !pods.is_empty() {
            break;
        }
    }
    let mut found = Vec::new();
    for mut pod in pods {
        let unread = source::read_variables(client, &mut pod).await;
        found.extend(of(&pod, unread));
    }
    Ok(found)
}

fn is_reserved(namespace: &str) -> bool {
    RESERVED.iter().any(|start| namespace.starts_with(start))
}

fn of(pod: &Pod, unread: Vec<String>) -> Option<Installed> {
    if running::has_ended(pod) {
        return None;
    }
    let (container, running) = pod.spec.containers.iter().find_map(|container| {
        let running = running::of(pod, container)?;
        (running.component == Component::CloudControllerManager).then_some((container, running))
    })?;
    Some(Installed { pod: pod.clone(), container: container.clone(), running, unread })
}

fn only_one(mut found: Vec<Installed>, namespace: Option<&str>) -> Result<Installed, Failure> {
    let fix = "give the flags of the one that you mean: --cloud-provider=NAME …";
    // A trial beside the program.
    let is_trial =
        |installed: &Installed| installed.args().iter().any(|arg| arg == "--dry-run" || arg == "--dry-run=true");
    if !found.iter().all(is_trial) {
        found.retain(|installed| !is_trial(installed));
    }
    let names: Vec<&str> = found.iter().map(|installed| &*installed.pod.metadata.name).collect();
    if found.iter().any(|installed| found.first().is_some_and(|first| first.args() != installed.args())) {
        let text =
            format!("several cloud-controller-managers with different arguments run here ({})", names.join(", "));
        return Err(Failure::error(format!("{text}; {fix}")));
    }
    found.pop().ok_or_else(|| {
        let place = namespace
            .map_or_else(|| "a namespace kube-… or openshift-…".to_owned(), |name| format!("the namespace {name}"));
        Failure::error(format!("no pod of a cloud-controller-manager runs in {place} of this cluster; {fix}"))
    })
}

/// Runs the command in the pod of the leader, with kubectl.
pub(in crate::commands) async fn run_inside(
    call: &Call,
    command: &str,
    namespace: Option<&str>,
) -> Result<Verdict, Failure> {
    stays_in_pod(&call.values)?;
    let client = kubeconfig::client(call).await?;
    let mut found = find(&client, namespace).await?;
    let holder = match found.first() {
        Some(first) => holder(&client, call, &flags(call, first)?).await,
        None => String::new(),
    };
    let is_leader = |installed: &Installed| {
        let names = [&installed.pod.metadata.name, &installed.pod.spec.node_name];
        names.iter().any(|name| holder.strip_prefix(&***name).is_some_and(|rest| rest.starts_with('_')))
    };
    let installed = match found.iter().position(is_leader) {
        Some(at) => found.swap_remove(at),
        None => only_one(found, namespace)?,
    };
    flags(call, &installed)?;
    let args = kubectl(call, command, &installed);
    let (namespace, pod) = (&installed.pod.metadata.namespace, &installed.pod.metadata.name);
    let ended = tokio::task::spawn_blocking(move || run_kubectl(args)).await;
    let fail = |reason: String| Failure::error(format!("--in-cluster: pod {namespace}/{pod}: kubectl exec: {reason}"));
    let ended = ended.map_err(|error| fail(error.to_string()))?;
    let (status, said) = ended.map_err(|error| fail(format!("{error}; is kubectl on the PATH?")))?;
    let failed = |fix: &str| fail(format!("ended with {status}, for the reason above{fix}"));
    match status.code() {
        Some(0) => Ok(Verdict::Clean),
        Some(2) => Ok(Verdict::Findings),
        // The exit code is that of the command in the pod.
        Some(255) => Err(Failure { exit: Exit::Fatal, ..failed("") }),
        // kubectl prints this if the command ran.
        _ if said.contains("command terminated with exit code") => Err(failed("")),
        _ if said.contains("is forbidden") => Err(failed(&format!(
            "; it needs `create` on pods/exec (kubectl auth can-i create pods/exec -n {namespace})"
        ))),
        _ => Err(failed(&format!("; see that pod {pod} runs"))),
    }
}

/// The pod has no file of the user's machine, and its own are not written. What runs there ends by itself.
fn stays_in_pod(values: &FlagValues) -> Result<(), Failure> {
    // In the pod nothing would contradict it, and the load balancers of a cluster that lives would be orphans.
    if values.bool(GONE.name) {
        let gone = GONE.name;
        let text =
            format!("--in-cluster and --{gone} contradict each other: the cluster of the pod is there; leave one out");
        return Err(Failure::error(text));
    }
    if values.bool("watch") {
        let text = "--in-cluster and --watch contradict each other: Ctrl-C would end kubectl exec, and not the command in the \
                    pod; in place of --watch run it again and again: watch --interval=5 kubectl ccm explain … --in-cluster";
        return Err(Failure::error(text));
    }
    for (name, fix) in LOCAL {
        let value = values.text(name);
        let is_stdout = value == "-" && fix != ELSEWHERE;
        if values.given(name) && !is_stdout {
            return Err(Failure::error(format!(
                "--in-cluster runs the command in a pod, which has no file of this machine; --{name}={value}: {fix}"
            )));
        }
    }
    Ok(())
}

/// The exit status of kubectl and the end of what it printed on stderr, which the user sees at once.
fn run_kubectl(args: Vec<String>) -> io::Result<(ExitStatus, String)> {
    let mut child = Command::new("kubectl").args(args).stderr(Stdio::piped()).spawn()?;
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    if let Some(mut stderr) = child.stderr.take() {
        while let Ok(length @ 1..) = stderr.read(&mut buffer) {
            let part = buffer.get(..length).unwrap_or_default();
            drop(io::stderr().write_all(part));
            said.extend_from_slice(part);
            said.drain(..said.len().saturating_sub(KEPT));
        }
    }
    Ok((child.wait()?, String::from_utf8_lossy(&said).into_owned()))
}

/// The holder of the lease of the installation; empty if there is none, or if it cannot be read.
async fn holder(client: &Client, call: &Call, theirs: &FlagValues) -> String {
    let of = |name: &str| if call.values.given(name) { call.values.text(name) } else { theirs.text(name) };
    let (namespace, name) = (of("leader-elect-resource-namespace"), of("leader-elect-resource-name"));
    let seen = election::look(client, &namespace, &name).await.ok().flatten();
    seen.map(|seen| seen.holder).unwrap_or_default()
}

/// The arguments of kubectl: the program with its own arguments, and then those of the user, which win.
fn kubectl(call: &Call, command: &str, installed: &Installed) -> Vec<String> {
    let Installed { pod, container, running, .. } = installed;
    let kind = |name: &str| call.program.flags.iter().find(|flag| flag.name == name).map(|flag| flag.kind);
    let given = |name: &str| call.values.given(name) && name != super::super::IN_CLUSTER.name;
    let flag = |(name, values): (&'static str, &[String])| match kind(name) {
        Some(kind) if !value::adds_up(kind) => format!("--{name}={}", values.last().map_or("", String::as_str)),
        _ => format!("--{name}={}", values.join(",")),
    };
    let (reach, own): (Vec<_>, Vec<_>) =
        call.values.iter().filter(|(name, _)| given(name)).partition(|(name, _)| kubeconfig::REACH.contains(name));
    // kubectl does not split such a value.
    let each = |(name, values): (&'static str, &[String])| {
        values.iter().map(|value| format!("--{name}={value}")).collect::<Vec<String>>()
    };
    let mut all: Vec<String> = reach.into_iter().flat_map(each).collect();
    let program = Some(&*running.program).filter(|path| path.starts_with('/')).unwrap_or("/ccm");
    // The pod has no kubeconfig with the namespace of the context.
    let words = match target::scope(&call.words, &call.values) {
        Ok(Scope::Service(service)) => vec![format!("service/{service}")],
        _ => call.words.clone(),
    };
    // `orphans --delete` asks.
    let stdin = call.values.given("delete").then(|| "-i".to_owned());
    all.extend(["exec".to_owned()].into_iter().chain(stdin));
    all.extend(["-n", &pod.metadata.namespace, &pod.metadata.name, "-c", &container.name].map(str::to_owned));
    all.extend(["--", program, command].map(str::to_owned));
    all.extend(words.iter().chain(&running.args).cloned());
    // The roles of the program do not allow it to list pods, by which a command finds the account.
    let wants_account = call.values.iter().any(|(name, _)| name == ACCOUNT.name);
    let account = running.service_account().filter(|_| wants_account);
    all.extend(account.map(|account| format!("--{}={account}", ACCOUNT.name)));
    all.extend(own.into_iter().map(flag));
    // The command in the pod does not know that a terminal shows what it prints.
    all.extend(call.output.looks_forced().then(|| "--color=always".to_owned()));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(args: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "ccm-a", "namespace": "kube-system"},
            "spec": {"containers": [{"name": "ccm", "image": "example.com/ccm:1", "args": args}]},
        }))
        .unwrap()
    }

    #[test]
    fn several_installations_are_an_error_that_names_them() {
        let of = |args| of(&pod(&json!([args])), Vec::new()).unwrap();
        assert_eq!(only_one(vec![of("--v=2"), of("--v=2")], None).ok().unwrap().args(), ["--v=2"]);
        assert_eq!(only_one(vec![of("--v=2"), of("--dry-run")], None).ok().unwrap().args(), ["--v=2"]);
        assert!(only_one(vec![of("--dry-run=true")], None).is_ok());
        let error = |found| only_one(found, None).err().unwrap().message;
        assert!(error(vec![of("--v=2"), of("--v=3")]).contains("different arguments run here (ccm-a, ccm-a)"));
        assert!(error(Vec::new()).starts_with("no pod of a cloud-controller-manager runs"));
    }

    #[test]
    fn a_pod_in_a_namespace_of_users_is_not_taken() {
        assert!(is_reserved("openshift-cloud-controller-manager"));
        assert!(!is_reserved("shop"));
    }

    #[test]
    fn paths_and_the_way_to_the_api_server_stay_in_the_pod() {
        let is = |name, value: &str| is_of_pod(name, &[value.to_owned()]);
        assert!(is("kubeconfig", "x") && is("tls-cert-file", "/etc/x") && !is("cloud-config", "/etc/x"));
        assert!(!is("cluster-name", "prod"));
    }
}
