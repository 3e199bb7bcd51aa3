//! Every operation, with every outcome, in every situation: see [`ccm_provider_contract::matrix`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{NodeRef, Service, ServicePort};
use ccm_provider_contract::Harness;
use ccm_provider_contract::matrix::{Kind, Known, MatrixCloud, Operation, Part, Trouble, run};
use ccm_provider_contract::watch::{Call, Effect, Strike};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Fake;

struct Cloud {
    fake: Arc<Fake>,
    /// The number of calls before the watch.
    from: AtomicUsize,
    /// The faults, each from a number of calls on.
    strikes: Mutex<Vec<(usize, Option<Strike>)>>,
}

const KINDS: [Kind; 1] = [Kind { name: "table", is_variant: false, start: || Box::pin(async { Cloud::start() }) }];

#[test]
fn the_whole_matrix_has_only_known_failures() {
    run(&KINDS, Part::All, &Known::of(env!("CARGO_MANIFEST_DIR")));
}

impl Cloud {
    fn start() -> Arc<dyn MatrixCloud> {
        Arc::new(Self { fake: Arc::new(Fake::new(false)), from: AtomicUsize::new(0), strikes: Mutex::default() })
    }

    /// The lines of the log about the beginning of calls for Services.
    fn log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.fake.path("calls.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["phase"] == "start" && line["args"]["service"].is_string()).collect()
    }

    fn balancer(&self, service: &Service) -> Value {
        self.fake.tables()["loadBalancers"][service.key().to_string()].take()
    }
}

#[async_trait]
impl MatrixCloud for Cloud {
    fn harness(&self) -> Arc<dyn Harness> {
        self.fake.clone()
    }

    fn table(&self) -> Vec<String> {
        ["GetLoadBalancer", "EnsureLoadBalancer", "UpdateLoadBalancer", "EnsureLoadBalancerDeleted"]
            .map(str::to_owned)
            .into()
    }

    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
        let code = |code, message| Ok(Effect::code(400, code, message));
        match trouble {
            Trouble::Denied => Ok(Effect::Denied),
            Trouble::Refused => code("Invalid", "the port is not possible"),
            Trouble::Busy => code("InProgress", "the balancer is being changed"),
            Trouble::Quota => code("Other", "the quota of balancers is exhausted"),
            Trouble::Throttled => Ok(Effect::Throttled),
            Trouble::Server => code("Other", "internal error"),
            Trouble::Lost if operation.writes => Ok(Effect::AnswerLost),
            Trouble::Lost => Err("a lost answer to a read is an error like any other"),
            Trouble::Hangs => Ok(Effect::Hangs),
            Trouble::Stops => Ok(Effect::Served),
            Trouble::NotFound | Trouble::Conflict => Err("the table has no such error"),
            Trouble::Html | Trouble::Half => Err("the table is no server"),
            Trouble::FailsLater => Err("the table has no operations that end later"),
        }
    }

    fn change(&self, service: &mut Service) {
        let node_port = service.spec.ports[0].node_port + 1;
        service.spec.ports.push(ServicePort {
            name: "more".into(),
            port: 443,
            node_port,
            ..service.spec.ports[0].clone()
        });
    }

    fn has_frame(&self, service: &Service) -> bool {
        self.balancer(service)["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty())
    }

    fn members(&self, service: &Service) -> Vec<BTreeSet<String>> {
        let names = |nodes: &Vec<Value>| nodes.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        self.balancer(service)["nodes"].as_array().map(names).into_iter().collect()
    }

    fn member(&self, node: &NodeRef) -> String {
        node.name.to_string()
    }

    /// Addresses are given in the order of the calls.
    fn plain(&self, line: String) -> String {
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let parts = line.split("\"ip\":\"").map(|part| part.trim_start_matches(digits));
        parts.collect::<Vec<_>>().join("\"ip\":\"")
    }

    /// One call does everything.
    fn moves_members(&self, _: &str) -> bool {
        true
    }

    fn step(&self, _: Duration) {}

    fn watch(&self) {
        self.from.store(self.log().len(), Ordering::Relaxed);
    }

    fn mark(&self) -> u64 {
        std::fs::metadata(self.fake.path("calls.log")).map_or(0, |file| file.len())
    }

    fn watched(&self) -> Vec<Call> {
        let strikes = self.strikes.lock();
        let call = |(at, line): (usize, Value)| {
            let operation = line["call"].as_str().unwrap_or_default().to_owned();
            let mut call = Call {
                writes: operation != "GetLoadBalancer",
                operation,
                continued: false,
                text: line["args"].to_string(),
                struck: false,
                at: line["time"].as_str().and_then(|time| time.parse().ok()).unwrap_or_default(),
            };
            let strike = strikes.iter().rev().find(|(from, _)| *from <= at).and_then(|(_, strike)| strike.as_ref());
            call.struck = strike.is_some_and(|strike| strike.hits(&call));
            call
        };
        self.log().into_iter().skip(self.from.load(Ordering::Relaxed)).enumerate().map(call).collect()
    }

    async fn strike(&self, strike: Option<Strike>) {
        let from = self.watched().len();
        let number = self.strikes.lock().len();
        let rule = strike.as_ref().filter(|strike| strike.effect != Effect::Served).map(|strike| {
            let mut rule = match &strike.effect {
                Effect::Code { code, message, .. } => json!({"kind": code, "error": message}),
                Effect::AnswerLost => json!({"error": "the answer is lost", "applied": true}),
                Effect::Hangs => json!({"delay": "1h", "error": "no answer"}),
                Effect::Throttled => json!({"kind": "Retry", "error": "fewer calls", "retryAfter": "5s"}),
                _ => json!({"error": "permission denied"}),
            };
            if rule["kind"] == "InProgress" {
                rule["retryAfter"] = "5s".into();
            }
            rule["id"] = format!("strike-{number}").into();
            rule["call"] = strike.operation.clone().into();
            rule["service"] = "default/hit".into();
            rule
        });
        self.fake.edit(|file| file["faults"] = rule.into_iter().collect());
        self.strikes.lock().push((from, strike));
    }
}
