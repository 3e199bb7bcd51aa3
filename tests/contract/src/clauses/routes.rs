//! Routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_provider::{NewRoute, NodeRef, Route};

use super::HOSTILE;
use crate::bed::{Bed, CLUSTER, failed, holds};
use crate::{Harness, Outage, Outcome, Result};

fn route(node: &NodeRef, cidr: &str) -> NewRoute {
    NewRoute {
        name_hint: node.uid.to_string(),
        route: Route {
            target_node: Some(node.name.clone()),
            target_node_addresses: node.addresses.to_vec(),
            destination_cidr: cidr.to_owned(),
            ..Route::default()
        },
    }
}

async fn listed(bed: &Bed) -> Result<Vec<Route>> {
    bed.routes()?.list(CLUSTER).await.map_err(failed("listing routes"))
}

/// Destination and target of each route, sorted.
fn pairs(routes: &[Route]) -> BTreeSet<(String, String)> {
    let target = |route: &Route| route.target_node.as_ref().map(ToString::to_string).unwrap_or_default();
    routes.iter().map(|route| (route.destination_cidr.clone(), target(route))).collect()
}

async fn created(bed: &Bed, routes: &[NewRoute]) -> Result {
    let provider = bed.routes()?;
    for answer in bed.answers(routes, async |routes| provider.create(CLUSTER, routes).await).await? {
        answer.map_err(failed("making a route"))?;
    }
    Ok(())
}

async fn removed(bed: &Bed, routes: &[Route]) -> Result {
    let provider = bed.routes()?;
    for answer in bed.answers(routes, async |routes| provider.delete(CLUSTER, routes).await).await? {
        answer.map_err(failed("removing a route"))?;
    }
    Ok(())
}

async fn two(bed: &Bed) -> Result<Vec<NewRoute>> {
    bed.routes()?;
    let nodes = bed.nodes(&["one", "two"]).await;
    let cidrs = ["10.244.1.0/24", "10.244.2.0/24"];
    Ok(nodes.iter().zip(cidrs).map(|(node, cidr)| route(node, cidr)).collect())
}

pub(super) async fn created_routes_are_listed_with_their_node(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    holds!(listed(&bed).await?.is_empty(), "a new cluster has routes");
    created(&bed, &wanted).await?;
    for bed in [&bed, &bed.restarted().await?] {
        let routes = bed.without_writing("listing routes", listed(bed)).await??;
        let want = pairs(&wanted.iter().map(|new| new.route.clone()).collect::<Vec<_>>());
        holds!(pairs(&routes) == want && routes.len() == want.len(), "made {want:?}, listed {routes:?}");
        for (listed, new) in routes.iter().flat_map(|l| wanted.iter().map(move |w| (l, w))) {
            if listed.destination_cidr != new.route.destination_cidr {
                continue;
            }
            holds!(!listed.blackhole, "a new route is a blackhole: {listed:?}");
            let found = listed.enable_node_addresses;
            let same = listed.target_node_addresses == new.route.target_node_addresses;
            holds!(!found || same, "made with {:?}, listed with {listed:?}", new.route.target_node_addresses);
        }
    }
    Ok(())
}

pub(super) async fn answers_come_in_the_order_of_the_routes(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let routes = bed.routes()?;
    let node = bed.node("one").await;
    // Invalid ranges among valid ones.
    let cidrs = ["10.244.1.0/24", "", "10.244.2.0/24", "not a range", "10.244.3.0/24"];
    let wanted: Vec<NewRoute> = cidrs.iter().map(|cidr| route(&node, cidr)).collect();
    let answers = bed.answers(&wanted, async |wanted| routes.create(CLUSTER, wanted).await).await?;
    let there = pairs(&listed(&bed).await?);
    for (new, answer) in wanted.iter().zip(&answers) {
        let cidr = &new.route.destination_cidr;
        let made = there.iter().any(|(destination, _)| destination == cidr);
        holds!(
            made == answer.is_ok(),
            "{cidr:?}: answered {answer:?}, and it is {}listed",
            if made { "" } else { "not " }
        );
    }
    let (none, nothing) = (routes.create(CLUSTER, &[]).await, routes.delete(CLUSTER, &[]).await);
    holds!(none.is_empty() && nothing.is_empty(), "answers to no question");
    Ok(())
}

pub(super) async fn an_equal_route_again_is_a_success(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    created(&bed, &wanted).await?;
    let before = bed.contents().await;
    created(&bed, &wanted).await?;
    created(&bed.restarted().await?, &wanted).await?;
    let now = bed.contents().await;
    holds!(now == before, "made again, the cloud holds {now:?} instead of {before:?}");
    Ok(())
}

pub(super) async fn deleted_routes_are_gone(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    let before = bed.contents().await;
    created(&bed, &wanted).await?;
    let all = listed(&bed).await?;
    let (first, rest) = (all.get(..1).unwrap_or_default(), all.get(1..).unwrap_or_default());
    removed(&bed, first).await?;
    let left = listed(&bed).await?;
    holds!(pairs(&left) == pairs(rest), "removed {first:?}, left {left:?}");
    removed(&bed, rest).await?;
    let now = bed.contents().await;
    holds!(now == before, "all removed, and the cloud holds {now:?} instead of {before:?}");
    Ok(())
}

pub(super) async fn other_clusters_and_owners_are_not_listed(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    created(&bed, &wanted).await?;
    let other = bed.routes()?.list("another-cluster").await.map_err(failed("listing routes"))?;
    holds!(other.is_empty(), "another cluster sees {other:?}");
    let before = listed(&bed).await?;
    if bed.harness.add_objects_of_others(None).await {
        let after = listed(&bed).await?;
        holds!(pairs(&before) == pairs(&after), "routes of others are listed: {after:?}");
    }
    Ok(())
}

pub(super) async fn a_blackhole_route_is_reported(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    created(&bed, &wanted).await?;
    let cidr = "10.244.1.0/24";
    if !bed.harness.orphan_route(cidr).await {
        return Err(Outcome::NotApplicable("this cloud has no blackhole routes"));
    }
    let routes = listed(&bed).await?;
    let orphan: Vec<&Route> = routes.iter().filter(|route| route.destination_cidr == cidr).collect();
    holds!(orphan.iter().all(|route| route.blackhole), "the blackhole route: {orphan:?}");
    holds!(orphan.len() == 1 && routes.len() == 2, "two routes were made, listed are {routes:?}");
    let old: Vec<Route> = orphan.into_iter().cloned().collect();
    removed(&bed, &old).await?;
    created(&bed, wanted.get(..1).unwrap_or_default()).await?;
    let mended = listed(&bed).await?;
    holds!(mended.len() == 2 && mended.iter().all(|route| !route.blackhole), "replaced: {mended:?}");
    Ok(())
}

pub(super) async fn a_cloud_that_fails_gives_no_short_list(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    created(&bed, &wanted).await?;
    let all = listed(&bed).await?;
    let routes = bed.routes()?;
    bed.disrupt(Outage::Down).await?;
    let down = routes.list(CLUSTER).await;
    holds!(down.is_err(), "the cloud is down, and the routes are {down:?}");
    let made = routes.create(CLUSTER, &wanted).await;
    holds!(
        made.len() == 2 && made.iter().all(std::result::Result::is_err),
        "the cloud is down, and routes are made: {made:?}"
    );
    let gone = routes.delete(CLUSTER, &all).await;
    holds!(
        gone.len() == 2 && gone.iter().all(std::result::Result::is_err),
        "the cloud is down, and routes are removed: {gone:?}"
    );
    bed.recover().await?;
    let after = listed(&bed).await?;
    holds!(pairs(&all) == pairs(&after), "before {all:?}, after {after:?}");
    Ok(())
}

pub(super) async fn interrupted_routes_converge(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let wanted = two(&bed).await?;
    let before = bed.contents().await;
    for lost in [false, true] {
        for writes in 0..8 {
            let routes = bed.routes()?;
            let outage = if lost { Outage::AnswerLostAfter(writes) } else { Outage::WritesRefusedAfter(writes) };
            bed.disrupt(outage).await?;
            let answers = routes.create(CLUSTER, &wanted).await;
            bed.disrupt(Outage::None).await?;
            // Like the route controller, does not create a listed route again.
            let there = listed(&bed).await?;
            let missing: Vec<NewRoute> = wanted
                .iter()
                .filter(|new| there.iter().all(|route| route.destination_cidr != new.route.destination_cidr))
                .cloned()
                .collect();
            let reported_made = answers.iter().filter(|answer| answer.is_ok()).count();
            let made = wanted.len() - missing.len();
            holds!(reported_made <= made, "{reported_made} routes were reported as made, {made} are listed");
            created(&bed, &missing).await?;
            let all = listed(&bed).await?;
            holds!(all.len() == wanted.len(), "cut off after {writes} write(s), then made the rest: {all:?}");
            removed(&bed, &all).await?;
            let now = bed.contents().await;
            holds!(now == before, "cut off after {writes} write(s), made and removed: {now:?}");
        }
    }
    Ok(())
}

pub(super) async fn hostile_routes_do_not_panic(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let routes = bed.routes()?;
    let wanted = two(&bed).await?;
    created(&bed, &wanted).await?;
    for text in HOSTILE {
        let mut odd: Vec<NewRoute> = wanted.clone();
        for (number, new) in odd.iter_mut().enumerate() {
            new.name_hint = (*text).to_owned();
            new.route.destination_cidr = (*text).to_owned();
            if number == 1 {
                new.route.target_node = Some((*text).into());
            }
        }
        let answers = routes.create(CLUSTER, &odd).await;
        holds!(answers.len() == odd.len(), "{} answers for {} routes", answers.len(), odd.len());
        // An accepted route can be deleted again.
        let taken = listed(&bed).await?.into_iter().filter(|route| route.destination_cidr == *text);
        removed(&bed, &taken.collect::<Vec<_>>()).await?;
    }
    let want = pairs(&wanted.iter().map(|new| new.route.clone()).collect::<Vec<_>>());
    let left = pairs(&listed(&bed).await?);
    holds!(left == want, "of {want:?} there are {left:?} left");
    Ok(())
}
