//! What stays after the way back to the Go program: a table of the page about migrations.

use anyhow::Context as _;
use ccm_controllers::service::conditions::{DEGRADED, PROVISIONING, SERVING};
use ccm_runtime::permission::BORN_WITH_ROLES;

use crate::rbac;

/// The page, in the folder of the manifests.
pub const PAGE: &str = "migration/README.md";
const BEGIN: &str = "<!-- generated: left -->\n";
const END: &str = "<!-- end of left -->\n";

/// The page with the table between its two markers.
pub fn page(read: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let old = read(PAGE)?;
    let cut = old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = cut.with_context(|| format!("manifests/{PAGE}: expected the lines {BEGIN:?} and {END:?}"))?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", table()))
}

fn table() -> String {
    let mut text = String::new();
    for (cloud, left) in rows() {
        let left = if left.is_empty() { "nothing more".to_owned() } else { left.join("; ") };
        text += &crate::item("- ", &format!("{cloud}: {left}"));
    }
    text
}

/// The tests of the providers named `what_this_program_changes_is_still_found_by_the_go_program` compare.
fn rows() -> [(&'static str, Vec<String>); 5] {
    let words = |left: Vec<(&str, String)>| left.into_iter().map(|(_, words)| words).collect();
    [
        ("all", of_all()),
        ("AWS", Vec::new()),
        ("Azure", Vec::new()),
        ("OpenStack", words(ccm_provider_openstack::left_behind())),
        ("Google Cloud", words(ccm_provider_gce::left_behind())),
    ]
}

fn of_all() -> Vec<String> {
    let controllers = ccm::controllers::builtin();
    let accounts = rbac::per_controller(&controllers).into_keys().filter(|client| !BORN_WITH_ROLES.contains(client));
    let accounts = accounts.map(|client| format!("the account `{client}`"));
    [
        "labels and node affinity of volumes".to_owned(),
        format!("the conditions `{SERVING}`, `{PROVISIONING}` and `{DEGRADED}` of Services if their gate was on"),
        "the roles that you created for `ccm migrate-check`".to_owned(),
    ]
    .into_iter()
    .chain(accounts.map(|account| format!("with an account for each controller, {account}")))
    .collect()
}
