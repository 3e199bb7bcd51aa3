//! The admin API: `GET /` for the URLs, `GET /violations`, `GET /objects` for all objects by path, and what
//! [`crate::core::admin`] lists.

use super::kinds;
use super::places::Spot;
use super::running::change_options;
use super::world::World;
use crate::core::admin;
use crate::core::endpoint::Endpoint;
use crate::core::lock;
use crate::core::routes::Rest as _;
use crate::core::rows::Row;
use crate::core::server::{Answer, Handler, Request};
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// The admin API of an endpoint.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) endpoint: Arc<Endpoint<World>>,
}

impl Handler for Admin {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        let mut inside = lock(&self.endpoint.inside);
        let inside = &mut *inside;
        inside.cloud.settle();
        let (clock, options, url) = (inside.cloud.clock.clone(), inside.cloud.options.clone(), &inside.cloud.url);
        let served = match (request.method(), request.uri().path()) {
            (&Method::GET, "/") => {
                let requests: Vec<&str> =
                    admin::REQUESTS.into_iter().chain(["GET /violations", "GET /objects"]).collect();
                Some(Ok(json!({ "endpoint": url, "requests": requests })))
            }
            (&Method::GET, "/violations") => Some(admin::to_value(&inside.violations)),
            (&Method::GET, "/objects") => {
                let world = &inside.cloud;
                let shown = |(key, row): (&str, &Row)| {
                    let kind = kinds::of(&Spot::parse(key)?)?;
                    Some((key.to_owned(), Value::Object(kinds::shown(world, kind, key, row))))
                };
                Some(Ok(world.store.every().filter_map(shown).collect()))
            }
            _ => admin::serve(&request, &clock, &mut inside.faults, &mut inside.ledger)
                .or_else(|| admin::options(&request, &options, |new| change_options(inside, |options| *options = new))),
        };
        admin::answer(&request, served)
    }
}
