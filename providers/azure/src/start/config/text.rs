//! Texts that are written without quotes and look like a number or a boolean.

use ccm_kit::document::Value;
use ccm_provider::Finding;
use serde_json::Value as Json;

/// A text. A number, a boolean or nothing is taken as upstream takes it, with a warning.
pub(super) fn text(value: &Value<'_>, findings: &mut Vec<Finding>) -> Option<String> {
    let text = match value.json() {
        Json::Number(number) if number.is_f64() => float(number.as_f64()?),
        json @ (Json::Number(_) | Json::Bool(_)) => json.to_string(),
        Json::Null => String::new(),
        _ => return value.text(),
    };
    // It may have a warning about its spelling.
    if !findings.iter().any(|finding| finding.key == value.path()) {
        findings.push(Finding::warning(value.path(), "taken as this text; write it in quotes").value(&text));
    }
    Some(text)
}

/// As `strconv.FormatFloat(number, 'g', -1, 32)` of Go.
fn float(number: f64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "upstream loses these digits, too")]
    let number = number as f32;
    let written = format!("{number:e}");
    match written.split_once('e').map(|(digits, power)| (digits, power.parse::<i32>())) {
        Some((digits, Ok(power))) if !(-4..6).contains(&power) => format!("{digits}e{power:+03}"),
        _ if number.is_infinite() => if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        _ => number.to_string(),
    }
}
