//! x
use serde_json::Value;
pub(crate) struct Login {
    pub(crate) identity_url: String,
    pub(crate) needs_discovery: bool,
    pub(crate) body: Value,
}
pub(crate) fn choose_version(_: &Value) -> Result<String, String> {
    Err(String::new())
}
