//! Parsers of values. A parser returns `Ok(None)` if a value is equivalent to no annotation.

use std::collections::BTreeMap;

use ccm_provider::Severity;
use ccm_provider::address::parse_cidr;
use ccm_provider::source_ranges::SourceRanges;

use crate::document::one_of;

/// The result of a parser.
pub type Parsed<T> = Result<Option<T>, Wrong>;

/// The error of a parser, with a valid example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// On an error the Service is rejected; on a warning the default applies.
    pub severity: Severity,
    /// The message to report.
    pub message: String,
}

impl<S: Into<String>> From<S> for Wrong {
    fn from(message: S) -> Self {
        Self { severity: Severity::Error, message: message.into() }
    }
}

/// Turns the error of a parser into a warning, so that the default applies.
pub fn or_default<T>(parsed: Parsed<T>) -> Parsed<T> {
    parsed.map_err(|Wrong { message, .. }| Wrong {
        severity: Severity::Warning,
        message: format!("{message}; the default is used"),
    })
}

/// Any text; an empty one is `None`.
pub fn text(value: &str) -> Parsed<String> {
    Ok(Some(value.to_owned()).filter(|text| !text.is_empty()))
}

/// Any text; an empty one replaces the default.
pub fn text_or_empty(value: &str) -> Parsed<String> {
    Ok(Some(value.to_owned()))
}

const NO_BOOL: &str = "not a boolean; write \"true\" or \"false\"";

/// The words of Go's `strconv.ParseBool`; an empty text is `None`.
pub fn go_bool(value: &str) -> Parsed<bool> {
    match value {
        "" => Ok(None),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
        _ => Err(NO_BOOL.into()),
    }
}

/// Exactly `true` or `false`; for any other text the default applies.
pub fn exact_bool(value: &str) -> Parsed<bool> {
    or_default(value.parse().map(Some).map_err(|_| NO_BOOL.into()))
}

/// A decimal number of 32 bits; an empty text is invalid.
pub fn number(value: &str) -> Parsed<i32> {
    let wrong = |_| format!("not a whole number from {} to {}; write for example \"10\"", i32::MIN, i32::MAX).into();
    value.parse().map(Some).map_err(wrong)
}

/// A decimal number of 32 bits; an empty text is `None`.
pub fn integer(value: &str) -> Parsed<i32> {
    if value.is_empty() { Ok(None) } else { number(value) }
}

/// Comma-separated items, without surrounding blanks; empty items are dropped.
pub fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Comma-separated [`items`]; an empty list is `None`.
pub fn list(value: &str) -> Parsed<Vec<String>> {
    Ok(Some(items(value).map(str::to_owned).collect::<Vec<_>>()).filter(|list| !list.is_empty()))
}

/// Comma-separated `k=v`, `k=` and `k`; empty keys are dropped. The last of equal keys wins.
pub fn pairs(value: &str) -> Parsed<BTreeMap<String, String>> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        (key.to_owned(), value.to_owned())
    };
    Ok(Some(items(value).map(pair).filter(|(key, _)| !key.is_empty()).collect()))
}

/// One word of a fixed set.
pub fn word<T: Clone>(value: &str, words: &[(&str, T)]) -> Parsed<T> {
    one_of(value, words).map(Some).map_err(Wrong::from)
}

/// Comma-separated networks, without host bits, sorted and deduplicated; an empty list is `None`.
pub fn cidrs(value: &str) -> Parsed<SourceRanges> {
    let one = |item: &str| {
        parse_cidr(item).ok_or_else(|| Wrong::from(format!("{item:?} is not a CIDR; write for example 10.0.0.0/24")))
    };
    let ranges: Result<_, _> = items(value).map(one).collect();
    ranges.map(|ranges| Some(SourceRanges(ranges)).filter(|ranges| !ranges.0.is_empty()))
}
