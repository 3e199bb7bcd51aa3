//! The admin API: `GET /` for the URLs, and what [`crate::core::admin`] lists.

use super::World;
use super::running::change_options;
use crate::core::admin;
use crate::core::endpoint::Endpoint;
use crate::core::lock;
use crate::core::routes::Rest as _;
use crate::core::server::{Answer, Handler, Request};
use futures::future::BoxFuture;
use http::Method;
use serde_json::json;
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
            (&Method::GET, "/") => Some(Ok(json!({ "endpoint": url, "requests": admin::REQUESTS }))),
            _ => admin::serve(&request, &clock, &mut inside.faults, &mut inside.ledger)
                .or_else(|| admin::options(&request, &options, |new| change_options(inside, |options| *options = new))),
        };
        admin::answer(&request, served)
    }
}
