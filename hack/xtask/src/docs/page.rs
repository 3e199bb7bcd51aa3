//! The Markdown files of the workspace, and their lines.

use std::path::Path;

use anyhow::Context as _;

/// A page, with its path in the workspace.
pub(super) struct Page {
    pub(super) path: String,
    pub(super) text: String,
}

/// A line outside of code.
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: usize,
    pub(super) text: &'a str,
    /// Written by a program, from texts that others check.
    pub(super) generated: bool,
}

impl Page {
    pub(super) fn all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let mut pages = Vec::new();
        each(root, &mut |path| {
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(path).display().to_string();
                pages.push(Self { path, text });
            }
            Ok(())
        })?;
        pages.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(pages)
    }

    /// The lines outside of blocks of code.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let (mut fence, mut generated) = (false, self.path.ends_with("METRICS.md"));
        let mut lines = Vec::new();
        for (at, text) in self.text.lines().enumerate() {
            if text.trim_start().starts_with("```") {
                fence = !fence;
                continue;
            }
            if text.starts_with("<!-- generated: ") || text.starts_with("<!-- end of ") {
                generated = text.starts_with("<!-- generated: ");
            }
            if !fence {
                lines.push(Line { number: at + 1, text, generated });
            }
        }
        lines
    }
}

/// A text without what stands in backticks.
pub(super) fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// All files below a folder, except hidden ones and build results.
pub(super) fn each(folder: &Path, visit: &mut dyn FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name == "target" || name.starts_with('.') && name != ".github" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            each(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_left_out_and_generated_ones_are_marked() {
        let text = "a\n```\ncode\n```\n<!-- generated: x -->\nb\n<!-- end of x -->\nc\n".to_owned();
        let page = Page { path: "x.md".to_owned(), text };
        let lines = page.lines();
        let found: Vec<(usize, &str, bool)> =
            lines.iter().filter(|line| line.text.len() == 1).map(|l| (l.number, l.text, l.generated)).collect();
        assert_eq!(found, [(1, "a", false), (6, "b", true), (8, "c", false)]);
        assert_eq!(without_code("a `b | c` d"), "a `` d");
    }
}
