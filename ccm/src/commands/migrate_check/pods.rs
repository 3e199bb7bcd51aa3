//! Pods of a cloud-controller-manager: whether they can start on the required nodes, and their service account.

use std::collections::BTreeSet;
use std::path::Path;

use ccm_provider::Check;
use ccm_provider::well_known::TAINT_UNINITIALIZED;

use super::join;
use super::objects::Toleration;
use super::running::{Component, Running};
use crate::options::controllers_on;
use crate::options::parse::read_on;
use crate::program::Program;

/// Flags that name a file without which the program does not start, and which may be for root alone.
const FILES: [&str; 6] = [
    "cloud-config",
    "kubeconfig",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "tls-private-key-file",
    "client-ca-file",
];

/// All checks of pods. `account`: the service account of this program.
pub(super) fn checks(running: &[Running], account: &str, program: &Program) -> Vec<Check> {
    let cloud = running.iter().filter(|running| running.component == Component::CloudControllerManager);
    cloud.flat_map(|running| of_cloud_controller(running, account, program)).collect()
}

/// The account of the cloud-controller-manager that runs now, empty for the user of a kubeconfig; `None` if there is
/// none, or several.
pub(super) fn account(running: &[Running]) -> Option<String> {
    let cloud = running.iter().filter(|running| running.component == Component::CloudControllerManager);
    let of = |running: &Running| if running.has_kubeconfig() { Some(String::new()) } else { running.service_account() };
    let mut accounts: Vec<String> = cloud.filter_map(of).collect();
    accounts.sort();
    accounts.dedup();
    accounts.pop().filter(|_| accounts.is_empty())
}

fn of_cloud_controller(running: &Running, account: &str, program: &Program) -> Vec<Check> {
    let subject = running.subject();
    let mut checks = Vec::new();
    // A static pod is not scheduled. Where another program initializes the nodes, this one can wait for it.
    let starts = running.is_static || running.tolerations.iter().any(tolerates_uninitialized);
    if !starts && initializes_nodes(running, program) {
        checks.push(Check::error(
            "toleration",
            &*subject,
            format!(
                "it does not tolerate {TAINT_UNINITIALIZED}: on new nodes alone it cannot start, and no other \
                     program removes that taint"
            ),
            format!("add the toleration {{key: {TAINT_UNINITIALIZED}, operator: Exists}}, as in manifests/base"),
        ));
    }
    if !running.host_network {
        checks.push(Check::warning(
            "host-network",
            &*subject,
            "it is not on the network of its node: where the pod network waits for this program, it cannot start",
            "set hostNetwork: true and dnsPolicy: Default, as in manifests/base",
        ));
    }
    checks.extend(of_user(running));
    if let Some(used) = running.service_account().filter(|used| used != account) {
        let text = format!("it works as {used}; the permissions were checked for {account}");
        checks.push(Check { fix: format!("check with --account={used}"), ..Check::good("rbac", subject, text) });
    }
    checks
}

fn initializes_nodes(running: &Running, program: &Program) -> bool {
    let (flags, _) = read_on(&program.flags, running.args.iter().map(Into::into));
    let on = controllers_on(program, &flags.text("cloud-provider"), &flags.list("controllers"), &mut Vec::new());
    program.controllers.iter().zip(on).any(|(known, on)| on && known.name == ccm_controllers::node::NAME)
}

/// The images of most Go programs start as root, and the one of this program does not.
fn of_user(running: &Running) -> Option<Check> {
    if running.user.is_some() {
        return None;
    }
    let flags = running.flags();
    let is_of_node = |path: &&str| running.of_node.iter().any(|mount| Path::new(path).starts_with(mount));
    let files = FILES.iter().filter_map(|name| flags.get(*name)).map(String::as_str).filter(is_of_node);
    let files: BTreeSet<&str> = files.collect();
    let files: Vec<&str> = files.into_iter().collect();
    (!files.is_empty()).then(|| {
        Check::warning(
            "user",
            running.subject(),
            format!(
                "it runs as the user of its image, which here is 65532: where only root can read {} of the node, the program \
                 does not start",
                join(&files)
            ),
            "with only the image replaced, set runAsUser: 0 in the securityContext of the pod, or the mode of the file",
        )
    })
}

fn tolerates_uninitialized(toleration: &Toleration) -> bool {
    let key = toleration.key == TAINT_UNINITIALIZED || (toleration.key.is_empty() && toleration.operator == "Exists");
    let value = toleration.operator == "Exists" || toleration.value == "true";
    let effect = matches!(&*toleration.effect, "" | "NoSchedule");
    key && value && effect
}
