//! A simulated Azure: Resource Manager with `Microsoft.Network` and `Microsoft.Compute`, the login endpoint of Entra ID and
//! AD FS, and the metadata service of instances, all on one port.
//!
//! Requests and answers are checked against Microsoft's own description of the API, if `hack/azure.sh` has obtained it.
//! Rules that the description does not contain, such as which resources cannot be deleted while in use, are in the
//! module of each resource; codes and texts of errors come from users' reports where possible. Guesses are marked
//! `unverified`.
//!
//! # A cloud for a test
//!
//! ```ignore
//! let azure = Azure::start(Options { clock, ..Options::default() })?;
//! // A group `rg` in `eastus` with the network `vnet`/`subnet`, the security group `nsg` and the route table `rt`.
//! let cluster = azure.world(|world| world.cluster(&ClusterSeed::default()));
//! azure.world(|world| world.scale_set(&SetSeed { name: "pool", instances: 3, ..SetSeed::default() }));
//! // … the configuration of the provider: `azure.root()` is the endpoint of Resource Manager, of the login and of
//! // the metadata service; tenant `tenant`, application `client` with the secret `secret`, subscription `sub`.
//! ```
//!
//! * [`World`]: the seeds ([`seed`]: [`World::cluster`], [`World::scale_set`], [`World::machine`], [`World::put`], …), and
//!   what happens to resources: [`World::power`], [`World::state`], [`World::remove`], [`World::alter`], [`World::hide`],
//!   [`World::touch`] (a new ETag, as after a change by somebody else).
//! * [`Identities`]: who may call, in [`World`]'s field `identities`; [`World::tenant`] for several tenants and AD FS.
//! * [`Azure::by_hand`]: a change by somebody else, with the rules of the API and with new ETags.
//! * [`Azure::object`], [`Azure::objects`]: what there is; [`Azure::superseded`]: operations that a later write canceled.
//! * [`Azure::ledger`], [`Azure::fault`]: services are `network`, `compute`, `resources`, `login`, `imds` and `metadata`;
//!   actions are `loadBalancers.put`, `backendAddressPools.put`, `virtualMachineScaleSetVMs.list`, … (`routes.rs`). The
//!   polls of operations are `operations.get` and `operationResults.get`.
//! * Faults of their own: `Code { status: 429, code: "RetryableError", .. }` is a busy answer, and [`Azure::busy`] makes one
//!   resource busy; `Operation { .. }` lets the operation fail that a write begins, and leaves the resource in the
//!   state Failed (with the code `CanceledAndSupersededDueToAnotherOperation` the operation is canceled, as by a later write); `Throttle` is the throttled answer of the call's service.
//! * [`Options`]: duration of operations, lag of reads, buckets, quotas, limits, denied actions, forms of `Retry-After`.
//!
//! # Operations and ETags
//!
//! Every write begins an operation. Its fields are visible at once, with the state Updating; references that it drops hold
//! until the end, and so does a resource that is deleted. A later write on the same resource, or on a pool of the same
//! load balancer, cancels the running operation. A resource has a new ETag after each write, at the end of the operation
//! ([`Options::etag_on_end`]), and whenever a write of another resource adds or drops a reference to it
//! ([`Options::coupled`]).

mod compute;
mod errors;
pub mod ids;
mod interfaces;
mod json;
mod kinds;
mod linked;
mod lists;
mod load_balancers;
mod login;
mod metadata;
mod model;
mod networks;
pub mod operations;
pub mod options;
mod pools;
mod private_links;
mod public_ips;
mod route_tables;
mod routes;
mod running;
mod security_groups;
pub mod seed;
pub mod store;
mod verbs;
mod world;

pub use login::{Application, Identities};
pub use model::cache_folder;
pub use options::Options;
pub use running::Azure;
pub use seed::{Cluster, ClusterSeed, MachineSeed, SetSeed};
pub use world::World;

#[cfg(test)]
mod tests;
