//! Every reason of an event, and of a condition, in the code is on the page with its cause and its fix.
//!
//! The code is read as text: each word in quotes in the folders below that looks like a reason must be there, or stand
//! in the list of other words.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;

use super::literals::literals;
use super::page::each;

pub(super) const PAGE: &str = "ccm/docs/events.md";

/// Where reasons stand in the code.
const SOURCES: &[&str] = &[
    "ccm/src/manager",
    "controllers/runtime/src/election.rs",
    "controllers/src",
    "providers/aws/src/loadbalancer/mod.rs",
    "providers/azure/src/loadbalancer",
    "providers/gce/src/loadbalancer",
    "providers/openstack/src/loadbalancer",
];

/// Words of the same form there: kinds of objects, fields, values, calls.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "Address", "All", "AllocationIdNotFound", "Allow", "Azure", "BackendService", "Basic", "CannotBeDeleted",
    "CertificateNotFound",
    "ClientIP", "ClientIp", "CloudAllocator", "Cluster", "ClusterIP", "CreateRoutes", "Default", "DeleteRoutes",
    "Deleting", "Deny", "Disabled", "DnsRecordInUse", "DoesNotExist", "Dynamic", "Election", "ExternalName", "Failed",
    "False", "Firewall", "Flexible", "FloatingIP", "ForwardingRule", "GetLabelsForVolume", "GetLoadBalancer",
    "HealthCheck", "HealthMonitor", "Http", "HttpHealthCheck", "Https", "IPAMFromCloud", "IPAMFromCluster",
    "IPAddress", "IPProtocol", "In", "InMultipleLoadBalancedIgs", "Inbound", "InstanceGroup", "Instances", "Internal",
    "Internet", "Invalid", "InvalidConfigurationRequest", "InvalidSecurityGroup", "InvalidSubnet", "Lease",
    "ListRoutes", "Listener", "LoadBalancer", "Local", "Member", "NetworkInterface", "NoExecute", "NoSchedule", "Node",
    "NodePort", "Nodes", "None", "NotIn", "OpenStack", "OperationNotPermitted", "PersistentVolume", "PodRanges",
    "Pool", "Port", "PreferDualStack", "PrivateIPAddressIsAllocated", "PrivateLinkService", "Proxy", "PublicIPAddress",
    "PublicIPAddressInUse", "RangeAllocator", "ReconcileLoadBalancers", "RequireDualStack",
    "ResourceAlreadyAssociated", "Route", "Routes", "ScaleSet", "ScaleSetInstance", "SecurityGroup",
    "SecurityGroupRule", "Service", "Shared", "SingleStack", "SourceIP", "Standard", "Static", "Subnet",
    "SubnetIsFull", "Succeeded", "TargetPool", "Tcp", "True", "Udp", "UnsupportedCertificate", "Updating",
];

/// The words in quotes that look like a reason.
fn reasons_of(text: &str) -> Vec<String> {
    let words = literals(text).into_iter().map(|(_, word)| word);
    words.filter(|word| is_reason(word)).map(str::to_owned).collect()
}

/// All reasons in the code.
pub(super) fn in_code(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut reasons = BTreeSet::new();
    for source in SOURCES {
        let path = root.join(source);
        let mut read = |path: &Path| -> anyhow::Result<()> {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            if name.ends_with(".rs") && !name.contains("test") {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
                reasons.extend(reasons_of(&text));
            }
            Ok(())
        };
        if path.is_dir() { each(&path, &mut read)? } else { read(&path)? }
    }
    reasons.retain(|word| !OTHERS.contains(&word.as_str()));
    Ok(reasons)
}

/// `Synced`, `SyncLoadBalancerFailed`: a capital first, letters only, and not all of them capitals.
fn is_reason(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|byte| byte.is_ascii_alphabetic())
        && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

pub(super) fn problems(in_code: &BTreeSet<String>, page: &str) -> Vec<String> {
    let items: Vec<(&str, &str)> = page.split("\n- `").skip(1).filter_map(|item| item.split_once('`')).collect();
    let names: BTreeSet<String> = items.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing = in_code.difference(&names);
    let missing =
        missing.map(|name| format!("{PAGE}: {name} is not listed (cause, fix), or is not a reason: see OTHERS"));
    // The one that the code composes of two words is listed too.
    let old = names.difference(in_code).filter(|name| is_reason(name));
    let old = old.map(|name| format!("{PAGE}: no code emits {name}"));
    let parts = ["\n  - Cause: ", "\n  - Fix: "];
    let is_whole = |rest: &str| {
        (rest.starts_with(" (type: ") || rest.starts_with(" (status: ")) && parts.iter().all(|part| rest.contains(part))
    };
    let partial = items.iter().filter(|(_, rest)| !is_whole(rest));
    let partial = partial.map(|(name, _)| format!("{PAGE}: {name} lacks its type, its cause or its fix"));
    missing.chain(old).chain(partial).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_in_the_code_is_on_the_page_and_one_on_the_page_in_the_code() {
        let code = "// \"NotThisOne\"\nself.event(&s, Warning, \"SyncFailed\", \"some text\", \"Synced\", \"TCP\");\nconst X: &str = \"OtherReason\";\n\
             #[cfg(test)]\nmod tests {\n  \"InTests\" }\n";
        let in_code: BTreeSet<String> = reasons_of(code).into_iter().collect();
        assert_eq!(in_code.iter().collect::<Vec<_>>(), ["OtherReason", "SyncFailed", "Synced"]);
        let page = "# Events\n\n- `SyncFailed` (type: Warning)\n  - Cause: c\n  - Fix: f\n- `Synced` (type: Normal)\n  - Cause: c\n  - Fix: f\n\
                    - `OldOne` (type: Normal)\n  - Cause: c\n";
        let found = problems(&in_code, page);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("OtherReason is not listed"), "{found:?}");
        assert!(
            found[1].contains("no code emits OldOne") && found[2].contains("OldOne lacks its type, its cause"),
            "{found:?}"
        );
    }
}
