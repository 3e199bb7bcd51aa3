//! The HTTP endpoint of all services: admits, delays, fails and books calls around the handlers.

use super::model::Models;
use super::options::Options;
use super::sts;
use super::{ApiError, Call, Service, World, frame, handle};
use crate::core::faults::{Fault, Faults, Seen};
use crate::core::ledger::{Entry, Ledger};
use crate::core::lock;
use crate::core::server::{Answer, Handler, Request};
use crate::core::throttle::Throttle;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How much of a call's parameters the ledger keeps, bytes.
const SUMMARY: usize = 400;

/// Everything behind the endpoint.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) world: World,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    pub(super) throttle: Throttle,
    /// What didn't follow the vendor's models, one line each.
    pub(super) violations: Vec<String>,
    models: Option<Arc<Models>>,
    /// The world before each recent write, oldest first; kept only for stale reads.
    past: VecDeque<(Timestamp, World)>,
}

impl Inside {
    /// # Errors
    /// Calls are to be checked, and the models are missing or can't be read (see [`Models::shared`]).
    pub(super) fn new(options: Arc<Options>) -> io::Result<Self> {
        Ok(Inside {
            faults: Faults::new(options.seed),
            ledger: Ledger::new(options.ledger_entries),
            throttle: Throttle::new(&options.throttle),
            past: VecDeque::new(),
            violations: Vec::new(),
            models: if options.validate { Models::shared()? } else { None },
            world: World::new(options),
        })
    }

    /// An empty account that behaves the same; faults, ledger and violations are forgotten.
    pub(super) fn reset(&mut self) {
        let (clock, options) = (self.world.clock.clone(), self.world.options.clone());
        self.world = World::new(options.clone());
        self.world.clock = clock;
        self.faults = Faults::new(options.seed);
        self.ledger.clear();
        self.throttle = Throttle::new(&options.throttle);
        self.past.clear();
        self.violations.clear();
    }

    /// Changes how it behaves from now on. The account, the region, the clock's mode and the ports stay what they were.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Options)) {
        let mut options = self.world.options.as_ref().clone();
        let buckets = options.throttle.clone();
        change(&mut options);
        if options.throttle != buckets {
            self.throttle = Throttle::new(&options.throttle);
        }
        self.models = if options.validate {
            // What is not checked is listed among the violations, which tests read.
            Models::shared().unwrap_or_else(|error| {
                self.violations.push(error.to_string());
                None
            })
        } else {
            None
        };
        self.world.options = Arc::new(options);
    }

    /// Carries out a call, a read perhaps on an older world.
    fn carry_out(&mut self, call: &Call) -> Result<super::Xml, ApiError> {
        self.world.settle();
        let stale = SignedDuration::try_from(self.world.options.stale_reads).unwrap_or(SignedDuration::MAX);
        if stale.is_zero() {
            return handle(&mut self.world, call);
        }
        let now = self.world.now();
        self.past.retain(|(at, _)| now.duration_since(*at) < stale);
        if call.mutating() {
            self.past.push_back((now, self.world.clone()));
            return handle(&mut self.world, call);
        }
        match self.past.front_mut() {
            Some((_, world)) => {
                world.settle();
                handle(world, call)
            }
            None => handle(&mut self.world, call),
        }
    }
}

/// The endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) inside: Mutex<Inside>,
}

/// A call on its way: what the injector and the throttle decided.
#[derive(Debug)]
struct Admitted {
    call: Call,
    entry: Entry,
    latency: Duration,
    fault: Option<Fault>,
    refusal: Option<ApiError>,
}

impl Handler for Endpoint {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.serve(&request).await })
    }
}

impl Endpoint {
    async fn serve(&self, request: &Request) -> Answer {
        let admitted = match self.admit(request) {
            Ok(admitted) => admitted,
            Err(answer) => return *answer,
        };
        let half = admitted.latency / 2;
        pause(half).await;
        let answer = self.finish(admitted);
        pause(half).await;
        answer
    }

    /// Reads, checks and judges a call; an error is answered at once.
    fn admit(&self, request: &Request) -> Result<Box<Admitted>, Box<Answer>> {
        let mut inside = lock(&self.inside);
        let inside = &mut *inside;
        inside.world.settle();
        let now = inside.world.now();
        let form = match (request.method(), std::str::from_utf8(request.body())) {
            (&http::Method::POST, Ok(form)) => form,
            _ => request.uri().query().unwrap_or_default(),
        };
        let mut entry = Entry {
            at: now,
            user_agent: text(request, "user-agent"),
            bytes_in: u64::try_from(request.body().len()).unwrap_or(u64::MAX),
            ..Entry::default()
        };
        let call = match Call::parse(request.headers().clone(), form, &inside.world.options) {
            Ok(call) => call,
            Err((service, error)) => {
                service.name().clone_into(&mut entry.service);
                let id = inside.world.uuid();
                let answer = refusal(&error, service, &id);
                inside.ledger.record(Entry { status: error.status, code: Some(error.code), ..entry });
                return Err(Box::new(Answer::Reply(answer)));
            }
        };
        if let Some(models) = &inside.models {
            inside.violations.extend(models.check_request(call.service.name(), &call.params));
        }
        service_fields(&mut entry, &call);
        let refusal = sts::expired(&inside.world, &call).or_else(|| {
            let admitted = inside.throttle.admit(call.service.name(), &call.action, entry.mutating, now);
            (!admitted).then(|| throttled(call.service))
        });
        let whole = if inside.faults.reads_params() { call.params.summary(usize::MAX) } else { String::new() };
        let seen =
            Seen { service: call.service.name(), action: &call.action, mutating: entry.mutating, params: &whole };
        let fault = if refusal.is_none() { inside.faults.strike(seen) } else { None };
        entry.fault = fault.as_ref().map(Fault::name);
        let latency = inside.world.options.latency.of(&call.action, entry.mutating);
        Ok(Box::new(Admitted { call, entry, latency, fault, refusal }))
    }

    /// Carries the call out, unless it is to fail, and books it.
    fn finish(&self, admitted: Box<Admitted>) -> Answer {
        let Admitted { call, mut entry, fault, refusal: refused, .. } = *admitted;
        let mut inside = lock(&self.inside);
        let id = inside.world.uuid();
        // Injected codes are the test's, and may be none that the operation declares.
        let injected_error = refused.is_some() || fault.as_ref().is_some_and(|fault| !fault.applies_effect());
        let outcome = match (refused, &fault) {
            (Some(error), _) => Err(error),
            (None, Some(fault)) if !fault.applies_effect() => match injected(fault, &call) {
                Injected::Error(error) => Err(error),
                Injected::Answer(response) => {
                    entry.status = response.status().as_u16();
                    drop(inside);
                    self.book(entry, Some(response.body().len()));
                    return Answer::Reply(response);
                }
                Injected::Reset => {
                    drop(inside);
                    self.book(entry, None);
                    return Answer::Reset;
                }
            },
            (None, _) => {
                let outcome = inside.carry_out(&call);
                entry.unread = call.params.unread();
                entry.applied = outcome.is_ok();
                outcome
            }
        };
        drop(inside);
        let response = match outcome {
            Ok(xml) => {
                entry.items = xml.items();
                let mut body = frame(call.service, &call.action, &id, &xml);
                self.check_answer(&call, 200, &body);
                if fault == Some(Fault::UnknownElements) {
                    body = with_unknown_elements(&body);
                }
                reply(200, "text/xml;charset=UTF-8", body.into_bytes(), &id)
            }
            Err(error) => {
                entry.code = Some(error.code_for(call.service).to_owned());
                if !injected_error {
                    self.check_answer(&call, error.status, &error.render(call.service, &id));
                }
                refusal(&error, call.service, &id)
            }
        };
        let bytes = response.body().len();
        match fault {
            Some(Fault::ResetAfter) => {
                self.book(entry, None);
                Answer::Reset
            }
            Some(Fault::Truncate) => {
                entry.status = response.status().as_u16();
                self.book(entry, Some(bytes / 2));
                Answer::Cut(response, bytes / 2)
            }
            _ => {
                entry.status = response.status().as_u16();
                self.book(entry, Some(bytes));
                Answer::Reply(response)
            }
        }
    }

    /// Holds an answer of ours against the vendor's model.
    fn check_answer(&self, call: &Call, status: u16, body: &str) {
        // A copy of the handle, so that other calls need not wait for the check.
        let Some(models) = lock(&self.inside).models.clone() else { return };
        let found = models.check_response(call.service.name(), &call.action, status, body);
        lock(&self.inside).violations.extend(found);
    }

    fn book(&self, mut entry: Entry, bytes_out: Option<usize>) {
        entry.bytes_out = u64::try_from(bytes_out.unwrap_or(0)).unwrap_or(u64::MAX);
        lock(&self.inside).ledger.record(entry);
    }
}

/// What a fault that prevents the effect answers instead.
enum Injected {
    Error(ApiError),
    Answer(Response<Bytes>),
    Reset,
}

fn injected(fault: &Fault, call: &Call) -> Injected {
    let service = call.service;
    match fault {
        Fault::Deny => Injected::Error(denied(call)),
        Fault::Code { status, code, message } => {
            let message = if message.is_empty() { "Injected by the simulation." } else { message };
            Injected::Error(ApiError::with_status(*status, code, message))
        }
        Fault::Throttle => Injected::Error(throttled(service)),
        Fault::ExpiredCredentials => Injected::Error(sts::expired_error(service)),
        Fault::Status { status, body } => Injected::Answer(reply(*status, "text/plain", body.clone().into_bytes(), "")),
        Fault::Html { status } => {
            let body = "<!DOCTYPE html>\n<html><head><title>Error</title></head><body><h1>Sorry</h1><br></body></html>";
            Injected::Answer(reply(*status, "text/html; charset=utf-8", body.as_bytes().to_vec(), ""))
        }
        _ => Injected::Reset,
    }
}

fn throttled(service: Service) -> ApiError {
    match service {
        Service::Ec2 => ApiError::with_status(503, "RequestLimitExceeded", "Request limit exceeded."),
        Service::Elb | Service::Elbv2 | Service::Sts => ApiError::new("Throttling", "Rate exceeded"),
    }
}

/// unverified: the texts, beyond that they name the caller and the action.
fn denied(call: &Call) -> ApiError {
    let who = call.caller.as_ref().map(|caller| caller.access_key.as_str()).unwrap_or_default();
    let prefix = if call.service == Service::Ec2 { "ec2" } else { "elasticloadbalancing" };
    let text = format!("User: {who} is not authorized to perform: {prefix}:{}", call.action);
    match call.service {
        Service::Ec2 => {
            let text = format!("You are not authorized to perform this operation. {text}");
            ApiError::with_status(403, "UnauthorizedOperation", text)
        }
        Service::Elb | Service::Elbv2 | Service::Sts => ApiError::with_status(403, "AccessDenied", text),
    }
}

fn service_fields(entry: &mut Entry, call: &Call) {
    call.service.name().clone_into(&mut entry.service);
    entry.action.clone_from(&call.action);
    entry.params = call.params.summary(SUMMARY);
    entry.continued = call.params.get("NextToken").is_some() || call.params.get("Marker").is_some();
    entry.mutating = call.mutating();
    entry.access_key = call.caller.as_ref().map(|caller| caller.access_key.clone()).unwrap_or_default();
}

fn refusal(error: &ApiError, service: Service, id: &str) -> Response<Bytes> {
    reply(error.status, "text/xml;charset=UTF-8", error.render(service, id).into_bytes(), id)
}

fn reply(status: u16, kind: &'static str, body: Vec<u8>, id: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(id) = HeaderValue::from_str(id)
        && !id.is_empty()
    {
        response.headers_mut().insert("x-amzn-requestid", id);
    }
    response
}

/// Puts elements that nobody knows at the beginning and the end of the result: inside its wrapper, where the protocol has one.
fn with_unknown_elements(body: &str) -> String {
    const UNKNOWN: &str = "<fromTheFuture flag=\"1\"><item>x</item><item/></fromTheFuture>";
    const WRAPPER: &str = "Result>";
    let start = body.find("?>").map_or(0, |at| at + 2);
    let root = body.get(start..).and_then(|rest| rest.find('>')).map_or(start, |at| start + at + 1);
    let first = body.find(WRAPPER).map_or(root, |at| at + WRAPPER.len());
    let end = body.rfind(WRAPPER).unwrap_or(body.len());
    let last = body.get(..end).and_then(|before| before.rfind("</")).unwrap_or(body.len()).max(first);
    let part = |from: usize, to: usize| body.get(from..to).unwrap_or_default();
    format!("{}{UNKNOWN}{}{UNKNOWN}{}", part(0, first), part(first, last), part(last, body.len()))
}

fn text(request: &Request, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
