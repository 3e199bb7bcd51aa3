//! Unescaped paths and queries.

/// Decodes percent-escapes; `None` for an invalid escape and for invalid UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (bytes.next()?, bytes.next()?);
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            plain.push(digit(high)? * 16 + digit(low)?);
        } else {
            plain.push(byte);
        }
    }
    String::from_utf8(plain).ok()
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
