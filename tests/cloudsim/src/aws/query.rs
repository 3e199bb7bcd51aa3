//! Parameters of the AWS query protocols: a form whose dotted keys are a tree.
//!
//! `Filter.1.Value.2=x` (EC2) and `Names.member.1=x` (ELB, STS) have the same API here. Each parameter records whether
//! a handler has read it, so that the ledger can list the parameters that the simulation ignored.

use super::error::ApiError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A node of the tree: a value, children by name or position, or both.
#[derive(Debug, Default)]
pub struct Params {
    pub(super) value: Option<String>,
    /// Whether the form contained the value more than once.
    pub(super) twice: bool,
    read: AtomicBool,
    pub(super) children: BTreeMap<String, Params>,
}

impl Params {
    /// Parses a form body (`application/x-www-form-urlencoded`).
    pub fn parse(form: &str) -> Result<Self, ApiError> {
        let mut root = Params::default();
        for pair in form.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key)?;
            let mut node = &mut root;
            for part in key.split('.') {
                node = node.children.entry(part.to_owned()).or_default();
            }
            node.twice = node.value.replace(decode(value)?).is_some();
        }
        Ok(root)
    }

    /// The value of the node itself (for lists of strings).
    pub fn own(&self) -> Option<&str> {
        self.read.store(true, Ordering::Relaxed);
        self.value.as_deref()
    }

    /// The string at a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.children.get(name)?.own()
    }

    /// The string at a name, which is required and must not be empty.
    pub fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).filter(|value| !value.is_empty()).ok_or_else(|| ApiError::missing(name))
    }

    /// Whether the name is present; an empty list is present as `Name=`.
    pub fn has(&self, name: &str) -> bool {
        self.sub(name).is_some()
    }

    /// The structure at a name.
    pub fn sub(&self, name: &str) -> Option<&Params> {
        self.children.get(name).inspect(|node| node.read.store(true, Ordering::Relaxed))
    }

    /// The items of a list in the order of their positions.
    pub fn items(&self, name: &str) -> Vec<&Params> {
        let Some(node) = self.sub(name) else { return Vec::new() };
        let node = node.sub("member").unwrap_or(node);
        let mut items: Vec<(u64, &Params)> =
            node.children.iter().filter_map(|(key, item)| Some((key.parse().ok()?, item))).collect();
        items.sort_by_key(|(position, _)| *position);
        items.into_iter().map(|(_, item)| item).inspect(|item| item.read.store(true, Ordering::Relaxed)).collect()
    }

    /// The strings of a list in the order of their positions.
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.items(name).into_iter().filter_map(Params::own).collect()
    }

    /// The strings of a list, owned.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.list(name).into_iter().map(str::to_owned).collect()
    }

    /// A boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(ApiError::bad_value(name, other, "It must be true or false.")),
        }
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|text| text.parse().map_err(|_| ApiError::bad_value(name, text, "It must be a whole number.")))
            .transpose()
    }

    /// An integer within limits.
    pub fn within(&self, name: &str, min: u16, max: u16) -> Result<Option<u16>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        let why = || format!("It must be a whole number between {min} and {max}.");
        number.map(Some).ok_or_else(|| ApiError::bad_value(name, text, &why()))
    }

    /// A required integer within limits.
    pub fn required_within(&self, name: &str, min: u16, max: u16) -> Result<u16, ApiError> {
        self.required(name)?;
        self.within(name, min, max)?.ok_or_else(|| ApiError::missing(name))
    }

    /// The tags at a name (`Tag`, `Tags`): pairs of `Key` and `Value`.
    pub fn tags(&self, name: &str) -> Result<BTreeMap<String, String>, ApiError> {
        self.items(name)
            .into_iter()
            .map(|tag| Ok((tag.required("Key")?.to_owned(), tag.get("Value").unwrap_or_default().to_owned())))
            .collect()
    }

    /// The paths of the values that were not read.
    pub fn unread(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.walk("", &mut |path, node| {
            if node.value.is_some() && !node.read.load(Ordering::Relaxed) {
                paths.push(path.to_owned());
            }
        });
        paths
    }

    /// Marks all values as read: for handlers that compare the parameters as a whole.
    pub fn read_all(&self) {
        self.read.store(true, Ordering::Relaxed);
        self.children.values().for_each(Params::read_all);
    }

    /// All parameters as `path=value` joined by `&`, without secrets, truncated to about `limit` bytes.
    pub fn summary(&self, limit: usize) -> String {
        let mut text = String::new();
        self.walk("", &mut |path, node| {
            let Some(value) = node.value.as_deref() else { return };
            if path == "Action" || path == "Version" || text.len() >= limit {
                return;
            }
            if !text.is_empty() {
                text.push('&');
            }
            text.push_str(path);
            text.push('=');
            text.push_str(if path == "WebIdentityToken" { "(secret)" } else { value });
        });
        text
    }

    fn walk(&self, path: &str, visit: &mut impl FnMut(&str, &Params)) {
        visit(path, self);
        for (name, child) in &self.children {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            child.walk(&path, visit);
        }
    }
}

/// Decodes percent-encoding and `+`.
fn decode(text: &str) -> Result<String, ApiError> {
    let bad = || ApiError::new("MalformedQueryString", "The query string contains a syntax error.");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
                u8::try_from(high * 16 + low).map_err(|_| bad())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_lists_read_alike_and_keep_their_order() {
        let params =
            Params::parse("Filter.1.Name=a&Filter.1.Value.10=z&Filter.1.Value.2=b%20c&Names.member.1=x+y").unwrap();
        let filter = params.items("Filter")[0];
        assert_eq!(filter.required("Name").unwrap(), "a");
        assert_eq!(filter.list("Value"), ["b c", "z"]);
        assert_eq!(params.list("Names"), ["x y"]);
    }

    #[test]
    fn an_empty_list_is_distinguished_from_an_absent_one() {
        let params = Params::parse("PolicyNames=").unwrap();
        assert!(params.has("PolicyNames") && params.list("PolicyNames").is_empty());
        assert!(!params.has("Other"));
    }

    #[test]
    fn what_nobody_looked_at_is_named() {
        let params = Params::parse("Action=X&A.1.B=1&C=2&WebIdentityToken=abc").unwrap();
        assert_eq!(params.get("Action"), Some("X"));
        assert_eq!(params.items("A").len(), 1);
        assert_eq!(params.unread(), ["A.1.B", "C", "WebIdentityToken"]);
        assert_eq!(params.summary(1000), "A.1.B=1&C=2&WebIdentityToken=(secret)");
    }

    #[test]
    fn bad_input_is_refused() {
        assert!(Params::parse("a=%zz").is_err());
        assert!(Params::parse("a=%ff").is_err());
        let params = Params::parse("n=x&f=yes").unwrap();
        assert!(params.int("n").is_err() && params.flag("f").is_err() && params.required("none").is_err());
    }
}
