//! One build of the program creates the cloud objects of a cluster; another one takes over, then the first one again.
//! Neither may write anything except its lease and events.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ccm_test_bed::AuditEntry;
use serde_json::{Value, json};

use super::{Scene, listed, nodes_of, row, table};
use crate::cluster::{SERVICES, text};
use crate::figures;
use crate::process::Manager;
use crate::runs::count;

/// Fewer than the limit of a route table.
const NODES: usize = 20;
/// The time for which a program is observed after a take-over: longer than the address refresh period in [`FLAGS`].
const WATCHED: Duration = Duration::from_secs(60);
/// All writing features are enabled.
const FLAGS: &[&str] = &[
    "--leader-elect=true",
    "--controllers=*,tagging",
    "--tags=team=bench",
    "--resources=instance",
    "--configure-cloud-routes=true",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.64.0.0/12",
    "--node-status-update-frequency=30s",
];
const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/11111111-2222-3333-4444-555555555555";
const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer";

/// `from` creates the objects, `scene.program` takes over.
pub(super) async fn run(scene: Scene, from: &Path) -> anyhow::Result<()> {
    scene.aws.world(|world| world.elb.certificates.insert(CERTIFICATE.to_owned()));
    let machines = scene.machines(NODES)?;
    scene.cluster.make(nodes_of(&machines, 0, true, true), Duration::ZERO).await?;
    let old = scene.start_program(from, FLAGS, &scene.log.with_extension("from.log")).await?;
    let services = services(&scene);
    for (name, annotations, spec) in &services {
        let annotations: BTreeMap<String, &str> =
            annotations.iter().map(|(key, value)| (format!("{PREFIX}-{key}"), *value)).collect();
        scene.cluster.make_service(name, json!(annotations), spec.clone()).await?;
    }
    scene.cluster.until_served(services.len()).await?;
    rest(&scene).await?;
    table(&format!("AWS take-over: {NODES} nodes and their routes, {} Services", services.len()));
    println!("calls of {}: {}", from.display(), listed(&written(&scene, 0)));
    old.terminate().await?;
    for (program, log) in [(&*scene.program, "log"), (from, "back.log"), (&*scene.program, "again.log")] {
        let manager = quiet(&scene, program, log).await?;
        if log == "again.log" {
            remove(&scene, services.iter().map(|(name, ..)| *name)).await?;
        }
        manager.terminate().await?;
    }
    Ok(())
}

/// Annotations without their common prefix.
type Annotations<'a> = Vec<(&'static str, &'a str)>;

/// Names, annotations, specifications: every kind of load balancer, with every setting that changes the writes.
fn services(scene: &Scene) -> Vec<(&'static str, Annotations<'_>, Value)> {
    let port = |port: u16, protocol: &str| json!({"name": format!("p{port}"), "port": port, "targetPort": 8080, "protocol": protocol});
    let web = || json!({"ports": [port(80, "TCP")]});
    let local = || json!({"ports": [port(80, "TCP")], "externalTrafficPolicy": "Local"});
    let ranges = || json!({"ports": [port(80, "TCP"), port(81, "TCP")], "loadBalancerSourceRanges": ["10.0.0.0/8", "172.16.0.0/12"]});
    let nlb = ("type", "nlb");
    vec![
        ("clb-plain", vec![], web()),
        ("clb-local", vec![], local()),
        ("clb-internal", vec![("internal", "true"), ("extra-security-groups", &scene.network.default_group)], ranges()),
        ("clb-groups", vec![("security-groups", &scene.network.default_group)], web()),
        (
            "clb-tls",
            vec![
                ("access-log-enabled", "true"),
                ("access-log-emit-interval", "5"),
                ("access-log-s3-bucket-name", "logs"),
                ("additional-resource-tags", "team=web,env=prod"),
                ("backend-protocol", "http"),
                ("connection-draining-enabled", "true"),
                ("connection-draining-timeout", "60"),
                ("connection-idle-timeout", "120"),
                ("cross-zone-load-balancing-enabled", "true"),
                ("healthcheck-interval", "15"),
                ("healthcheck-path", "/ready"),
                ("healthcheck-protocol", "HTTP"),
                ("proxy-protocol", "*"),
                ("ssl-cert", CERTIFICATE),
                ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
                ("ssl-ports", "443"),
            ],
            json!({"ports": [port(443, "TCP"), port(80, "TCP")]}),
        ),
        ("nlb-plain", vec![nlb], ranges()),
        ("nlb-local", vec![nlb], local()),
        (
            "nlb-internal",
            vec![
                nlb,
                ("internal", "true"),
                ("target-group-attributes", "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true"),
            ],
            web(),
        ),
        ("nlb-groups", vec![nlb, ("security-groups", &scene.network.default_group)], web()),
        (
            "nlb-tls",
            vec![
                nlb,
                ("additional-resource-tags", "team=web"),
                ("backend-protocol", "ssl"),
                ("cross-zone-load-balancing-enabled", "true"),
                ("ssl-cert", CERTIFICATE),
                ("ssl-ports", "443"),
            ],
            json!({"ports": [port(443, "TCP"), port(80, "TCP")]}),
        ),
        (
            "nlb-udp",
            vec![nlb, ("healthcheck-protocol", "HTTP"), ("healthcheck-port", "9000"), ("healthcheck-path", "/up")],
            json!({"ports": [port(53, "UDP")]}),
        ),
    ]
}

/// Lets a program take over, and counts its writes.
async fn quiet(scene: &Scene, program: &Path, log: &str) -> anyhow::Result<Manager> {
    let (mark, mut audit) = (scene.aws.mark(), scene.cluster.bed.audit());
    let before = versions(scene).await?;
    audit.read()?;
    let manager = scene.start_program(program, FLAGS, &scene.log.with_extension(log)).await?;
    let began = Instant::now();
    while manager.metric("leader_election_master_status", "").await? < 1.0 {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(60), "{} does not lead", program.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(WATCHED).await;
    let changed = versions(scene).await?.iter().filter(|(name, version)| before.get(*name) != Some(*version)).count();
    let mut writes: BTreeMap<String, u64> = BTreeMap::new();
    for entry in audit.read()?.iter().filter(|entry| entry.is_write()) {
        *writes.entry(what(entry)).or_default() += 1;
    }
    let is_expected = |what: &str| ["leases", "events", "reviews"].iter().any(|end| what.ends_with(end));
    let others: u64 = writes.iter().filter(|(what, _)| !is_expected(what)).map(|(_, count)| count).sum();
    println!("\n{} takes over", program.display());
    row("writes to the cloud", count(scene.aws.ledger(|ledger| ledger.mutating(mark).count())), "", Some(0.0));
    row("API writes besides lease, events and reviews", count(usize::try_from(others)?), "", Some(0.0));
    row("nodes and Services that changed", count(changed), "", Some(0.0));
    let errors = manager.metric("ccm_sync_errors_total", "").await?;
    row("failed syncs", errors, "", Some(0.0));
    println!("API writes: {}; writes to the cloud: {}", listed(&writes), listed(&written(scene, mark)));
    println!("calls: {}", listed(&scene.calls(mark)));
    Ok(manager)
}

/// The verb and the resource.
fn what(entry: &AuditEntry) -> String {
    let subresource = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
    format!("{} {}{subresource}", entry.verb, entry.resource)
}

/// Writes to the cloud since a position in the ledger, by action.
fn written(scene: &Scene, mark: u64) -> BTreeMap<String, u64> {
    let mut writes = BTreeMap::new();
    scene.aws.ledger(|ledger| {
        for entry in ledger.mutating(mark) {
            *writes.entry(entry.action.clone()).or_default() += 1;
        }
    });
    writes
}

/// Versions of the nodes and Services.
async fn versions(scene: &Scene) -> anyhow::Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    for path in ["/api/v1/nodes", SERVICES] {
        let see = |object: &Value| {
            let version = text(object, "/metadata/resourceVersion");
            versions.insert(format!("{path}/{}", text(object, "/metadata/name")), version);
        };
        scene.cluster.each(path, see).await?;
    }
    Ok(versions)
}

/// Waits until neither the cloud nor a node or Service changes for a while. A leader keeps renewing its lease.
async fn rest(scene: &Scene) -> anyhow::Result<()> {
    let look = async || Ok((written(scene, 0), versions(scene).await?));
    figures::unchanged(look, Duration::from_secs(20)).await.map(drop)
}

/// The last program deletes the objects of the first one.
async fn remove(scene: &Scene, services: impl Iterator<Item = &str>) -> anyhow::Result<()> {
    scene.cluster.delete_services(services).await?;
    rest(scene).await?;
    let left = scene.aws.world(|world| {
        let groups = world.ec2.groups.values().filter(|group| group.name.starts_with("k8s-"));
        world.elb.balancers.len() + world.elbv2.balancers.len() + world.elbv2.groups.len() + groups.count()
    });
    println!("\nThe Services are deleted");
    row("balancers, target groups and security groups left", count(left), "", Some(0.0));
    Ok(())
}
