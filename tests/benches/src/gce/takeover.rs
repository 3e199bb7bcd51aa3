//! Take-over from another program: records the objects that it created, then starts this program.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ccm_cloudsim::gce::BALANCING;
use http::Method;
use serde_json::{Value, json};

use super::balancers::end;
use super::{NODES, REGION, Scene, row, table};
use crate::cluster::SERVICES;
use crate::figures;
use crate::runs::count;

/// The flags of both programs,
const ARGS: [&str; 2] = ["--configure-cloud-routes=true", "--cluster-cidr=10.64.0.0/10"];
/// and those for firewall rules and annotations.
const DENYING: [&str; 3] =
    ["--enable-l4-deny-firewall", "--enable-l4-deny-firewall-rollback-cleanup", "--enable-l4-lb-annotations"];
/// An address that a user has reserved, in addition to the objects of the programs.
const RESERVED: &str = "of-user";
/// The fields of a Service that the provider reads.
const METADATA: [&str; 5] = ["annotations", "finalizers", "name", "namespace", "uid"];
const SPEC: [&str; 9] = [
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "ipFamilies",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "ports",
    "sessionAffinity",
    "type",
];

/// Services of all kinds, created by the former program and taken over by this one, and some with the additional flags.
/// The intermediate state is written to `gce-plain.json` and `gce-denying.json`.
pub(super) async fn run(
    scene: impl AsyncFn() -> anyhow::Result<Scene>,
    former: &Path,
    out: &Path,
) -> anyhow::Result<()> {
    for (name, more, shapes) in [("plain", &[][..], &[""][..]), ("denying", &DENYING, &["-cluster", "-local"])] {
        let args: Vec<&str> = ARGS.iter().chain(more).copied().collect();
        let to = out.join(format!("gce-{name}.json"));
        take_over(&scene().await?, former, &args, shapes, &to).await.context(name)?;
    }
    Ok(())
}

async fn take_over(scene: &Scene, former: &Path, args: &[&str], shapes: &[&str], to: &Path) -> anyhow::Result<()> {
    // Nothing is measured here.
    scene.cloud.change(|options| options.operation = Duration::from_millis(100));
    let mut services = services(scene)?;
    services.retain(|name, _| shapes.iter().any(|shape| name.ends_with(shape)));
    let id =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ingress-uid"}, "data": {"uid": "cid"}});
    scene.cluster.send(Method::POST, "/api/v1/namespaces/kube-system/configmaps", &id).await?;
    scene.cluster.make(scene.instances(0..NODES, true, false)?, Duration::ZERO).await?;
    let manager = scene.start_program(former, args).await?;
    figures::rest(&manager, || scene.written(0), Duration::from_secs(15)).await?;
    for (name, (annotations, spec)) in &services {
        scene.cluster.make_service(name, annotations.clone(), spec.clone()).await.with_context(|| name.clone())?;
    }
    scene.cluster.until_served(services.len()).await?;
    figures::rest(&manager, || scene.written(0), Duration::from_secs(15)).await?;
    manager.stop().await?;
    std::fs::write(to, recorded(scene, args).await?)?;
    let mark = scene.cloud.mark();
    let manager = scene.start_program(&scene.program, args).await?;
    figures::rest(&manager, || scene.written(0), Duration::from_secs(20)).await?;
    table(&format!("GCE takeover: {} Services of another program, with {}", services.len(), args.join(" ")));
    row("cloud writes", count(scene.written(mark)), "", None);
    scene.cloud.ledger(|ledger| {
        ledger.mutating(mark).for_each(|entry| println!("{} {}", entry.action, entry.params.trim_end()));
    });
    let names: Vec<String> = services.into_keys().collect();
    end(scene, &manager, &names, "taken over", 1).await?;
    manager.stop().await
}

/// The annotations and specifications of all kinds, by name.
fn services(scene: &Scene) -> anyhow::Result<BTreeMap<String, (Value, Value)>> {
    let reserve = json!({"name": RESERVED});
    let addresses = format!("projects/{}/regions/{REGION}/addresses", super::PROJECT);
    scene.cloud.by_hand("POST", &addresses, &reserve).map_err(|error| anyhow::anyhow!("{}", error.message))?;
    let reserved = scene.cloud.by_hand("GET", &format!("{addresses}/{RESERVED}"), &Value::Null);
    let reserved = reserved.map_err(|error| anyhow::anyhow!("{}", error.message))?;
    scene.cloud.world(|world| {
        let network = format!("projects/{}/global/networks/default", super::PROJECT);
        world.subnetwork(&network, REGION, "other", "10.240.0.0/20", &[]);
    });
    let tcp = |ports: &[u16]| -> Value {
        ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"})).collect()
    };
    let udp = json!([{"name": "dns", "port": 53, "protocol": "UDP"}]);
    let ranges = json!(["198.51.100.0/24", "10.0.0.0/8"]);
    let shapes = [
        ("cluster", json!({}), json!({})),
        ("ports", json!({}), json!({"ports": tcp(&[80, 443, 8080])})),
        ("local", json!({}), json!({"externalTrafficPolicy": "Local"})),
        ("ranges", json!({}), json!({"loadBalancerSourceRanges": ranges})),
        ("affinity", json!({}), json!({"sessionAffinity": "ClientIP"})),
        ("udp", json!({}), json!({"ports": udp})),
    ];
    let external = [
        ("external-static", json!({}), json!({"loadBalancerIP": reserved.get("address")})),
        ("external-standard", json!({"cloud.google.com/network-tier": "Standard"}), json!({})),
    ];
    let internal = [
        ("internal-static", json!({}), json!({"loadBalancerIP": "10.48.200.7"})),
        ("internal-subnet", json!({"networking.gke.io/internal-load-balancer-subnet": "other"}), json!({})),
        ("internal-global", json!({"networking.gke.io/internal-load-balancer-allow-global-access": "true"}), json!({})),
        ("internal-shared", json!({"alpha.cloud.google.com/load-balancer-backend-share": "true"}), json!({})),
        ("internal-many-ports", json!({}), json!({"ports": tcp(&[80, 81, 82, 83, 84, 85])})),
    ];
    let common = ["external", "internal"].into_iter().flat_map(|scheme| {
        shapes.iter().map(move |(name, more, spec)| (format!("{scheme}-{name}"), more.clone(), spec.clone()))
    });
    let own = external.into_iter().chain(internal).map(|(name, more, spec)| (name.to_owned(), more, spec));
    let all = common.chain(own).map(|(name, mut annotations, more)| {
        if name.starts_with("internal") {
            merge(&mut annotations, &json!({"networking.gke.io/load-balancer-type": "Internal"}));
        }
        let mut spec = json!({"ports": tcp(&[80])});
        merge(&mut spec, &more);
        (name, (annotations, spec))
    });
    Ok(all.collect())
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}

/// Arguments, nodes, Services and the objects of the cloud, one per line.
async fn recorded(scene: &Scene, args: &[&str]) -> anyhow::Result<String> {
    let (mut nodes, mut services) = (Vec::new(), Vec::new());
    // In the form that the provider receives.
    let slim = |node: &Value| {
        let at = |path: &str| node.pointer(path).cloned().unwrap_or_default();
        json!({"name": at("/metadata/name"), "uid": at("/metadata/uid"), "providerId": at("/spec/providerID"),
            "podCidrs": at("/spec/podCIDRs")})
    };
    scene.cluster.each("/api/v1/nodes", |node| nodes.push(slim(node))).await?;
    scene
        .cluster
        .each(SERVICES, |service| {
            let kept = |part: &str, names: &[&str]| -> Value {
                let fields = service.get(part).and_then(Value::as_object).into_iter().flatten();
                let fields = fields.filter(|(name, _)| names.contains(&name.as_str()));
                fields.map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            let status = kept("status", &["loadBalancer"]);
            services
                .push(json!({"metadata": kept("metadata", &METADATA), "spec": kept("spec", &SPEC), "status": status}));
        })
        .await?;
    services.retain(|service| service.pointer("/spec/type") == Some(&json!("LoadBalancer")));
    let collections: Vec<&str> = BALANCING.into_iter().chain(["routes"]).collect();
    let dump = scene.cloud.world(|world| world.dump(&collections));
    let lines = |list: &[Value]| list.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join(",\n");
    let objects = dump.get("objects").and_then(Value::as_object).into_iter().flatten();
    let objects: Vec<String> = objects.map(|(path, fields)| format!("  {}: {fields}", json!(path))).collect();
    Ok(format!(
        "{{\"args\": {},\n\"nodes\": [\n{}\n],\n\"services\": [\n{}\n],\n\"external\": {},\n\"objects\": {{\n{}\n}}}}\n",
        json!(args),
        lines(&nodes),
        lines(&services),
        dump.get("external").unwrap_or(&Value::Null),
        objects.join(",\n"),
    ))
}
