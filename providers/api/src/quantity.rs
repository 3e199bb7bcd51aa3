//! Kubernetes quantities (`10Gi`, `1.5G`, `1e3`, `100m`) rounded up to the units in which clouds sell storage.
//!
//! Behaviour of `kubernetes/cloud-provider` `volume/helpers/rounding.go`; the notation is that of
//! `k8s.io/apimachinery/pkg/api/resource`. All arithmetic is in decimal digits and integers, so nothing is lost to floating
//! point.
use std::fmt;

/// Why a quantity cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not in the notation.
    #[error("{0:?} is not a quantity: expecting a number with an optional suffix, for example 10Gi, 1.5G or 1e9")]
    Invalid(String),
    /// At or above the largest signed 64-bit number.
    #[error("quantity {0} is too great, overflows int64")]
    TooGreat(String),
}

/// What to round up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 1
    Byte,
    /// 1000 bytes
    KB,
    /// 1024 bytes
    KiB,
    /// 1000² bytes
    MB,
    /// 1024² bytes
    MiB,
    /// 1024³ bytes
    GiB,
}

impl Unit {
    /// The size in bytes.
    pub const fn bytes(self) -> i64 {
        match self {
            Self::Byte => 1,
            Self::KB => 1_000,
            Self::KiB => 1 << 10,
            Self::MB => 1_000_000,
            Self::MiB => 1 << 20,
            Self::GiB => 1 << 30,
        }
    }
}

/// A quantity in whole bytes, fractions rounded up; keeps its text for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    /// Rounded towards positive infinity; values beyond any use are cut off at 10³⁰.
    value: i128,
}

/// No number of that many digits fits 64 bits.
const MOST_DIGITS: usize = 30;

impl Quantity {
    /// Parses a quantity: sign, decimal number, and a suffix (`Ki` … `Ei`, `n`, `u`, `m`, `k`, `M` … `E`) or an exponent
    /// (`e3`, `E-3`).
    ///
    /// # Errors
    ///
    /// [`QuantityError::Invalid`]. Values of any size are read; [`Quantity::round_up`] refuses the great ones.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let value = value_of(text).ok_or_else(|| QuantityError::Invalid(text.to_owned()))?;
        Ok(Self { text: text.to_owned(), value })
    }

    /// The number of units that hold the quantity.
    ///
    /// # Errors
    ///
    /// [`QuantityError::TooGreat`], whatever the unit, if the value in bytes doesn't stay below the largest signed 64-bit
    /// number.
    pub fn round_up(&self, unit: Unit) -> Result<i64, QuantityError> {
        let too_great = || QuantityError::TooGreat(self.text.clone());
        let value = i64::try_from(self.value).ok().filter(|value| *value < i64::MAX).ok_or_else(too_great)?;
        let (whole, rest) = (value / unit.bytes(), value % unit.bytes());
        Ok(if rest > 0 { whole + 1 } else { whole })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

/// Parses a quantity and rounds it up.
///
/// # Errors
///
/// See [`QuantityError`].
pub fn round_up(text: &str, unit: Unit) -> Result<i64, QuantityError> {
    Quantity::parse(text)?.round_up(unit)
}

enum Suffix {
    /// A power of two.
    Binary(u32),
    /// A power of ten.
    Decimal(i64),
}

fn suffix_of(text: &str) -> Option<Suffix> {
    Some(match text {
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "" => Suffix::Decimal(0),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        exponent => {
            let number = exponent.strip_prefix(['e', 'E'])?;
            Suffix::Decimal(number.parse().ok()?)
        }
    })
}

fn value_of(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_digit = |character: char| character.is_ascii_digit();
    let after_whole = unsigned.trim_start_matches(is_digit);
    let whole = unsigned.strip_suffix(after_whole)?;
    let (fraction, suffix) = match after_whole.strip_prefix('.') {
        None => ("", after_whole),
        Some(after_point) => {
            let suffix = after_point.trim_start_matches(is_digit);
            (after_point.strip_suffix(suffix)?, suffix)
        }
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (whole, fraction) = (digits(whole), digits(fraction));
    let (magnitude, has_rest) = match suffix_of(suffix)? {
        Suffix::Binary(power) => double(&whole, fraction, power),
        Suffix::Decimal(power) => shift(whole, fraction, power),
    };
    Some(if negative { -magnitude } else { magnitude + i128::from(has_rest) })
}

fn digits(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| byte.wrapping_sub(b'0')).collect()
}

/// The number of these digits, cut off at 10³⁰.
fn number(digits: &[u8]) -> i128 {
    let significant: Vec<u8> = digits.iter().copied().skip_while(|digit| *digit == 0).collect();
    if significant.len() > MOST_DIGITS {
        return 10_i128.pow(30);
    }
    significant.iter().fold(0, |sum, digit| sum * 10 + i128::from(*digit))
}

/// Moves the decimal point; gives the whole part and whether anything is behind it.
fn shift(mut whole: Vec<u8>, mut fraction: Vec<u8>, power: i64) -> (i128, bool) {
    let nonzero = |digits: &[u8]| digits.iter().any(|digit| *digit != 0);
    let places = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
    if power >= 0 {
        let moved = places.min(fraction.len());
        whole.extend(fraction.drain(..moved));
        if nonzero(&whole) {
            // More zeros than this make no difference any more.
            whole.extend(std::iter::repeat_n(0, (places - moved).min(MOST_DIGITS + 1)));
        }
    } else {
        let kept = whole.len().saturating_sub(places);
        fraction.splice(0..0, whole.split_off(kept));
    }
    (number(&whole), nonzero(&fraction))
}

/// Multiplies by a power of two; gives the whole part and whether anything is behind it.
fn double(whole: &[u8], mut fraction: Vec<u8>, power: u32) -> (i128, bool) {
    let mut from_fraction: i128 = 0;
    for _ in 0..power {
        let mut carry = 0;
        for digit in fraction.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            *digit = doubled % 10;
            carry = doubled / 10;
        }
        from_fraction = from_fraction * 2 + i128::from(carry);
    }
    // 10³⁰ times 2⁶⁰ is more than an i128 holds.
    let magnitude = number(whole).min(10_i128.pow(20)) * (1_i128 << power) + from_fraction;
    (magnitude, fraction.iter().any(|digit| *digit != 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> i64 {
        round_up(text, Unit::Byte).unwrap()
    }

    #[test]
    fn every_notation_is_read_exactly() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("+1", 1),
            ("1.", 1),
            (".5", 1),
            ("100m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1n", 1),
            ("0n", 0),
            ("1u", 1),
            ("1k", 1_000),
            ("1.5G", 1_500_000_000),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("1.5e3", 1_500),
            ("1e-3", 1),
            ("15e-1", 2),
            ("1E", 1_000_000_000_000_000_000),
            ("0.0000000000000000001E", 1),
            ("0.000000000000000000001e21", 1),
            ("0e999999999", 0),
            ("1e-999999999", 1),
            ("10Gi", 10 << 30),
            ("1.5Gi", 3 << 29),
            ("0.1Ki", 103),
            ("1Ei", 1 << 60),
            ("0.0000000000000000008673617379884035472059622406959533691406250Ei", 1),
            ("0.0000000000000000008673617379884035472059622406959533691406251Ei", 2),
            ("9223372036854775806", i64::MAX - 1),
            ("000000000000000000000000000000000000001", 1),
        ] {
            assert_eq!(bytes(text), value, "{text}");
        }
    }

    #[test]
    fn units_are_rounded_up() {
        for (text, unit, value) in [
            ("1", Unit::GiB, 1),
            ("0", Unit::GiB, 0),
            ("1Gi", Unit::GiB, 1),
            ("1025Mi", Unit::GiB, 2),
            ("10G", Unit::GiB, 10),
            ("1Gi", Unit::MB, 1_074),
            ("1G", Unit::MiB, 954),
            ("1Mi", Unit::KB, 1_049),
            ("1M", Unit::KiB, 977),
            ("1000k", Unit::MB, 1),
            ("9223372036854775806", Unit::GiB, 1 << 33),
        ] {
            assert_eq!(round_up(text, unit), Ok(value), "{text} {unit:?}");
        }
    }

    #[test]
    fn negative_quantities_round_up_towards_zero() {
        assert_eq!(bytes("-1.5"), -1);
        assert_eq!(bytes("-100m"), 0);
        assert_eq!(round_up("-1.5Gi", Unit::GiB), Ok(-1));
    }

    #[test]
    fn what_64_bits_cannot_hold_is_an_error_naming_the_value() {
        for text in [
            "9223372036854775807",
            "8Ei",
            "10E",
            "1e19",
            "1e999999999999",
            "99999999999999999999999999999999999999999999999Ei",
            "9223372036854775806.5",
        ] {
            for unit in [Unit::Byte, Unit::GiB] {
                let error = round_up(text, unit).unwrap_err();
                assert_eq!(error.to_string(), format!("quantity {text} is too great, overflows int64"));
            }
        }
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in ["", ".", "-", "Gi", "1K", "1gi", "1 Gi", "1Gib", "1e", "1e1.5", "1e3k", "--1", "0x1", "1,5", "٣"]
        {
            assert_eq!(round_up(text, Unit::Byte), Err(QuantityError::Invalid(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "\\PC*", near in "[-+]?[0-9]{0,50}[.]?[0-9]{0,50}([KMGTPE]i?|[numke]|[eE][-+]?[0-9]{0,22})?") {
            for text in [&text, &near] {
                for unit in [Unit::Byte, Unit::GiB] {
                    let _ = round_up(text, unit);
                }
            }
        }

        #[test]
        fn rounding_up_is_the_smallest_that_holds(value in 0..i64::MAX) {
            for unit in [Unit::Byte, Unit::KB, Unit::KiB, Unit::MB, Unit::MiB, Unit::GiB] {
                let units = i128::from(round_up(&value.to_string(), unit).unwrap());
                let size = i128::from(unit.bytes());
                prop_assert!(units * size >= i128::from(value) && (units - 1) * size < i128::from(value));
            }
        }

        #[test]
        fn binary_fractions_agree_with_integers(mebibytes in 0_i64..1 << 40) {
            // A mebibyte is a Gi with ten binary, so ten decimal, places.
            let gibi = format!("{}.{:010}Gi", mebibytes / 1024, mebibytes % 1024 * 9_765_625);
            prop_assert_eq!(round_up(&gibi, Unit::Byte), Ok(mebibytes << 20));
        }
    }
}
