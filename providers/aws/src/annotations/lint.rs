//! Findings about annotations: unknown keys, keys without effect, wrong values, contradictions.

use ccm_kit::annotations::{BalancerKind, value, with_article};
use ccm_kit::document::did_you_mean;
use ccm_provider::source_ranges;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, ProviderError, Service, Severity};

use super::unknown::{Reader, unknown};
use super::{
    ACCESS_LOG, ACCESS_LOG_BUCKET, ACCESS_LOG_INTERVAL, ACCESS_LOG_PREFIX, ADDITIONAL_TAGS, Annotations,
    BACKEND_PROTOCOL, BackendProtocol, DRAINING, DRAINING_TIMEOUT, EIP_ALLOCATIONS, EXTRA_SECURITY_GROUPS,
    HEALTH_INTERVAL, HEALTH_PATH, HEALTH_PORT, HEALTH_PROTOCOL, HEALTH_TIMEOUT, HEALTHY_THRESHOLD, HealthProtocol,
    IDLE_TIMEOUT, INTERNAL, Key, Kind, PRIVATE_IPV4, PROXY_PROTOCOL, SECURITY_GROUPS, SSL_CERT, SSL_POLICY, SSL_PORTS,
    SUBNETS, SslPorts, TABLE, TARGET_GROUP_ATTRIBUTES, TARGET_NODE_LABELS, TYPE, UNHEALTHY_THRESHOLD, invalid,
};
use crate::client::Tags;
use crate::ownership::Ownership;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LintContext<'a> {
    pub(crate) service: &'a Service,
    pub(crate) kind: Kind,
    /// `NLBSecurityGroupMode = Managed`; `None` if the cloud config is unknown.
    pub(crate) managed_network_groups: Option<bool>,
    /// `ClusterServiceLoadBalancerHealthProbeMode = Shared`; `None` if the cloud config is unknown.
    pub(crate) shared_probe: Option<bool>,
    pub(crate) ownership: &'a Ownership,
}

/// All findings in the order of the table, unknown keys last. Values that are wrong for this kind of balancer are
/// errors, all others warnings.
pub(crate) fn lint(context: &LintContext<'_>) -> Vec<Finding> {
    let annotations = Annotations::read(&context.service.metadata.annotations);
    let mut findings = TABLE.review(annotations, context.kind);
    if let Some(finding) = findings.iter_mut().find(|finding| finding.key == PROXY_PROTOCOL.row.key)
        && context.kind == Kind::Network
    {
        let instead = TARGET_GROUP_ATTRIBUTES.row.key;
        finding.message += &format!(", and write {instead}: proxy_protocol_v2.enabled=true for version 2");
    }
    findings.extend(limits(context.kind, annotations));
    findings.extend(contradictions(context, annotations));
    findings.extend(dropped(context.kind, annotations));
    findings.extend(tls(context, annotations));
    findings.extend(annotations.iter().filter_map(|(key, value)| unknown(key, value, Reader::ThisProgram)));
    findings
}

/// Findings about a Service of the aws-load-balancer-controller: keys that it does not know either.
pub(crate) fn lint_other_controller(annotations: Annotations<'_>) -> Vec<Finding> {
    annotations.iter().filter_map(|(key, value)| unknown(key, value, Reader::OtherController)).collect()
}

fn contradictions(context: &LintContext<'_>, annotations: Annotations<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let network = context.kind == Kind::Network;
    // Unreadable values are reported elsewhere and count as absent.
    let on = |key| annotations.readable(key) == Some(true);
    let mut warn = |row, message: String| findings.push(annotations.warn(row, message));

    let types = ["", "nlb", "nlb-ip", "external", "clb"];
    if let Some(word) = annotations.text(TYPE.row).filter(|word| !types.contains(word)) {
        let hint = did_you_mean(word, &["nlb", "nlb-ip", "external"]).unwrap_or_default();
        warn(TYPE.row, format!("not a known type: a classic load balancer is created{hint}"));
    }
    if let Some(word) = annotations.text(INTERNAL.row).filter(|word| is_a_no(word)) {
        let so = "makes an internal load balancer, as any text but \"false\" does";
        warn(INTERNAL.row, format!("{so}; write \"false\", not {word:?}"));
    }
    for row in [ACCESS_LOG_BUCKET.row, ACCESS_LOG_PREFIX.row, ACCESS_LOG_INTERVAL.row] {
        if row.on.reads(context.kind) && annotations.text(row).is_some() && !on(&ACCESS_LOG) {
            warn(row, format!("no logs are written without {}: \"true\"", ACCESS_LOG.row.key));
        }
    }
    if on(&ACCESS_LOG) && annotations.text(ACCESS_LOG_BUCKET.row).unwrap_or_default().is_empty() {
        warn(ACCESS_LOG.row, format!("AWS refuses logs without a bucket; set {}", ACCESS_LOG_BUCKET.row.key));
    }
    if !network {
        if let Some(Finding { message, .. }) = log_interval(annotations) {
            warn(ACCESS_LOG_INTERVAL.row, message);
        }
        if annotations.has(&DRAINING_TIMEOUT) && !on(&DRAINING) {
            warn(DRAINING_TIMEOUT.row, format!("nothing drains without {}: \"true\"", DRAINING.row.key));
        }
    }
    if network {
        if annotations.has(&SECURITY_GROUPS) && context.managed_network_groups == Some(false) {
            let want = "NLBSecurityGroupMode = Managed in the cloud config";
            warn(SECURITY_GROUPS.row, format!("no effect on a network load balancer without {want}"));
        }
        if annotations.has(&EIP_ALLOCATIONS) && on(&INTERNAL) {
            warn(EIP_ALLOCATIONS.row, format!("AWS refuses Elastic IPs with {}; remove one of them", INTERNAL.row.key));
        }
        if annotations.has(&PRIVATE_IPV4) && !on(&INTERNAL) {
            let message =
                format!("AWS takes them for internal load balancers only; add {}: \"true\"", INTERNAL.row.key);
            warn(PRIVATE_IPV4.row, message);
        }
        if annotations.has(&EIP_ALLOCATIONS) && annotations.has(&PRIVATE_IPV4) {
            warn(PRIVATE_IPV4.row, format!("AWS takes them or {}, not both; remove one", EIP_ALLOCATIONS.row.key));
        }
    }
    let ids = [
        (&SECURITY_GROUPS, "security group", "sg-"),
        (&EXTRA_SECURITY_GROUPS, "security group", "sg-"),
        (&EIP_ALLOCATIONS, "allocated Elastic IP", "eipalloc-"),
    ];
    for (key, what, form) in ids {
        let odd = annotations.readable(key).unwrap_or_default().into_iter().find(|id| !id.starts_with(form));
        if let Some(odd) = odd.filter(|_| key.row.on.reads(context.kind)) {
            warn(key.row, format!("{odd:?} does not look like the ID of {} ({form}…)", with_article(what)));
        }
    }
    findings.extend(one_per_subnet(context.kind, annotations));
    findings.extend(health(context, annotations));
    if network && context.managed_network_groups.is_none() && annotations.has(&SECURITY_GROUPS) {
        let message =
            "takes effect on a network load balancer only with NLBSecurityGroupMode = Managed in the cloud config";
        findings.push(annotations.inform(SECURITY_GROUPS.row, message));
    }
    findings.extend(ranges_and_tags(context, annotations));
    findings
}

/// Defaults of classic balancers, in seconds.
pub(crate) const CLASSIC_INTERVAL: i32 = 10;
pub(crate) const CLASSIC_TIMEOUT: i32 = 5;

/// Whether people read a word as "no" although every program reads it as true.
fn is_a_no(word: &str) -> bool {
    let plain = word.trim().to_lowercase();
    let no = ["0", "disabled", "f", "false", "internet-facing", "n", "no", "none", "off"];
    word != "false" && no.contains(&&*plain)
}

/// Numbers that AWS refuses. Source: the service models of AWS; for timeouts of classic balancers, its user guide,
/// which allows more.
fn limits(kind: Kind, annotations: Annotations<'_>) -> Vec<Finding> {
    let rows: &[(&Key<i32>, i32, i32)] = match kind {
        Kind::Classic => &[
            (&IDLE_TIMEOUT, 1, 4000),
            (&DRAINING_TIMEOUT, 1, 3600),
            (&HEALTHY_THRESHOLD, 2, 10),
            (&UNHEALTHY_THRESHOLD, 2, 10),
            (&HEALTH_TIMEOUT, 2, 60),
            (&HEALTH_INTERVAL, 5, 300),
        ],
        Kind::Network => &[
            (&HEALTHY_THRESHOLD, 2, 10),
            (&UNHEALTHY_THRESHOLD, 2, 10),
            (&HEALTH_TIMEOUT, 2, 120),
            (&HEALTH_INTERVAL, 5, 300),
        ],
    };
    let refused = rows.iter().filter(|(key, least, most)| {
        annotations.readable(key).is_some_and(|number| !(*least..=*most).contains(&number))
    });
    let of = kind.as_str();
    refused
        .map(|(key, least, most)| annotations.error(key.row, format!("AWS takes {least} to {most} on a {of}")))
        .collect()
}

/// A finding if AWS refuses the interval of access logs.
fn log_interval(annotations: Annotations<'_>) -> Option<Finding> {
    let minutes = annotations.readable(&ACCESS_LOG_INTERVAL).filter(|minutes| ![5, 60].contains(minutes));
    minutes.map(|_| annotations.warn(ACCESS_LOG_INTERVAL.row, "AWS takes only 5 and 60"))
}

/// Addresses of a network balancer: one per subnet.
fn one_per_subnet(kind: Kind, annotations: Annotations<'_>) -> Vec<Finding> {
    let count = |key: &Key<Vec<String>>| annotations.readable(key).map(|list| list.len());
    let Some(subnets) = count(&SUBNETS).filter(|_| kind == Kind::Network) else { return Vec::new() };
    let odd = |key: &Key<Vec<String>>| {
        let found = count(key).filter(|found| *found != subnets)?;
        let whose = SUBNETS.row.key;
        let message = format!("{found} for {subnets} subnets; name one for each of {whose}, in that order");
        Some(annotations.error(key.row, message))
    };
    [&EIP_ALLOCATIONS, &PRIVATE_IPV4].into_iter().filter_map(odd).collect()
}

fn health(context: &LintContext<'_>, annotations: Annotations<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let local = context.service.spec.external_traffic_policy == "Local";
    let network = context.kind == Kind::Network;
    if network && context.shared_probe == Some(true) && !local {
        for row in [HEALTH_PROTOCOL.row, HEALTH_PORT.row, HEALTH_PATH.row] {
            if annotations.text(row).is_some() {
                let because = "ClusterServiceLoadBalancerHealthProbeMode = Shared sets protocol, port and path";
                findings.push(annotations.warn(row, format!("no effect: {because}")));
            }
        }
    } else if annotations.has(&HEALTH_PATH) {
        let protocol = annotations.readable(&HEALTH_PROTOCOL);
        let shared = context.shared_probe == Some(true);
        let asks_path = protocol.map_or(local || shared, HealthProtocol::has_path);
        if !asks_path {
            let or = match (context.shared_probe, context.kind, protocol) {
                (None, Kind::Classic, None) => ", or ClusterServiceLoadBalancerHealthProbeMode = Shared",
                _ => "",
            };
            let message = format!("no effect without {}: http or https{or}", HEALTH_PROTOCOL.row.key);
            findings.push(annotations.warn(HEALTH_PATH.row, message));
        }
    }
    findings.extend(path(annotations));
    findings.extend(timing(context.kind, context.service, annotations, context.shared_probe == Some(true)));
    findings
}

/// A finding if the path of the health check is one that AWS refuses.
fn path(annotations: Annotations<'_>) -> Option<Finding> {
    let path = annotations.text(HEALTH_PATH.row).filter(|path| !path.is_empty() && !path.starts_with('/'));
    path.map(|_| annotations.error(HEALTH_PATH.row, "AWS wants a path that begins with \"/\""))
}

/// The interval of a network balancer's health check.
pub(crate) fn network_interval(service: &Service, annotations: Annotations<'_>) -> i32 {
    let (_, local_port) = service.health_check_path_port();
    annotations.readable(&HEALTH_INTERVAL).unwrap_or(if local_port == 0 { 30 } else { 10 })
}

/// The annotated timeout of a network balancer's health check, if AWS takes it.
pub(crate) fn network_timeout(service: &Service, annotations: Annotations<'_>) -> Option<i32> {
    let most = network_interval(service, annotations).min(120);
    annotations.readable(&HEALTH_TIMEOUT).filter(|timeout| (2..=most).contains(timeout))
}

/// A finding if interval and timeout of the health check do not fit together, one of them perhaps by default.
pub(crate) fn timing(
    kind: Kind,
    service: &Service,
    annotations: Annotations<'_>,
    shared_probe: bool,
) -> Option<Finding> {
    let (timeout, interval) = (annotations.readable(&HEALTH_TIMEOUT), annotations.readable(&HEALTH_INTERVAL));
    let (of_timeout, of_interval) = (HEALTH_TIMEOUT.row.key, HEALTH_INTERVAL.row.key);
    if kind == Kind::Classic {
        let interval = interval.unwrap_or(CLASSIC_INTERVAL);
        return match timeout {
            Some(timeout) if timeout >= interval => {
                Some(annotations.warn(HEALTH_TIMEOUT.row, format!("AWS wants it below {of_interval} ({interval})")))
            }
            None if interval <= CLASSIC_TIMEOUT => {
                let message = format!("AWS wants it above {of_timeout} ({CLASSIC_TIMEOUT} by default)");
                Some(annotations.error(HEALTH_INTERVAL.row, message))
            }
            _ => None,
        };
    }
    let interval = network_interval(service, annotations);
    let probed = shared_probe && service.spec.external_traffic_policy != "Local";
    let (_, local_port) = service.health_check_path_port();
    let default = if probed || local_port != 0 { HealthProtocol::Http } else { HealthProtocol::Tcp };
    let protocol = annotations.readable(&HEALTH_PROTOCOL).filter(|_| !probed).unwrap_or(default);
    // AWS's defaults.
    let least = if protocol == HealthProtocol::Http { 6 } else { 10 };
    let sent = network_timeout(service, annotations);
    if sent.is_none() && least > interval {
        let message = format!("AWS wants at least the timeout of a check: {least}, unless {of_timeout} is shorter");
        return Some(annotations.error(HEALTH_INTERVAL.row, message));
    }
    let too_long = timeout.filter(|timeout| sent.is_none() && (2..=120).contains(timeout));
    too_long.map(|_| {
        let message = format!("not sent, so it has no effect: AWS wants at most {of_interval} ({interval})");
        annotations.warn(HEALTH_TIMEOUT.row, message)
    })
}

/// The first value that AWS certainly refuses, of those that are sent.
pub(crate) fn refused(
    kind: Kind,
    service: &Service,
    annotations: Annotations<'_>,
    shared_probe: bool,
) -> Option<Finding> {
    let drains = annotations.readable(&DRAINING) == Some(true);
    let is_sent = |finding: &Finding| {
        (finding.key != DRAINING_TIMEOUT.row.key || drains)
            && (finding.key != HEALTH_TIMEOUT.row.key || kind == Kind::Classic)
    };
    let timing = timing(kind, service, annotations, shared_probe).into_iter();
    // A shared probe has a path of its own: a network balancer always checks it, a classic one by default.
    let is_local = service.health_check_path_port().1 != 0;
    let asks_path = match kind {
        Kind::Network if shared_probe && service.spec.external_traffic_policy != "Local" => false,
        Kind::Network => annotations.readable(&HEALTH_PROTOCOL).map_or(is_local, HealthProtocol::has_path),
        Kind::Classic => {
            annotations.readable(&HEALTH_PROTOCOL).map_or(is_local || shared_probe, HealthProtocol::has_path)
        }
    };
    let path = path(annotations).filter(|_| asks_path);
    let writes_logs = kind == Kind::Classic && annotations.readable(&ACCESS_LOG) == Some(true);
    let interval = log_interval(annotations).filter(|_| writes_logs);
    let found = limits(kind, annotations).into_iter().chain(timing).chain(path).chain(interval).find(is_sent)?;
    Some(Finding { severity: Severity::Error, ..found })
}

/// An error if AWS would refuse the tags of a new balancer. (An existing one is not tagged, or works without the tags.)
pub(crate) fn check_tags(tags: &Tags) -> Result<(), ProviderError> {
    let Some(message) = reserved_by_aws(tags.keys()) else { return Ok(()) };
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Err(invalid(Finding::new(Severity::Error, ADDITIONAL_TAGS.row.key, message).value(tags.join(","))))
}

fn reserved_by_aws<'a>(mut keys: impl Iterator<Item = &'a String>) -> Option<String> {
    let key = keys.find(|key| key.to_lowercase().starts_with("aws:"))?;
    Some(format!("AWS refuses the tag {key:?}: keys that begin with \"aws:\" are reserved; remove it"))
}

fn ranges_and_tags(context: &LintContext<'_>, annotations: Annotations<'_>) -> Vec<Finding> {
    let service = context.service;
    // Invalid ranges are errors of the sync; only findings about ignored ones are reported here.
    let mut findings = source_ranges::review(service);
    findings.retain(|finding| finding.severity < Severity::Error);
    let opens = context.kind == Kind::Classic || context.managed_network_groups == Some(true);
    let named = annotations.readable(&SECURITY_GROUPS).is_some();
    let spec = service.spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty());
    let annotated =
        || Some((ANNOTATION_SOURCE_RANGES, service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES)?.clone()));
    let ranges = spec.map(|ranges| ("spec.loadBalancerSourceRanges", ranges.join(","))).or_else(annotated);
    if let Some((key, value)) = ranges.filter(|_| opens && named) {
        let whose = SECURITY_GROUPS.row.key;
        let message =
            format!("no effect: the rules of the groups in {whose} are not changed; allow these ranges there");
        findings.push(Finding::warning(key, message).value(value));
    }
    let tags = annotations.readable(&ADDITIONAL_TAGS).unwrap_or_default();
    let reserved = tags.keys().filter(|key| context.ownership.is_reserved(key));
    let reserved: Vec<String> = reserved.map(|key| format!("{key:?}")).collect();
    if !reserved.is_empty() {
        let keys = reserved.join(", ");
        let (tags, are, they) = if reserved.len() > 1 { ("tags", "are", "they are") } else { ("tag", "is", "it is") };
        let message = format!("the {tags} {keys} {are} reserved for the owner of the object; {they} ignored");
        findings.push(annotations.warn(ADDITIONAL_TAGS.row, message));
    }
    findings.extend(reserved_by_aws(tags.keys()).map(|message| annotations.error(ADDITIONAL_TAGS.row, message)));
    findings
}

/// What the parsers of pairs drop without an error, as upstream.
fn dropped(kind: Kind, annotations: Annotations<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = [TARGET_NODE_LABELS.row, ADDITIONAL_TAGS.row, TARGET_GROUP_ATTRIBUTES.row];
    for row in rows.into_iter().filter(|row| row.on.reads(kind)) {
        for item in value::items(annotations.text(row).unwrap_or_default()) {
            match item.splitn(3, '=').collect::<Vec<_>>()[..] {
                ["", ..] => findings
                    .push(annotations.warn(row, format!("{item:?} has no key and is left out; write key=value"))),
                // A tag has all of it.
                [key, value, _] if row.key != ADDITIONAL_TAGS.row.key => {
                    let message = format!("{item:?}: what follows the second \"=\" is left out; write {key}={value}");
                    findings.push(annotations.warn(row, message));
                }
                _ => {}
            }
        }
    }
    findings
}

fn tls(context: &LintContext<'_>, annotations: Annotations<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |row, message: String| findings.push(annotations.warn(row, message));
    let network = context.kind == Kind::Network;
    let certificate = annotations.readable(&SSL_CERT);
    let backend = annotations.readable(&BACKEND_PROTOCOL);
    if certificate.is_none() {
        for row in [SSL_PORTS.row, SSL_POLICY.row] {
            if annotations.text(row).is_some_and(|value| !value.is_empty()) {
                warn(row, format!("no port gets TLS without {}", SSL_CERT.row.key));
            }
        }
    }
    if certificate.as_ref().is_some_and(|word| !word.starts_with("arn:")) {
        warn(SSL_CERT.row, "not an ARN; write that of an ACM or IAM certificate (arn:…)".to_owned());
    }
    let ports = &context.service.spec.ports;
    if network && certificate.is_some() && !ports.is_empty() && ports.iter().all(|port| port.protocol == "UDP") {
        warn(SSL_CERT.row, "no effect: TLS needs a TCP port".to_owned());
    }
    match &backend {
        Some(BackendProtocol::Ssl) if network && certificate.is_none() => {
            warn(BACKEND_PROTOCOL.row, format!("no effect on a network load balancer without {}", SSL_CERT.row.key));
        }
        Some(word) if network && *word != BackendProtocol::Ssl => {
            let message = "no effect on a network load balancer; only \"ssl\" is supported there";
            warn(BACKEND_PROTOCOL.row, message.to_owned());
        }
        Some(BackendProtocol::Https) if certificate.is_none() => {
            warn(BACKEND_PROTOCOL.row, format!("the load balancer speaks plain TCP without {}", SSL_CERT.row.key));
        }
        Some(BackendProtocol::Other(word)) if certificate.is_none() => {
            let hint = did_you_mean(word, &["http", "https", "ssl", "tcp"]).unwrap_or_default();
            warn(BACKEND_PROTOCOL.row, format!("unknown value, treated as \"tcp\"{hint}"));
        }
        _ => {}
    }
    if certificate.is_some()
        && let Some(covered) = annotations.readable(&SSL_PORTS)
        && let SslPorts::Listed { numbers, names } = &covered
    {
        let lost_numbers = numbers.iter().filter(|number| !ports.iter().any(|port| port.port == **number));
        let lost_names = names.iter().filter(|name| !ports.iter().any(|port| port.name.to_lowercase() == **name));
        let lost: Vec<String> = lost_numbers.map(ToString::to_string).chain(lost_names.cloned()).collect();
        if !lost.is_empty() {
            let plain = ports.iter().filter(|port| !covered.cover(port.port, &port.name));
            let plain: Vec<String> = plain.map(|port| port.port.to_string()).collect();
            let (lost, plain) = (lost.join(", "), plain.join(", "));
            let served = if plain.is_empty() { String::new() } else { format!("; served without TLS: {plain}") };
            warn(SSL_PORTS.row, format!("the Service has no port {lost}{served}; write a port's number or name"));
        }
    }
    findings
}
