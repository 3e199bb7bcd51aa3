//! Objects as the API server sends them.

use ccm_provider::well_known::ANNOTATION_PROVIDED_NODE_IP;
use ccm_provider::{Node, Service};
use ccm_runtime::store::{Cached, FieldFilter};
use serde_json::Value;

/// The cached fields of a Node must equal those of the full object.
pub(crate) fn node(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(node) = Node::decode(text, &FieldFilter::default()) else { return };
    let read = (node.has_taint("x"), node.provider_scheme(), node.annotations.get(ANNOTATION_PROVIDED_NODE_IP));
    std::hint::black_box(read);
    // The two parsers treat a repeated key differently.
    let Some(whole) = unambiguous(text) else { return };
    let kept = |pointer: &str| whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(node.name.as_str(), kept("/metadata/name"));
    assert_eq!(&*node.uid, kept("/metadata/uid"));
    assert_eq!(node.resource_version(), kept("/metadata/resourceVersion"));
    assert_eq!(node.provider_id_or_empty(), kept("/spec/providerID"));
    let count = |pointer: &str| whole.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(node.addresses.len(), count("/status/addresses"));
    assert_eq!(node.taints.len(), count("/spec/taints"));
}

/// The same for a Service.
pub(crate) fn service(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(service) = Service::decode(text, &FieldFilter::default()) else { return };
    drop((service.default_load_balancer_name(), service.health_check_path_port(), service.needs_cleanup()));
    let Some(whole) = unambiguous(text) else { return };
    let kept = |pointer: &str| whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(&*service.metadata.name, kept("/metadata/name"));
    assert_eq!(&*service.metadata.uid, kept("/metadata/uid"));
    assert_eq!(service.spec.kind, kept("/spec/type"));
    let count = |pointer: &str| whole.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(service.spec.ports.len(), count("/spec/ports"));
    assert_eq!(service.metadata.finalizers.len(), count("/metadata/finalizers"));
}

/// The object, unless it has a key twice.
fn unambiguous(text: &str) -> Option<Value> {
    let whole: Value = serde_json::from_str(text).ok()?;
    fn keys(value: &Value) -> usize {
        match value {
            Value::Object(map) => map.len() + map.values().map(keys).sum::<usize>(),
            Value::Array(list) => list.iter().map(keys).sum(),
            _ => 0,
        }
    }
    let mut colons = 0;
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => colons += 1,
            _ => {}
        }
    }
    (colons == keys(&whole)).then_some(whole)
}
