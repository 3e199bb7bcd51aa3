//! Faults of a running cloud for the contract suite and the random lives.

use super::endpoint::Cloud;
use super::faults::{Fault, Faults, Rule};
use super::running::Running;
use async_trait::async_trait;
use ccm_provider_contract::{Outage, Simulation};
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
}
