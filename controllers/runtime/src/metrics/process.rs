//! Process metrics from `/proc`. Absent on systems without it.

use std::fs;

use super::{Def, text};

/// Ticks per second of the times in `/proc/self/stat`: a constant of Linux's user-space interface.
const TICKS: f64 = 100.0;

/// Metrics of the process.
pub(crate) const DEFS: &[&Def] = &[
    &Def::counter("process_cpu_seconds_total", &[], "Total user and system CPU time spent in seconds."),
    &Def::gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    &Def::counter(
        "process_network_receive_bytes_total",
        &[],
        "Number of bytes received by the process over the network.",
    ),
    &Def::counter("process_network_transmit_bytes_total", &[], "Number of bytes sent by the process over the network."),
    &Def::gauge("process_open_fds", &[], "Number of open file descriptors."),
    &Def::gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes."),
    &Def::gauge("process_start_time_seconds", &[], "Start time of the process since unix epoch in seconds."),
    &Def::gauge("process_virtual_memory_bytes", &[], "Virtual memory size in bytes."),
    &Def::gauge("process_virtual_memory_max_bytes", &[], "Maximum amount of virtual memory available in bytes."),
];

/// Appends the values that can be read now.
pub(super) fn append(to: &mut String) {
    let values = Values::read();
    for def in DEFS {
        let Some(value) = values.get(def.name) else { continue };
        text::head(to, def.name, def.kind, def.help);
        text::sample(to, def.name, "", &[], None, value);
    }
}

struct Values {
    stat: String,
    status: String,
    limits: String,
    network: String,
    boot: String,
}

impl Values {
    fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            stat: read("/proc/self/stat"),
            status: read("/proc/self/status"),
            limits: read("/proc/self/limits"),
            network: read("/proc/self/net/netstat"),
            boot: read("/proc/stat"),
        }
    }

    fn get(&self, name: &str) -> Option<f64> {
        match name {
            "process_cpu_seconds_total" => Some((self.stat(14)? + self.stat(15)?) / TICKS),
            "process_start_time_seconds" => {
                let boot: f64 = self.boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
                Some(boot + self.stat(22)? / TICKS)
            }
            "process_open_fds" => {
                let count = fs::read_dir("/proc/self/fd").ok()?.count();
                // One of them is the open directory itself.
                u32::try_from(count).ok().map(|count| f64::from(count.saturating_sub(1)))
            }
            "process_max_fds" => self.limit("Max open files"),
            "process_virtual_memory_max_bytes" => self.limit("Max address space"),
            "process_resident_memory_bytes" => self.kilobytes("VmRSS:"),
            "process_virtual_memory_bytes" => self.kilobytes("VmSize:"),
            "process_network_receive_bytes_total" => self.network("InOctets"),
            "process_network_transmit_bytes_total" => self.network("OutOctets"),
            _ => None,
        }
    }

    /// A field of `/proc/self/stat` by its number in proc(5). The second one, the name of the program, may contain
    /// anything.
    fn stat(&self, number: usize) -> Option<f64> {
        let (_, rest) = self.stat.rsplit_once(')')?;
        rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }

    fn kilobytes(&self, key: &str) -> Option<f64> {
        let line = self.status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
    }

    /// The soft limit; the largest number if there is none, as in Go's library.
    #[allow(clippy::cast_precision_loss)]
    fn limit(&self, key: &str) -> Option<f64> {
        let line = self.limits.lines().find_map(|line| line.strip_prefix(key))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX as f64),
            number => number.parse().ok(),
        }
    }

    /// A value of the group `IpExt`, whose names are in one line and whose values are in the next.
    fn network(&self, key: &str) -> Option<f64> {
        let mut lines = self.network.lines().filter(|line| line.starts_with("IpExt:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let at = names.split_whitespace().position(|name| name == key)?;
        values.split_whitespace().nth(at)?.parse().ok()
    }
}
