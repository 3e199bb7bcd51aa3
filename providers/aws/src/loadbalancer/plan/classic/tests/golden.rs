//! The writes for each annotation and each change. `UPDATE=1` regenerates `plans.txt`.

use std::fmt::Write as _;

use ccm_provider::ServiceAction;

use crate::annotations::SUBNETS;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::tests::scene::{Asked, Scene, State, clb, service, sg};
use crate::tests::env;

const CERTIFICATE: (&str, &str) = ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x");

struct Page {
    text: String,
    scene: Scene,
}

impl Page {
    /// Plans, records the plan, applies it, and asserts that nothing is left to do.
    async fn case(&mut self, name: &str, from: &State, asked: &Asked) -> State {
        self.scene.load(from);
        let planned = self.scene.settle(asked).await;
        let mut text = format!("\n## {name}\n");
        for step in &planned.steps {
            let _ = writeln!(text, "{}", step.summary);
        }
        for finding in &planned.findings {
            let _ = writeln!(text, "note: {finding}");
        }
        if planned.steps.is_empty() {
            text.push_str("(nothing)\n");
        }
        self.text.push_str(&self.scene.named(&text));
        self.scene.save()
    }

    /// With a change of the account.
    fn changed(&self, from: &State, change: impl FnOnce(&mut State)) -> State {
        let mut state = from.clone();
        change(&mut state);
        state
    }
}

async fn page() -> String {
    let scene = Scene::with_nodes(3);
    let empty = scene.save();
    let mut page = Page { text: String::new(), scene };

    let plain = page.case("A new balancer", &empty, &clb(&[])).await;
    page.case("A second sync", &plain, &clb(&[])).await;
    for (key, value) in [
        ("proxy-protocol", "*"),
        ("access-log-enabled", "false"),
        ("access-log-s3-bucket-name", "bucket"),
        ("connection-draining-enabled", "true"),
        ("connection-draining-timeout", "60"),
        ("connection-idle-timeout", "600"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("security-groups", "sg-bystander"),
        ("extra-security-groups", "sg-bystander"),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
        ("backend-protocol", "http"),
        ("backend-protocol", "https"),
        ("additional-resource-tags", "team=web,kubernetes.io/cluster/c1=shared,KubernetesCluster=x"),
        ("healthcheck-protocol", "http"),
        ("healthcheck-port", "9000"),
        ("healthcheck-path", "/ready"),
        ("healthcheck-healthy-threshold", "3"),
        ("healthcheck-unhealthy-threshold", "3"),
        ("healthcheck-timeout", "3"),
        ("healthcheck-interval", "30"),
        ("internal", "true"),
        CERTIFICATE,
    ] {
        let named = value.replace("sg-bystander", sg("sg-bystander"));
        let changed = page.case(&format!("{key}: {value}"), &plain, &clb(&[(key, &named)])).await;
        page.case(&format!("{key} taken away again"), &changed, &clb(&[])).await;
    }

    let logs = [
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "bucket"),
        ("access-log-s3-bucket-prefix", "web"),
        ("access-log-emit-interval", "5"),
    ];
    let logged = page.case("Access logs", &plain, &clb(&logs)).await;
    page.case("Access logs at the root of the bucket", &logged, &clb(&logs[..2])).await;
    let draining = [("connection-draining-enabled", "true"), ("connection-draining-timeout", "60")];
    page.case("Draining with a timeout", &plain, &clb(&draining)).await;
    let tls = |more: &[(&'static str, &'static str)]| clb(&[&[CERTIFICATE], more].concat());
    let policy = ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
    let new = tls(&[policy, ("backend-protocol", "https")]);
    page.case("TLS on a new balancer with a policy", &empty, &new).await;
    let secured = page.case("TLS on one port", &plain, &tls(&[("ssl-ports", "HTTPS")])).await;
    let secured = page.case("A TLS policy", &secured, &tls(&[("ssl-ports", "443"), policy])).await;
    let other = ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05");
    page.case("Another TLS policy", &secured, &tls(&[("ssl-ports", "443"), other])).await;
    page.case("A TLS policy taken away", &secured, &tls(&[("ssl-ports", "443")])).await;

    let ports = serde_json::json!([
        {"name": "https", "port": 443, "nodePort": 31444, "protocol": "TCP"},
        {"name": "alt", "port": 8443, "nodePort": 31843, "protocol": "TCP"},
    ]);
    let proxied = [("proxy-protocol", "*")];
    page.scene.load(&empty);
    page.scene.settle(&clb(&proxied)).await;
    let other_ports = Asked::of(service(&ports, &proxied)).ranges(&["10.0.0.0/8"]);
    page.case("Other ports, with proxy protocol", &page.scene.save(), &other_ports).await;
    page.case("A node less", &plain, &clb(&[]).nodes(1..=2)).await;
    page.case("No nodes", &plain, &clb(&[]).nodes([])).await;

    let moved = page.changed(&plain, |state| {
        let tags = state.ec2.groups[sg("sg-nodes")].tags.clone();
        state.ec2.groups.get_mut(sg("sg-new")).unwrap().tags = tags;
        for number in [2, 3] {
            let interface = state.ec2.interfaces.get_mut(&crate::tests::world::eni(number)).unwrap();
            interface.groups = vec![sg("sg-new").to_owned()];
        }
    });
    let hosts = |asked: Asked| asked.to(ServiceAction::UpdateHosts);
    page.case("A node in another group", &moved, &hosts(clb(&[]))).await;
    let fewer = clb(&[("cross-zone-load-balancing-enabled", "true")]).nodes([1]);
    page.case("Nodes gone, hosts only", &plain, &hosts(fewer)).await;

    let named = |name: &str| clb(&[("security-groups", sg(name))]);
    let user = page.case("From a managed to a group of the user's", &plain, &named("sg-user")).await;
    let user = page.case("From one group of the user's to another", &user, &named("sg-bystander")).await;
    page.case("From a group of the user's to a managed one", &user, &clb(&[])).await;

    let gone = page.case("Deletion", &plain, &clb(&[]).gone()).await;
    page.case("Deletion of nothing", &gone, &clb(&[]).gone()).await;
    page.case("Deletion with a group of the user's", &user, &named("sg-bystander").gone()).await;
    page.scene.load(&plain);
    page.scene.delete_by_hand();
    let failed = page.scene.save();
    page.case("Deletion after a creation that never came to be", &failed, &clb(&[]).gone()).await;
    let other = || [("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())].into();
    let foreign = page.changed(&plain, |state| state.elb.balancers.values_mut().for_each(|one| one.tags = other()));
    page.case("Deletion of another's balancer of that name", &foreign, &clb(&[]).gone()).await;

    page.scene.load(&empty);
    page.scene.settle(&clb(&[]).with(&SUBNETS, "subnet-a")).await;
    let single = page.scene.save();
    for (name, to) in [
        ("One more subnet", "subnet-a,subnet-b"),
        ("Another zone", "subnet-b"),
        ("Another subnet of the only zone", "subnet-a2"),
        ("Another subnet and one more zone", "subnet-a2,subnet-b"),
    ] {
        page.case(name, &single, &clb(&[]).with(&SUBNETS, to)).await;
    }
    page.case("Other subnets in all zones", &plain, &clb(&[]).with(&SUBNETS, "subnet-a2,subnet-b2")).await;
    let with = |env: Env| Asked { env, ..clb(&[]) };
    let shared = with(Env { shared_group: Some(sg("sg-bystander").to_owned()), ..env() });
    page.case("With ElbSecurityGroup", &empty, &shared).await;
    let untouched = with(Env { node_groups_untouched: true, ..env() });
    let made = page.case("With DisableSecurityGroupIngress", &empty, &untouched).await;
    page.case("Deletion with DisableSecurityGroupIngress", &made, &untouched.gone()).await;
    page.text
}

#[tokio::test(start_paused = true)]
async fn plans_are_as_written_down() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/loadbalancer/plan/classic/tests/plans.txt");
    let page = page().await;
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let differs = golden.lines().zip(page.lines()).find(|(golden, now)| golden != now);
    assert!(golden == page, "plans.txt differs, first in {differs:#?}; look at it and run with UPDATE=1");
}
