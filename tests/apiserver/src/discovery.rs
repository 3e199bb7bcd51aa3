//! Discovery.
use crate::options::Options;
use serde_json::Value;
pub(crate) fn answer(_path: &str, _accept: &str, _options: &Options) -> Option<Value> {
    None
}
