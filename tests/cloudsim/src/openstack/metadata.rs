//! The metadata service of a server.

use super::World;
use crate::core::endpoint::Endpoint;
use crate::core::rest::Reply;
use crate::core::server::{Answer, Handler, Request, Server};
use futures::future::BoxFuture;
use serde_json::json;
use std::sync::Arc;

/// A metadata service that listens until it is dropped.
#[derive(Debug)]
pub struct Metadata {
    pub(super) server: Server,
}

impl Metadata {
    /// The URL; the document is at `/openstack/latest/meta_data.json`.
    pub fn url(&self) -> String {
        self.server.url()
    }
}

/// The handler for a server.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) endpoint: Arc<Endpoint<World>>,
    pub(super) server: String,
}

impl Handler for Service {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        let inside = self.endpoint.inside.lock();
        let row = inside.cloud.row("server", &self.server);
        let reply = match (request.method().as_str(), request.uri().path(), row) {
            ("GET", "/openstack/latest/meta_data.json", Some(row)) => Reply::json(
                200,
                &json!({
                    "uuid": row.id(), "name": row.text("name"), "hostname": format!("{}.novalocal", row.text("name")),
                    "availability_zone": row.text("OS-EXT-AZ:availability_zone"), "launch_index": 0, "devices": [],
                    "project_id": row.text("tenant_id"), "meta": row.fields.get("metadata"),
                }),
            ),
            _ => Reply { kind: "text/html", ..Reply::empty(404) },
        };
        Box::pin(std::future::ready(Answer::Reply(reply.response())))
    }
}
