//! The health monitor of each pool.

use ccm_kit::balancer::Kind;
use ccm_provider::{Finding, ProviderError};

use super::super::names;
use super::super::observed::Balancer;
use super::super::wanted::{Monitor as WantedMonitor, Port, Settings};
use super::ports::{Place, found, label, part_of, serving_pool};
use super::{Changed, Draft, Fields, MONITOR, missing, part};
use crate::client::octavia::{Monitor, Pool};

/// Members with the health check port of another monitor would go out of service.
const NEEDS: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Members];

impl Draft<'_> {
    /// Whether the monitor checks kube-proxy.
    pub(super) fn checks_kube_proxy(&self, settings: &Settings, port: &Port) -> bool {
        let able = match &*port.transport {
            "UDP" => self.features.http_monitors_on_udp,
            _ => self.features.http_monitors,
        };
        settings.monitor.is_some() && self.item.hosts.health_check_port.is_some() && able
    }

    pub(super) fn wanted_monitor(&self, settings: &Settings, index: usize, port: &Port) -> Option<MonitorFields> {
        let times = settings.monitor?;
        let kind = match (self.checks_kube_proxy(settings, port), &*port.transport) {
            (true, _) => "HTTP",
            (false, "UDP") => "UDP-CONNECT",
            (false, transport) => transport,
        };
        Some(MonitorFields { name: part("monitor", index, self.item), kind: kind.to_owned(), times })
    }

    pub(super) fn monitor(
        &mut self,
        balancer: &Balancer,
        settings: &Settings,
        index: usize,
        port: &Port,
        pool: &Place<'_, Pool>,
    ) {
        let present = pool.found.map(|pool| &pool.healthmonitor_id).filter(|id| !id.is_empty());
        let present = present.and_then(|id| balancer.monitors.iter().find(|monitor| monitor.id == *id));
        let present = present.filter(|_| self.former_check(balancer, settings, port).is_none());
        let wanted = self.wanted_monitor(settings, index, port);
        match (present, wanted) {
            (None, None) => {}
            (None, Some(wanted)) => self.create_monitor(balancer, &pool.id, wanted),
            (Some(present), None) => {
                self.delete_part(balancer, &MONITOR, &present.id, &present.name, "no health monitor is asked for");
            }
            (Some(present), Some(wanted)) if present.kind != wanted.kind => {
                self.delete_part(balancer, &MONITOR, &present.id, &present.name, "its type cannot be changed");
                self.amend(|step| step.needs(NEEDS));
                self.create_monitor(balancer, &pool.id, wanted);
            }
            (Some(present), Some(wanted)) => self.update_monitor(balancer, present, &wanted),
        }
    }

    /// Deletes the monitor that asks kube-proxy before the members lose its port: it would find no answer at theirs.
    pub(super) fn delete_former_check(&mut self, balancer: &Balancer, settings: &Settings, port: &Port) {
        if let Some(monitor) = self.former_check(balancer, settings, port) {
            self.part = part_of(Kind::Settings, port);
            self.delete_part(balancer, &MONITOR, &monitor.id, &monitor.name, "kube-proxy is not asked any more");
        }
    }

    fn former_check<'b>(&self, balancer: &'b Balancer, settings: &Settings, port: &Port) -> Option<&'b Monitor> {
        let pool = serving_pool(balancer, port).filter(|_| found(balancer, port).is_some())?;
        let present = balancer.monitors.iter().find(|monitor| monitor.id == pool.healthmonitor_id)?;
        (present.kind == "HTTP" && !self.checks_kube_proxy(settings, port)).then_some(present)
    }

    /// An update of members does not make a monitor.
    pub(super) fn monitors_must_exist(&self, balancer: &Balancer) -> Result<(), ProviderError> {
        let settings = self.item.settings.as_ref().filter(|_| balancer.unread_monitors.is_none());
        let Some(settings) = settings else { return Ok(()) };
        let lacks = |(index, port): &(usize, &Port)| {
            let listener = found(balancer, port).filter(|listener| self.is_ours(listener));
            let pool = listener.and_then(|listener| balancer.pool_of(listener));
            let has = |pool: &Pool| balancer.monitors.iter().any(|monitor| monitor.id == pool.healthmonitor_id);
            pool.is_some_and(|pool| !has(pool)) && self.wanted_monitor(settings, *index, port).is_some()
        };
        match settings.ports.iter().enumerate().find(lacks) {
            None => Ok(()),
            Some((_, port)) => Err(missing(&format!("the health monitor of {}", label(port.port, &port.protocol)))),
        }
    }

    fn create_monitor(&mut self, balancer: &Balancer, pool: &str, wanted: MonitorFields) {
        let mut fields = wanted.fields();
        fields.put("pool_id", pool);
        self.create_part(balancer, &MONITOR, wanted.name, fields, "the Service asks for health checks");
        self.amend(|step| step.needs(NEEDS));
    }

    fn update_monitor(&mut self, balancer: &Balancer, present: &Monitor, wanted: &MonitorFields) {
        let mut changed = Changed::default();
        // The rename sets the name. When nodes change, upstream names monitors of sharing Services after the balancer;
        // and a port keeps its monitor when a port before it is removed. Neither is worth a change.
        let is_of = |balancer: &str| names::is_part(&present.name, "monitor", balancer);
        if !self.is_renamed(&present.name) && !is_of(&self.item.name) && !is_of(&balancer.lb.name) {
            changed.field("name", &present.name, &wanted.name);
        }
        let times = &wanted.times;
        changed.field("delay", &present.delay, &times.delay);
        changed.field("timeout", &present.timeout, &times.timeout);
        changed.field("max_retries", &present.max_retries, &times.max_retries);
        changed.field("max_retries_down", &present.max_retries_down, &times.max_retries_down);
        changed.again(&present.provisioning_status, &present.name);
        self.update_part(balancer, &MONITOR, &present.id, &present.name, changed, "it differs from the Service");
    }

    /// Warns if a Service requests a health check that the cloud does not support.
    pub(super) fn warn_about_checks(&mut self, settings: &Settings) {
        let asks = settings.monitor.is_some() && self.item.hosts.health_check_port.is_some();
        if asks && settings.ports.iter().any(|port| !self.checks_kube_proxy(settings, port)) {
            let text = "kube-proxy is not asked for the nodes with local pods: this Octavia or its provider has no such monitor";
            self.findings.push(Finding::warning("spec.externalTrafficPolicy", text));
        }
    }
}

/// A desired monitor.
pub(super) struct MonitorFields {
    name: String,
    kind: String,
    times: WantedMonitor,
}

impl MonitorFields {
    pub(super) fn fields(&self) -> Fields {
        let times = &self.times;
        let mut fields = Fields::default();
        fields.put("name", &*self.name);
        fields.put("type", &*self.kind);
        fields.put("delay", times.delay);
        fields.put("timeout", times.timeout);
        fields.put("max_retries", times.max_retries);
        fields.put("max_retries_down", times.max_retries_down);
        if self.kind == "HTTP" {
            fields.put("url_path", "/healthz");
            fields.put("http_method", "GET");
            fields.put("expected_codes", "200");
        }
        fields
    }
}
