//! Pods of a cloud-controller-manager: whether they can start on the required nodes, and their service account.

use ccm_provider::Check;
use ccm_provider::well_known::TAINT_UNINITIALIZED;

use super::objects::Toleration;
use super::running::{Component, Running};

/// All checks of pods. `account`: the service account of this program.
pub(super) fn checks(running: &[Running], account: &str) -> Vec<Check> {
    let cloud = running.iter().filter(|running| running.component == Component::CloudControllerManager);
    cloud.flat_map(|running| of_cloud_controller(running, account)).collect()
}

/// The account of the cloud-controller-manager that runs now; `None` if there is none, or several.
pub(super) fn account(running: &[Running]) -> Option<String> {
    let cloud = running.iter().filter(|running| running.component == Component::CloudControllerManager);
    let mut accounts: Vec<String> = cloud.filter_map(Running::service_account).collect();
    accounts.sort();
    accounts.dedup();
    accounts.pop().filter(|_| accounts.is_empty())
}

fn of_cloud_controller(running: &Running, account: &str) -> Vec<Check> {
    let subject = running.subject();
    let mut checks = Vec::new();
    // A static pod is not scheduled.
    if !running.is_static && !running.tolerations.iter().any(tolerates_uninitialized) {
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
    if let Some(used) = running.service_account().filter(|used| used != account) {
        let text = format!("it works as {used}; the permissions were checked for {account}");
        checks.push(Check { fix: format!("check with --account={used}"), ..Check::good("rbac", subject, text) });
    }
    checks
}

fn tolerates_uninitialized(toleration: &Toleration) -> bool {
    let key = toleration.key == TAINT_UNINITIALIZED || (toleration.key.is_empty() && toleration.operator == "Exists");
    let value = toleration.operator == "Exists" || toleration.value == "true";
    let effect = matches!(&*toleration.effect, "" | "NoSchedule");
    key && value && effect
}
