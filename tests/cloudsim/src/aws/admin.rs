//! The admin API: what the Rust API offers. Besides the requests that all clouds have (see [`crate::core::admin`]):
//!
//! | Request | Does |
//! | --- | --- |
//! | `GET /` | URLs: `endpoint`, `imds` by instance |
//! | `POST /reset` | an empty account; faults and ledger forgotten |
//! | `GET /dump`, `POST /load` | the whole state |
//! | `POST /seed` | `{"network": {…}}` and/or `{"instances": {…}}`; answers what was made |
//! | `POST /imds` | `{"instance": "i-…", "hops": 1, …}` starts a metadata service |

use super::World;
use super::ec2::seed::{self, InstanceSeed, NetworkSeed};
use super::imds::{Imds, ImdsOptions};
use super::running::{change_options, reset, start_imds};
use super::world::Dump;
use crate::core::admin::{self, Refusal, Served, bad, read, to_value};
use crate::core::endpoint::{Endpoint, Inside};
use crate::core::lock;
use crate::core::server::{Answer, Handler, Request, Spawner};
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The admin API of an endpoint.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) endpoint: Arc<Endpoint<World>>,
    pub(super) url: String,
    pub(super) spawner: Spawner,
    pub(super) imds: Mutex<BTreeMap<String, Imds>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    network: Option<NetworkSeed>,
    instances: Option<InstanceSeed>,
}

#[derive(Deserialize)]
struct ImdsStart {
    instance: String,
    #[serde(flatten)]
    options: Value,
}

impl Handler for Admin {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        admin::answer(&request, self.serve(&request))
    }
}

impl Admin {
    fn serve(&self, request: &Request) -> Served {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/") => Some(Ok(self.urls())),
            (&Method::POST, "/imds") => Some(read(request).and_then(|start| self.start_imds(start))),
            _ => {
                let mut inside = lock(&self.endpoint.inside);
                let inside = &mut *inside;
                inside.cloud.settle();
                let (clock, options) = (inside.cloud.clock.clone(), inside.cloud.options.clone());
                admin::serve(request, &clock, &mut inside.faults, &mut inside.ledger)
                    .or_else(|| {
                        admin::options(request, &*options, |new| change_options(inside, |options| *options = new))
                    })
                    .or_else(|| state(inside, request))
            }
        }
    }

    fn urls(&self) -> Value {
        let imds = lock(&self.imds);
        let services: BTreeMap<&String, String> = imds.iter().map(|(id, imds)| (id, imds.url())).collect();
        let own = ["POST /reset", "GET /dump", "POST /load", "POST /seed", "POST /imds"];
        let requests: Vec<&str> = own.into_iter().chain(admin::REQUESTS).collect();
        json!({ "endpoint": self.url, "imds": services, "requests": requests })
    }

    fn start_imds(&self, start: ImdsStart) -> Result<Value, Refusal> {
        let options: ImdsOptions = serde_json::from_value(start.options).map_err(bad)?;
        let imds = start_imds(&self.spawner, &self.endpoint, &start.instance, options)
            .map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
        let url = imds.url();
        lock(&self.imds).insert(start.instance, imds);
        Ok(json!({ "url": url }))
    }
}

/// What is asked of the state.
fn state(inside: &mut Inside<World>, request: &Request) -> Served {
    Some(match (request.method(), request.uri().path()) {
        (&Method::POST, "/reset") => {
            reset(inside);
            Ok(json!({}))
        }
        (&Method::GET, "/dump") => to_value(&inside.cloud.dump()),
        (&Method::POST, "/load") => read::<Dump>(request).map(|dump| {
            inside.cloud.load(dump);
            json!({})
        }),
        (&Method::POST, "/seed") => read(request).and_then(|seed| plant(&mut inside.cloud, seed)),
        _ => return None,
    })
}

fn plant(world: &mut World, seed: Seed) -> Result<Value, Refusal> {
    let refuse = |error: super::ApiError| (StatusCode::BAD_REQUEST, format!("{}: {}", error.code, error.message));
    let network = seed.network.map(|network| seed::network(world, &network)).transpose().map_err(refuse)?;
    let instances = match seed.instances {
        None => Vec::new(),
        Some(mut wanted) => {
            if let (Some(network), true) = (&network, wanted.subnets.is_empty()) {
                wanted.subnets.clone_from(&network.private);
            }
            if let (Some(network), true) = (&network, wanted.groups.is_empty()) {
                wanted.groups = vec![network.node_group.clone()];
            }
            seed::instances(world, &wanted).map_err(refuse)?
        }
    };
    Ok(json!({ "network": network, "instances": instances }))
}
