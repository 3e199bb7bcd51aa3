//! The content of a snapshot: fields, labels and annotations that plans read, without probable secrets.
//!
//! First [`prune`] keeps only listed fields; then [`scrub`] redacts every remaining text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use ccm_controllers::service::conditions;
use ccm_provider::well_known::{ANNOTATION_PROVISIONED_BY, REASON_NO_ROUTE, REASON_ROUTE_CREATED};
use ccm_provider::{Lookup, Node, PersistentVolume, Service, ServiceKey, Taint, VolumeSource};
use ccm_runtime::store::{EndpointSlice, Namespace};
use regex::Regex;
use serde_json::{Map, Value};

use super::record::{Answer, Answers};
use super::{Document, Listed, ListedRelated};

/// Replaces a redacted text.
const REDACTED: &str = "[redacted]";
/// Types of Service conditions that the controllers write and read.
const CONDITIONS: [&str; 3] = [conditions::SERVING, conditions::PROVISIONING, conditions::DEGRADED];
/// Reasons of `NetworkUnavailable` that the controllers distinguish; all others are equivalent.
const NETWORK_REASONS: [&str; 2] = [REASON_ROUTE_CREATED, REASON_NO_ROUTE];

/// Removes everything that no plan reads. `prefixes` are those of the provider's Service annotations.
pub(crate) fn prune(document: &mut Document, prefixes: &[&str]) {
    // Its settings may select by labels.
    let facts = document.provider.facts.to_string();
    for service in &mut document.services {
        prune_service(service, prefixes, &facts);
    }
    if let Some(ListedRelated::Objects { endpoint_slices, namespaces }) = &mut document.related {
        prune_related(&document.services, endpoint_slices, namespaces, &facts);
    }
    let unmanaged = document.provider.unmanaged.as_ref().map(|(key, _)| &**key);
    let named = Named::new(&document.services, &document.answers, unmanaged, facts);
    for node in &mut document.nodes {
        prune_node(node, &named);
    }
    if let Some(Listed::Volumes(volumes)) = &mut document.volumes {
        for volume in volumes {
            prune_volume(volume, &document.answers);
        }
    }
}

/// Whether the key is in a Kubernetes domain: `kubernetes.io`, `k8s.io` and subdomains.
fn of_kubernetes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|known| domain.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether clouds read this key on Services, or the user may have meant such a key: `service.beta.kubernetes.io/…`, and
/// names that contain "balancer". False for keys of kubectl and of other controllers.
fn is_for_balancers(key: &str) -> bool {
    let Some((domain, name)) = key.split_once('/').filter(|_| of_kubernetes(key)) else { return false };
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    domain.starts_with("service.") || name.contains("loadbalancer") || name.starts_with("aws")
}

fn is_balanced(service: &Service) -> bool {
    service.is_load_balancer() || service.has_finalizer()
}

fn prune_service(service: &mut Service, prefixes: &[&str], facts: &str) {
    let balanced = is_balanced(service);
    let read = |key: &str| is_for_balancers(key) || prefixes.iter().any(|prefix| key.starts_with(prefix));
    service.metadata.annotations.retain(|key, _| balanced && read(key));
    service.metadata.labels.retain(|key, _| balanced && has_word(facts, key));
    service.spec.selector = None;
    service.status.conditions.retain(|condition| CONDITIONS.contains(&&*condition.kind));
}

/// Keeps what belongs to Services with a load balancer.
fn prune_related(
    services: &[Service],
    slices: &mut Option<Vec<EndpointSlice>>,
    namespaces: &mut Option<Vec<Namespace>>,
    facts: &str,
) {
    let keys: BTreeSet<ServiceKey> = services.iter().filter(|service| is_balanced(service)).map(Service::key).collect();
    slices.iter_mut().for_each(|slices| slices.retain(|slice| keys.contains(&slice.service_key())));
    if let Some(namespaces) = namespaces {
        namespaces.retain(|namespace| keys.iter().any(|key| key.namespace == namespace.name));
        for namespace in namespaces {
            namespace.labels = namespace.labels.iter().filter(|(key, _)| has_word(facts, key)).collect();
        }
    }
}

/// Whether a text has a label key as a whole word: `poolside` does not contain `pool`.
fn has_word(text: &str, key: &str) -> bool {
    let part_of_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.match_indices(key).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + key.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_key) && !after.is_some_and(part_of_key)
    })
}

/// Label keys of nodes outside the Kubernetes domains that plans may read.
struct Named {
    /// Labels that the cloud sets or reads.
    by_cloud: BTreeSet<String>,
    /// The settings of the provider and the kept annotations of Services, which may contain names of node labels.
    texts: String,
}

impl Named {
    fn new(services: &[Service], answers: &Answers, unmanaged: Option<&str>, facts: String) -> Self {
        let mut by_cloud: BTreeSet<String> = unmanaged.into_iter().map(str::to_owned).collect();
        let instances = answers.instances.iter().flat_map(|instances| instances.lookups.values());
        for lookup in instances.flat_map(BTreeMap::values) {
            if let Lookup::Found(instance) = lookup
                && let Ok(Some(metadata)) = &instance.metadata
            {
                by_cloud.extend(metadata.additional_labels.keys().cloned());
            }
        }
        let values = services.iter().flat_map(|service| service.metadata.annotations.values());
        let texts: Vec<String> = values.cloned().chain([facts]).collect();
        Self { by_cloud, texts: texts.join("\n") }
    }

    fn has(&self, key: &str) -> bool {
        of_kubernetes(key) || self.by_cloud.contains(key) || has_word(&self.texts, key)
    }
}

fn prune_node(node: &mut Node, named: &Named) {
    node.labels = node.labels.iter().filter(|(key, _)| named.has(key)).collect();
    let taint = |taint: &Taint| match of_kubernetes(&taint.key) {
        true => taint.clone(),
        false => Taint { value: Arc::default(), ..taint.clone() },
    };
    node.taints = node.taints.iter().map(taint).collect();
    if let Some((_, reason)) = &mut node.network_unavailable
        && !NETWORK_REASONS.contains(&&**reason)
    {
        *reason = Arc::default();
    }
}

/// Keeps only the identifying fields of the source: a CSI source also has attributes and references.
fn prune_volume(volume: &mut PersistentVolume, answers: &Answers) {
    let wanted: BTreeSet<&str> = answers
        .volumes
        .iter()
        .filter_map(|labeler| match labeler.labels.get(&*volume.metadata.name)? {
            Answer::Ok(labels) => labels.as_ref(),
            Answer::Error(_) => None,
        })
        .flat_map(|labels| labels.keys().map(String::as_str))
        .collect();
    volume.metadata.labels.retain(|key, _| of_kubernetes(key) || wanted.contains(key.as_str()));
    volume.metadata.annotations.retain(|key, _| key == ANNOTATION_PROVISIONED_BY);
    volume.spec.retain(|field, source| match VolumeSource::ALL.iter().find(|known| known.field == field) {
        Some(known) => {
            if let Value::Object(source) = source {
                source.retain(|key, _| key == known.id || key == "driver");
            }
            true
        }
        None => field == "nodeAffinity",
    });
}

/// Replaces probable secrets in every text of this document; returns the number of changed texts.
pub(crate) fn scrub(value: &mut Value) -> usize {
    match value {
        Value::String(text) => match scrubbed(text) {
            Some(clean) => {
                *text = clean;
                1
            }
            None => 0,
        },
        Value::Array(items) => items.iter_mut().map(scrub).sum(),
        Value::Object(fields) => scrub_fields(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The same for an object: a value is a secret if its key indicates that.
fn scrub_fields(fields: &mut Map<String, Value>) -> usize {
    // `{"key": "…-token", "value": "…"}` is such a pair too, like a change of a field.
    let name = ["key", "field"].iter().find_map(|name| fields.get(*name).and_then(Value::as_str));
    let pair = name.is_some_and(names_a_secret);
    let mut count = 0;
    for (key, value) in fields.iter_mut() {
        match value {
            Value::String(text) if names_a_secret(key) || (pair && ["value", "before", "after"].contains(&&**key)) => {
                count += usize::from(!text.is_empty() && text != REDACTED);
                if !text.is_empty() {
                    REDACTED.clone_into(text);
                }
            }
            other => count += scrub(other),
        }
    }
    count
}

/// Whether a key indicates that its value is a secret: `example.com/api-key`, `db-password`.
fn names_a_secret(key: &str) -> bool {
    SECRET_KEY.as_ref().is_some_and(|pattern| pattern.is_match(key))
}

static SECRET_KEY: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("(?i-u)(?:{SECRET_WORDS})$")).ok());

/// Endings of the keys of secrets; in texts more may follow.
const SECRET_WORDS: &str = "password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|secret[_-]?key|credentials?";

/// Patterns of secrets, each with its replacement.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        // https://user:password@host
        (r"(?-u)([A-Za-z][A-Za-z0-9+.-]*://)[A-Za-z0-9._~%!$&'()*+,;=:-]+@", "${1}[redacted]@"),
        // https://host/path?X-Amz-Signature=…
        (r"(?i-u)(https?://[A-Za-z0-9._~%!$&'()*+,;=:@/\[\]-]*)\?[A-Za-z0-9._~%!$&'()*+,;=:@/?\[\]-]+", "${1}?[redacted]"),
        // Authorization: Bearer …
        (
            r#"(?i-u)\b((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|secret|key))(["']?[ \t]*[:=][ \t]*["']?)(?:[A-Za-z0-9-]+[ \t]+)?[!-~]+"#,
            "${1}${2}[redacted]",
        ),
        (r"(?i-u)\b(bearer)[ \t]+[A-Za-z0-9._~+/=-]{8,}", "${1} [redacted]"),
        (r"(?i-u)\b(basic)[ \t]+[A-Za-z0-9+/]{12,}={0,2}", "${1} [redacted]"),
        // password=…, "client_secret": "…"
        (
            r#"(?i-u)((?:SECRET_WORDS)[A-Za-z0-9_-]*["']?)(=|[ \t]*:[ \t]+|[ \t]*:["']|=["'])["']?[!-~]+"#,
            "${1}${2}[redacted]",
        ),
        // Keys of AWS, Google and GitHub, and signed tokens.
        (r"(?-u)\b(?:AKIA|ASIA)[A-Z0-9]{12,}", REDACTED),
        (r"(?-u)\bAIza[A-Za-z0-9_-]{30,}", REDACTED),
        (r"(?-u)\bya29\.[A-Za-z0-9_-]+", REDACTED),
        (r"(?-u)\bgh[pousr]_[A-Za-z0-9]{20,}", REDACTED),
        (r"(?-u)\bgl(?:pat|dt|rt|cbt|ptt|agent|soat|ft)-[A-Za-z0-9_-]{20,}", REDACTED),
        (r"(?-u)\bxox[a-z]-[A-Za-z0-9-]{10,}", REDACTED),
        (r"(?-u)(https://hooks\.slack\.com/services/)[A-Za-z0-9/]+", "${1}[redacted]"),
        (r"(?-u)\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?", REDACTED),
    ]
    .into_iter()
    .filter_map(|(pattern, instead)| Some((Regex::new(&pattern.replace("SECRET_WORDS", SECRET_WORDS)).ok()?, instead)))
    .collect()
});

/// The text with all probable secrets replaced; `None` if there are none.
fn scrubbed(text: &str) -> Option<String> {
    // The end of a PEM block is not reliable, so the whole text is replaced.
    if text.contains("-----BEGIN") {
        return Some(REDACTED.to_owned());
    }
    let mut clean = without_secret_keys(text);
    for (pattern, instead) in PATTERNS.iter() {
        if pattern.is_match(&clean) {
            clean = pattern.replace_all(&clean, *instead).into_owned();
        }
    }
    (clean != text).then_some(clean)
}

/// The text without AWS secret access keys, which only their length and alphabet identify.
fn without_secret_keys(text: &str) -> String {
    const LENGTH: usize = 40;
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '/' || c == '+';
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let has = |test: fn(&char) -> bool| word.chars().any(|c| test(&c));
        let secret = word.len() == LENGTH
            && has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit);
        clean.push_str(if secret { REDACTED } else { word });
        let next = after.find(inside).unwrap_or(after.len());
        let (between, remains) = after.split_at(next);
        clean.push_str(between);
        rest = remains;
    }
    clean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert_eq!(PATTERNS.len(), 14);
        assert!(SECRET_KEY.is_some());
    }

    #[test]
    fn labels_that_the_settings_of_the_provider_select_by_are_kept_and_no_others() {
        let service = |name: &str, kind: &str| {
            let labels = json!({"tier": "gold", "owner": "jane"});
            json!({"metadata": {"namespace": "shop", "name": name, "labels": labels}, "spec": {"type": kind}})
        };
        let slice = |service: &str| json!({"name": service, "namespace": "shop", "service": service, "ready": ["n"]});
        let namespace = |name: &str| json!({"name": name, "labels": {"team": "a", "customer": "b"}});
        let mut document: Document = serde_json::from_value(json!({
            "kind": "Snapshot", "version": 1, "ccm": "0", "taken": "2026-01-01T00:00:00Z", "redacted": 0, "flags": {}, "plan": null,
            "provider": {"name": "p", "facts": {"selectors": [{"tier": "gold"}, "team in (a)", {"pool": "x"}]}},
            "nodes": [{"name": "n", "labels": {"pool": "x", "poolside": "y"}}],
            "services": [service("web", "LoadBalancer"), service("db", "ClusterIP")],
            "related": {"objects": {
                "endpointSlices": [slice("web"), slice("db")],
                "namespaces": [namespace("shop"), namespace("bank")],
            }},
            "answers": serde_json::to_value(Answers::default()).unwrap(),
        }))
        .unwrap();
        prune(&mut document, &[]);
        let pruned = serde_json::to_value(&document).unwrap();
        assert_eq!(pruned["services"][0]["metadata"]["labels"], json!({"tier": "gold"}));
        assert_eq!(pruned["services"][1]["metadata"].get("labels").unwrap_or(&json!({})), &json!({}));
        assert_eq!(pruned["nodes"][0]["labels"], json!({"pool": "x"}));
        let related =
            json!({"endpointSlices": [slice("web")], "namespaces": [{"name": "shop", "labels": {"team": "a"}}]});
        assert_eq!(pruned["related"]["objects"], related);
    }

    #[test]
    fn likely_secrets_are_replaced_and_counted() {
        for (text, clean) in [
            ("x -----BEGIN PRIVATE KEY-----\ncanary", "[redacted]"),
            ("get https://me:canary@host/p: refused", "get https://[redacted]@host/p: refused"),
            ("https://host/p?X-Amz-Signature=canary&a=b: 403", "https://host/p?[redacted] 403"),
            ("sent Authorization: Bearer canary", "sent Authorization: [redacted]"),
            ("{\"authorization\":\"canary\"}", "{\"authorization\":\"[redacted]"),
            ("X-Auth-Token: canary", "X-Auth-Token: [redacted]"),
            ("used bearer canary.canary-canary", "used bearer [redacted]"),
            ("Basic Y2FuYXJ5OmNhbmFyeQ==", "Basic [redacted]"),
            ("password=canary", "password=[redacted]"),
            ("client_secret: canary, id", "client_secret: [redacted] id"),
            ("\"aws_secret_access_key\": \"canary\"", "\"aws_secret_access_key\": [redacted]"),
            ("key AKIAIOSFODNN7EXAMPLE is bad", "key [redacted] is bad"),
            ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY.", "[redacted]."),
            ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE"),
            ("eyJhbGciOi.eyJzdWIi.sig-canary", "[redacted]"),
            ("postgres://me:canary@host/p", "postgres://[redacted]@host/p"),
            ("AccountKey=canary;Endpoint", "AccountKey=[redacted]"),
            (
                "post https://hooks.slack.com/services/T0/B0/canary: 400",
                "post https://hooks.slack.com/services/[redacted]: 400",
            ),
            ("glpat-canarycanarycanary12", "[redacted]"),
            ("xoxb-123456-canary", "[redacted]"),
        ] {
            let mut value = json!({ "a": [text] });
            let count = scrub(&mut value);
            assert_eq!(value["a"][0], clean, "{text}");
            assert_eq!(count, usize::from(text != clean), "{text}");
        }
    }

    #[test]
    fn inputs_of_plans_stay() {
        for text in [
            "aws:///eu-west-1a/i-0123456789abcdef0",
            "arn:aws:acm:eu-west-1:123456789012:certificate/1b2c3d4e-0000-1111-2222-333344445555",
            "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/k8s-default-web-0123456789/0123456789abcdef",
            "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
            "glb-default-web-0123456789abcdef",
            "topology.kubernetes.io/zone=eu-west-1a",
            "the Service wants a load balancer; see https://example.com/docs/tokens",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "node worker-1: basic information is missing",
            "2001:db8::1",
            "[redacted]",
        ] {
            assert_eq!(scrubbed(text), None, "{text}");
        }
    }

    #[test]
    fn keys_of_kubernetes_are_recognized_by_their_domain() {
        for key in ["kubernetes.io/arch", "service.beta.kubernetes.io/x", "node.k8s.io/x", "beta.kubernetes.io/os"] {
            assert!(of_kubernetes(key), "{key}");
        }
        for key in
            ["notkubernetes.io/x", "kubernetes.io", "kubernetes.io.example.com/x", "pool", "example.com/kubernetes.io"]
        {
            assert!(!of_kubernetes(key), "{key}");
        }
    }

    #[test]
    fn inputs_of_balancers_stay_in_services() {
        let service = |kind: &str| -> Service {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "d", "labels": {"canary": "canary"}, "annotations": {
                    "service.beta.kubernetes.io/x": "1", "lb.example.com/y": "2", "other.example.com/z": "canary",
                    "plain": "canary", "kubectl.kubernetes.io/last-applied-configuration": "canary",
                    "external-dns.alpha.kubernetes.io/target": "canary", "app.k8s.io/hook": "canary",
                    "k8s.io/Aws-Load-balancer-x": "misspelt"}},
                "spec": {"type": kind, "selector": {"app": "canary"}},
                "status": {"conditions": [
                    {"type": "LoadBalancerServing", "status": "True", "reason": "Serving", "message": "",
                        "lastTransitionTime": "2026-01-02T03:04:05Z"},
                    {"type": "example.com/x", "status": "True", "reason": "canary", "message": "canary",
                        "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
            }))
            .unwrap()
        };
        let mut balanced = service("LoadBalancer");
        prune_service(&mut balanced, &["lb.example.com/"], "");
        let keys: Vec<&str> = balanced.metadata.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["k8s.io/Aws-Load-balancer-x", "lb.example.com/y", "service.beta.kubernetes.io/x"]);
        assert_eq!(balanced.status.conditions.len(), 1);
        assert!(!serde_json::to_string(&balanced).unwrap().contains("canary"));
        let mut internal = service("ClusterIP");
        prune_service(&mut internal, &["lb.example.com/"], "");
        assert!(internal.metadata.annotations.is_empty());
    }

    #[test]
    fn node_labels_stay_where_a_plan_may_read_them() {
        let named = Named {
            by_cloud: BTreeSet::from(["example.com/rack".to_owned()]),
            texts: "pool=web,example.com/tier=front".into(),
        };
        for (key, stays) in [
            ("topology.kubernetes.io/zone", true),
            ("example.com/rack", true),
            ("pool", true),
            ("example.com/tier", true),
            ("tier", false),
            ("poo", false),
            ("web", true),
            ("example.com/other", false),
        ] {
            assert_eq!(named.has(key), stays, "{key}");
        }
    }

    #[test]
    fn source_topology_and_cloud_labels_stay_in_volumes() {
        let mut volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z", "team": "canary", "rack": "r"},
                "annotations": {"pv.kubernetes.io/provisioned-by": "p", "x": "canary"}},
            "spec": {"csi": {"driver": "d", "volumeHandle": "v", "volumeAttributes": {"a": "canary"},
                "nodeStageSecretRef": {"name": "canary"}}, "nodeAffinity": {"required": {}}, "mountOptions": ["canary"]}
        }))
        .unwrap();
        let labels = BTreeMap::from([("rack".to_owned(), "r".to_owned())]);
        let labeler = super::super::record::Labeler {
            labels: BTreeMap::from([("a".to_owned(), Answer::Ok(Some(labels)))]),
            ..Default::default()
        };
        prune_volume(&mut volume, &Answers { volumes: Some(labeler), ..Answers::default() });
        let text = serde_json::to_string(&volume).unwrap();
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(volume.metadata.labels.len(), 2);
        assert_eq!(volume.volume_id(), Some("v"));
        assert!(volume.is_provisioned() && volume.spec.contains_key("nodeAffinity"));
    }

    #[test]
    fn of_a_node_stay_no_values_of_foreign_taints_and_no_reasons_of_others() {
        let taints = json!([{"key": "node.kubernetes.io/x", "value": "a", "effect": "NoSchedule"},
            {"key": "example.com/x", "value": "canary", "effect": "NoSchedule"}]);
        let node = |reason: &str| -> Node {
            let mut node: Node = serde_json::from_value(json!({"name": "a", "networkUnavailable": ["True", reason],
                "labels": {"team": "canary"}, "taints": taints}))
            .unwrap();
            prune_node(&mut node, &Named { by_cloud: BTreeSet::new(), texts: String::new() });
            node
        };
        let foreign = node("canary");
        assert!(!serde_json::to_string(&foreign).unwrap().contains("canary"));
        let values: Vec<&str> = foreign.taints.iter().map(|taint| &*taint.value).collect();
        assert_eq!(values, ["a", ""]);
        assert_eq!(&*node("NoRouteCreated").network_unavailable.unwrap().1, "NoRouteCreated");
    }

    #[test]
    fn each_word_names_a_secret_as_a_key_and_in_a_text() {
        for word in [
            "password",
            "passwd",
            "passphrase",
            "pwd",
            "secret",
            "token",
            "api-key",
            "apiKey",
            "access_key",
            "account-key",
            "privateKey",
            "secret-key",
            "credential",
            "credentials",
        ] {
            let mut value =
                json!({format!("example.com/x-{word}"): "canary", "text": format!("{word}=canary"), "plain": "stays"});
            assert_eq!(scrub(&mut value), 2, "{word}");
            assert!(!value.to_string().contains("canary") && value["plain"] == "stays", "{value}");
        }
    }

    #[test]
    fn the_value_under_the_key_of_a_secret_is_removed_whatever_it_looks_like() {
        for (before, after) in [
            (
                json!({"service.beta.kubernetes.io/db-password": "canary"}),
                json!({"service.beta.kubernetes.io/db-password": REDACTED}),
            ),
            (json!({"x.k8s.io/apiKey": "canary"}), json!({"x.k8s.io/apiKey": REDACTED})),
            (
                json!({"key": "a/Client-Secret", "value": "canary", "message": "m"}),
                json!({"key": "a/Client-Secret", "value": REDACTED, "message": "m"}),
            ),
        ] {
            let mut value = before;
            assert_eq!(scrub(&mut value), 1);
            assert_eq!(value, after);
            assert_eq!(scrub(&mut value), 0, "what is clean stays clean");
        }
        for stays in [
            json!({"key": "a/aws-load-balancer-ssl-cert", "value": "arn:x"}),
            json!({"a/token-bucket-size": "7", "token": "", "providerIdRequired": true}),
            json!({"tokens": {"a": "b"}}),
        ] {
            let mut value = stays.clone();
            assert_eq!(scrub(&mut value), 0);
            assert_eq!(value, stays);
        }
    }

    proptest! {
        #[test]
        fn texts_without_secrets_stay_unchanged(text in ".{0,80}") {
            if let Some(clean) = scrubbed(&text) {
                prop_assert_eq!(scrubbed(&clean).unwrap_or(clean.clone()), clean);
            }
        }
    }
}
