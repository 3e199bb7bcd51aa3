//! `cargo xtask docs`: the pages of the project: style, tables, links, the first page, each event and alert; and the style of the
//! texts of the program.

mod events;
mod links;
mod literals;
mod page;
mod readme;
mod style;
pub(crate) mod table;

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::metadata::Metadata;
use page::Page;

/// Lists all problems, and fails if there are any.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    crate::no_arguments(arguments)?;
    let root = Metadata::read()?.workspace_root;
    let pages = Page::all(&root)?;
    let mut problems: Vec<String> = pages.iter().flat_map(style::problems).collect();
    problems.extend(style::problems_of_texts(&root)?);
    problems.extend(links::problems(&root, &pages));
    problems.extend(readme::problems(&find(&pages, readme::PAGE)?.text));
    problems.extend(events::problems(&events::in_code(&root)?, &find(&pages, events::PAGE)?.text));
    let alerts = read(&root, ALERTS)?;
    problems.extend(without_heading(&alerts, &find(&pages, ALERTS_PAGE)?.text));
    problems.extend(without_runbook(&alerts));
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    println!("docs: {} pages and the texts of the program are well-formed, and the links lead somewhere", pages.len());
    Ok(())
}

const ALERTS: &str = "manifests/charts/ccm/files/alerts.yaml";
const ALERTS_PAGE: &str = "ccm/docs/alerts.md";

/// Alerts without a section of their own, and sections without an alert.
fn without_heading(alerts: &str, page: &str) -> Vec<String> {
    let known: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let missing = known.iter().filter(|name| !headings.contains(name));
    let missing = missing.map(|name| format!("{ALERTS_PAGE}: the alert {name} has no section"));
    let old = headings.iter().filter(|name| !known.contains(name));
    let old = old.map(|name| format!("{ALERTS_PAGE}: there is no alert {name}"));
    missing.chain(old).collect()
}

/// The address of the repository in the manifests: `hack/release.sh` puts the real one in its place.
const PLACEHOLDER: &str = "https://ccm.invalid";

/// Alerts whose `runbook_url` is not their section.
fn without_runbook(alerts: &str) -> Vec<String> {
    let rules = alerts.split("- alert: ").skip(1);
    let name = |rule: &str| rule.lines().next().unwrap_or_default().to_owned();
    let wanted = |name: &str| format!("runbook_url: {PLACEHOLDER}/{ALERTS_PAGE}#{}", name.to_lowercase());
    let missing = rules.filter(|rule| !rule.lines().any(|line| line.trim() == wanted(&name(rule))));
    missing.map(name).map(|name| format!("{ALERTS}: {name} has no {}", wanted(&name))).collect()
}

fn find<'a>(pages: &'a [Page], path: &str) -> anyhow::Result<&'a Page> {
    pages.iter().find(|page| page.path == path).with_context(|| format!("there is no page {path}"))
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_and_sections_are_compared_by_name() {
        let alerts = "  - alert: A\n    expr: x\n  - alert: B\n";
        let page = "# Alerts\n\n## A\n\n### x\n\n## C\n";
        let expected = ["ccm/docs/alerts.md: the alert B has no section", "ccm/docs/alerts.md: there is no alert C"];
        assert_eq!(without_heading(alerts, page), expected);
    }

    #[test]
    fn the_runbook_of_an_alert_is_its_own_section() {
        let url = "runbook_url: https://ccm.invalid/ccm/docs/alerts.md#";
        let alerts = format!("  - alert: OneFails\n    {url}onefails\n  - alert: B\n    {url}bb\n  - alert: C\n");
        let expected = ["b", "c"].map(|one| format!("{ALERTS}: {} has no {url}{one}", one.to_uppercase()));
        assert_eq!(without_runbook(&alerts), expected);
    }
}
