//! The output of a command as a picture of a terminal. Text stays text.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use super::escaped;

/// Pixels.
const LINE: usize = 20;
const LETTER: usize = 8;
const MARGIN: usize = 16;
/// The height of the title.
const TITLE: usize = 36;

/// A part of a line in one style.
struct Span<'a> {
    class: &'static str,
    text: &'a str,
}

pub(super) fn svg(title: &str, output: &str) -> anyhow::Result<String> {
    let lines: Vec<Vec<Span<'_>>> = output.lines().map(spans).collect::<anyhow::Result<_>>()?;
    let columns = |line: &Vec<Span<'_>>| line.iter().map(|span| span.text.chars().count()).sum::<usize>();
    let columns = lines.iter().map(columns).max().unwrap_or_default().max(title.chars().count());
    let (width, height) = (columns * LETTER + 2 * MARGIN, lines.len() * LINE + TITLE + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<style>\n\
         text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d6dbe3; white-space: pre; }}\n\
         .red {{ fill: #ff7b72; }} .green {{ fill: #7ee787; }} .yellow {{ fill: #e3b341; }}\n\
         .bold {{ font-weight: bold; }} .dim {{ fill: #8b949e; }}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" class=\"dim\">{}</text>\n",
        escaped(title),
        escaped(title)
    );
    for (at, line) in lines.iter().enumerate() {
        let y = TITLE + (at + 1) * LINE - LINE / 4;
        let mut column = 0;
        for span in line.iter().filter(|span| !span.text.is_empty()) {
            let class = if span.class.is_empty() { String::new() } else { format!(" class=\"{}\"", span.class) };
            let letters = span.text.chars().count();
            // Fonts differ in width: the length is given, so that columns stay aligned.
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\"{class} textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>",
                MARGIN + column * LETTER,
                letters * LETTER,
                escaped(span.text)
            );
            column += letters;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The parts of a line between its escape sequences.
fn spans(line: &str) -> anyhow::Result<Vec<Span<'_>>> {
    let mut pieces = line.split('\u{1b}');
    let mut spans = vec![Span { class: "", text: pieces.next().unwrap_or_default() }];
    for piece in pieces {
        let rest = piece.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let (code, text) = rest.with_context(|| format!("an unknown escape sequence in {line:?}"))?;
        let class = match code {
            "0" => "",
            "1" => "bold",
            "2" => "dim",
            "31" => "red",
            "32" => "green",
            "33" => "yellow",
            _ => bail!("an unknown color {code} in {line:?}"),
        };
        spans.push(Span { class, text });
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_become_classes_and_text_stays_text() {
        let svg = svg("$ x", "  \u{1b}[31m×\u{1b}[0m a < b\n").unwrap();
        assert!(svg.contains(" class=\"red\" textLength=\"8\" lengthAdjust=\"spacingAndGlyphs\">×</text>"), "{svg}");
        assert!(svg.contains("> a &lt; b</text>"), "{svg}");
        assert!(svg.contains("<text x=\"40\" "), "the third column: {svg}");
    }

    #[test]
    fn an_unknown_sequence_is_an_error() {
        assert!(svg("x", "\u{1b}[35mx").is_err() && svg("x", "\u{1b}]0;t").is_err());
    }
}
