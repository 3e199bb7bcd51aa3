//! Unescaped paths and queries.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Decodes percent-escapes; `None` for an invalid escape and for invalid UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    // The library leaves an invalid escape as it is.
    let is_valid = |after: &[u8]| after.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let valid = text.as_bytes().split(|byte| *byte == b'%').skip(1).all(is_valid);
    valid.then(|| percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)).flatten()
}

/// Names and values of a query. Invalid pairs are ignored, as in Go.
pub(super) fn query(text: &str) -> impl Iterator<Item = (String, String)> {
    let part = |text: &str| decode(&text.replace('+', " "));
    text.split('&').filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((part(name)?, part(value)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_bad_ones_are_refused() {
        assert_eq!(decode("/a%2Fb%c3%a4c").as_deref(), Some("/a/bäc"));
        assert_eq!(decode("plain").as_deref(), Some("plain"));
        for bad in ["%", "%4", "%zz", "%ff", "a%4\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_query_is_names_and_values() {
        let read = |text: &str| query(text).collect::<Vec<_>>();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read("verbose&exclude=a+b&exclude=%41"),
            [pair("verbose", ""), pair("exclude", "a b"), pair("exclude", "A")]
        );
        assert_eq!(read("&&x=%zz"), []);
    }
}
