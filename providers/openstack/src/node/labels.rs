//! Conversion of cloud texts to label values.
//!
//! Upstream: `SanitizeLabel` in `pkg/util/util.go`.

/// Maximum length of a label value.
const LONGEST: usize = 63;

fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.')
}

/// Whether a text is a valid label value as is. The empty text does not count.
pub(crate) fn is_value(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || is_separator(c);
    !text.is_empty() && text.len() <= LONGEST && text.chars().all(inside) && text.trim_matches(is_separator) == text
}

/// Converts a text to a label value: characters that are not allowed become `-`.
///
/// Upstream truncates last, so that a value may end with a separator, which the API server rejects.
pub(crate) fn sanitized(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut is_gap = false;
    for c in text.chars() {
        let allowed = c.is_ascii_alphanumeric() || is_separator(c);
        match (allowed, is_gap) {
            (true, _) => value.push(c),
            (false, false) => value.push('-'),
            (false, true) => {}
        }
        is_gap = !allowed;
    }
    let trimmed = value.trim_matches(is_separator);
    trimmed.get(..LONGEST).unwrap_or(trimmed).trim_end_matches(is_separator).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_with_blanks_and_slashes_becomes_a_valid_label() {
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(17));
        let cut = "a".repeat(62);
        for (zone, label) in [
            ("nova", "nova"),
            ("Zone A/1", "Zone-A-1"),
            ("a  //b", "a-b"),
            (" .zone_1-", "zone_1"),
            ("Zürich", "Z-rich"),
            ("a-/b", "a--b"),
            ("///", ""),
            ("", ""),
            (&*long, &*cut),
        ] {
            assert_eq!(sanitized(zone), label, "{zone}");
            assert!(label.is_empty() || is_value(label), "{label}");
        }
    }

    #[test]
    fn a_label_value_begins_and_ends_with_a_letter_or_digit() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for (text, valid) in [
            ("m1.tiny", true),
            ("1", true),
            (&*longest, true),
            (&*longer, false),
            ("m1 tiny/x", false),
            ("-m1", false),
            ("m1.", false),
            ("größe", false),
            ("", false),
        ] {
            assert_eq!(is_value(text), valid, "{text}");
        }
    }
}
