//! Changes that Azure refuses after a Service has given up what serves it: it gets that back in the same call.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::several::{SEVERAL, frontends, on};
use super::*;
use crate::bed::{pass, stable};

const IP_TAGS: &str = "azure-pip-ip-tags";

fn refusal(message: &str) -> Fault {
    Fault::Code { status: 400, code: "InvalidRequestFormat".to_owned(), message: message.to_owned() }
}

/// The load balancers and addresses, whatever the order in their lists.
fn state(scene: &Scene) -> Vec<Value> {
    fn sort(value: &mut Value) {
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(sort);
                list.sort_by_key(Value::to_string);
            }
            Value::Object(fields) => fields.values_mut().for_each(sort),
            _ => {}
        }
    }
    let mut all: Vec<Value> = [scene.objects("loadBalancers"), scene.objects("publicIPAddresses")].concat();
    all.iter_mut().for_each(|object| *object = stable(object.take()));
    all.iter_mut().for_each(sort);
    all
}

async fn fails(scene: &mut Scene, names: &[&str]) -> String {
    scene.settle(names, ServiceAction::Ensure).await.unwrap_err().to_string()
}

/// `web` moves to the second load balancer, whose next write fails like this. `others` are on the first one with it.
async fn move_that_fails(fault: &Fault, others: &[&str]) {
    let mut scene = Scene::new(&SEVERAL.replace("none", "pool"), 2).await;
    let names = [&["web", "db"], others].concat();
    scene.service("web", &[on(CLUSTER)], port(80));
    scene.service("db", &[on("second")], port(82));
    for (number, other) in (83..).zip(others) {
        scene.service(other, &[on(CLUSTER)], port(number));
    }
    scene.ensure(&names).await;
    let before = state(&scene);
    let ip = scene.ip("web");
    // The first write takes the frontend from its load balancer; the last one of that is a deletion.
    scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", "loadBalancers.put").window(others.len() as u64, 1));
    scene.service("web", &[on("second")], port(80));
    let error = fails(&mut scene, &["web"]).await;
    for word in ["stays on the load balancer kubernetes", "Microsoft.Network/loadBalancers/write"] {
        assert!(error.contains(word), "{fault:?} {others:?}: {error}");
    }
    let case = format!("{fault:?} {others:?}");
    assert_eq!((frontends(&scene, CLUSTER, "web"), frontends(&scene, "second", "web")), (1, 0), "{case}");
    let mark = scene.mark();
    assert_eq!(fails(&mut scene, &["web"]).await, error, "{case}");
    scene.ensure(&names[1..]).await;
    assert_eq!(
        (scene.writes(mark), scene.ip("web")),
        (BTreeMap::new(), ip.clone()),
        "{case}: it is not tried again soon"
    );
    assert_eq!(state(&scene), before, "{case}");
    // Asked for what it has, nothing is wrong.
    scene.service("web", &[on(CLUSTER)], port(80));
    scene.ensure(&names).await;
    scene.service("web", &[on("second")], port(80));
    scene.ensure(&names).await;
    assert_eq!((frontends(&scene, "second", "web"), scene.ip("web")), (1, ip), "{case}");
    scene.delete(&names).await;
    assert_eq!(scene.objects("loadBalancers").len() + scene.objects("publicIPAddresses").len(), 0, "{case}");
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_new_load_balancer_cannot_be_written_stays_on_the_former_one() {
    move_that_fails(&refusal("It is not possible."), &[]).await;
    move_that_fails(&Fault::Deny, &["api"]).await;
}

#[tokio::test]
async fn a_move_that_fails_for_a_moment_and_then_for_good_ends_on_the_former_load_balancer() {
    let mut scene = Scene::new(SEVERAL, 2).await;
    let names = ["web", "api"];
    names.iter().zip(80..).for_each(|(name, number)| scene.service(name, &[on(CLUSTER)], port(number)));
    scene.ensure(&names).await;
    let put = |fault| Rule::every(fault).on("network", "loadBalancers.put");
    let outage = Fault::Code { status: 500, code: "InternalServerError".to_owned(), message: "an outage".to_owned() };
    scene.bed.cloud.fault(put(outage).window(1, 100));
    scene.service("web", &[on("second")], port(80));
    assert!(scene.call(&names, ServiceAction::Ensure).await[0].result.is_err());
    assert_eq!(frontends(&scene, CLUSTER, "web"), 0);
    scene.bed.cloud.faults(Faults::clear);
    scene.bed.cloud.fault(put(refusal("It is not possible.")).window(0, 1));
    let error = fails(&mut scene, &["web"]).await;
    assert!(error.contains("stays on the load balancer kubernetes"), "{error}");
    assert_eq!(frontends(&scene, CLUSTER, "web"), 1);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_move_whose_first_write_takes_long_ends_on_the_former_load_balancer_too() {
    let mut scene = Scene::new(SEVERAL, 2).await;
    let names = ["web", "api"];
    names.iter().zip(80..).for_each(|(name, number)| scene.service(name, &[on(CLUSTER)], port(number)));
    scene.ensure(&names).await;
    scene.bed.cloud.change(|options| options.operations = [("loadBalancers.put".to_owned(), 2000)].into());
    scene.service("web", &[on("second")], port(80));
    // It is ready, and the other one is not waited for.
    scene.service("api", &[on(CLUSTER), ("azure-pip-tags", "a=b")], port(81));
    let error = scene.call(&names, ServiceAction::Ensure).await.remove(0).result.unwrap_err();
    assert!(error.is_in_progress(), "{error}");
    scene.bed.cloud.change(|options| options.operations.clear());
    let put = Rule::every(refusal("It is not possible.")).on("network", "loadBalancers.put");
    scene.bed.cloud.fault(put.window(0, 1));
    let is_changing = |scene: &Scene| format!("{:?}", scene.objects("loadBalancers")).contains("Updating");
    while is_changing(&scene) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let error = fails(&mut scene, &["web"]).await;
    assert!(error.contains("stays on the load balancer kubernetes"), "{error}");
    assert_eq!(frontends(&scene, CLUSTER, "web"), 1);
    scene.bed.is_clean();
}

/// `web` asks for other IP tags while an action on public IP addresses is not allowed.
async fn ip_tags_without(right: &str, more: &str, others: &[&str]) {
    let mut scene = Scene::new(more, 2).await;
    let names = [&["web"], others].concat();
    scene.service("web", &[(IP_TAGS, "FirstPartyUsage=/a")], port(80));
    for (number, other) in (81..).zip(others) {
        scene.service(other, &[], port(number));
    }
    scene.ensure(&names).await;
    let before = state(&scene);
    let (case, former) = (format!("{right} {more} {others:?}"), scene.ip("web"));
    scene.bed.cloud.fault(Rule::every(Fault::Deny).on("network", &format!("publicIPAddresses.{right}")));
    scene.service("web", &[(IP_TAGS, "FirstPartyUsage=/b")], port(80));
    let mark = scene.mark();
    let error = fails(&mut scene, &["web"]).await;
    let permission = format!("Microsoft.Network/publicIPAddresses/{}", if right == "put" { "write" } else { right });
    for word in [IP_TAGS, &permission, "keeps the public IP address"] {
        assert!(error.contains(word), "{case}: {error}");
    }
    if right == "put" {
        assert_eq!(scene.writes(mark), BTreeMap::from([("publicIPAddresses.put".to_owned(), 1)]), "{case}");
    }
    assert_eq!(state(&scene), before, "{case}");
    let mark = scene.mark();
    assert_eq!(fails(&mut scene, &["web"]).await, error, "{case}");
    scene.ensure(others).await;
    assert_eq!((scene.writes(mark), scene.ip("web")), (BTreeMap::new(), former.clone()), "{case}");
    scene.bed.cloud.faults(Faults::clear);
    pass(601).await;
    scene.ensure(&names).await;
    assert!(scene.ip("web") != former, "{case}");
    scene.delete(&names).await;
    assert_eq!(scene.objects("loadBalancers").len() + scene.objects("publicIPAddresses").len(), 0, "{case}");
    scene.bed.is_clean();
}

#[tokio::test]
async fn an_address_whose_ip_tags_cannot_change_without_a_right_stays_on_its_frontend() {
    ip_tags_without("put", "", &[]).await;
    ip_tags_without("delete", BY_ADDRESS, &[]).await;
    ip_tags_without("delete", "", &["api"]).await;
}
