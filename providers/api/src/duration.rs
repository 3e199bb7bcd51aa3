//! Durations in Go's format: `1h30m`, `300ms`, `1.5s`.
//!
//! Flags, the component configuration and cloud configs of existing clusters use this form, and logs and events print
//! it. Behavior of `time.ParseDuration` and `time.Duration.String` (Go standard library, `time/time.go` and
//! `time/format.go`), with one exception: a negative duration is an error, because it has no meaning in any of our
//! settings.
use std::{borrow::Cow, fmt::Write as _, time::Duration};

/// The largest duration in Go's 64-bit nanoseconds, about 292 years. Longer input is an error, as in Go.
pub const MAX: Duration = Duration::from_nanos(MAGNITUDE - 1);

/// Go sums up the magnitude before it applies the sign, so the sum may reach [`MAX`] plus one.
const MAGNITUDE: u64 = 1 << 63;

/// A parse error. Displays as Go's message where Go has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not of the form `[+]<number><unit>…`, or longer than [`MAX`].
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without a unit (other than `0`).
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// An unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// The unit as given.
        unit: String,
        /// The whole input.
        text: String,
    },
    /// A well-formed negative duration.
    #[error("time: negative duration {}: write it without the sign", quote(.0))]
    Negative(String),
}

/// Parses a Go duration: a sequence of decimal numbers with optional fractions and a unit each (`ns`, `us`, `µs`,
/// `ms`, `s`, `m`, `h`), or a bare `0`.
///
/// # Errors
///
/// See [`ParseError`]. A negative zero is zero.
pub fn parse(text: &str) -> Result<Duration, ParseError> {
    let invalid = || ParseError::Invalid(text.to_owned());
    let (negative, unsigned) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => (false, text),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (whole_digits, after_whole) = split_digits(rest);
        let (fraction_digits, after_number) = match after_whole.strip_prefix('.') {
            Some(after_point) => split_digits(after_point),
            None => ("", after_whole),
        };
        if whole_digits.is_empty() && fraction_digits.is_empty() {
            return Err(invalid());
        }
        let whole = leading_int(whole_digits).ok_or_else(invalid)?;
        let (unit_text, after_unit) =
            split_at_first(after_number, |character| character == '.' || character.is_ascii_digit());
        if unit_text.is_empty() {
            return Err(ParseError::MissingUnit(text.to_owned()));
        }
        let unit = nanoseconds_of(unit_text)
            .ok_or_else(|| ParseError::UnknownUnit { unit: unit_text.to_owned(), text: text.to_owned() })?;
        let value = whole
            .checked_mul(unit)
            .and_then(|value| value.checked_add(fraction_of(fraction_digits, unit)))
            .and_then(|value| total.checked_add(value))
            .filter(|value| *value <= MAGNITUDE)
            .ok_or_else(invalid)?;
        total = value;
        rest = after_unit;
    }
    if negative && total > 0 {
        return Err(ParseError::Negative(text.to_owned()));
    }
    if total >= MAGNITUDE {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(total))
}

/// Prints a duration as Go does: `0s`, `1.5s`, `5m0s`, `1h0m0s`, `300ms`, `1.234567ms`, `2µs`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut text = String::new();
    let seconds = duration.as_secs();
    let nanoseconds = u64::from(duration.subsec_nanos());
    if seconds == 0 {
        match nanoseconds {
            0 => text.push_str("0s"),
            1..1_000 => push_decimal(&mut text, nanoseconds, 0, 0, "ns"),
            1_000..1_000_000 => push_decimal(&mut text, nanoseconds / 1_000, nanoseconds % 1_000, 3, "µs"),
            _ => push_decimal(&mut text, nanoseconds / 1_000_000, nanoseconds % 1_000_000, 6, "ms"),
        }
        return text;
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        push_decimal(&mut text, hours, 0, 0, "h");
    }
    if hours > 0 || minutes > 0 {
        push_decimal(&mut text, minutes, 0, 0, "m");
    }
    push_decimal(&mut text, seconds % 60, nanoseconds, 9, "s");
    text
}

fn push_decimal(text: &mut String, whole: u64, fraction: u64, digits: usize, unit: &str) {
    // Writing to a String can't fail.
    let _ = write!(text, "{whole}");
    if fraction > 0 {
        let padded = format!("{fraction:0digits$}");
        let _ = write!(text, ".{}", padded.trim_end_matches('0'));
    }
    text.push_str(unit);
}

fn nanoseconds_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 is the micro sign, U+03BC the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    split_at_first(text, |character| !character.is_ascii_digit())
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.find(stop).and_then(|position| text.split_at_checked(position)).unwrap_or((text, ""))
}

/// The number; 0 for no digits, `None` if it is too large.
fn leading_int(digits: &str) -> Option<u64> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok().filter(|number| *number <= MAGNITUDE) }
}

/// The nanoseconds of a decimal fraction of a unit. Uses Go's floating-point steps, so that `0.3333333333333333333h`
/// is 20 minutes in both; digits beyond 63 bits are dropped in both.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut numerator: u64 = 0;
    let mut scale = 1.0_f64;
    for digit in digits.chars().filter_map(|character| character.to_digit(10)) {
        let Some(next) = numerator
            .checked_mul(10)
            .and_then(|number| number.checked_add(u64::from(digit)))
            .filter(|number| *number <= MAGNITUDE)
        else {
            break;
        };
        numerator = next;
        scale *= 10.0;
    }
    if numerator == 0 {
        return 0;
    }
    let value = to_float(numerator) * (to_float(unit) / scale);
    // The whole part of a float as an integer, without a narrowing cast; below one hour, so it always fits.
    Duration::try_from_secs_f64(value.trunc()).map_or(0, |seconds| seconds.as_secs())
}

#[allow(clippy::cast_precision_loss)] // as Go does; see `fraction_of`
fn to_float(number: u64) -> f64 {
    number as f64
}

/// Quotes like the messages of Go's time package: bytes outside printable ASCII as `\xNN`.
fn quote(text: &str) -> Cow<'static, str> {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_spellings_parse() {
        for (text, nanoseconds) in [
            ("0", 0_u64),
            ("+0", 0),
            ("-0", 0),
            ("-0s", 0),
            ("5s", 5_000_000_000),
            ("30s", 30_000_000_000),
            ("1478s", 1_478_000_000_000),
            ("+5s", 5_000_000_000),
            ("5.0s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("1.0040s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("14s", 14_000_000_000),
            ("15m", 900_000_000_000),
            ("16h", 57_600_000_000_000),
            ("3h30m", 12_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("2m3.4s", 123_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
            ("9223372036854775.807us", 9_223_372_036_854_775_807),
            ("9223372036s854ms775us807ns", 9_223_372_036_854_775_807),
            ("0.100000000000000000000h", 360_000_000_000),
            ("1.9ns", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("x", r#"time: invalid duration "x""#),
            ("-", r#"time: invalid duration "-""#),
            ("+", r#"time: invalid duration "+""#),
            ("s", r#"time: invalid duration "s""#),
            (".", r#"time: invalid duration ".""#),
            ("-.", r#"time: invalid duration "-.""#),
            (".s", r#"time: invalid duration ".s""#),
            ("+.s", r#"time: invalid duration "+.s""#),
            ("3", r#"time: missing unit in duration "3""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1h5", r#"time: missing unit in duration "1h5""#),
            ("5y", r#"time: unknown unit "y" in duration "5y""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            ("1\u{fffd}", r#"time: unknown unit "\xef\xbf\xbd" in duration "1\xef\xbf\xbd""#),
            ("hello \"world\"", r#"time: invalid duration "hello \"world\"""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("9223372036854775810ns", r#"time: invalid duration "9223372036854775810ns""#),
            ("9223372036854775.808us", r#"time: invalid duration "9223372036854775.808us""#),
            ("9223372036854ms775us808ns", r#"time: invalid duration "9223372036854ms775us808ns""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            ("99999999999999999999h", r#"time: invalid duration "99999999999999999999h""#),
            ("-5m", r#"time: negative duration "-5m": write it without the sign"#),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn prints_as_go() {
        for (nanoseconds, text) in [
            (0_u64, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_000, "2µs"),
            (1_234_567, "1.234567ms"),
            (2_200_000, "2.2ms"),
            (300_000_000, "300ms"),
            (1_500_000_000, "1.5s"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (300_000_000_000, "5m0s"),
            (245_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (9_223_372_036_854_775_807, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanoseconds)), text);
        }
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn near_misses_never_panic(text in "[-+]?([0-9.]{0,25}(ns|us|µs|ms|s|m|h|d|µ|)){0,4}") {
            let _ = parse(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn printed_durations_round_trip(nanoseconds in 0..MAGNITUDE) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
