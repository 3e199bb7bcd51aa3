//! `ccm migrate-check`: configuration, permissions, nodes, and the Services with their health probes.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::http::Query;
use ccm_kit::inspect::migration::{configuration, nodes, services};
use ccm_provider::{Aspects, Check, Claims, Finding, InstancesV2 as _, Service, Severity};
use serde_json::Value;

use super::{Inspector, unchecked};
use crate::annotations::{
    Annotations, LB_SUBNET, PIP_PREFIX, PIP_PREFIX_IPV6, PLS_CREATE, PLS_SUBNET, Scheme, scheme_of,
};
use crate::client::id::{ArmId, same};
use crate::client::operation::{PERMISSIONS_LIST, ROUTE_TABLE, VM_LIST, VMSS_VM};
use crate::client::{ApiError, is_forbidden};
use crate::loadbalancer::wanted::ports::probes_without_path;
use crate::node::identity::{Key, wanted};
use crate::permissions::{ROLES, Role, Used, in_place_of, is_granted};
use crate::start::config::{LimitConfig, in_words};

const PERMISSIONS: &str = "permissions";
const PROBES: &str = "health-probes";

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(azure: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let mut findings = azure.findings.clone();
    findings.extend(differences(&azure.shared.config.limits));
    let mut checks = configuration(&findings);
    checks.extend(permissions(azure, claims).await);
    checks.push(power_states(azure).await);
    let answers = azure.instances.lookup(&claims.nodes, Aspects::ALL).await;
    let place = "subscriptionId and resourceGroup are those of the nodes";
    checks.extend(nodes(&claims.nodes, &answers, "machine", place, |_, _| None));
    checks.extend(services(azure.balancers.cloud(), cluster, claims).await);
    checks.extend(probes(claims));
    checks
}

/// The keys that the Go program reads and does not pass on to its clients.
fn differences(limits: &LimitConfig) -> Vec<Finding> {
    let rates = limits.rates();
    let limit = (!rates.is_empty()).then(|| {
        let text =
            format!("calls wait for their turn; the Go program reads the key without effect. {}", in_words(&rates));
        Finding::warning("cloudProviderRateLimit", text)
    });
    let backoff = limits.backoff.on.then(|| {
        let text = "sets the retries of all calls; in the Go program, of some loops over nodes";
        Finding::new(Severity::Info, "cloudProviderBackoff", text)
    });
    limit.into_iter().chain(backoff).collect()
}

/// The actions of each role that the identity lacks in the resource groups of their objects: an error if work that is
/// there fails without them.
async fn permissions(azure: &Inspector, claims: &Claims) -> Vec<Check> {
    let config = &azure.shared.config;
    let subject = |(subscription, group): &(String, String)| match same(subscription, &config.identity.subscription) {
        true => format!("resource group {group}"),
        false => format!("resource group {group} of subscription {subscription}"),
    };
    let mut by_place = BTreeMap::<_, Vec<(&Role, String)>>::new();
    let mut checks = Vec::new();
    for role in &ROLES {
        if role.is_of_routes() && !azure.makes_routes {
            let text = format!("not checked for {}: no controller makes routes", role.purpose);
            checks.push(Check::good(PERMISSIONS, format!("resource group {}", config.resource_group), text));
            continue;
        }
        for action in role.actions() {
            by_place.entry(role.place(config, &action)).or_default().push((role, action));
        }
    }
    let used = used(azure, claims);
    let mut objects = Objects { azure, claims, granted: BTreeMap::new() };
    for (place, actions) in by_place {
        let listed = azure.shared.client.list(PERMISSIONS_LIST, &place.0, &place.1, Query::default(), Some).await;
        let granted = match listed {
            Ok(granted) => granted.unwrap_or_default(),
            Err(error) => {
                checks.push(unchecked(PERMISSIONS, subject(&place), error));
                continue;
            }
        };
        for own in actions.chunk_by(|(one, _), (other, _)| one.purpose == other.purpose) {
            let Some((role, _)) = own.first() else { continue };
            let mut missing = Vec::new();
            for (_, action) in own.iter().filter(|(_, action)| !is_granted(&granted, action)) {
                match objects.grant(action).await {
                    Ok(true) => {}
                    Ok(false) => missing.push(&**action),
                    Err(error) => checks.push(unchecked(PERMISSIONS, subject(&place), error)),
                }
            }
            let fails = |action: &&str| {
                let is_done = in_place_of(action).is_some_and(|other| is_granted(&granted, &other));
                role.needs(action, &used) && !is_done
            };
            let (failing, others) = missing.into_iter().partition::<Vec<_>, _>(fails);
            checks.extend(of_role(role, subject(&place), &failing, &others));
        }
    }
    checks
}

/// The objects of the network that the configuration or a Service names: roles may be assigned on them alone.
struct Objects<'c> {
    azure: &'c Inspector,
    claims: &'c Claims,
    /// The rights that were read.
    granted: BTreeMap<ArmId, Vec<Value>>,
}

impl Objects<'_> {
    /// Whether an action is one for such objects, and a role on each of them has it.
    async fn grant(&mut self, action: &str) -> Result<bool, ApiError> {
        let objects = self.of(action);
        for id in &objects {
            if !self.granted.contains_key(id) {
                let permissions = id.child("providers", "Microsoft.Authorization");
                let read = self.azure.shared.client.list_in(PERMISSIONS_LIST, &permissions, Query::default(), Some);
                self.granted.insert(id.clone(), read.await?.unwrap_or_default());
            }
            if !self.granted.get(id).is_some_and(|granted| is_granted(granted, action)) {
                return Ok(false);
            }
        }
        Ok(!objects.is_empty())
    }

    fn of(&self, action: &str) -> Vec<ArmId> {
        let (config, env) = (&self.azure.shared.config, self.azure.balancers.cloud().env());
        let one = |name: &str, id: ArmId| if name.is_empty() { Vec::new() } else { vec![id] };
        match action.split('/').nth(1) {
            Some("routeTables") => {
                let (group, name) = (&config.route_table_resource_group, &config.route_table_name);
                one(name, ArmId::new(&env.subscription, group, ROUTE_TABLE.kind, name))
            }
            Some("networkSecurityGroups") => one(&env.security_group, env.security_group_id()),
            Some("virtualNetworks") if !env.network.is_empty() => {
                let subnets = self.subnets(action.ends_with("/write"));
                subnets.iter().map(|name| env.subnet_id(name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The subnets of internal load balancers and private links, or of the links only; else that of the configuration.
    fn subnets(&self, of_links: bool) -> BTreeSet<String> {
        let default = &self.azure.balancers.cloud().env().subnet;
        let mut names = BTreeSet::new();
        for service in self.claims.services.iter().filter(|service| Service::wants_load_balancer(service)) {
            let annotations = Annotations::read(&service.metadata.annotations);
            let is_internal = scheme_of(annotations) == Scheme::Internal;
            let own = annotations.readable(&LB_SUBNET).filter(|_| is_internal).unwrap_or_else(|| default.clone());
            if annotations.readable(&PLS_CREATE) == Some(true) {
                names.insert(annotations.readable(&PLS_SUBNET).unwrap_or_else(|| own.clone()));
            }
            names.extend((is_internal && !of_links).then_some(own));
        }
        if names.is_empty() {
            names.insert(default.clone());
        }
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }
}

/// What the cluster uses.
fn used(azure: &Inspector, claims: &Claims) -> Used {
    let config = &azure.shared.config;
    let wanting = || claims.services.iter().filter(|service| service.wants_load_balancer());
    let any = |is: fn(Annotations<'_>) -> bool| wanting().any(|it| is(Annotations::read(&it.metadata.annotations)));
    let keys = claims.nodes.iter().filter_map(|node| wanted(node).ok()).map(|wanted| wanted.key);
    // A node without a provider ID may be anywhere.
    let (sets, machines) = keys.fold((false, false), |(sets, machines), key| match key {
        Key::Machine(id) => (sets || id.is(VMSS_VM.kind), machines || !id.is(VMSS_VM.kind)),
        Key::Name { .. } => (true, true),
    });
    Used {
        services: wanting().next().is_some(),
        routes: azure.routes.is_some(),
        sets,
        machines,
        pools: config.balancing.pools,
        prefixes: any(|annotations| annotations.has(&PIP_PREFIX) || annotations.has(&PIP_PREFIX_IPV6)),
        private_links: any(|annotations| annotations.readable(&PLS_CREATE) == Some(true)),
        public: any(|annotations| scheme_of(annotations) == Scheme::External),
        subnets: any(|annotations| scheme_of(annotations) == Scheme::Internal),
    }
}

/// An error for the actions without which something fails, and a warning for the others.
fn of_role(role: &Role, subject: String, failing: &[&str], others: &[&str]) -> Vec<Check> {
    let purpose = role.purpose;
    if failing.is_empty() && others.is_empty() {
        return vec![Check::good(PERMISSIONS, subject, format!("granted for {purpose}"))];
    }
    let text = |missing: &[&str]| format!("missing for {purpose}: {}", missing.join(", "));
    let fix = "assign the custom role of manifests/azure/roles to the identity, if you use this";
    let error = (!failing.is_empty()).then(|| Check::error(PERMISSIONS, &*subject, text(failing), fix));
    let unneeded = || format!("{}; nothing seen here needs it", text(others));
    let warning = (!others.is_empty()).then(|| Check::warning(PERMISSIONS, &*subject, unneeded(), fix));
    error.into_iter().chain(warning).collect()
}

/// The optional right on the subscription.
async fn power_states(azure: &Inspector) -> Check {
    let subscription = &azure.shared.config.identity.subscription;
    let subject = format!("subscription {subscription}");
    let query = Query::default().with("statusOnly", "true");
    match azure.shared.client.list_all(VM_LIST, subscription, query, |_| None::<()>).await {
        Ok(_) => Check::good(PERMISSIONS, subject, "granted for the power states of virtual machines in one list"),
        Err(error) if is_forbidden(&error) => {
            let text = "Microsoft.Compute/virtualMachines/read is missing on the subscription; it is optional: without it the \
                        power state of each node that is not Ready is read alone";
            let fix = "grant it if many nodes are virtual machines outside uniform scale sets";
            Check::warning(PERMISSIONS, subject, text, fix)
        }
        Err(error) => unchecked(PERMISSIONS, subject, error),
    }
}

/// The Services with an HTTP probe that they may not expect.
fn probes(claims: &Claims) -> Vec<Check> {
    let wanting = claims.services.iter().filter(|service| service.wants_load_balancer());
    let of = |service: &std::sync::Arc<Service>| {
        let subject = format!("service {}", service.key());
        let fix = "check that the pods answer it with 200, or set the annotation";
        probes_without_path(service)
            .into_iter()
            .map(|text| Check::warning(PROBES, &*subject, text, fix))
            .collect::<Vec<_>>()
    };
    wanting.flat_map(of).collect()
}
