//! The ledger: every call to a simulated cloud, with its size and its result.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::path::Path;

/// The environment variable with the folder for the recorded calls of each simulated cloud, to compare two builds.
const RECORD: &str = "CCM_CLOUD_CALLS";

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the call since the start, from 1.
    pub seq: u64,
    /// The virtual time of its arrival.
    pub at: Timestamp,
    /// The cloud's name of the service: `ec2`, `network`, …; `imds` for instance metadata, whose action is the path.
    pub service: String,
    pub action: String,
    /// The caller: access key ID or user; empty if the call was not signed.
    pub access_key: String,
    /// The user agent of the caller.
    pub user_agent: String,
    /// The parameters, `k=v` joined by `&`, truncated, without secrets.
    pub params: String,
    /// The size of the request body in bytes.
    pub bytes_in: u64,
    /// The size of the answer body in bytes.
    pub bytes_out: u64,
    /// The number of objects in the answer.
    pub items: u64,
    /// Whether the call requested a further page.
    pub continued: bool,
    /// The HTTP status; 0 if no answer was sent.
    pub status: u16,
    /// The error code of the cloud, if the call failed.
    pub code: Option<String>,
    /// Whether the operation is a write.
    pub mutating: bool,
    /// Whether the operation took effect (even if the caller got no answer).
    pub applied: bool,
    /// The injected fault.
    pub fault: Option<String>,
    /// Parameters that the simulation ignored: they may request something that is not simulated.
    pub unread: Vec<String>,
}

/// The number of calls and the size of their answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub calls: u64,
    /// Calls answered with an error.
    pub errors: u64,
    /// The total size of answers in bytes.
    pub bytes_out: u64,
    /// The number of listed objects.
    pub items: u64,
}

/// The calls in order, and totals that include calls dropped from the list.
#[derive(Debug, Clone)]
pub struct Ledger {
    entries: VecDeque<Entry>,
    totals: BTreeMap<(String, String), Totals>,
    next: u64,
    keep: usize,
}

impl Ledger {
    /// An empty ledger that keeps the last `keep` calls.
    pub fn new(keep: usize) -> Self {
        Ledger { entries: VecDeque::new(), totals: BTreeMap::new(), next: 1, keep }
    }

    /// Records a call and numbers it.
    pub fn record(&mut self, mut entry: Entry) -> u64 {
        entry.seq = self.next;
        self.next += 1;
        let totals = self.totals.entry((entry.service.clone(), entry.action.clone())).or_default();
        totals.calls += 1;
        totals.errors += u64::from(entry.code.is_some() || entry.status == 0);
        totals.bytes_out += entry.bytes_out;
        totals.items += entry.items;
        let seq = entry.seq;
        self.entries.push_back(entry);
        while self.entries.len() > self.keep {
            self.entries.pop_front();
        }
        seq
    }

    /// The current position: [`Ledger::since`] returns the calls after it.
    pub fn mark(&self) -> u64 {
        self.next - 1
    }

    /// The calls after a position, oldest first; 0 is the start.
    pub fn since(&self, mark: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.seq > mark)
    }

    /// The number of calls by `service:action` after a position.
    pub fn counts(&self, mark: u64) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.since(mark) {
            *counts.entry(format!("{}:{}", entry.service, entry.action)).or_default() += 1;
        }
        counts
    }

    /// The writes after a position.
    pub fn mutating(&self, mark: u64) -> impl Iterator<Item = &Entry> {
        self.since(mark).filter(|entry| entry.mutating)
    }

    /// Totals by `service:action` since the start, including calls dropped from the list.
    pub fn totals(&self) -> BTreeMap<String, Totals> {
        self.totals.iter().map(|((service, action), totals)| (format!("{service}:{action}"), *totals)).collect()
    }

    /// The calls as text, a line each: first the reads, sorted, because the order of concurrent tasks varies; then the
    /// writes in order.
    pub fn record_of_calls(&self) -> String {
        let line = |entry: &Entry| {
            let Entry { service, action, params, status, code, .. } = entry;
            format!("{service}:{action} {params} -> {status} {}\n", code.as_deref().unwrap_or_default())
        };
        let mut reads: Vec<String> = self.since(0).filter(|entry| !entry.mutating).map(line).collect();
        reads.sort();
        reads.into_iter().chain(self.mutating(0).map(line)).collect()
    }

    /// Writes the calls into the folder in `CCM_CLOUD_CALLS`, if it is set: one file per cloud of a test.
    pub fn write_calls(&self) {
        let Some(folder) = std::env::var_os(RECORD) else { return };
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").replace(':', "-");
        // Several clouds of one test get one file each.
        let file = (0..).map(|number| format!("{name}.{number}")).map(|name| Path::new(&folder).join(name));
        for path in file {
            match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    if let Err(error) = file.write_all(self.record_of_calls().as_bytes()) {
                        eprintln!("{}: {error}", path.display());
                    }
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return eprintln!("{}: {error}", path.display()),
            }
        }
    }

    /// Clears calls and totals; the numbering continues, so that positions remain valid.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.totals.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(action: &str, mutating: bool) -> Entry {
        Entry { service: "ec2".to_owned(), action: action.to_owned(), mutating, status: 200, ..Entry::default() }
    }

    #[test]
    fn marks_split_the_calls_and_totals_outlive_the_bound() {
        let mut ledger = Ledger::new(2);
        ledger.record(call("DescribeVpcs", false));
        let mark = ledger.mark();
        ledger.record(call("CreateTags", true));
        ledger.record(call("DescribeVpcs", false));
        ledger.record(call("DescribeVpcs", false));
        assert_eq!(ledger.since(0).count(), 2, "only the last two are kept");
        assert_eq!(ledger.mutating(mark).count(), 0, "dropped with its entry");
        assert_eq!(ledger.totals()["ec2:DescribeVpcs"].calls, 3);
        assert_eq!(ledger.totals()["ec2:CreateTags"].calls, 1);
        ledger.clear();
        assert_eq!(ledger.record(call("DescribeVpcs", false)), 5);
    }
}
