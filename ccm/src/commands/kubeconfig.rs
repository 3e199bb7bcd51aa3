//! The kubeconfig of the user who runs a command, as kubectl finds it.
//!
//! Only for commands: the manager uses `--kubeconfig` or its service account, as the Go programs.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ccm_provider::duration;
use ccm_provider::flag::{Flag, FlagValues, Kind};
use ccm_runtime::client::{Access, Call as Request, context_names, context_namespace};
use ccm_runtime::{Client, Metrics};

use super::{Call, SECTION};
use crate::exit::Failure;
use crate::manager;
use crate::options::Options;

const CONTEXT: &str = "context";
const USER: &str = "as";
const GROUP: &str = "as-group";
const TIMEOUT: &str = "request-timeout";
const NAMESPACE: &str = "namespace";
const ALL_NAMESPACES: &str = "all-namespaces";
/// The flags that kubectl needs to reach the same cluster as the same user.
pub(super) const REACH: [&str; 5] = ["kubeconfig", CONTEXT, USER, GROUP, TIMEOUT];

/// The flags of kubectl that every command has.
#[rustfmt::skip]
pub(super) const FLAGS: [Flag; 5] = [
    Flag::new(SECTION, CONTEXT, Kind::Text, "", "The context of the kubeconfig. By default its current context."),
    Flag::new(SECTION, USER, Kind::Text, "", "The user to impersonate, such as system:serviceaccount:NAMESPACE:NAME."),
    Flag::new(SECTION, GROUP, Kind::Repeated, "", "A group to impersonate, with --as. May be repeated."),
    Flag::new(SECTION, TIMEOUT, Kind::Text, "0", "How long to wait for each answer of the API server, such as 5s or 1m. 0 means 30s."),
    Flag::new(SECTION, ALL_NAMESPACES, Kind::Bool, "false", "All namespaces, which is the default of commands that need no object.").short('A'),
];

/// `-n` of a command that refuses it.
pub(super) const NO_NAMESPACE: Flag = Flag { hidden: true, ..namespace_flag("Refused.") };

pub(super) const fn namespace_flag(help: &'static str) -> Flag {
    Flag::new(SECTION, NAMESPACE, Kind::Text, "", help).short('n')
}

/// The options with the kubeconfig and the access flags of the user. Without `--kubeconfig` and `--master`: `$KUBECONFIG`,
/// else `~/.kube/config`. If there is neither, a command in a pod uses its service account.
///
/// # Errors
///
/// `KUBECONFIG` names no file that exists; there is no way to an API server; flags contradict each other.
pub(super) fn or_of_user(mut options: Options, values: &FlagValues) -> Result<Options, Failure> {
    let (path, access) = of_user(values).map_err(Failure::error)?;
    (options.kubeconfig, options.access) = (path, access);
    if !options.access.context.is_empty() && options.kubeconfig.is_empty() {
        return Err(Failure::error(format!(
            "--context={}: there is no kubeconfig; set --kubeconfig or KUBECONFIG",
            options.access.context
        )));
    }
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if options.kubeconfig.is_empty() && options.master.is_empty() && !in_pod {
        return Err(Failure::error(
            "which cluster? KUBECONFIG is not set, and there is no ~/.kube/config; give --kubeconfig or --master",
        ));
    }
    Ok(options)
}

/// A client for a command that needs no provider.
pub(super) async fn client(call: &Call) -> Result<Client, Failure> {
    let mut values = call.values.clone();
    if values.text("cloud-provider").is_empty() {
        values.insert("cloud-provider", vec!["external".to_owned()], false);
    }
    let options = or_of_user(Options::new(&values, &call.program)?, &values)?;
    manager::connect(&options, &Metrics::new()).await
}

/// The kubeconfig, and whom it is used as. Empty if there is none, or if `--master` makes it unnecessary.
fn of_user(values: &FlagValues) -> Result<(String, Access), String> {
    let mut files = match values.text("kubeconfig") {
        given if !given.is_empty() || !values.text("master").is_empty() => vec![given],
        _ => find(|name| std::env::var_os(name), |path| path.exists() && !path.is_dir())?,
    };
    let first = if files.is_empty() { String::new() } else { files.remove(0) };
    Ok((first, Access { more: files, ..access(values)? }))
}

fn access(values: &FlagValues) -> Result<Access, String> {
    let user = values.text(USER);
    // The default of such a flag is one empty text.
    let groups: Vec<String> = values.list(GROUP).into_iter().filter(|group| !group.is_empty()).collect();
    if user.is_empty() && !groups.is_empty() {
        return Err(format!("--{GROUP}={}: add --{USER}=USER, which it belongs to", groups.join(",")));
    }
    if values.bool(ALL_NAMESPACES) && values.given(NAMESPACE) {
        return Err(format!("--{ALL_NAMESPACES} and --{NAMESPACE} contradict each other: leave one of them out"));
    }
    let timeout = timeout(&values.text(TIMEOUT))?;
    Ok(Access { more: Vec::new(), context: values.text(CONTEXT), user, groups, timeout })
}

/// As in kubectl, a number without a unit means seconds, and 0 means the default.
fn timeout(text: &str) -> Result<Option<Duration>, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let timeout = seconds.or_else(|| duration::parse(text).ok());
    let timeout = timeout.ok_or_else(|| format!("--{TIMEOUT}={text}: expected a time, such as 5s or 1m"))?;
    Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
}

/// The namespace that the user asks for; `None`: all.
pub(super) fn namespace_asked(values: &FlagValues) -> Option<String> {
    Some(values.text(NAMESPACE)).filter(|name| !name.is_empty())
}

/// An error if the namespace that the user asks for does not exist. Without permission to read it, the command goes on.
pub(super) async fn check_namespace(client: &Client, values: &FlagValues) -> Result<(), Failure> {
    let Some(name) = namespace_asked(values) else { return Ok(()) };
    match client.send(&Request::get(format!("/api/v1/namespaces/{name}"))).await {
        Err(error) if error.is_not_found() => {
            Err(Failure::error(format!("--{NAMESPACE}={name}: the cluster has no such namespace")))
        }
        _ => Ok(()),
    }
}

/// The namespace of an object without one, as in kubectl.
pub(super) fn namespace(values: &FlagValues) -> String {
    let of_context = || {
        let (path, access) = of_user(values).ok()?;
        context_namespace(&path, &access)
    };
    namespace_asked(values).or_else(of_context).unwrap_or_else(|| "default".to_owned())
}

/// The names of the contexts.
pub(super) fn contexts(values: &FlagValues) -> Vec<String> {
    of_user(values).map(|(path, access)| context_names(&path, &access)).unwrap_or_default()
}

/// The files that exist; none outside of a machine of a user.
fn find(variable: impl Fn(&str) -> Option<OsString>, is_file: impl Fn(&Path) -> bool) -> Result<Vec<String>, String> {
    let text = |path: &Path| path.display().to_string();
    if let Some(list) = variable("KUBECONFIG").filter(|list| !list.is_empty()) {
        let files: Vec<String> =
            std::env::split_paths(&list).filter(|path| is_file(path)).map(|path| text(&path)).collect();
        let error = || format!("KUBECONFIG={}: no such file; correct it, or set --kubeconfig", list.display());
        return if files.is_empty() { Err(error()) } else { Ok(files) };
    }
    let home = variable("HOME").map(|home| Path::new(&home).join(".kube/config"));
    Ok(home.filter(|path| is_file(path)).map(|path| text(&path)).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], files: &[&str]) -> Result<Vec<String>, String> {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        find(variable, |path| files.iter().any(|file| path == Path::new(file)))
    }

    #[test]
    fn the_variable_comes_before_the_file_in_the_home_folder() {
        let (home, both) = (("HOME", "/home/me"), ["/home/me/.kube/config", "/x"]);
        let of = |variables: &[(&str, &str)], files: &[&str]| found(variables, files).unwrap().join(" ");
        assert_eq!(of(&[home, ("KUBECONFIG", "/x")], &both), "/x");
        assert_eq!(of(&[home, ("KUBECONFIG", "")], &both), "/home/me/.kube/config");
        assert_eq!(of(&[home, ("KUBECONFIG", "/gone:/x:")], &both), "/x");
        assert_eq!(of(&[("KUBECONFIG", "/y:/x")], &["/x", "/y"]), "/y /x");
        assert_eq!(of(&[home], &["/x"]), "", "in a pod");
        assert_eq!(of(&[], &[]), "");
    }

    #[test]
    fn a_timeout_is_written_as_in_kubectl() {
        let rows = [("0", None), ("0s", None), ("5", Some(5)), ("1m", Some(60))];
        for (text, seconds) in rows {
            assert_eq!(timeout(text), Ok(seconds.map(Duration::from_secs)), "{text}");
        }
        assert_eq!(timeout("soon"), Err("--request-timeout=soon: expected a time, such as 5s or 1m".to_owned()));
    }

    #[test]
    fn a_variable_without_a_file_is_an_error() {
        let error = found(&[("KUBECONFIG", "/gone")], &[]).unwrap_err();
        assert!(error.starts_with("KUBECONFIG=/gone: no such file"), "{error}");
    }
}
