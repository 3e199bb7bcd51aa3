//! The panels with their series as one picture. Text stays text.

use std::fmt::Write as _;

use super::panels::{Cell, Panel, Series};
use crate::pictures::escaped;

/// Pixels of a cell of the dashboard, which is 24 wide.
const COLUMN: u16 = 50;
const ROW: u16 = 26;
/// Around the drawing in a panel: above for the title, below for the times and the legend.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const ABOVE: f64 = 34.0;
const BELOW: f64 = 50.0;
const COLORS: [&str; 7] = ["#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#57606a"];
/// Of a letter of the legend, about.
const LETTER: f64 = 6.5;

/// A rectangle in pixels.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub(super) fn svg(panels: &[Panel], time: (f64, f64), trouble: (f64, f64)) -> String {
    let bottom = panels.iter().map(|panel| panel.grid_pos.y + panel.grid_pos.h).max().unwrap_or_default();
    let (width, height) = (24 * COLUMN, bottom * ROW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>The dashboard while a zone is lost and calls are throttled (shaded)</title>\n<style>\n\
         text {{ font: 11px system-ui, sans-serif; fill: #59636e; }} .title {{ font-size: 13px; fill: #1f2328; }}\n\
         .row {{ font-size: 15px; font-weight: bold; fill: #1f2328; }} .right {{ text-anchor: end; }}\n\
         polyline {{ fill: none; stroke-width: 1.5; }}\n</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for panel in panels {
        let Cell { x, y, w, h } = panel.grid_pos;
        let [x, y, width, height] = [x * COLUMN, y * ROW, w * COLUMN, h * ROW].map(f64::from);
        if panel.targets.is_empty() {
            text(&mut svg, (x + 8.0, y + 18.0), "row", &panel.title);
        } else {
            draw(
                &mut svg,
                panel,
                Area { x: x + 3.0, y: y + 3.0, width: width - 6.0, height: height - 6.0 },
                time,
                trouble,
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &Panel, area: Area, (from, to): (f64, f64), trouble: (f64, f64)) {
    let Area { x, y, width, height } = area;
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"#ffffff\" stroke=\"#d1d9e0\"/>"
    );
    text(svg, (x + 10.0, y + 20.0), "title", &panel.title);
    let inner = Area { x: x + LEFT, y: y + ABOVE, width: width - LEFT - RIGHT, height: height - ABOVE - BELOW };
    let mut all: Vec<&Series> = panel.targets.iter().flat_map(|target| &target.series).collect();
    all.sort_by(|a, b| top(b).total_cmp(&top(a)));
    let most = all.first().map_or(0.0, |series| top(series));
    let most = if most > 0.0 { most } else { 1.0 };
    let at = |time: f64| inner.x + (time - from) / (to - from).max(1.0) * inner.width;
    let level = |value: f64| inner.y + inner.height * (1.0 - value.max(0.0) / most);
    let (begin, end) = (at(trouble.0), at(trouble.1));
    let _ = writeln!(
        svg,
        "<rect x=\"{begin:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#fff1e5\"/>",
        inner.y,
        end - begin,
        inner.height
    );
    for (value, y) in [(most, inner.y), (0.0, inner.y + inner.height)] {
        let right = inner.x + inner.width;
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#d1d9e0\"/>",
            inner.x
        );
        text(svg, (inner.x - 6.0, y + 4.0), "right", &number(value, panel.unit()));
    }
    text(svg, (inner.x, inner.y + inner.height + 14.0), "", "0 s");
    text(svg, (inner.x + inner.width, inner.y + inner.height + 14.0), "right", &format!("{:.0} s", to - from));
    for (series, color) in all.iter().zip(COLORS.into_iter().cycle()) {
        let points: Vec<String> =
            series.points.iter().map(|(time, value)| format!("{:.1},{:.1}", at(*time), level(*value))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" stroke=\"{color}\"/>", points.join(" "));
    }
    legend(svg, &all, (x + 10.0, y + height - 10.0), width);
}

/// The names of the series with the highest values, as many as there is room for, with their colors.
fn legend(svg: &mut String, all: &[&Series], (x, y): (f64, f64), width: f64) {
    let mut room = width;
    let mut fits = |series: &Series| {
        // With the dot, two blanks, and the number of the others.
        room -= series.name.chars().map(|_| LETTER).sum::<f64>() + 3.0 * LETTER;
        room > 10.0 * LETTER
    };
    let named: Vec<_> = all.iter().zip(COLORS).take_while(|(series, _)| fits(series)).collect();
    let names = named.iter().filter(|(series, _)| !series.name.is_empty());
    let names = names.map(|(series, color)| format!("<tspan fill=\"{color}\">●</tspan> {} ", escaped(&series.name)));
    let mut names: String = names.collect();
    if named.len() < all.len() {
        let _ = write!(names, "and {} more", all.len() - named.len());
    }
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{names}</text>");
}

fn top(series: &Series) -> f64 {
    series.points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
}

/// A value in the unit of the dashboard.
fn number(value: f64, unit: &str) -> String {
    let digits = if value == 0.0 || value >= 10.0 { 0 } else { 2 };
    match unit {
        "s" if value > 0.0 && value < 0.1 => format!("{:.1} ms", value * 1000.0),
        "s" => format!("{value:.digits$} s"),
        "ops" => format!("{value:.digits$}/s"),
        _ => format!("{value:.digits$}").replace(".00", ""),
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{}</text>", escaped(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::panels::read;

    #[test]
    fn a_panel_has_its_title_its_highest_value_and_its_series() {
        let dashboard = r#"{"panels": [{"id": 1, "title": "Row", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}},
            {"id": 2, "title": "A < B", "gridPos": {"x": 12, "y": 1, "w": 12, "h": 8},
             "fieldConfig": {"defaults": {"unit": "ops"}}, "targets": [{"expr": "x", "legendFormat": "{{call}}"}]}]}"#;
        let mut panels = read(dashboard).unwrap();
        let answer = r#"[{"metric": {"call": "List"}, "values": [[100, "0"], [110, "2.5"]]}]"#;
        panels.iter_mut().flat_map(|panel| &mut panel.targets).for_each(|target| target.take(answer).unwrap());
        let svg = svg(&panels, (100.0, 110.0), (102.0, 105.0));
        for part in ["class=\"row\">Row<", ">A &lt; B<", ">2.50/s<", "</tspan> List ", ">10 s<"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // From the lower left to the upper right.
        assert!(svg.contains("<polyline points=\"659.0,181.0 1181.0,63.0\""), "{svg}");
    }

    #[test]
    fn values_have_their_units() {
        let expected = [
            (0.002, "s", "2.0 ms"),
            (12.3, "s", "12 s"),
            (0.5, "ops", "0.50/s"),
            (4.0, "short", "4"),
            (0.0, "s", "0 s"),
        ];
        for (value, unit, text) in expected {
            assert_eq!(number(value, unit), text);
        }
    }
}
