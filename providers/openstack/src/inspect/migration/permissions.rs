//! Checks the permissions of the login: its roles, and each kind of read, for objects that do not exist.
//!
//! No service has dry runs, so writes are not checked.

use std::future::Future;

use ccm_provider::{Check, Claims};

use super::unchecked;
use crate::client::operation::{
    EXTENSION_LIST, FLAVOR_LIST, FLOATING_IP_LIST, LB_LIST, LISTENER_LIST, NETWORK_LIST, Operation, POOL_LIST,
    PORT_LIST, ROUTER_GET, SECURITY_GROUP_LIST, SERVER_LIST, SUBNET_LIST,
};
use crate::client::{ApiError, Query};
use crate::inspect::Inspector;

const CHECK: &str = "permissions";
/// Reads for Services only.
const OF_BALANCERS: [Operation; 6] =
    [SUBNET_LIST, FLOATING_IP_LIST, SECURITY_GROUP_LIST, LB_LIST, LISTENER_LIST, POOL_LIST];
/// An ID and name that no object has.
const NOTHING: &str = "00000000-0000-0000-0000-000000000000";

pub(super) async fn checks(openstack: &Inspector, claims: &Claims) -> Vec<Check> {
    let mut checks = Vec::new();
    match openstack.client.session().token().await {
        Ok(token) => checks.push(roles(&token.roles, &token.project)),
        Err(failure) => return vec![unchecked(CHECK, "login", openstack.client.unusable(failure))],
    }
    let has_services = claims.services.iter().any(|service| service.wants_load_balancer());
    let answers = reads(openstack).await;
    let granted: Vec<&str> =
        answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(operation, _)| operation.policy()).collect();
    if !granted.is_empty() {
        checks.push(Check::good(CHECK, "", format!("checked and granted: {}", granted.join(", "))));
    }
    for (operation, answer) in answers {
        let Err(error) = answer else { continue };
        let rule = operation.policy();
        let fix = format!("grant a role of the project for which the policy has {rule}, or add it to the access rules");
        let is_needed = has_services || !OF_BALANCERS.contains(&operation);
        checks.push(match (error.status, ccm_provider::ProviderError::from(error.clone()).to_string()) {
            (Some(403), text) if is_needed => Check::error(CHECK, rule, text, fix),
            (Some(403), text) => {
                Check::warning(CHECK, rule, format!("{text}; nothing in the cluster needs it yet"), fix)
            }
            _ => unchecked(CHECK, rule, error),
        });
    }
    let text = "no service has dry runs, so that writes were not checked; providers/openstack/docs/permissions.md lists the rules";
    checks.push(Check::good(CHECK, "writes", text));
    checks
}

fn roles(roles: &[String], project: &str) -> Check {
    // As the policies of OpenStack compare them.
    let has = |role: &str| roles.iter().any(|one| one.eq_ignore_ascii_case(role));
    let text = format!("the login has the roles {}", roles.join(", "));
    if project.is_empty() {
        let fix = "set tenant-id or tenant-name in section [Global] of cloud.conf";
        return Check::warning(CHECK, "login", format!("{text}, and is for no project"), fix);
    }
    if has("admin") {
        let text = format!("{text}: with admin, networks and servers of all projects are seen");
        return Check::warning(CHECK, "login", text, "use an application credential with the role member");
    }
    let fix = "where the default policies are in use, give it the role member, with load-balancer_member for Octavia";
    let only_observes = has("load-balancer_observer") && !has("load-balancer_member");
    let changes = if has("load-balancer_member") { "changes load balancers alone" } else { "changes nothing" };
    match has("member") {
        true if only_observes => {
            let text = format!("{text}: with older policies of Octavia it reads load balancers, and changes none");
            Check::warning(CHECK, "login", text, fix)
        }
        true => Check::good(CHECK, "login", text),
        false => Check::warning(CHECK, "login", format!("{text}, without member: it reads, and {changes}"), fix),
    }
}

async fn reads(openstack: &Inspector) -> Vec<(Operation, Result<(), ApiError>)> {
    let client = &openstack.client;
    let named = || Query::default().with("name", NOTHING);
    let mut answers = vec![
        one(SERVER_LIST, client.servers_named(NOTHING)).await,
        one(FLAVOR_LIST, client.flavors()).await,
        one(PORT_LIST, client.ports_of(&[NOTHING])).await,
        one(NETWORK_LIST, client.networks_by_id(&[NOTHING])).await,
    ];
    if openstack.balancers.is_some() {
        answers.extend([
            one(SUBNET_LIST, client.subnets(named())).await,
            one(FLOATING_IP_LIST, client.floating_ips(Query::default().with("port_id", NOTHING))).await,
            one(SECURITY_GROUP_LIST, client.security_groups(&[NOTHING])).await,
            one(LB_LIST, client.load_balancers(named())).await,
            one(LISTENER_LIST, client.listeners(NOTHING)).await,
            one(POOL_LIST, client.pools(NOTHING)).await,
        ]);
    }
    if let Some(router) = &openstack.router {
        answers.push(one(EXTENSION_LIST, client.extensions()).await);
        answers.push(one(ROUTER_GET, client.router(router)).await);
    }
    answers
}

async fn one<T>(
    operation: Operation,
    read: impl Future<Output = Result<T, ApiError>>,
) -> (Operation, Result<(), ApiError>) {
    match read.await {
        // A 404 shows that the read is allowed.
        Err(error) if error.status != Some(404) => (operation, Err(error)),
        _ => (operation, Ok(())),
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::Severity;

    use super::*;

    #[test]
    fn a_member_of_a_project_is_what_the_program_needs() {
        for (names, project, expected) in [
            (&["member", "reader"][..], "p", Severity::Info),
            (&["Member"], "p", Severity::Info),
            (&["Member", "Load-Balancer_Observer"], "p", Severity::Warning),
            (&["load-balancer_member"], "p", Severity::Warning),
            (&["member", "load-balancer_member", "load-balancer_observer"], "p", Severity::Info),
            (&["member", "load-balancer_observer"], "p", Severity::Warning),
            (&["member"], "", Severity::Warning),
            (&["reader"], "p", Severity::Warning),
            (&["admin", "member"], "p", Severity::Warning),
            (&["Admin", "member"], "p", Severity::Warning),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(roles(&names, project).severity, expected, "{names:?} {project:?}");
        }
    }
}
