//! Deletes a project and everything in it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::http::{Service, Session, text};
use crate::sql;

/// The time after which load balancers with a pending change, for example after a worker restart, are set to ERROR.
const PENDING: Duration = Duration::from_secs(30);
/// The limit for the deletion of load balancers and servers.
const GONE: Duration = Duration::from_secs(90);

/// The kinds of objects of a project, in order of deletion: the name, the service, and the path of the list.
const KINDS: &[(&str, Service, &str)] = &[
    ("loadbalancers", Service::LoadBalancer, "/v2.0/lbaas/loadbalancers?"),
    ("servers", Service::Compute, "/v2.1/servers/detail?all_tenants=1&"),
    ("floatingips", Service::Network, "/v2.0/floatingips?"),
    ("routers", Service::Network, "/v2.0/routers?"),
    ("trunks", Service::Network, "/v2.0/trunks?"),
    ("ports", Service::Network, "/v2.0/ports?"),
    ("networks", Service::Network, "/v2.0/networks?"),
    // Not filtered by project: Neutron creates the default group of a project when its groups are listed.
    ("security-groups", Service::Network, "/v2.0/security-groups"),
];

async fn list(admin: &Session, service: Service, path: &str, project: &str) -> anyhow::Result<Vec<Value>> {
    let filter = if path.contains('?') { format!("project_id={project}") } else { String::new() };
    let mut objects = admin.list(service, &format!("{path}{filter}")).await?;
    objects.retain(|object| [text(object, "project_id"), text(object, "tenant_id")].contains(&project));
    Ok(objects)
}

pub(crate) async fn leftovers(admin: &Session, project: &str) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    for (kind, service, path) in KINDS {
        let objects = list(admin, *service, path, project).await?;
        left.extend(objects.iter().map(|object| format!("{kind} {}", text(object, "id"))));
    }
    Ok(left)
}

pub(crate) async fn delete(admin: &Session, project: &str, user: &str) -> anyhow::Result<()> {
    for (kind, service, path) in KINDS {
        let collection = path.split('?').next().unwrap_or_default().trim_end_matches("/detail");
        let begin = Instant::now();
        // The deletion of load balancers and servers takes some time; others are deleted at once or at the second
        // attempt.
        loop {
            let objects = list(admin, *service, path, project).await?;
            if objects.is_empty() || begin.elapsed() > GONE {
                break;
            }
            let tried = begin.elapsed() > Duration::from_secs(5);
            if tried && !matches!(*kind, "loadbalancers" | "servers") {
                break;
            }
            for object in &objects {
                delete_one(admin, kind, *service, collection, object, begin.elapsed() > PENDING).await?;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    let left = leftovers(admin, project).await?;
    // Otherwise the credentials for the deletion would be lost.
    anyhow::ensure!(left.is_empty(), "the project {project} still has {}", left.join(", "));
    admin.call("DELETE", Service::Identity, &format!("/v3/users/{user}"), None).await?;
    admin.call("DELETE", Service::Identity, &format!("/v3/projects/{project}"), None).await?;
    Ok(())
}

/// Errors are ignored: the next list shows the remaining objects.
async fn delete_one(
    admin: &Session,
    kind: &str,
    service: Service,
    collection: &str,
    object: &Value,
    late: bool,
) -> anyhow::Result<()> {
    let id = text(object, "id");
    let path = format!("{collection}/{id}");
    match kind {
        "loadbalancers" => {
            let pending = text(object, "provisioning_status").starts_with("PENDING");
            if pending && late {
                sql(&format!("UPDATE octavia.load_balancer SET provisioning_status = 'ERROR' WHERE id = '{id}'"))
                    .await?;
            }
            if !pending || late {
                admin.send("DELETE", service, &format!("{path}?cascade=true"), None).await?;
            }
            return Ok(());
        }
        "routers" => {
            admin.send("PUT", service, &path, Some(&json!({"router": {"routes": []}}))).await?;
            for port in admin.list(service, &format!("/v2.0/ports?device_id={id}")).await? {
                let body = json!({"port_id": text(&port, "id")});
                admin.send("PUT", service, &format!("{path}/remove_router_interface"), Some(&body)).await?;
            }
        }
        _ => {}
    }
    admin.send("DELETE", service, &path, None).await?;
    Ok(())
}
