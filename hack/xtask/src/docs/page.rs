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
        let (mut fence, mut lines) = (false, Vec::new());
        for (at, text) in self.text.lines().enumerate() {
            if text.trim_start().starts_with("```") {
                fence = !fence;
                continue;
            }
            if !fence {
                lines.push(Line { number: at + 1, text });
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
    fn lines_of_code_are_left_out() {
        let text = "a\n```\ncode\n```\nb\n".to_owned();
        let page = Page { path: "x.md".to_owned(), text };
        let found: Vec<(usize, &str)> = page.lines().iter().map(|line| (line.number, line.text)).collect();
        assert_eq!(found, [(1, "a"), (5, "b")]);
        assert_eq!(without_code("a `b | c` d"), "a `` d");
    }
}
