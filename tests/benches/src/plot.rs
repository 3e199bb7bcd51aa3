//! A line chart as SVG, without dependencies.

use std::fmt::Write as _;
use std::path::Path;

/// One line of the chart.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 3] = ["#1f5fbf", "#bf4f1f", "#3f8f3f"];

/// Writes the chart.
pub(crate) fn write(path: &Path, title: &str, x: &str, y: &str, series: &[Series]) -> std::io::Result<()> {
    let points = || series.iter().flat_map(|s| &s.points);
    let max_x = points().map(|p| p.0).fold(1.0, f64::max);
    let max_y = points().map(|p| p.1).fold(1.0, f64::max) * 1.05;
    let at = |(px, py): (f64, f64)| {
        (MARGIN + px / max_x * (WIDTH - 2.0 * MARGIN), HEIGHT - MARGIN - py / max_y * (HEIGHT - 2.0 * MARGIN))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"16\">{title}</text>",
        WIDTH / 2.0
    );
    for step in 0..=5 {
        let part = f64::from(step) / 5.0;
        let (gx, _) = at((max_x * part, 0.0));
        let (_, gy) = at((0.0, max_y * part));
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<line x1=\"{MARGIN}\" y1=\"{gy}\" x2=\"{}\" y2=\"{gy}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0}</text><text x=\"{gx}\" y=\"{}\" text-anchor=\"middle\">{:.1}</text>",
            WIDTH - MARGIN,
            MARGIN - 6.0,
            gy + 4.0,
            max_y * part,
            HEIGHT - MARGIN + 18.0,
            max_x * part
        );
    }
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let line: Vec<String> = series.points.iter().map(|p| at(*p)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            line.join(" ")
        );
        if let Some((x, y)) = series.points.last().map(|p| at(*p)) {
            let _ = write!(
                svg,
                "<text x=\"{x}\" y=\"{}\" fill=\"{colour}\" text-anchor=\"end\">{}</text>",
                y - 6.0,
                series.name
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x}</text>\
         <text x=\"16\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {})\">{y}</text></svg>",
        WIDTH / 2.0,
        HEIGHT - 16.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    );
    std::fs::write(path, svg)
}
