//! `cargo xtask pictures`: SVG files with text for the pages: what commands print, and the map with the steps of a migration.
//!
//! What a command prints comes from files that tests of the program compare with its output, colors included.

mod drawing;
mod terminal;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::metadata::Metadata;

/// Where the pictures are.
const FOLDER: &str = "ccm/docs/pictures";
/// The output of commands: the picture, its title, the file with the output.
const OUTPUTS: [(&str, &str, &str); 3] = [
    ("explain.svg", "$ ccm explain service/shop/web", "ccm/src/commands/explain/tests/broken.ansi"),
    ("plan.svg", "$ ccm plan service/shop/web", "ccm/src/commands/plan/drift.ansi"),
    ("take-over.svg", "$ ccm plan service/default/web", "ccm/tests/it/plan/take-over.ansi"),
];
const ARCHITECTURE: &str = "architecture.svg";

/// Writes them; with `--check` fails if one differs.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [one] if one == "--check" => true,
        _ => bail!("unexpected arguments: {}", arguments.join(" ")),
    };
    let metadata = Metadata::read()?;
    let root = &metadata.workspace_root;
    for (name, title, source) in OUTPUTS {
        let text = std::fs::read_to_string(root.join(source)).with_context(|| format!("cannot read {source}"))?;
        write(root, name, &terminal::svg(title, &text)?, check)?;
    }
    for layer in drawing::CRATES {
        ensure!(metadata.has(layer), "{ARCHITECTURE} shows the crate {layer}, which is not in the workspace");
    }
    write(root, ARCHITECTURE, &drawing::svg(), check)
}

fn write(root: &Path, name: &str, svg: &str, check: bool) -> anyhow::Result<()> {
    let path = root.join(FOLDER).join(name);
    if std::fs::read_to_string(&path).is_ok_and(|old| old == svg) {
        return Ok(());
    }
    ensure!(!check, "{FOLDER}/{name} is stale: run `cargo xtask pictures` and commit what it writes");
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))
}

/// A text in XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
