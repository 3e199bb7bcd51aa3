//! Filters and pages, common to all EC2 describe operations.

use super::model::Tags;
use crate::aws::{ApiError, Call, World, Xml};

/// The filters of a call. All filters must match; a filter matches if any of its values does.
#[derive(Debug, Default)]
pub struct Filters(Vec<Filter>);

#[derive(Debug)]
struct Filter {
    name: String,
    values: Vec<String>,
}

impl Filters {
    /// Parses the filters of a call; `names` are the filters that its operation supports.
    pub fn parse(world: &World, call: &Call, names: &[&str]) -> Result<Self, ApiError> {
        let limits = &world.options.limits;
        let mut filters = Vec::new();
        for item in call.params.items("Filter") {
            let name = item.required("Name")?.to_owned();
            let tagged = ["tag-key", "tag-value"].contains(&name.as_str()) || name.starts_with("tag:");
            if !tagged && !names.contains(&name.as_str()) {
                return Err(ApiError::new("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
            let values = item.texts("Value");
            if values.is_empty() {
                return Err(ApiError::new("InvalidParameterValue", format!("The filter '{name}' requires a value")));
            }
            if values.len() > limits.filter_values {
                let text = format!("The maximum number of filter values specified is {}", limits.filter_values);
                return Err(ApiError::new("FilterLimitExceeded", text));
            }
            filters.push(Filter { name, values });
        }
        if filters.len() > limits.filters {
            return Err(ApiError::new("FilterLimitExceeded", "The request uses too many filters."));
        }
        Ok(Filters(filters))
    }

    /// Whether an object matches: `has(name, test)` returns whether any of its values under that name passes the test.
    pub fn pass(&self, tags: &Tags, has: impl Fn(&str, &dyn Fn(&str) -> bool) -> bool) -> bool {
        self.0.iter().all(|filter| {
            let test = |value: &str| filter.values.iter().any(|pattern| wild(pattern, value));
            match filter.name.as_str() {
                "tag-key" => tags.keys().any(|key| test(key)),
                "tag-value" => tags.values().any(|value| test(value)),
                name => match name.strip_prefix("tag:") {
                    Some(key) => tags.get(key).is_some_and(|value| test(value)),
                    None => has(name, &test),
                },
            }
        })
    }

    /// The values of a filter if none of them has a wildcard, so that an index can be used.
    pub fn exact(&self, name: &str) -> Option<&[String]> {
        let filter = self.0.iter().find(|filter| filter.name == name)?;
        let plain = filter.values.iter().all(|value| !value.contains(['*', '?', '\\']));
        plain.then_some(filter.values.as_slice())
    }
}

/// EC2 wildcards: `*` matches any text, `?` one character, `\` escapes the next character. Case-sensitive.
fn wild(pattern: &str, value: &str) -> bool {
    if !pattern.contains(['*', '?', '\\']) {
        return pattern == value;
    }
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => {
            let rest = pattern.get(1..).unwrap_or_default();
            (0..=value.len()).filter_map(|at| value.get(at..)).any(|tail| wild(rest, tail))
        }
        Some('?') => {
            let mut chars = value.chars();
            chars.next().is_some() && wild(pattern.get(1..).unwrap_or_default(), chars.as_str())
        }
        Some(first) => {
            let escaped = if first == '\\' { pattern.get(1..).unwrap_or_default() } else { pattern };
            let mut wanted = escaped.chars();
            let mut chars = value.chars();
            wanted.next() == chars.next() && wild(wanted.as_str(), chars.as_str())
        }
    }
}

/// The objects of a page, and the token of the next page, if any.
pub(super) type Taken<'a, T> = (Vec<(&'a String, T)>, Option<String>);

/// A page of a list ordered by ID.
#[derive(Debug, Clone)]
pub struct Page {
    max: usize,
    /// The last ID of the previous page.
    pub after: Option<String>,
}

impl Page {
    /// Parses `MaxResults` and `NextToken`.
    pub fn parse(call: &Call, range: std::ops::RangeInclusive<i64>) -> Result<Self, ApiError> {
        let asked = call.params.int("MaxResults")?;
        if let Some(asked) = asked.filter(|asked| asked < range.start()) {
            let text = format!("Expecting a value greater than {}.", range.start());
            return Err(ApiError::bad_value("maxResults", &asked.to_string(), &text));
        }
        // unverified: values above the range are reduced by some operations and rejected by others; here they are
        // reduced.
        let max = asked.and_then(|asked| usize::try_from(asked.min(*range.end())).ok()).unwrap_or(usize::MAX);
        let after = match call.params.get("NextToken").filter(|token| !token.is_empty()) {
            None => None,
            Some(token) => Some(open_token(token).ok_or_else(|| {
                // unverified: which of EC2's two codes for invalid tokens is used where.
                ApiError::new("InvalidNextToken", "The specified NextToken is not valid.")
            })?),
        };
        Ok(Page { max, after })
    }

    /// A single page with all objects.
    pub fn whole() -> Self {
        Page { max: usize::MAX, after: None }
    }

    /// Whether the caller requested pagination (`MaxResults` or `NextToken`).
    pub fn asked(call: &Call) -> bool {
        call.params.has("MaxResults") || call.params.has("NextToken")
    }

    /// Selects this page from objects ordered by ID, and the token of the next page, if any.
    pub fn take<'a, T>(&self, objects: impl Iterator<Item = (&'a String, T)>) -> Taken<'a, T> {
        let mut page = Vec::new();
        let mut rest = objects.skip_while(|(id, _)| self.after.as_ref().is_some_and(|after| *id <= after));
        while page.len() < self.max {
            match rest.next() {
                Some(object) => page.push(object),
                None => return (page, None),
            }
        }
        let token = rest.next().and(page.last()).map(|(id, _)| seal_token(id));
        (page, token)
    }
}

/// The answer of a describe operation: the objects of a page, and the token of the next page.
pub(super) fn listing<'a, T>(
    name: &str,
    (found, token): Taken<'a, T>,
    mut item: impl FnMut(&mut Xml, &'a str, T),
) -> Xml {
    let mut xml = Xml::new();
    xml.count(found.len());
    xml.list(name, "item", found, |xml, (id, object)| item(xml, id, object));
    xml.opt("nextToken", token.as_deref());
    xml
}

/// Tokens are opaque: the ID in hexadecimal, so that nobody mistakes them for an ID.
fn seal_token(id: &str) -> String {
    id.bytes().fold("n".to_owned(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        text
    })
}

fn open_token(token: &str) -> Option<String> {
    let digits = token.strip_prefix('n')?.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    String::from_utf8(digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_documented() {
        for (pattern, value, expected) in [
            ("abc", "abc", true),
            ("a*c", "abbc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("*.internal", "ip-1.internal", true),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            ("ABC", "abc", false),
        ] {
            assert_eq!(wild(pattern, value), expected, "{pattern} on {value}");
        }
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let ids: Vec<String> = (0..7).map(|n| format!("i-{n}")).collect();
        let mut page = Page { max: 3, after: None };
        let mut seen = Vec::new();
        loop {
            let (taken, token) = page.take(ids.iter().map(|id| (id, ())));
            seen.extend(taken.into_iter().map(|(id, ())| id.clone()));
            let Some(token) = token else { break };
            page.after = open_token(&token);
        }
        assert_eq!(seen, ids);
        assert_eq!(open_token("garbage"), None);
    }
}
