//! The instance metadata service of one instance of the EC2 state.

use super::World;
use super::ec2::{Instance, InstanceState, Interface, Subnet};
use crate::core::clock::later;
use crate::core::endpoint::Endpoint;
use crate::core::faults::{Fault, Seen};
use crate::core::ledger::Entry;
use crate::core::server::{Answer, Handler, Request, Server};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The options of the metadata service.
#[derive(Debug, Clone)]
pub struct ImdsOptions {
    /// The port; 0 selects any free one.
    pub port: u16,
    /// The number of hops to the caller: 1 on the host, 2 in a container. If it exceeds the instance's limit, the
    /// answer to a token request never arrives.
    pub hops: u8,
    /// The role whose credentials are served; none: the instance has no profile.
    pub role: Option<String>,
    /// The lifetime of the role's credentials.
    pub lifetime: Duration,
    /// Whether the service is disabled for the instance: every answer is 403.
    pub disabled: bool,
}

impl Default for ImdsOptions {
    fn default() -> Self {
        let lifetime = Duration::from_secs(6 * 3600);
        ImdsOptions { port: 0, hops: 1, role: Some("node".to_owned()), lifetime, disabled: false }
    }
}

/// A running metadata service; dropping it stops it.
#[derive(Debug)]
pub struct Imds {
    pub(super) server: Server,
}

impl Imds {
    /// The URL `http://127.0.0.1:<port>`, for `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    pub fn url(&self) -> String {
        self.server.url()
    }
}

/// The service at the port.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) endpoint: Arc<Endpoint<World>>,
    pub(super) instance: String,
    pub(super) options: ImdsOptions,
    /// The tokens and their expiration times.
    pub(super) tokens: Mutex<BTreeMap<String, Timestamp>>,
    /// The last issued credentials: access key ID and document.
    pub(super) credentials: Mutex<Option<(String, String)>>,
}

/// The maximum lifetime of a token in seconds.
const LONGEST: u64 = 21_600;
/// The credentials are replaced this long before their expiration.
const EARLY: Duration = Duration::from_secs(300);

impl Handler for Metadata {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match self.judge(&request) {
                Some(answer) => answer,
                None => futures::future::pending().await,
            }
        })
    }
}

impl Metadata {
    /// Answers a request and records it, with the path as its action; `None`: no answer ever arrives. Only faults of
    /// the HTTP exchange apply.
    fn judge(&self, request: &Request) -> Option<Answer> {
        let path = request.uri().path();
        let token_request = request.method() == Method::PUT && path == "/latest/api/token";
        let seen = Seen { service: "imds", action: path, mutating: false, continued: false, params: "" };
        let fault = self.endpoint.inside.lock().faults.strike(seen);
        let answer = match &fault {
            Some(Fault::ResetBefore | Fault::ResetAfter) => Some(Answer::Reset),
            Some(Fault::Status { status, body }) => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Some(Answer::Reply(plain(status, body)))
            }
            // The packets of the answer are dropped; the caller receives nothing.
            _ if token_request && self.out_of_reach() => None,
            _ => Some(Answer::Reply(if token_request { self.token(request) } else { self.read(request) })),
        };
        let (status, bytes) = match &answer {
            Some(Answer::Reply(response)) => (response.status().as_u16(), response.body().len()),
            _ => (0, 0),
        };
        let mut inside = self.endpoint.inside.lock();
        let at = inside.cloud.now();
        inside.ledger.record(Entry {
            at,
            service: "imds".to_owned(),
            action: path.to_owned(),
            user_agent: header(request, "user-agent").unwrap_or_default().to_owned(),
            bytes_out: u64::try_from(bytes).unwrap_or(u64::MAX),
            status,
            fault: fault.as_ref().map(Fault::name),
            ..Entry::default()
        });
        answer
    }

    fn out_of_reach(&self) -> bool {
        let inside = self.endpoint.inside.lock();
        let limit = inside.cloud.ec2.instances.get(&self.instance).map_or(0, |instance| instance.metadata_hops);
        self.options.hops > limit
    }

    fn token(&self, request: &Request) -> Response<Bytes> {
        if self.options.disabled || request.headers().contains_key("x-forwarded-for") {
            return plain(StatusCode::FORBIDDEN, "");
        }
        let seconds = header(request, "x-aws-ec2-metadata-token-ttl-seconds").and_then(|text| text.parse::<u64>().ok());
        let Some(seconds) = seconds.filter(|seconds| (1..=LONGEST).contains(seconds)) else {
            return plain(StatusCode::BAD_REQUEST, "");
        };
        let mut inside = self.endpoint.inside.lock();
        let token = inside.cloud.hex(56);
        let ends = later(inside.cloud.now(), Duration::from_secs(seconds));
        drop(inside);
        self.tokens.lock().insert(token.clone(), ends);
        let mut response = plain(StatusCode::OK, &token);
        response.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", seconds.into());
        response
    }

    fn read(&self, request: &Request) -> Response<Bytes> {
        if self.options.disabled {
            return plain(StatusCode::FORBIDDEN, "");
        }
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        let mut inside = self.endpoint.inside.lock();
        inside.cloud.settle();
        let now = inside.cloud.now();
        let tokens = self.tokens.lock();
        let is_allowed = match header(request, "x-aws-ec2-metadata-token") {
            Some(token) => tokens.get(token).is_some_and(|ends| *ends > now),
            None => inside.cloud.ec2.instances.get(&self.instance).is_some_and(|own| own.metadata_tokens_optional),
        };
        if !is_allowed {
            return plain(StatusCode::UNAUTHORIZED, "");
        }
        let path = request.uri().path().trim_matches('/');
        let document = path.strip_prefix("latest").unwrap_or(path).trim_matches('/').to_owned();
        if let (Some(role), true) = (&self.options.role, document.starts_with("meta-data/iam/security-credentials/")) {
            return if document.rsplit('/').next() == Some(role) {
                plain(StatusCode::OK, &self.credentials(&mut inside.cloud))
            } else {
                plain(StatusCode::NOT_FOUND, "")
            };
        }
        match lookup(&tree(&inside.cloud, &self.instance, self.options.role.as_deref()), &document) {
            Some(text) => plain(StatusCode::OK, &text),
            None => plain(StatusCode::NOT_FOUND, ""),
        }
    }

    /// The role's credentials, which are replaced shortly before their expiration.
    fn credentials(&self, world: &mut World) -> String {
        let now = world.now();
        let mut held = self.credentials.lock();
        if let Some((key, document)) = held.as_ref()
            && world.sts.sessions.get(key).is_some_and(|ends| *ends > later(now, EARLY))
        {
            return document.clone();
        }
        let key = format!("ASIA{}", world.hex(16).to_uppercase());
        let (secret, token) = (world.hex(40), world.hex(64));
        world.sts.sessions.insert(key.clone(), later(now, self.options.lifetime));
        let document = serde_json::json!({
            "Code": "Success",
            "LastUpdated": second(Timestamp::now()),
            "Type": "AWS-HMAC",
            "AccessKeyId": key,
            "SecretAccessKey": secret,
            "Token": token,
            // The caller uses the machine's clock, not the virtual clock.
            "Expiration": second(later(Timestamp::now(), self.options.lifetime)),
        });
        let document = format!("{document:#}");
        *held = Some((key, document.clone()));
        document
    }
}

/// The text of a leaf, or the listing of a folder.
fn lookup(tree: &BTreeMap<String, String>, path: &str) -> Option<String> {
    if let Some(text) = tree.get(path) {
        return Some(text.clone());
    }
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let mut names: Vec<String> = tree
        .keys()
        .filter_map(|key| key.strip_prefix(&prefix))
        .map(|rest| rest.split_once('/').map_or_else(|| rest.to_owned(), |(folder, _)| format!("{folder}/")))
        .collect();
    names.dedup();
    if names.is_empty() { None } else { Some(names.join("\n")) }
}

/// All documents of an instance by their paths; `None` if the instance is gone.
fn tree(world: &World, id: &str, role: Option<&str>) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    let ec2 = &world.ec2;
    let found = ec2.instances.get(id).filter(|instance| instance.state != InstanceState::Terminated);
    let Some(instance) = found else { return leaves };
    let mut put = |path: &str, value: &dyn Display| leaves.insert(format!("meta-data/{path}"), value.to_string());
    put("ami-id", &instance.image);
    put("ami-launch-index", &instance.launch_index);
    put("hostname", &instance.private_dns);
    put("instance-id", &id);
    put("instance-type", &instance.instance_type);
    put("local-hostname", &instance.private_dns);
    put("placement/availability-zone", &instance.zone);
    put("placement/region", &ec2.region);
    put("reservation-id", &instance.reservation);
    put("services/domain", &"amazonaws.com");
    put("services/partition", &"aws");
    if let Some(zone) = ec2.zones.get(&instance.zone) {
        put("placement/availability-zone-id", &zone.id);
    }
    if let Some((_, primary)) = ec2.primary_interface(instance) {
        put("mac", &primary.mac);
        if let Some(ip) = primary.private_ips.first() {
            put("local-ipv4", ip);
        }
        if let Some(ip) = primary.public_ip {
            put("public-ipv4", &ip);
            put("public-hostname", &instance.public_dns);
        }
    }
    for interface in &instance.interfaces {
        if let Some(found) = ec2.interfaces.get(interface) {
            interface_leaves(world, interface, found, &mut put);
        }
    }
    if let Some(role) = role {
        // The credentials are created when they are read.
        put(&format!("iam/security-credentials/{role}"), &"");
        let arn = format!("arn:aws:iam::{}:instance-profile/{role}", world.options.account);
        let info = serde_json::json!({ "Code": "Success", "InstanceProfileArn": arn, "InstanceProfileId": "AIPASIM" });
        put("iam/info", &info);
    }
    leaves.insert("dynamic/instance-identity/document".to_owned(), identity(world, id, instance));
    leaves
}

fn interface_leaves(
    world: &World,
    id: &str,
    interface: &Interface,
    put: &mut impl FnMut(&str, &dyn Display) -> Option<String>,
) {
    let mut put = |name: &str, value: &dyn Display| {
        put(&format!("network/interfaces/macs/{}/{name}", interface.mac), value);
    };
    let lines = |values: &[String]| values.join("\n");
    put("mac", &interface.mac);
    put("interface-id", &id);
    put("owner-id", &world.options.account);
    put("subnet-id", &interface.subnet);
    put("vpc-id", &interface.vpc);
    put("security-group-ids", &lines(&interface.groups));
    put("device-number", &interface.attachment.as_ref().map_or(0, |attachment| attachment.device));
    let texts = |ips: &[std::net::Ipv4Addr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
    put("local-ipv4s", &lines(&texts(&interface.private_ips)));
    if let Some(ip) = interface.public_ip {
        put("public-ipv4s", &ip);
    }
    if !interface.ipv6.is_empty() {
        put("ipv6s", &lines(&interface.ipv6.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    if !interface.ipv6_prefixes.is_empty() {
        put("ipv6-prefix", &lines(&interface.ipv6_prefixes));
    }
    let subnet: Option<&Subnet> = world.ec2.subnets.get(&interface.subnet);
    if let Some(subnet) = subnet {
        put("subnet-ipv4-cidr-block", &subnet.cidr);
    }
    if let Some(vpc) = world.ec2.vpcs.get(&interface.vpc) {
        put("vpc-ipv4-cidr-block", &vpc.cidr);
    }
}

fn identity(world: &World, id: &str, instance: &Instance) -> String {
    let ip = world.ec2.primary_interface(instance).and_then(|(_, primary)| primary.private_ips.first());
    let document = serde_json::json!({
        "accountId": world.options.account,
        "architecture": "x86_64",
        "availabilityZone": instance.zone,
        "imageId": instance.image,
        "instanceId": id,
        "instanceType": instance.instance_type,
        "pendingTime": second(instance.created),
        "privateIp": ip.map(ToString::to_string),
        "region": world.ec2.region,
        "version": "2017-09-30",
    });
    format!("{document:#}")
}

fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn plain(status: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(text.as_bytes()));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
