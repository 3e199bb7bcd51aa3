//! Links within the project: the file and the heading exist. Links to the internet are not followed.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::page::{Page, without_code};

pub(super) fn problems(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in pages {
        for line in page.lines() {
            for target in targets(&without_code(line.text)) {
                if let Some(reason) = broken(root, pages, &page.path, &target) {
                    problems.push(format!("{}:{}: {target}: {reason}", page.path, line.number));
                }
            }
        }
    }
    problems
}

/// The targets of `[text](target)`.
fn targets(line: &str) -> Vec<String> {
    let rest = line.split("](").skip(1);
    rest.filter_map(|rest| Some(rest.split_once(')')?.0.split(' ').next()?.to_owned())).collect()
}

fn broken(root: &Path, pages: &[Page], from: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = match file {
        "" => from.to_owned(),
        file => match normal(&Path::new(from).parent().unwrap_or(Path::new("")).join(file)) {
            Some(path) => path,
            None => return Some("it leaves the repository"),
        },
    };
    if !root.join(&path).exists() {
        return Some("there is no such file");
    }
    let heading = heading?;
    let page = pages.iter().find(|page| page.path == path);
    let known = page.is_some_and(|page| slugs(page).contains(heading));
    (!known).then_some("there is no such heading")
}

/// The path without `..`; nothing if it leads out of the root.
fn normal(path: &Path) -> Option<String> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => normal.pop().then_some(())?,
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal.to_str().map(str::to_owned)
}

/// The anchors that a forge gives the headings of a page.
fn slugs(page: &Page) -> BTreeSet<String> {
    let mut slugs = BTreeSet::new();
    for line in page.lines() {
        let Some(title) = line.text.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(title) = title.strip_prefix(' ') else { continue };
        let kept = title.trim().to_lowercase();
        let kept: String = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect();
        let slug = kept.replace(' ', "-");
        let again = (1..).map(|number| format!("{slug}-{number}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|slug| !slugs.contains(slug));
        slugs.extend(free);
    }
    slugs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_headings() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = |path: &str, text: &str| Page { path: path.to_owned(), text: text.to_owned() };
        let text = "## `plan`, and more\n## Twice\n## Twice\n[a](#plan-and-more) [b](#twice-1) [c](#twice-2)\n\
             [d](../Cargo.toml) [i](../../x.md) [e](gone.md) [f](https://example.com/x) `[g](no)`\n";
        let found = problems(root, &[page("src/x.md", text)]);
        // The page itself is only in memory.
        let of = |target: &str| found.iter().any(|problem| problem.contains(&format!(" {target}: ")));
        assert!(found.iter().any(|problem| problem.ends_with("../../x.md: it leaves the repository")), "{found:?}");
        assert!(of("gone.md") && !of("../Cargo.toml") && !of("https://example.com/x") && !of("no"), "{found:?}");
        let known = slugs(&page("x.md", text));
        assert_eq!(known.into_iter().collect::<Vec<_>>(), ["plan-and-more", "twice", "twice-1"]);
    }
}
