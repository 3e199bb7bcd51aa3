//! Checks the subnets that load balancers would get, with the controller's own rule.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_provider::{Check, Claims, ProviderError, Service};

use crate::annotations::{Annotations, INTERNAL, SUBNETS};
use crate::inspect::{Inspector, unchecked};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::subnets::{ROLE_INTERNAL, ROLE_PUBLIC, wanted};
use crate::loadbalancer::wanted::Subnets;

const CHECK: &str = "subnet-tags";

pub(super) async fn checks(aws: &Inspector, claims: &Claims) -> Vec<Check> {
    let observed = match read(aws).await {
        Ok(observed) => observed,
        Err(error) => return vec![unchecked(CHECK, "", error)],
    };
    [false, true].into_iter().map(|internal| check(aws, claims, &observed, internal)).collect()
}

async fn read(aws: &Inspector) -> Result<Observed, ProviderError> {
    let (reads, own) = (&aws.balancers().cloud()?.reads, &aws.env().self_subnet);
    let (subnets, tables) = futures::try_join!(reads.subnets(Duration::ZERO), reads.route_tables(Duration::ZERO))?;
    let zones = reads.zones.knowing(subnets.iter().map(|subnet| &*subnet.zone)).await?.unwrap_or_default();
    let mut observed = Observed {
        subnets: subnets.iter().map(|subnet| (subnet.id.clone(), subnet.clone())).collect(),
        route_tables: tables.to_vec(),
        zones: (*zones).clone(),
        ..Observed::default()
    };
    if !own.is_empty() && !observed.subnets.contains_key(own) {
        let found = aws.api.subnets(&crate::client::Query::by("subnet-id", [own])).await?;
        observed.subnets.extend(found.into_iter().map(|subnet| (subnet.id.clone(), subnet)));
    }
    Ok(observed)
}

fn check(aws: &Inspector, claims: &Claims, observed: &Observed, internal: bool) -> Check {
    let (kind, role) = if internal { ("internal", ROLE_INTERNAL) } else { ("public", ROLE_PUBLIC) };
    let subject = format!("{kind} load balancers");
    match wanted(&Subnets::Discover, internal, &BTreeSet::new(), observed, aws.env()) {
        Ok(ids) => {
            let unmarked: Vec<&str> = ids
                .iter()
                .filter_map(|id| observed.subnets.get(id))
                .filter(|subnet| !subnet.tags.contains_key(role))
                .map(|subnet| &*subnet.id)
                .collect();
            let good = Check::good(CHECK, subject, format!("would be in {}", ids.join(", ")));
            if unmarked.is_empty() {
                return good;
            }
            let note = format!("without the tag {role} = 1: {}. Another subnet of the zone", unmarked.join(", "));
            Check {
                message: format!("{}; {note} that gets it would be chosen instead", good.message),
                fix: format!(
                    "to keep this choice: aws ec2 create-tags --resources {} --tags Key={role},Value=1",
                    unmarked.join(" ")
                ),
                ..good
            }
        }
        Err(error) => {
            let key = aws.settings.ownership.cluster_key().unwrap_or_else(|| "kubernetes.io/cluster/<ID>".to_owned());
            let fix = format!(
                "in each zone choose a subnet{}, and tag it: aws ec2 create-tags --resources SUBNET --tags \
                 Key={role},Value=1 Key={key},Value=shared; or name subnets in the annotation {}",
                if internal { "" } else { " with a route to an internet gateway" },
                SUBNETS.row.key
            );
            // A cluster without public subnets is fine while no Service needs one.
            match claims.services.iter().find(|service| asks(service, internal)) {
                Some(service) => {
                    Check::error(CHECK, subject, format!("{error}; Service {} needs one", service.key()), fix)
                }
                None => Check::warning(CHECK, subject, format!("{error}; no Service needs one"), fix),
            }
        }
    }
}

/// Whether a Service wants a balancer of this scheme and relies on subnet discovery.
fn asks(service: &Service, internal: bool) -> bool {
    let annotations = Annotations::read(&service.metadata.annotations);
    service.wants_load_balancer()
        && !annotations.has(&SUBNETS)
        && annotations.get_or_default(&INTERNAL).is_ok_and(|wants| wants == internal)
}
