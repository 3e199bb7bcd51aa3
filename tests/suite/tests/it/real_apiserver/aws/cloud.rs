//! A cloud with the AWS API over HTTP, behind a recorder of all calls: the simulated one, or moto.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(super) use ccm_cloudsim::aws::client::REGION;
use ccm_cloudsim::aws::model::Element;
use ccm_cloudsim::aws::options::Delays;
use ccm_cloudsim::aws::{Aws, Options, client};
use ccm_cloudsim::core::client::send;
use ccm_cloudsim::core::server::{Answer, Handler, Request, Runtime, Server};
use ccm_cloudsim::moto::Moto;

/// A call that the program made.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) action: String,
    pub(super) status: u16,
    at: Instant,
}

impl Call {
    pub(super) fn writes(&self) -> bool {
        !self.action.starts_with("Describe") && !self.action.starts_with("Assume")
    }
}

#[derive(Debug)]
enum Backend {
    Simulated(Box<Aws>),
    // Stopped when dropped.
    Moto { _process: Moto },
}

/// See the module. Direct calls by tests do not pass the recorder.
#[derive(Debug)]
pub(super) struct Cloud {
    backend: Backend,
    address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
    recorder: Server,
    // Last: the recorder stops before its thread.
    _runtime: Runtime,
}

#[derive(Debug)]
struct Recorder {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Handler for Recorder {
    fn answer(self: Arc<Self>, request: Request) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move { tokio::task::spawn_blocking(move || self.pass_on(&request)).await.unwrap() })
    }
}

impl Recorder {
    fn pass_on(&self, request: &Request) -> Answer {
        let body = std::str::from_utf8(request.body()).unwrap();
        let of_the_connection = ["host", "connection", "content-length"];
        let headers: Vec<(&str, &str)> = request
            .headers()
            .iter()
            .filter(|(name, _)| !of_the_connection.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let answer = send("POST", &format!("http://{}/", self.address), &headers, body);
        let action = body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default().to_owned();
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        self.calls.lock().push(Call { action, status, at: Instant::now() });
        let Ok(answer) = answer else { return Answer::Reset };
        let mut reply = http::Response::new(answer.text.into());
        *reply.status_mut() = http::StatusCode::from_u16(status).unwrap();
        reply.headers_mut().insert("content-type", http::HeaderValue::from_static("text/xml"));
        Answer::Reply(reply)
    }
}

impl Cloud {
    /// The simulated cloud, with immediate state changes of its objects.
    pub(super) fn simulated() -> Self {
        let aws = Aws::start(Options { delays: Delays::none(), ..Options::default() }).unwrap();
        let address = aws.url().trim_start_matches("http://").parse().unwrap();
        Self::behind_recorder(Backend::Simulated(Box::new(aws)), address)
    }

    /// moto; `None` if it is not installed.
    pub(super) fn moto() -> Option<Self> {
        let moto = Moto::start().unwrap()?;
        let address = moto.address();
        Some(Self::behind_recorder(Backend::Moto { _process: moto }, address))
    }

    fn behind_recorder(backend: Backend, address: SocketAddr) -> Self {
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let runtime = Runtime::start("recorder").unwrap();
        let recorder = runtime.spawner().serve(0, Arc::new(Recorder { address, calls: calls.clone() })).unwrap();
        Self { backend, address, calls, recorder, _runtime: runtime }
    }

    /// The endpoint of all services.
    pub(super) fn url(&self) -> String {
        self.recorder.url()
    }

    /// The simulated cloud itself.
    pub(super) fn aws(&self) -> &Aws {
        match &self.backend {
            Backend::Simulated(aws) => aws,
            Backend::Moto { .. } => panic!("only the simulated cloud can do this"),
        }
    }

    /// The number of calls so far.
    pub(super) fn mark(&self) -> usize {
        self.calls.lock().len()
    }

    /// The calls since that number, in order of their responses.
    pub(super) fn since(&self, mark: usize) -> Vec<Call> {
        self.calls.lock()[mark..].to_vec()
    }

    /// Names of the writes since that number of calls.
    pub(super) fn writes(&self, mark: usize) -> Vec<String> {
        self.since(mark).into_iter().filter(Call::writes).map(|call| call.action).collect()
    }

    /// Time since the last call, except periodic reads of nodes and routes.
    pub(super) fn quiet_for(&self) -> Duration {
        let periodic = ["DescribeInstances", "DescribeRouteTables"];
        let calls = self.calls.lock();
        let last = calls.iter().rev().find(|call| !periodic.contains(&call.action.as_str()));
        last.map_or(Duration::ZERO, |call| call.at.elapsed())
    }

    /// Calls `service:Operation` as a client other than the program. Returns the code of the error, if there is one.
    pub(super) fn try_hand(&self, operation: &str, form: &str) -> Result<Element, String> {
        client::call(self.address, operation, form)
    }

    /// The same for a call that must succeed.
    pub(super) fn hand(&self, operation: &str, form: &str) -> Element {
        self.try_hand(operation, form).unwrap_or_else(|code| panic!("{operation} {form}: {code}"))
    }

    /// The text at a path of the response.
    pub(super) fn text(&self, operation: &str, form: &str, path: &str) -> String {
        let answer = self.hand(operation, form);
        answer.at(path).unwrap_or_else(|| panic!("{operation}: no {path} in {answer:?}")).text.clone()
    }

    /// The texts at `path` inside each element of the list at `list`, sorted.
    pub(super) fn texts(&self, operation: &str, form: &str, list: &str, path: &str) -> Vec<String> {
        let answer = self.hand(operation, form);
        let entries = answer.at(list).map(|list| list.children.as_slice()).unwrap_or_default();
        let mut texts: Vec<String> =
            entries.iter().filter_map(|entry| entry.at(path)).map(|found| found.text.clone()).collect();
        texts.sort_unstable();
        texts
    }
}
