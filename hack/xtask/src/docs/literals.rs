//! The texts in quotes in a file of Rust, outside of comments and of the tests at its end.

/// Each with the number of its line, as it is written.
pub(super) fn literals(text: &str) -> Vec<(usize, &str)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['"', '\'', '/'])) {
        let (before, rest) = text.split_at(at + next);
        at = before.len()
            + match rest.as_bytes() {
                [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
                // One character: '"' or '\''.
                [b'\'', b'"', b'\'', ..] | [b'\'', b'\\', ..] => 3,
                [b'"', ..] => {
                    let inner = rest.get(1..).unwrap_or_default();
                    let length = end(before, inner).unwrap_or(inner.len());
                    found.push((before.matches('\n').count() + 1, inner.get(..length).unwrap_or_default()));
                    length + 2
                }
                _ => 1,
            };
    }
    found
}

/// Where a text ends that begins after `before` and a quote; `r#"` needs `"#`.
fn end(before: &str, inner: &str) -> Option<usize> {
    let marks = before.len() - before.trim_end_matches('#').len();
    if before.trim_end_matches('#').ends_with('r') {
        return inner.find(&format!("\"{}", "#".repeat(marks)));
    }
    let mut escaped = false;
    inner.find(|c| {
        let is_end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        is_end
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_characters_are_no_texts_and_raw_ones_end_with_their_marks() {
        let code = "// \"no\"\nf('\"', '\\'', \"a \\\"b\\\"\", 'x: &'static str);\nlet y = r#\"c \"d\"\"#; let z = r\"\\\"; // \"no\"\n\"e \\\n  f\";\n#[cfg(test)]\nmod tests { \"no\" }";
        let expected = [(2, "a \\\"b\\\""), (3, "c \"d\""), (3, "\\"), (4, "e \\\n  f")];
        assert_eq!(literals(code), expected);
    }
}
