//! Wraps and clips text.

/// Breaks a text at spaces into lines of at most `width` characters; a longer word becomes one line, cut.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(&clip(word, width));
        length += word_length.min(width);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A paragraph after a head; the following lines are indented to the first.
pub(crate) fn hang(head: &str, text: &str, width: usize) -> Vec<String> {
    let indent = head.chars().count();
    let lines = wrap(text, width.saturating_sub(indent).max(20));
    let prefix = |i: usize| if i == 0 { head.to_owned() } else { " ".repeat(indent) };
    lines.into_iter().enumerate().map(|(i, line)| format!("{}{line}", prefix(i))).collect()
}

/// The first `width` characters; if the text is longer, `…` replaces the last one.
pub(crate) fn clip(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).take(width).collect(),
        false => text.to_owned(),
    }
}

/// Clips or pads to the width.
pub(crate) fn pad(text: &str, width: usize) -> String {
    format!("{:<width$}", clip(text, width))
}

/// A count with its noun: `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks_and_never_exceed_the_width() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh x", 4), ["abc…", "x"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!((clip("äöü", 3).as_str(), clip("äöüx", 3).as_str(), pad("a", 3).as_str()), ("äöü", "äö…", "a  "));
        assert_eq!(clip("abc", 0), "");
    }
}
