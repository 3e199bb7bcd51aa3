//! The way of a change through the program, and the steps of a migration.

use std::fmt::Write as _;

use super::escaped;

/// The crates that the picture names.
pub(super) const CRATES: [&str; 4] = ["ccm-runtime", "ccm-controllers", "ccm-provider", "ccm-kit"];

const WIDTH: usize = 880;
/// The steps of a change: what, and the crate.
const WAY: [(&str, &str); 6] = [
    ("watch", CRATES[0]),
    ("store", CRATES[0]),
    ("queue", CRATES[0]),
    ("observe", CRATES[3]),
    ("plan", CRATES[1]),
    ("gate", CRATES[0]),
];
/// The steps of a migration: what runs, whether each program writes.
const STEPS: [(&str, bool, bool); 4] = [
    ("check: ccm check --pre", true, false),
    ("try: ccm --dry-run beside it", true, false),
    ("switch: the lease goes over", false, true),
    ("back: the old manifests", true, false),
];

pub(super) fn svg() -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 330\" width=\"{WIDTH}\" height=\"330\" role=\"img\">\n\
         <title>The way of a change, and the steps of a migration</title>\n<style>\n\
         text {{ font: 14px system-ui, sans-serif; fill: #1f2328; }} .small {{ font-size: 12px; fill: #59636e; }}\n\
         .middle {{ text-anchor: middle; }}\n</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (20, 30), "", "From a change in the cluster to a write in the cloud");
    for (at, (step, layer)) in WAY.iter().enumerate() {
        let x = 20 + at * 142;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"46\" width=\"120\" height=\"52\" rx=\"6\" fill=\"#ddf4ff\" stroke=\"#0969da\"/>"
        );
        text(&mut svg, (x + 60, 68), "middle", step);
        text(&mut svg, (x + 60, 87), "small middle", layer);
        if at + 1 < WAY.len() {
            text(&mut svg, (x + 131, 77), "middle", "→");
        }
    }
    let below = format!(
        "observe asks the cloud for many objects at once, through {}. Only the gate writes, and only for the leader; with --dry-run it logs.",
        CRATES[2]
    );
    text(&mut svg, (20, 124), "small", &below);
    text(&mut svg, (20, 168), "", "A migration, and the way back");
    for (row, name) in ["Go program", "ccm"].iter().enumerate() {
        text(&mut svg, (20, 208 + row * 44), "", name);
    }
    for (at, (step, old, new)) in STEPS.iter().enumerate() {
        let x = 120 + at * 188;
        for (row, writes) in [*old, *new].into_iter().enumerate() {
            let runs = row == 0 && at != 2 || row == 1 && at > 0 && at < 3;
            let (fill, word) = match (writes, runs) {
                (true, _) => ("#aceebb", "leads, writes"),
                (false, true) => ("#fff8c5", "reads only"),
                (false, false) => ("#f6f8fa", "–"),
            };
            let y = 188 + row * 44;
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"180\" height=\"32\" rx=\"6\" fill=\"{fill}\"/>");
            text(&mut svg, (x + 90, y + 21), "middle", word);
        }
        text(&mut svg, (x + 90, 290), "small middle", step);
    }
    text(
        &mut svg,
        (20, 316),
        "small",
        "Names, tags, finalizers and the lease are the same, so that each program finds what the other made.",
    );
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (usize, usize), class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\"{class}>{}</text>", escaped(text));
}
