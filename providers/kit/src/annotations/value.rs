//! How values are read. A parser answers `Ok(None)` where a value is the same as no annotation.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ccm_provider::Severity;
use ccm_provider::address::parse_cidr;
use ccm_provider::source_ranges::SourceRanges;

use crate::document::one_of;

/// What a parser answers.
pub type Parsed<T> = Result<Option<T>, Wrong>;

/// What is wrong with a value, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// An error refuses the Service; with a warning the default holds.
    pub severity: Severity,
    /// What to report.
    pub message: String,
}

impl<S: Into<String>> From<S> for Wrong {
    fn from(message: S) -> Self {
        Self { severity: Severity::Error, message: message.into() }
    }
}

/// A value that cannot be read is reported as a warning and does not count.
pub fn or_default<T>(parsed: Parsed<T>) -> Parsed<T> {
    parsed.map_err(|Wrong { message, .. }| Wrong {
        severity: Severity::Warning,
        message: format!("{message}; the default is used"),
    })
}

/// Any text; empty is none.
pub fn text(value: &str) -> Parsed<String> {
    Ok(Some(value.to_owned()).filter(|text| !text.is_empty()))
}

/// Any text; an empty one replaces the default.
pub fn text_or_empty(value: &str) -> Parsed<String> {
    Ok(Some(value.to_owned()))
}

const NO_BOOL: &str = "not a boolean; write \"true\" or \"false\"";

/// The words of Go's `strconv.ParseBool`; empty is none.
pub fn go_bool(value: &str) -> Parsed<bool> {
    match value {
        "" => Ok(None),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
        _ => Err(NO_BOOL.into()),
    }
}

/// Exactly `true` or `false`; with another text the default holds.
pub fn exact_bool(value: &str) -> Parsed<bool> {
    or_default(value.parse().map(Some).map_err(|_| NO_BOOL.into()))
}

/// `true` or `false` in any case; with another text the default holds.
pub fn any_case_bool(value: &str) -> Parsed<bool> {
    exact_bool(&value.to_lowercase())
}

/// Decimal, within bounds; empty is wrong.
pub fn within(value: &str, bounds: RangeInclusive<i32>) -> Parsed<i32> {
    let number = value.parse().ok().filter(|number| bounds.contains(number));
    let (min, max) = bounds.into_inner();
    let wrong =
        || format!("not a whole number from {min} to {max}; write for example \"{}\"", 10.min(max).max(min)).into();
    number.map(Some).ok_or_else(wrong)
}

/// Decimal in 32 bits; empty is wrong.
pub fn number(value: &str) -> Parsed<i32> {
    within(value, i32::MIN..=i32::MAX)
}

/// Decimal in 32 bits; empty is none.
pub fn integer(value: &str) -> Parsed<i32> {
    if value.is_empty() { Ok(None) } else { number(value) }
}

/// Items between commas, without blanks around them; empty ones are dropped.
pub fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// [`items`]; a list without items is none.
pub fn list(value: &str) -> Parsed<Vec<String>> {
    listed(items(value))
}

fn listed<'a>(items: impl Iterator<Item = &'a str>) -> Parsed<Vec<String>> {
    Ok(Some(items.map(str::to_owned).collect::<Vec<_>>()).filter(|list| !list.is_empty()))
}

/// Items between blanks; a list without items is none.
pub fn spaced_list(value: &str) -> Parsed<Vec<String>> {
    listed(value.split_whitespace())
}

/// `k=v`, `k=` and `k` between commas; empty keys are dropped. The last of equal keys wins.
pub fn pairs(value: &str) -> Parsed<BTreeMap<String, String>> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        (key.to_owned(), value.to_owned())
    };
    Ok(Some(items(value).map(pair).filter(|(key, _)| !key.is_empty()).collect()))
}

/// One of a few words.
pub fn word<T: Clone>(value: &str, words: &[(&str, T)]) -> Parsed<T> {
    one_of(value, words).map(Some).map_err(Wrong::from)
}

/// Networks between commas, host bits cleared, sorted, each once; a list without items is none.
pub fn cidrs(value: &str) -> Parsed<SourceRanges> {
    let one = |item: &str| {
        parse_cidr(item).ok_or_else(|| Wrong::from(format!("{item:?} is not a CIDR; write for example 10.0.0.0/24")))
    };
    let ranges: Result<_, _> = items(value).map(one).collect();
    ranges.map(|ranges| Some(SourceRanges(ranges)).filter(|ranges| !ranges.0.is_empty()))
}
