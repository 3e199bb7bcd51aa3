use crate::client::elb::ListenerDescription;
use crate::loadbalancer::plan::security_groups::tests::model::member;
use crate::loadbalancer::tests::scene::{BALANCER, Scene, clb, sg, writes};
use ccm_cloudsim::aws::ec2::model::{Peer, Rule};
use ccm_cloudsim::aws::elb::Policy;

const CERTIFICATE: (&str, &str) = ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x");

fn policy(kind: &str) -> Policy {
    Policy { kind: kind.to_owned(), attributes: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn what_aws_fills_in_or_spells_otherwise_is_no_difference() {
    let asked = clb(&[CERTIFICATE]);
    let scene = Scene::made(&asked).await;
    scene.classic(|balancer| {
        let log = &mut balancer.attributes.access_log;
        (log.emit_interval, log.bucket, log.prefix) = (Some(60), Some("old".to_owned()), Some(String::new()));
        let listener = balancer.listeners.get_mut(&443).unwrap();
        listener.certificate = Some("ARN:aws:acm:us-west-2:1:certificate/X".to_owned());
        balancer.groups.reverse();
    });
    assert_eq!(writes(&scene.plan(&asked).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn proxy_protocol_is_turned_on_and_off_once_and_other_policies_of_the_port_stay() {
    let proxied = clb(&[("proxy-protocol", "*")]);
    let scene = Scene::made(&proxied).await;
    let mine = || "backend-auth".to_owned();
    scene.classic(|balancer| {
        balancer.policies.insert(mine(), policy("BackendServerAuthenticationPolicyType"));
        balancer.backends.get_mut(&31080).unwrap().push(mine());
    });
    assert_eq!(writes(&scene.plan(&proxied).await), [""; 0]);
    let off = scene.settle(&clb(&[])).await;
    assert_eq!(writes(&off), ["SetLoadBalancerPoliciesForBackendServer"; 2]);
    scene.classic(|balancer| assert_eq!(balancer.backends[&31080], [mine()]));
    let on = scene.plan(&proxied).await;
    assert_eq!(writes(&on), ["SetLoadBalancerPoliciesForBackendServer"; 2], "the policy is there already");
}

#[tokio::test(start_paused = true)]
async fn a_stickiness_policy_of_the_user_survives_another_tls_policy() {
    let scene = Scene::made(&clb(&[CERTIFICATE])).await;
    scene.classic(|balancer| {
        balancer.policies.insert("sticky".to_owned(), policy("LBCookieStickinessPolicyType"));
        balancer.listeners.get_mut(&80).unwrap().policies.push("sticky".to_owned());
    });
    scene.settle(&clb(&[CERTIFICATE, ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05")])).await;
    scene.classic(|balancer| {
        let mut policies = balancer.listeners[&80].policies.clone();
        policies.sort();
        assert_eq!(policies, ["k8s-SSLNegotiationPolicy-ELBSecurityPolicy-2015-05", "sticky"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_another_cluster_with_our_name_is_left_alone() {
    let scene = Scene::made(&clb(&[])).await;
    scene.classic(|balancer| balancer.tags = [("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())].into());
    let error = scene.try_plan(&clb(&[("connection-idle-timeout", "600")])).await.unwrap_err().to_string();
    assert!(error.contains(BALANCER) && error.contains("kubernetes.io/cluster/c1 = owned"), "{error}");
    assert_eq!(writes(&scene.plan(&clb(&[]).gone()).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_users_that_leaves_loses_the_way_of_a_main_group_and_no_other_rule() {
    let scene = Scene::made(&clb(&[("extra-security-groups", sg("sg-bystander"))])).await;
    let rule = |protocol: &str, port: Option<i64>| Rule {
        id: format!("sgr-{protocol}"),
        protocol: protocol.to_owned(),
        from: port,
        to: port,
        peer: Peer::Group(sg("sg-bystander").to_owned()),
        description: None,
    };
    scene.world.ec2(|ec2| {
        let nodes = ec2.groups.get_mut(sg("sg-nodes")).unwrap();
        nodes.ingress.extend([rule("tcp", Some(22)), rule("-1", None)]);
        ec2.groups.get_mut(sg("sg-bystander")).unwrap().tags = member("owned");
    });
    scene.settle(&clb(&[])).await;
    scene.classic(|balancer| assert_eq!(balancer.groups.len(), 1));
    assert_eq!(scene.rules(sg("sg-nodes")), ["-1 from sg-made-1", "tcp 22 from sg-bystander"]);
    assert!(scene.world.ec2(|ec2| ec2.groups.contains_key(sg("sg-bystander"))));
}

#[tokio::test(start_paused = true)]
async fn an_entry_without_listener_is_left_alone_and_reported() {
    let asked = clb(&[]);
    let scene = Scene::made(&asked).await;
    let mut observed = scene.observe(&asked).await;
    observed.classic.as_mut().unwrap().balancer.listeners.push(ListenerDescription::default());
    let planned = scene.balancers(&asked).plan_one(&asked.desired().unwrap(), &observed).unwrap();
    assert_eq!((planned.steps.len(), planned.findings.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_gone_is_not_registered() {
    let scene = Scene::made(&clb(&[]).nodes(1..=2)).await;
    scene.world.ec2(|ec2| ec2.instances.remove(&crate::tests::world::id(3)));
    assert_eq!(writes(&scene.plan(&clb(&[])).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn many_nodes_are_registered_in_one_call() {
    let planned = Scene::with_nodes(20).plan(&clb(&[]).nodes(1..=20)).await;
    let register = planned.steps.iter().filter(|step| step.write.operation().name.starts_with("RegisterInstances"));
    let texts: Vec<String> = register.map(|step| step.summary.to_string()).collect();
    assert!(texts.len() == 1 && texts[0].contains("and 12 more"), "{texts:#?}");
}
