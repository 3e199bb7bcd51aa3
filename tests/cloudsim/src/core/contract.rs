//! Faults of a running cloud for the contract suite and the random lives.

use super::endpoint::Cloud;
use super::faults::{Fault, Faults, Rule, Watch};
use super::running::Running;
use async_trait::async_trait;
use ccm_provider_contract::{Outage, Simulation, watch};
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Duration;

impl<C: Cloud> Running<C> {
    /// The error of an invalid call.
    fn invalid() -> Fault {
        Fault::Code { status: 400, code: C::INVALID.to_owned(), message: "outage".to_owned() }
    }

    /// An internal error of the cloud.
    fn broken() -> Fault {
        Fault::Code { status: 500, code: C::BROKEN.to_owned(), message: "outage".to_owned() }
    }

    fn replace_faults(&self, rules: impl IntoIterator<Item = Rule>) {
        self.faults(|faults| {
            faults.clear();
            rules.into_iter().for_each(|rule| faults.add(rule));
        });
    }
}

#[async_trait]
impl<C: Cloud> Simulation for Running<C> {
    fn step(&self, time: Duration) {
        self.clock().step(time);
    }

    fn now(&self) -> jiff::Timestamp {
        self.clock().now()
    }

    fn mark(&self) -> u64 {
        self.mark()
    }

    fn writes(&self, mark: u64) -> Vec<String> {
        self.writes(mark)
    }

    fn disrupt(&self, outage: Outage) {
        let refused_after = |writes| Rule::writes_from(writes + 1, Self::invalid());
        match outage {
            Outage::None => self.faults(Faults::clear),
            Outage::Down => self.replace_faults([Rule::every(Self::broken())]),
            Outage::WritesRefusedAfter(writes) => self.replace_faults([refused_after(writes)]),
            Outage::AnswerLostAfter(writes) => {
                let lost = Rule::writes_from(writes + 1, Fault::ResetAfter).window(writes, 1);
                // The second rule does not count the write whose answer is lost.
                self.replace_faults([lost, refused_after(writes)]);
            }
        }
    }

    fn random_faults(&self, rng: &mut StdRng) -> String {
        let skip = rng.random_range(0..16);
        let nth = skip / 2;
        let lost = if rng.random_bool(0.5) { Fault::ResetAfter } else { Fault::Truncate };
        let rule = match rng.random_range(0..10) {
            0 => Rule::every(Fault::Throttle).window(skip, 1),
            1 | 2 => Rule::writes_from(1, lost).window(nth, 1),
            3 => Rule { mutating: Some(false), ..Rule::every(lost).window(skip, 1) },
            4 | 5 => Rule::writes_from(nth + 1, Self::invalid()),
            6 => Rule::every(Fault::Deny).window(skip, 2),
            7 => Rule::every(Fault::Html { status: if skip < 8 { 404 } else { 502 } }).window(skip, 2),
            8 => Rule::every(Fault::UnknownElements),
            _ => Rule::every(Self::broken()).window(skip, 3),
        };
        let text = format!("{rule:?}");
        self.replace_faults([rule]);
        text
    }

    fn violations(&self) -> Vec<String> {
        self.violations()
    }

    async fn settled(&self) {
        self.settled().await;
    }

    fn watch(&self) {
        let (watched, clock) = (self.watched.clone(), self.clock().clone());
        let watch: Watch = Box::new(move |call| {
            let Watched { strike, calls } = &mut *watched.lock();
            let mut call = watch::Call {
                operation: format!("{}:{}", call.service, call.action),
                writes: call.mutating,
                continued: call.continued,
                text: call.params.to_owned(),
                struck: false,
                at: clock.now(),
            };
            let hit = strike.as_ref().filter(|strike| strike.hits(&call));
            call.struck = hit.is_some();
            calls.push(call);
            hit.and_then(|strike| fault_of(&strike.effect))
        });
        self.faults(|faults| faults.watch(watch));
    }

    fn strike(&self, strike: Option<watch::Strike>) {
        self.watched.lock().strike = strike;
    }

    fn watched(&self) -> Vec<watch::Call> {
        self.watched.lock().calls.clone()
    }
}

/// The calls since the beginning of the watch, and the fault of some of them.
#[derive(Debug, Default)]
pub(super) struct Watched {
    strike: Option<watch::Strike>,
    calls: Vec<watch::Call>,
}

fn fault_of(effect: &watch::Effect) -> Option<Fault> {
    let owned = |code: &str, message: &str| (code.to_owned(), message.to_owned());
    let fault = match effect {
        watch::Effect::Served => return None,
        watch::Effect::Denied => Fault::Deny,
        watch::Effect::Throttled => Fault::Throttle,
        watch::Effect::Html => Fault::Html { status: 502 },
        watch::Effect::AnswerLost => Fault::ResetAfter,
        watch::Effect::AnswerCut => Fault::Truncate,
        watch::Effect::Hangs => Fault::Hang,
        watch::Effect::Code { status, code, message } => {
            let (code, message) = owned(code, message);
            Fault::Code { status: *status, code, message }
        }
        watch::Effect::FailsLater { status, code, message } => {
            let (code, message) = owned(code, message);
            Fault::Operation { status: *status, code, message }
        }
    };
    Some(fault)
}
