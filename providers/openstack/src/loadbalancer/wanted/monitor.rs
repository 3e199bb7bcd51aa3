//! The health monitors of a Service. Pure.

use ccm_provider::{Finding, ProviderError};
use serde::Serialize;

use super::Source;
use crate::annotations as keys;

/// What Octavia takes for a monitor that is created without `max_retries_down`, as upstream does for 0.
const RETRIES_DOWN: i64 = 3;

/// The default of Octavia's option `udp_connect_min_interval_health_monitor`, in seconds.
const LEAST_OF_UDP: i64 = 3;

/// A health monitor: seconds and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Monitor {
    pub(crate) delay: i64,
    pub(crate) timeout: i64,
    pub(crate) max_retries: i64,
    pub(crate) max_retries_down: i64,
}

impl Source<'_> {
    pub(super) fn monitor(&self, findings: &mut Vec<Finding>) -> Result<Monitor, ProviderError> {
        let lb = &self.config.load_balancer;
        let seconds = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let monitor = Monitor {
            delay: self.number(&keys::HEALTH_MONITOR_DELAY, seconds(lb.monitor_delay))?,
            timeout: self.number(&keys::HEALTH_MONITOR_TIMEOUT, seconds(lb.monitor_timeout))?,
            max_retries: self.number(&keys::HEALTH_MONITOR_MAX_RETRIES, lb.monitor_max_retries)?,
            max_retries_down: match self.number(&keys::HEALTH_MONITOR_MAX_RETRIES_DOWN, lb.monitor_max_retries_down)? {
                0 => RETRIES_DOWN,
                number => number,
            },
        };
        if self.annotations.readable(&keys::HEALTH_MONITOR_MAX_RETRIES_DOWN) == Some(0) {
            let text = format!("Octavia takes numbers from 1 to 10; its default is used, which is {RETRIES_DOWN}");
            findings.push(self.annotations.warn(keys::HEALTH_MONITOR_MAX_RETRIES_DOWN.row, text));
        }
        let is_annotated =
            [&keys::HEALTH_MONITOR_DELAY, &keys::HEALTH_MONITOR_TIMEOUT].iter().any(|key| self.annotations.has(key));
        if is_annotated && monitor.timeout > monitor.delay {
            let Monitor { delay, timeout, .. } = monitor;
            let text =
                format!("health checks may take {timeout} s, and one is made each {delay} s; write {delay} or less");
            findings.push(self.annotations.warn(keys::HEALTH_MONITOR_TIMEOUT.row, text));
        }
        let is_udp = self.service.spec.ports.iter().any(|port| port.protocol == "UDP");
        // kube-proxy is asked by HTTP.
        if is_udp && self.service.health_check_path_port().1 == 0 && monitor.delay < LEAST_OF_UDP {
            let key = keys::HEALTH_MONITOR_DELAY.row.key;
            let text = format!(
                "Octavia refuses health checks of UDP each {} s unless its udp_connect_min_interval_health_monitor is lower \
                 than the default; write {LEAST_OF_UDP} or more",
                monitor.delay
            );
            findings.push(Finding::warning(key, text));
        }
        Ok(monitor)
    }
}
