//! The metadata server of an instance, with the tokens of its service account.

use super::instances;
use super::kinds::Fields;
use super::places::{Spot, name_of, unlink};
use super::world::{World, inner};
use crate::core::endpoint::{Endpoint, Simulated as _};
use crate::core::faults::{Fault, Seen};
use crate::core::ledger::Entry;
use crate::core::rest::Reply;
use crate::core::server::{Answer, Handler, Request, Server};
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// A metadata server that listens until it is dropped.
#[derive(Debug)]
pub struct Metadata {
    pub(super) server: Server,
}

impl Metadata {
    /// The URL; the metadata is at `/computeMetadata/v1/`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The address and port, as in the environment variable `GCE_METADATA_HOST`.
    pub fn host(&self) -> String {
        self.server.address().to_string()
    }
}

/// The default service account of a project.
pub(super) fn account(project: u64) -> String {
    format!("{project}-compute@developer.gserviceaccount.com")
}

/// The handler for an instance.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) endpoint: Arc<Endpoint<World>>,
    pub(super) instance: String,
}

impl Handler for Service {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(self.serve(&request)))
    }
}

impl Service {
    fn serve(&self, request: &Request) -> Answer {
        let mut inside = self.endpoint.inside.lock();
        let inside = &mut *inside;
        let path = request.uri().path().to_owned();
        let mut entry = Entry {
            at: inside.cloud.settle(),
            service: "metadata".to_owned(),
            action: path.clone(),
            params: request.uri().query().unwrap_or_default().to_owned(),
            applied: true,
            ..Entry::default()
        };
        let seen = Seen { service: "metadata", action: &path, mutating: false, continued: false, params: "" };
        let fault = inside.faults.strike(seen);
        entry.fault = fault.as_ref().map(Fault::name);
        let reply = match fault {
            Some(Fault::ResetBefore | Fault::ResetAfter) => {
                inside.ledger.record(entry);
                return Answer::Reset;
            }
            Some(Fault::Status { status, body }) => {
                Reply { status, body: body.into_bytes(), kind: "text/plain", ..Reply::default() }
            }
            Some(_) => page(500),
            None => answer(&mut inside.cloud, &self.instance, request),
        };
        entry.status = reply.status;
        entry.bytes_out = u64::try_from(reply.body.len()).unwrap_or(u64::MAX);
        entry.code = (reply.status >= 400).then(|| reply.status.to_string());
        inside.ledger.record(entry);
        Answer::Reply(reply.response())
    }
}

fn answer(world: &mut World, instance: &str, request: &Request) -> Reply {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = request.uri().path();
    let (Some(row), Some(spot)) = (world.store.get(instance), Spot::parse(instance)) else { return page(404) };
    if request.method() != Method::GET {
        return page(405);
    }
    // The header protects against server-side request forgery: only clients of the metadata server set it.
    let allowed = header("metadata-flavor").eq_ignore_ascii_case("google") && header("x-forwarded-for").is_empty();
    let Some(path) = path.strip_prefix("/computeMetadata/v1/").filter(|_| allowed) else {
        return if path == "/" { plain("0.1/\ncomputeMetadata/\n") } else { page(if allowed { 404 } else { 403 }) };
    };
    let fields = row.fields.clone();
    let number = world.projects.get(&spot.project).copied().unwrap_or_default();
    let own = account(number);
    if path == format!("instance/service-accounts/{own}/token") || path == "instance/service-accounts/default/token" {
        let (token, lifetime) = world.token(&own);
        let body = json!({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"});
        return with_flavor(Reply::json(200, &body));
    }
    text(&fields, &spot, number, path).map_or_else(|| page(404), |text| plain(&text))
}

/// The content of a path.
fn text(instance: &Fields, spot: &Spot, number: u64, path: &str) -> Option<String> {
    let field = |name: &str| instance.get(name).and_then(Value::as_str).unwrap_or_default();
    let in_project = |rest: &str| format!("projects/{number}/{rest}");
    if let Some(rest) = path.strip_prefix("instance/network-interfaces/") {
        return interface(instance, number, rest);
    }
    let account = account(number);
    Some(match path {
        "project/project-id" => spot.project.clone(),
        "project/numeric-project-id" => number.to_string(),
        "instance/id" => field("id").to_owned(),
        "instance/name" => spot.name.clone(),
        "instance/hostname" => match field("hostname") {
            "" => format!("{}.{}.c.{}.internal", spot.name, spot.place, spot.project),
            hostname => hostname.to_owned(),
        },
        "instance/zone" => in_project(&format!("zones/{}", spot.place)),
        "instance/machine-type" => in_project(&format!("machineTypes/{}", name_of(field("machineType")))),
        "instance/service-accounts/" => format!("default/\n{account}/\n"),
        "instance/service-accounts/default/email" => account,
        "instance/service-accounts/default/scopes" => "https://www.googleapis.com/auth/cloud-platform\n".to_owned(),
        "universe/universe-domain" => "googleapis.com".to_owned(),
        _ => return None,
    })
}

/// The content of a path below the interfaces.
fn interface(instance: &Fields, number: u64, path: &str) -> Option<String> {
    let all = instances::interfaces(instance);
    if path.is_empty() {
        return Some((0..all.len()).map(|index| format!("{index}/\n")).collect());
    }
    let (index, path) = path.split_once('/')?;
    let interface = all.get(index.parse::<usize>().ok()?)?;
    let configs = interface.get("accessConfigs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if let Some(rest) = path.strip_prefix("access-configs/") {
        if rest.is_empty() {
            return Some((0..configs.len()).map(|index| format!("{index}/\n")).collect());
        }
        let config = rest.strip_suffix("/external-ip").and_then(|index| configs.get(index.parse::<usize>().ok()?))?;
        return Some(inner(config, "natIP").to_owned());
    }
    match path {
        "ip" => Some(inner(interface, "networkIP").to_owned()),
        "network" => {
            let network = name_of(unlink(inner(interface, "network")));
            Some(format!("projects/{number}/networks/{network}"))
        }
        "ipv6s" => {
            let six = inner(interface, "ipv6Address");
            (!six.is_empty()).then(|| format!("{six}\n"))
        }
        _ => None,
    }
}

fn plain(text: &str) -> Reply {
    with_flavor(Reply { status: 200, body: text.as_bytes().to_vec(), kind: "application/text", ..Reply::default() })
}

fn page(status: u16) -> Reply {
    let body = format!("<!DOCTYPE html>\n<html lang=en>\n  <title>Error {status}</title>\n");
    with_flavor(Reply { status, body: body.into_bytes(), kind: "text/html; charset=UTF-8", ..Reply::default() })
}

fn with_flavor(mut reply: Reply) -> Reply {
    reply.headers.push(("metadata-flavor", "Google".to_owned()));
    reply
}
