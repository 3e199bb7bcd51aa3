//! The calls of all services at the endpoint: parsed, checked against the vendor's models, answered in the service's
//! format.

use super::model::Models;
use super::{ApiError, Call, Options, Service, World, Xml, frame, handle, iam, sts};
use crate::core::clock::Clock;
use crate::core::endpoint::{Cloud, Simulated};
use crate::core::faults::Fault;
use crate::core::latency::Latency;
use crate::core::ledger::Entry;
use crate::core::rest::Reply;
use crate::core::server::Request;
use crate::core::throttle::BucketSpec;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// The maximum length of a call's parameters in the ledger, in bytes.
const SUMMARY: usize = 400;

const XML: &str = "text/xml;charset=UTF-8";

impl Simulated for World {
    type Options = Options;

    const SHOWS: &'static [&'static str] = &["/dump"];
    const INVALID: &'static str = "ValidationError";
    const BROKEN: &'static str = "InternalFailure";

    fn options(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    fn throttle(options: &Options) -> &[BucketSpec] {
        &options.throttle
    }

    fn latency(&self) -> &Latency {
        &self.options.latency
    }

    /// Errors in reading the models are violations, which tests check.
    fn changed(&mut self, violations: &mut Vec<String>) {
        let models = if self.options.validate { Models::shared() } else { Ok(None) };
        self.models = models.unwrap_or_else(|error| {
            violations.push(error.to_string());
            None
        });
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn settle(&mut self) -> Timestamp {
        World::settle(self);
        self.now()
    }

    /// The whole state, for `--load`.
    fn show(&self, _: &str) -> Option<Value> {
        serde_json::to_value(self.dump()).ok()
    }
}

impl Cloud for World {
    type Call = Call;

    fn read(&mut self, request: &Request, entry: &mut Entry, violations: &mut Vec<String>) -> Result<Call, Reply> {
        let form = match (request.method(), std::str::from_utf8(request.body())) {
            (&http::Method::POST, Ok(form)) => form,
            _ => request.uri().query().unwrap_or_default(),
        };
        let id = self.uuid();
        let mut call = Call::parse(request.headers(), form, &self.options).map_err(|(service, error)| {
            service.name().clone_into(&mut entry.service);
            entry.code = Some(error.code.clone());
            refusal(&error, service, &id)
        })?;
        call.id = id;
        if let Some(models) = &self.models {
            violations.extend(models.check_request(call.service.name(), &call.params));
        }
        call.service.name().clone_into(&mut entry.service);
        entry.action.clone_from(&call.action);
        entry.params = call.params.summary(SUMMARY);
        entry.continued = call.params.get("NextToken").is_some() || call.params.get("Marker").is_some();
        entry.mutating = call.mutating();
        entry.access_key = call.caller.as_ref().map(|caller| caller.access_key.clone()).unwrap_or_default();
        Ok(call)
    }

    fn params(&self, call: &Call) -> String {
        call.params.summary(usize::MAX)
    }

    fn carry_out(&mut self, call: &Call, entry: &mut Entry, violations: &mut Vec<String>) -> Reply {
        let refused = || iam::refused(self, call).map(|action| denied(call, &action));
        let outcome = match sts::expired(self, call).or_else(refused) {
            Some(error) => Err(error),
            None => {
                let outcome = self.answer(call);
                entry.unread = call.params.unread();
                outcome
            }
        };
        entry.applied = outcome.is_ok();
        let reply = match outcome {
            Ok(xml) => {
                let body = frame(call.service, &call.action, &call.id, &xml);
                Reply { items: xml.items(), ..reply(200, XML, body, &call.id) }
            }
            Err(error) => {
                entry.code = Some(error.code_for(call.service).to_owned());
                refusal(&error, call.service, &call.id)
            }
        };
        if let Some(models) = &self.models {
            let body = String::from_utf8_lossy(&reply.body);
            violations.extend(models.check_response(call.service.name(), &call.action, reply.status, &body));
        }
        reply
    }

    fn injected(&mut self, call: &Call, fault: &Fault, entry: &mut Entry) -> Reply {
        let error = match fault {
            Fault::Deny => denied(call, &format!("{}:{}", call.service.iam(), call.action)),
            Fault::Code { status, code, message } => {
                let message = if message.is_empty() { "Injected by the simulation." } else { message };
                ApiError::with_status(*status, code, message)
            }
            Fault::Throttle => throttled(call.service),
            Fault::ExpiredCredentials => sts::expired_error(call.service),
            Fault::Html { status } => {
                let body =
                    "<!DOCTYPE html>\n<html><head><title>Error</title></head><body><h1>Sorry</h1><br></body></html>";
                return reply(*status, "text/html; charset=utf-8", body, "");
            }
            _ => return Reply::empty(500),
        };
        entry.code = Some(error.code_for(call.service).to_owned());
        refusal(&error, call.service, &call.id)
    }

    fn add_unknown(reply: &mut Reply) {
        if reply.status == 200 {
            reply.body = with_unknown_elements(&String::from_utf8_lossy(&reply.body)).into_bytes();
        }
    }
}

impl World {
    /// Executes a call; a read may see an older state.
    fn answer(&mut self, call: &Call) -> Result<Xml, ApiError> {
        let (now, late) = (self.now(), self.options.stale_reads);
        // Otherwise each stored state would contain the older ones again.
        let mut past = std::mem::take(&mut self.past);
        past.forget(now, late);
        if call.mutating() && !late.is_zero() {
            past.keep(now, self.clone());
        }
        let answer = match past.shown().filter(|_| !call.mutating()) {
            Some(world) => {
                World::settle(world);
                handle(world, call)
            }
            None => handle(self, call),
        };
        self.past = past;
        answer
    }
}

fn throttled(service: Service) -> ApiError {
    match service {
        Service::Ec2 => ApiError::with_status(503, "RequestLimitExceeded", "Request limit exceeded."),
        Service::Elb | Service::Elbv2 => ApiError::new("Throttling", "Rate exceeded"),
    }
}

/// unverified: the texts, except that they contain the caller and the action.
fn denied(call: &Call, action: &str) -> ApiError {
    let who = call.caller.as_ref().map(|caller| caller.access_key.as_str()).unwrap_or_default();
    let text = format!("User: {who} is not authorized to perform: {action}");
    match call.service {
        Service::Ec2 => {
            let text = format!("You are not authorized to perform this operation. {text}");
            ApiError::with_status(403, "UnauthorizedOperation", text)
        }
        Service::Elb | Service::Elbv2 => ApiError::with_status(403, "AccessDenied", text),
    }
}

fn refusal(error: &ApiError, service: Service, id: &str) -> Reply {
    reply(error.status, XML, error.render(service, id), id)
}

fn reply(status: u16, kind: &'static str, body: impl Into<Vec<u8>>, id: &str) -> Reply {
    let id = (!id.is_empty()).then(|| ("x-amzn-requestid", id.to_owned()));
    Reply { status, kind, body: body.into(), headers: id.into_iter().collect(), ..Reply::default() }
}

/// Adds unknown elements at the beginning and the end of the result: inside its wrapper, if the protocol has one.
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
