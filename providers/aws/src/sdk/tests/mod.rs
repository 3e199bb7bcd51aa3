//! Tests over HTTP: a server with scripted answers, and the simulated AWS.

mod answers;
mod every_operation;
mod lists;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_smithy_types::timeout::TimeoutConfig;
use ccm_cloudsim::core::server::{Answer as Wire, Handler, Request, Runtime, Server};
use ccm_provider::metric::Registry;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::*;
use crate::client::{ReadEc2 as _, ReadElb as _, ReadElbV2 as _, Tags};
use crate::tests::world;

fn clients(url: &str) -> Clients {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(10)).build();
    let http = http::client(&|_| None).unwrap();
    world::clients(url, |config| config.timeout_config(timeouts).http_client(http))
}

fn api(url: &str) -> SdkApi {
    counted(&clients(url), &Registry::new(), |caller| caller)
}

fn counted(clients: &Clients, registry: &Registry, limit: fn(Caller<Operation>) -> Caller<Operation>) -> SdkApi {
    let (caller, metrics) = crate::client::metrics::leading(registry);
    SdkApi::new(clients, limit(caller), &metrics)
}

type Script = dyn Fn(usize, &str) -> Wire + Send + Sync;

/// Answers by script, from the number and the form of the request.
struct Stub {
    script: Box<Script>,
    asked: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

pub(super) struct Running {
    stub: Arc<Stub>,
    server: Server,
    _runtime: Runtime,
}

impl Handler for Stub {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Wire> {
        let form = String::from_utf8_lossy(request.body()).into_owned();
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = (self.script)(nth, &form);
        self.requests.lock().push(request);
        Box::pin(async { answer })
    }
}

impl Running {
    pub(super) fn start(script: impl Fn(usize, &str) -> Wire + Send + Sync + 'static) -> Self {
        let stub = Stub { script: Box::new(script), asked: AtomicUsize::new(0), requests: Mutex::default() };
        let (stub, runtime) = (Arc::new(stub), Runtime::start("stub").unwrap());
        let server = runtime.spawner().serve(0, stub.clone()).unwrap();
        Self { stub, server, _runtime: runtime }
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    fn api(&self) -> SdkApi {
        api(&self.url())
    }

    fn forms(&self) -> Vec<String> {
        let form = |request: &Request| String::from_utf8_lossy(request.body()).into_owned();
        self.stub.requests.lock().iter().map(form).collect()
    }

    /// The requests since the previous query.
    pub(super) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *self.stub.requests.lock())
    }
}

/// An answer with this status and body.
pub(super) fn reply(status: u16, body: &str) -> Wire {
    Wire::Reply(response(status, body))
}

fn response(status: u16, body: &str) -> ::http::Response<bytes::Bytes> {
    ::http::Response::builder().status(status).body(body.to_owned().into()).unwrap()
}

/// An answer of EC2.
fn ec2_answer(action: &str, content: &str) -> Wire {
    reply(
        200,
        &format!(
            "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>{content}</{action}Response>"
        ),
    )
}

/// An error of EC2.
fn ec2_error(status: u16, code: &str, message: &str) -> Wire {
    reply(
        status,
        &format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>6a0e-ec2</RequestID></Response>"
        ),
    )
}

/// An answer of Elastic Load Balancing.
pub(super) fn elb_answer(action: &str, content: &str) -> Wire {
    reply(
        200,
        &format!(
            "<{action}Response xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\"><{action}Result>{content}</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
        ),
    )
}

/// An error of Elastic Load Balancing.
pub(super) fn elb_error(status: u16, code: &str, message: &str) -> Wire {
    reply(
        status,
        &format!(
            "<ErrorResponse xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\"><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>6a0e-elb</RequestId></ErrorResponse>"
        ),
    )
}
