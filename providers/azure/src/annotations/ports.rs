//! The annotations of single ports: `service.beta.kubernetes.io/port_80_no_lb_rule`.

use std::collections::BTreeMap;

use ccm_kit::annotations::invalid;
use ccm_provider::{Finding, ProviderError, Service, Severity};

use super::DOMAIN;

const HEALTH_PROBE: &str = "health-probe_";

/// The settings of one port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortAnnotations<'a> {
    annotations: &'a BTreeMap<String, String>,
    port: i32,
}

/// The port and the rest of a key that belongs to one port.
fn parts(key: &str) -> Option<(&str, &str)> {
    let end = key.strip_prefix(DOMAIN).and_then(|end| end.strip_prefix("port_"))?;
    end.split_once('_').filter(|(port, _)| port.parse::<i32>().is_ok())
}

/// Whether a key belongs to one port.
pub(crate) fn is_key(key: &str) -> bool {
    parts(key).is_some()
}

/// The findings about the annotations of single ports; those that refuse the Service are errors of their port.
pub(crate) fn review(service: &Service) -> Vec<Finding> {
    let has = |number: &str| service.spec.ports.iter().any(|port| port.port.to_string() == number);
    let of = |(key, value): (&String, &String)| {
        let (port, end) = parts(key)?;
        let message = match end {
            _ if !has(port) => format!("no effect: the Service has no port {port}; correct the number, or remove it"),
            "no_lb_rule" | "no_probe_rule" => super::yes(value).err()?.message,
            "health-probe_protocol" => super::probe_protocol(value).err()?.message,
            "health-probe_port"
            | "health-probe_request-path"
            | "health-probe_interval"
            | "health-probe_num-of-probe" => return None,
            _ => "unknown key, no effect; correct it, or remove it".to_owned(),
        };
        Some(Finding { severity: Severity::Warning, key: key.clone(), value: Some(value.clone()), message })
    };
    service.metadata.annotations.iter().filter_map(of).collect()
}

impl<'a> PortAnnotations<'a> {
    pub(crate) fn of(annotations: &'a BTreeMap<String, String>, port: i32) -> Self {
        Self { annotations, port }
    }

    fn key(&self, end: &str) -> String {
        format!("{DOMAIN}port_{}_{end}", self.port)
    }

    fn text(&self, end: &str) -> Option<&'a str> {
        self.annotations.get(&self.key(end)).map(String::as_str)
    }

    fn is_set(&self, end: &str) -> bool {
        self.text(end).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The port gets no rule.
    pub(crate) fn has_no_rule(&self) -> bool {
        self.is_set("no_lb_rule")
    }

    /// The rule of the port gets no probe.
    pub(crate) fn has_no_probe(&self) -> bool {
        self.is_set("no_probe_rule")
    }

    /// A setting of the probe: `protocol`, `port`, `request-path`.
    pub(crate) fn probe(&self, setting: &str) -> Option<&'a str> {
        self.text(&format!("{HEALTH_PROBE}{setting}"))
    }

    /// A number of the probe: `interval`, `num-of-probe`.
    pub(crate) fn probe_number(&self, setting: &str, least: u16) -> Result<Option<u16>, ProviderError> {
        let Some(text) = self.probe(setting) else { return Ok(None) };
        match text.trim().parse::<u16>() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(self.wrong(setting, &format!("not a whole number from {least}; write for example \"{least}\""))),
        }
    }

    /// The error about a setting of the probe.
    pub(crate) fn wrong(&self, setting: &str, message: &str) -> ProviderError {
        let key = self.key(&format!("{HEALTH_PROBE}{setting}"));
        let value = self.annotations.get(&key).cloned();
        invalid(Finding { severity: Severity::Error, key, value, message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_ports_have_a_number() {
        assert!(is_key("service.beta.kubernetes.io/port_80_no_lb_rule"));
        assert!(is_key("service.beta.kubernetes.io/port_80_health-probe_port"));
        assert!(!is_key("service.beta.kubernetes.io/port_http_no_lb_rule"));
        assert!(!is_key("service.beta.kubernetes.io/azure-pip-name"));
    }

    #[test]
    fn an_error_names_key_value_and_fix() {
        let key = "service.beta.kubernetes.io/port_80_health-probe_interval";
        let annotations = [(key.to_owned(), "4".to_owned())].into();
        let error = PortAnnotations::of(&annotations, 80).probe_number("interval", 5).unwrap_err();
        assert_eq!(error.to_string(), format!("{key} \"4\": not a whole number from 5; write for example \"5\""));
        assert_eq!(PortAnnotations::of(&annotations, 81).probe_number("interval", 5).unwrap(), None);
    }
}
