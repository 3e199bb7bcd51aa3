//! The contract between the cloud-controller-manager core and a cloud.
//!
//! A provider crate implements [`CloudProvider`] and the sub-interfaces that its cloud supports: [`InstancesV2`],
//! [`LoadBalancer`], [`Routes`], [`Volumes`], [`Clusters`]. It depends on no other crate of the workspace. It has no
//! Kubernetes client: [`ProviderContext`] provides the required access to the cluster.
//!
//! Three rules shape every trait:
//!
//! * **No method is per node.** The core passes all relevant nodes at once. A cloud that can only answer for one object
//!   at a time implements [`SingleInstances`] or [`SingleRoutes`] and wraps it in [`OneByOne`], which limits the number
//!   of concurrent calls. The older pair [`Instances`] + [`Zones`] is wrapped in [`LegacyInstances`].
//! * **An error is not a "no".** "Unknown" ([`Lookup::Unknown`]) is a distinct answer and the core never acts on it.
//!   "It is gone" ([`Lookup::Gone`]) carries [`Evidence`].
//! * **Cancellation is by dropping.** The core gives each call a deadline and drops the future at the deadline or when
//!   the process shuts down; any call may end at any `await`. A provider must leave the cloud in a state from which the
//!   next `ensure` can complete the work.
#![deny(missing_docs)]

pub mod address;
pub mod cloud;
pub mod cloud_config;
pub mod config_map;
pub mod deadline;
pub mod duration;
pub mod error;
pub mod flag;
pub mod inspect;
pub mod instance;
pub mod legacy;
pub mod load_balancer;
pub mod metric;
pub mod node;
pub mod node_task;
pub mod one_by_one;
pub mod plan;
pub mod pod_ranges;
pub mod registry;
pub mod route;
pub mod scope;
pub mod service;
pub mod service_controller;
pub mod source_ranges;
pub mod volume;
pub mod well_known;
pub mod window;

pub use address::{AddressType, NodeAddress};
pub use cloud::{
    Clock, CloudProvider, Clusters, EVENT_ERROR_CLASS, EventSink, EventType, InformerUser, LeaderToken, NodeReader,
    ObjectChange, ProviderContext, ServiceReader, SharedInformers, Subject,
};
pub use cloud_config::{CloudConfig, ConfigSource, SecretKey, SecretSpec};
pub use config_map::{ConfigMapData, ConfigMapSpec, ConfigMaps};
pub use error::{CloudError, ErrorClass, ProviderError};
pub use flag::{Flag, FlagValues};
pub use inspect::{Check, Claims, Fact, FactState, Inspect, Lint, Orphan};
pub use instance::{Aspects, Evidence, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup};
pub use legacy::{Instances, LegacyInstances, ZoneInfo, Zones, instance_provider_id};
pub use load_balancer::{
    GroupKey, LoadBalancer, LoadBalancerExt, Note, Notes, OneByOneBalancers, Related, ServiceAction, ServiceAnswer,
    ServiceWork, SingleLoadBalancer, batches, reconcile_one_by_one,
};
pub use node::{Node, NodeName, NodeRef, Schemes, Taint, TaintEffect, TaintId};
pub use node_task::{NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork};
pub use one_by_one::{OneByOne, SingleInstances, SingleRoutes};
pub use plan::{Change, Finding, Plan, Risk, Severity, Step, Verb};
pub use pod_ranges::{PodInterface, PodRanges};
pub use registry::{ProviderFactory, Registry, RegistryError};
pub use route::{NewRoute, Route, Routes};
pub use scope::{Finalizers, Scope, Turn};
pub use service::{
    Condition, LoadBalancerIngress, LoadBalancerStatus, PortStatus, Service, ServiceKey, ServicePort, ServiceSpec,
};
pub use service_controller::ServiceControllerSpec;
pub use volume::{PersistentVolume, VolumeLabels, VolumeSource, Volumes};

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Guide;
