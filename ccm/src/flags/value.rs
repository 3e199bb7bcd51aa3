//! The text of a flag's value: validated for its kind, and normalized.
//!
//! Rules and error texts are those of `github.com/spf13/pflag` and Go's `strconv`, `time` and `encoding/csv`, because
//! existing manifests rely on them.

use std::net::IpAddr;

use ccm_provider::duration;
use ccm_provider::flag::Kind;

use crate::logging::{parse_buffer_size, parse_verbosity, parse_vmodule};
use crate::serve::config::SniPair;

/// Validates one occurrence of a flag and returns its values: none, one, or those of a list.
///
/// # Errors
///
/// The error text after `invalid argument "x" for "--flag" flag: `.
pub(crate) fn normalize(kind: Kind, text: &str) -> Result<Vec<String>, String> {
    let one = |value: String| Ok(vec![value]);
    match kind {
        Kind::Bool => one(parse_bool(text)?.to_string()),
        Kind::Int => one(parse_int(text, i64::MIN, i64::MAX)?.to_string()),
        Kind::Int32 => one(parse_int32(text)?.to_string()),
        Kind::Float => one(parse_float(text)?.to_string()),
        Kind::Duration => one(duration::format(duration::parse(text).map_err(|error| error.to_string())?)),
        Kind::Text | Kind::Repeated => one(text.to_owned()),
        Kind::CertKey => {
            SniPair::parse(text)?;
            one(text.to_owned())
        }
        Kind::Ip => ip(text),
        Kind::List => csv(text),
        Kind::Pairs => pairs(text),
        Kind::Ints => text.split(',').map(|item| Ok(parse_int32(item)?.to_string())).collect(),
        Kind::Switches => switches(text),
        Kind::Quantity => {
            parse_buffer_size(text)?;
            one(text.to_owned())
        }
        Kind::Level => one(parse_verbosity(text)?.to_string()),
        Kind::Vmodule => Ok(parse_vmodule(text)?.iter().map(ToString::to_string).collect()),
        Kind::Version => version(text),
    }
}

/// Whether a repeated flag of this kind keeps its earlier values.
pub(crate) fn adds_up(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::List | Kind::Pairs | Kind::Ints | Kind::Repeated | Kind::CertKey | Kind::Switches | Kind::Vmodule
    )
}

/// The value in the log, as printed by the Go program.
pub(crate) fn display(kind: Kind, values: &[String]) -> String {
    match kind {
        Kind::List | Kind::Pairs => {
            format!("[{}]", values.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(","))
        }
        Kind::Ints => format!("[{}]", values.join(",")),
        Kind::Repeated | Kind::CertKey => format!("[{}]", values.join(";")),
        Kind::Switches => {
            let mut sorted = values.to_vec();
            sorted.sort();
            sorted.join(",")
        }
        _ => values.join(","),
    }
}

/// A field of a CSV line.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) || text.starts_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn parse_bool(text: &str) -> Result<bool, String> {
    ccm_provider::flag::go_bool(text).map_err(|_| format!("strconv.ParseBool: parsing {text:?}: invalid syntax"))
}

fn parse_int32(text: &str) -> Result<i64, String> {
    parse_int(text, i32::MIN.into(), i32::MAX.into())
}

/// Like `strconv.ParseInt(text, 0, …)`: `0x`, `0o`, `0b` and a leading `0` set the base, `_` may separate digits.
fn parse_int(text: &str, least: i64, most: i64) -> Result<i64, String> {
    let fail = |why: &str| format!("strconv.ParseInt: parsing {text:?}: {why}");
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (base, digits, prefixed) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..).unwrap_or_default(), true),
        Some("0o") => (8, lower.get(2..).unwrap_or_default(), true),
        Some("0b") => (2, lower.get(2..).unwrap_or_default(), true),
        Some(_) if lower.starts_with('0') => (8, lower.get(1..).unwrap_or_default(), true),
        _ => (10, lower.as_str(), false),
    };
    let separated = digits.strip_prefix('_').filter(|_| prefixed).unwrap_or(digits);
    let groups: Vec<&str> = separated.split('_').collect();
    if groups.iter().any(|group| group.is_empty() || !group.chars().all(|digit| digit.is_digit(base))) {
        return Err(fail("invalid syntax"));
    }
    // The digits are valid: only an overflow can fail.
    let magnitude = i128::from_str_radix(&groups.concat(), base).map_err(|_| fail("value out of range"))?;
    let number = i64::try_from(sign * magnitude).map_err(|_| fail("value out of range"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(fail("value out of range")) }
}

fn parse_float(text: &str) -> Result<f32, String> {
    let fail = |why: &str| format!("strconv.ParseFloat: parsing {text:?}: {why}");
    let number: f32 = text.parse().map_err(|_| fail("invalid syntax"))?;
    let spelled = text.to_ascii_lowercase().contains("inf");
    if number.is_infinite() && !spelled { Err(fail("value out of range")) } else { Ok(number) }
}

/// An empty text sets nothing.
fn ip(text: &str) -> Result<Vec<String>, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    let address: IpAddr = trimmed.parse().map_err(|_| format!("failed to parse IP: {trimmed:?}"))?;
    Ok(vec![address.to_string()])
}

/// One pair is no list: its value may have commas.
fn pairs(text: &str) -> Result<Vec<String>, String> {
    match text.matches('=').count() {
        0 if !text.is_empty() => Err(format!("{text} must be formatted as key=value")),
        1 => Ok(vec![text.trim_matches('"').to_owned()]),
        _ => csv(text),
    }
}

/// One line of comma-separated values, in which quotes protect commas.
fn csv(text: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Ok(fields);
    }
    let mut rest = text;
    loop {
        let at = text.len() - rest.len();
        let (field, after) = match rest.strip_prefix('"') {
            Some(inner) => quoted_field(inner).map_err(|column| {
                format!("parse error on line 1, column {}: extraneous or missing \" in quoted-field", at + 1 + column)
            })?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                if let Some(quote) = field.find('"') {
                    let column = at + quote + 1;
                    return Err(format!("parse error on line 1, column {column}: bare \" in non-quoted-field"));
                }
                (field.to_owned(), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(fields),
        }
    }
}

/// The text up to the closing quote, and the rest; else the column of the error, from 1. The opening quote is already
/// consumed.
fn quoted_field(text: &str) -> Result<(String, &str), usize> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else { return Err(text.len() + 1) };
        field.push_str(before);
        if let Some(next) = after.strip_prefix('"') {
            field.push('"');
            rest = next;
        } else if after.is_empty() || after.starts_with(',') {
            return Ok((field, after));
        } else {
            return Err(text.len() - after.len());
        }
    }
}

/// `A=true,B=false`, each as `A=true`.
fn switches(text: &str) -> Result<Vec<String>, String> {
    let pair = |item: &str| {
        let Some((name, value)) = item.split_once('=') else { return Err(format!("missing bool value for {item}")) };
        let (name, value) = (name.trim(), value.trim());
        let on = parse_bool(value).map_err(|error| format!("invalid value of {name}={value}, err: {error}"))?;
        Ok(format!("{name}={on}"))
    };
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(pair).collect()
}

fn version(text: &str) -> Result<Vec<String>, String> {
    let text = match text {
        "raw" => "raw".to_owned(),
        text if text.starts_with('v') => crate::version::check(text).map(|()| text.to_owned())?,
        text => parse_bool(text)?.to_string(),
    };
    Ok(vec![text])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ok(kind: Kind, text: &str) -> String {
        display(kind, &normalize(kind, text).unwrap_or_else(|error| panic!("{kind:?} {text:?}: {error}")))
    }

    fn error(kind: Kind, text: &str) -> String {
        normalize(kind, text).unwrap_err()
    }

    #[test]
    fn values_are_shown_in_one_form() {
        let rows = [
            (Kind::Bool, "T", "true"),
            (Kind::Int, "0x10", "16"),
            (Kind::Int, "-017", "-15"),
            (Kind::Int, "1_000", "1000"),
            (Kind::Int32, "+5", "5"),
            (Kind::Float, "1e1", "10"),
            (Kind::Float, "0.5", "0.5"),
            (Kind::Duration, "300s", "5m0s"),
            (Kind::Duration, "0", "0s"),
            (Kind::Ip, " ::1 ", "::1"),
            (Kind::Ip, "", ""),
            (Kind::List, "", "[]"),
            (Kind::List, "a,\"b,c\",", "[a,\"b,c\",]"),
            (Kind::List, "*,-route", "[*,-route]"),
            (Kind::List, "\"a\"\"b\"", "[\"a\"\"b\"]"),
            (Kind::Pairs, "a=b,c=d,\"e=f,g\"", "[a=b,c=d,\"e=f,g\"]"),
            (Kind::Pairs, "owners=alice,bob", "[\"owners=alice,bob\"]"),
            (Kind::Pairs, "\"owner=x\"", "[owner=x]"),
            (Kind::Ints, "23,0x18", "[23,24]"),
            (Kind::CertKey, "a,b:x,y", "[a,b:x,y]"),
            (Kind::Switches, " B=0, A=true,,", "A=true,B=false"),
            (Kind::Quantity, "1Ki", "1Ki"),
            (Kind::Level, "4", "4"),
            (Kind::Vmodule, "a=1,,b=2", "a=1,b=2"),
            (Kind::Version, "false", "false"),
        ];
        for (kind, text, expected) in rows {
            assert_eq!(ok(kind, text), expected, "{kind:?} {text:?}");
        }
    }

    #[test]
    fn errors_are_those_of_go() {
        let rows = [
            (Kind::Bool, "no", "strconv.ParseBool: parsing \"no\": invalid syntax"),
            (Kind::Int, "x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (Kind::Int, "", "strconv.ParseInt: parsing \"\": invalid syntax"),
            (Kind::Int, "1__0", "strconv.ParseInt: parsing \"1__0\": invalid syntax"),
            (
                Kind::Int,
                "99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
            (Kind::Int32, "3000000000", "strconv.ParseInt: parsing \"3000000000\": value out of range"),
            (Kind::Float, "x", "strconv.ParseFloat: parsing \"x\": invalid syntax"),
            (Kind::Float, "1e50", "strconv.ParseFloat: parsing \"1e50\": value out of range"),
            (Kind::Duration, "5", "time: missing unit in duration \"5\""),
            (Kind::Ip, "x", "failed to parse IP: \"x\""),
            (Kind::List, "\"a", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            (Kind::List, "a\"b", "parse error on line 1, column 2: bare \" in non-quoted-field"),
            (Kind::Pairs, "a", "a must be formatted as key=value"),
            (Kind::Ints, "a", "strconv.ParseInt: parsing \"a\": invalid syntax"),
            (Kind::CertKey, "x", "expected comma separated certificate and key file paths"),
            (Kind::CertKey, "a,b:", "empty names list is not allowed"),
            (Kind::Switches, "x", "missing bool value for x"),
            (Kind::Switches, "A=x", "invalid value of A=x, err: strconv.ParseBool: parsing \"x\": invalid syntax"),
            (Kind::Level, "x", "strconv.ParseUint: parsing \"x\": invalid syntax"),
            (Kind::Vmodule, "x", "\"x\" does not have the pattern=N format"),
        ];
        for (kind, text, expected) in rows {
            assert_eq!(error(kind, text), expected, "{kind:?} {text:?}");
        }
    }

    proptest! {
        #[test]
        fn normalization_is_idempotent(text in "[-+_,=\"a-z0-9. ]{0,12}") {
            let kinds = [
                Kind::Bool, Kind::Int, Kind::Int32, Kind::Float, Kind::Duration, Kind::Ip, Kind::List, Kind::Ints,
                Kind::CertKey, Kind::Switches, Kind::Quantity, Kind::Level, Kind::Vmodule,
            ];
            for kind in kinds {
                if let Ok(values) = normalize(kind, &text) {
                    // Go's CSV writes one empty field as an empty line, which it parses as no field.
                    if kind == Kind::List && values == [""] {
                        continue;
                    }
                    let again = if kind == Kind::List {
                        // A list is CSV in brackets.
                        let shown = display(kind, &values);
                        normalize(kind, &shown[1..shown.len() - 1])
                    } else {
                        values.iter().map(|value| normalize(kind, value)).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
                    };
                    prop_assert_eq!(again, Ok(values), "{:?} {:?}", kind, text);
                }
            }
        }
    }
}
