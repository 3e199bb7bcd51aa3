//! Leases: the program that is active now, and others that could be active at the same time.

use ccm_provider::Check;
use ccm_runtime::permission::MIGRATION_LEASE;
use jiff::Timestamp;

use super::objects::Lease;
use crate::options::Options;

const CHECK: &str = "lease";
/// The time after its expiry during which a lease still counts as held, because clocks differ.
const TOLERANCE: i64 = 30;

/// All checks of the leases in the namespace of our lease.
pub(super) fn checks(leases: &[Lease], options: &Options, now: Timestamp) -> Vec<Check> {
    if options.dry_run {
        return vec![Check::good(CHECK, "", "this is a trial (--dry-run) and writes nothing: it needs no lease")];
    }
    let (namespace, ours) = match &options.election {
        Some(election) => (election.namespace.as_str(), Some(election.name.as_str())),
        None => (ccm_runtime::permission::SYSTEM_NAMESPACE, None),
    };
    let migration = options.migration.as_ref().map_or(MIGRATION_LEASE, |migration| &migration.lease_name);
    let mut checks = Vec::new();
    for lease in leases {
        let subject = format!("lease {namespace}/{}", lease.metadata.name);
        let held = holder(lease, now);
        let name = lease.metadata.name.as_str();
        checks.extend(match held {
            Some(holder) if ours == Some(name) => {
                Some(Check::good(CHECK, subject, format!("{holder} holds it and is active; this program waits for it")))
            }
            Some(holder) if name == migration => of_migration(subject, &holder, options),
            Some(holder) if name == "kube-controller-manager" => {
                Some(Check::good(CHECK, subject, format!("{holder} holds it")))
            }
            Some(holder) if name.ends_with("cloud-controller-manager") => Some(Check::error(
                CHECK,
                subject,
                format!(
                    "{holder} holds it: another cloud-controller-manager is active, and this program would not wait \
                     for it"
                ),
                format!("stop that one first, or give --leader-elect-resource-name={name}"),
            )),
            Some(_) => None,
            None if ours == Some(name) => {
                Some(Check::good(CHECK, subject, "no process holds it: this program leads at once"))
            }
            None => None,
        });
    }
    let seen = |name: &str| leases.iter().any(|lease| lease.metadata.name == name);
    if let Some(name) = ours.filter(|name| !seen(name)) {
        let text = "it does not exist: no process is active under it, and this program leads at once";
        checks.push(Check::good(CHECK, format!("lease {namespace}/{name}"), text));
    }
    if ours.is_none() {
        let text = "--leader-elect=false: this program and another could be active at the same time";
        checks.push(Check::warning(CHECK, "", text, "leave --leader-elect=false out"));
    }
    checks
}

fn of_migration(subject: String, holder: &str, options: &Options) -> Option<Check> {
    if options.migration.is_some() {
        return Some(Check::good(CHECK, subject, format!("{holder} holds it; this program waits for it")));
    }
    let text = format!("{holder} holds the lease of a leader migration, which this program would not share");
    Some(Check::warning(CHECK, subject, text, "give --enable-leader-migration until the migration is over"))
}

/// The holder, if the lease was renewed recently. One that does not say when was: the election waits for it, too.
fn holder(lease: &Lease, now: Timestamp) -> Option<String> {
    let holder = lease.spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let lasts = lease.spec.lease_duration_seconds.unwrap_or_default() + TOLERANCE;
    lease.spec.renew_time.is_none_or(|renewed| now.duration_since(renewed).as_secs() <= lasts).then_some(holder)
}
