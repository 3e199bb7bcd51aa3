//! The expectations, each with its upstream source.

pub(crate) mod beside;
mod election;
mod flags;
mod nodes;
mod routes;
mod services;
mod serving;

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;

use crate::world::World;

/// Where a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the first cluster, with a program of its own.
    Alone,
    /// On the program with all controllers in the first cluster.
    First,
    /// In the second cluster: with the documented role, beside a kube-controller-manager.
    Second,
}

type Outcome<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

pub(crate) struct Check {
    pub(crate) group: &'static str,
    /// The expectation in words.
    pub(crate) name: &'static str,
    /// A file of a Go module of k8s.io, a KEP, or a page of kubernetes.io.
    pub(crate) source: &'static str,
    pub(crate) place: Place,
    pub(crate) run: for<'a> fn(&'a World) -> Outcome<'a>,
}

impl Check {
    /// Whether it looks at what happens for entries of the fake cloud.
    pub(crate) fn needs_cloud(&self) -> bool {
        !matches!(self.group, "flags" | "serving" | "election")
    }

    /// Whether it runs after all others of its place.
    pub(crate) fn is_last(&self) -> bool {
        self.name == beside::NOTHING_REFUSED
    }
}

macro_rules! checks {
    ($($group:literal in $place:ident { $($name:expr, $source:expr => $run:path;)* })*) => {
        pub(crate) const CHECKS: &[Check] = &[$($(Check {
            group: $group,
            name: $name,
            source: $source,
            place: Place::$place,
            run: |world| Box::pin($run(world)),
        },)*)*];
    };
}

const APP: &str = "cloud-provider app/controllermanager.go";
const OPTIONS: &str = "cloud-provider options/options.go";
const CLI: &str = "component-base cli/flag";
const NODE: &str = "cloud-provider controllers/node/node_controller.go";
const LIFECYCLE: &str = "cloud-provider controllers/nodelifecycle/node_lifecycle_controller.go";
const SERVICE: &str = "cloud-provider controllers/service/controller.go";
const ROUTE: &str = "cloud-provider controllers/route/route_controller.go";
const AUTHN: &str = "apiserver pkg/server/options/authentication.go";
const AUTHZ: &str = "apiserver pkg/server/options/authorization.go";
const ELECTION: &str = "client-go tools/leaderelection/leaderelection.go";
const KEP_NODES: &str = "KEP-2392 cloud-controller-manager";
const ROLE: &str = "kubernetes.io/docs/concepts/architecture/cloud-controller#authorization";

checks! {
    "flags" in Alone {
        "--help succeeds and names every flag of the Go core", OPTIONS => flags::help;
        "--version prints a version", "component-base version/verflag/verflag.go" => flags::version;
        "an unknown flag is refused by name", CLI => flags::unknown;
        "names may have underscores", "component-base cli/flag/flags.go" => flags::underscores;
        "a value of the wrong type is refused", CLI => flags::wrong_type;
        "an unknown feature gate is refused", "component-base featuregate/feature_gate.go" => flags::gate;
        "an unknown controller is refused", "controller-manager options/generic.go" => flags::controller;
        "no cloud provider is refused", OPTIONS => flags::no_provider;
        "an unknown cloud provider is refused by name", "cloud-provider plugins.go" => flags::other_provider;
        "a missing kubeconfig is refused by its path", OPTIONS => flags::kubeconfig;
        "a renew deadline above the lease duration is refused", ELECTION => flags::deadline;
    }
    "election" in Alone {
        "the lease is kube-system/cloud-controller-manager", APP => election::lease;
        "name and namespace of the lease can be chosen", "component-base config/options/leaderelectionconfig.go"
            => election::chosen;
        "a second one waits, and follows when the first one ends on SIGTERM", ELECTION => election::hand_over;
        "a leader that has lost its lease ends with an error", APP => election::lost;
    }
    "serving" in First {
        "/healthz answers ok to anyone", AUTHZ => serving::health;
        "/metrics is refused without credentials", AUTHZ => serving::anonymous;
        "a wrong token is refused", AUTHN => serving::wrong_token;
        "a user without the permission is refused", AUTHZ => serving::unprivileged;
        "/metrics has those of queues, requests and controllers", "component-base metrics/prometheus" => serving::metrics;
        "/configz shows the configuration", "component-base configz/configz.go" => serving::configz;
    }
    "node" in First {
        "the taint of a new node is removed, others stay", KEP_NODES => nodes::taint;
        "the provider ID is set", NODE => nodes::provider_id;
        "type, zone and region become labels, in both forms", NODE => nodes::labels;
        "labels of the cloud are added", "cloud-provider cloud.go (AdditionalLabels)" => nodes::additional_labels;
        "the addresses of the cloud are set, and the host name stays", NODE => nodes::addresses;
        "the address of --node-ip comes first", "cloud-provider node/helpers/address.go" => nodes::node_ip;
        "an event Synced is emitted", NODE => nodes::event;
        "a node whose instance is unknown keeps the taint", NODE => nodes::unknown;
        "a node without the taint gets addresses, and no labels", NODE => nodes::plain;
        "addresses follow the cloud", NODE => nodes::follow;
    }
    "lifecycle" in First {
        "a node not ready whose instance is gone is deleted", LIFECYCLE => nodes::gone;
        "a ready node is not deleted", LIFECYCLE => nodes::ready;
        "a node whose cloud answers with an error is left alone", LIFECYCLE => nodes::unsure;
        "a stopped instance gives a taint until it is ready", LIFECYCLE => nodes::shutdown;
    }
    "service" in First {
        "a load balancer gives the Service an address and the finalizer", SERVICE => services::ensured;
        "events tell the beginning and the end", SERVICE => services::events;
        "a deleted Service goes after its load balancer", SERVICE => services::deleted;
        "another type ends the load balancer", SERVICE => services::other_type;
        "a Service with a class is left alone", "KEP-1959 service-lb-class-field" => services::class;
        "a failure is an event, and is retried", SERVICE => services::failure;
        "a load balancer that cannot be deleted keeps the Service", "KEP-980 load-balancer-finalizers" => services::kept;
        "finalizers of others stay", "KEP-980 load-balancer-finalizers" => services::foreign;
        "a new node becomes a host of the load balancers", SERVICE => services::hosts;
    }
    "route" in First {
        "a route gives the condition NetworkUnavailable=False", ROUTE => routes::made;
        "a failed one gives True, until it succeeds", ROUTE => routes::failed;
        "other conditions stay", ROUTE => routes::others;
    }
    "beside" in Second {
        "each of the two has its own lease", KEP_NODES => beside::leases;
        "a node gets its range from one and the rest from the other", KEP_NODES => beside::usable;
        "neither writes a node that is at rest", NODE => beside::at_rest;
        "a node whose instance is gone is deleted", LIFECYCLE => beside::gone;
    }
    "rbac" in Second {
        "the documented role is enough for nodes and routes", ROLE => beside::nodes;
        "and for Services", ROLE => beside::services;
        beside::NOTHING_REFUSED, ROLE => beside::nothing_refused;
    }
}

/// The groups in order.
pub(crate) fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = CHECKS.iter().map(|check| check.group).collect();
    groups.dedup();
    groups
}
