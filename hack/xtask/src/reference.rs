//! `cargo xtask reference`: the generated parts of the pages in `ccm/docs/` and `providers/<cloud>/docs/`, printed by the program itself.

use anyhow::{Context, bail, ensure};

use crate::docs::table;
use crate::metadata::{Metadata, output_of, program};

/// Contains the flags between two markers.
const FLAGS: &str = "ccm/docs/flags.md";
/// Generated completely.
const METRICS: &str = "ccm/docs/metrics.md";
/// Contains a page for each command, named after it, with its help between two markers.
const PAGES: &str = "ccm/docs";
/// The generated parts of the pages of a provider, each with its page.
const PARTS: [(&str, &str); 4] = [
    ("config", "configuration"),
    ("flags", "configuration"),
    ("annotations", "annotations"),
    ("permissions", "permissions"),
];
/// Providers with such pages. The policies of AWS are files, so that its page has no such part.
const PROVIDERS: [(&str, &[(&str, &str)]); 4] =
    [("aws", PARTS.split_at(3).0), ("azure", &PARTS), ("gce", &PARTS), ("openstack", &PARTS)];

/// Writes the pages; with `--check` fails if a page is stale.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [one] if one == "--check" => true,
        _ => bail!("unexpected arguments: {}", arguments.join(" ")),
    };
    let flags = example("reference", &[])?;
    page(FLAGS, check, |old| replace(old, "flags", &flags))?;
    for command in commands()? {
        let help = example("reference", &[&command])?;
        page(&format!("{PAGES}/{command}.md"), check, |old| replace(old, "help", &help))?;
    }
    let metrics = example("metrics", &[])?;
    page(METRICS, check, |_| Ok(metrics.clone()))?;
    for (name, parts) in PROVIDERS {
        let metrics = provider(name, "metrics", &[])?;
        page(&format!("providers/{name}/docs/metrics.md"), check, |_| Ok(metrics.clone()))?;
        for (part, on) in parts {
            let text = provider(name, "reference", &[part])?;
            page(&format!("providers/{name}/docs/{on}.md"), check, |old| replace(old, part, &text))?;
        }
    }
    Ok(())
}

/// The names of the pages with the help of a command; a test of the program says which ones are missing.
fn commands() -> anyhow::Result<Vec<String>> {
    let mut commands = Vec::new();
    for entry in std::fs::read_dir(Metadata::read()?.workspace_root.join(PAGES))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| path.extension().is_some_and(|extension| extension == "md")) else { continue };
        if std::fs::read_to_string(&path)?.contains("<!-- generated: help -->") {
            commands.push(name.to_owned());
        }
    }
    commands.sort();
    Ok(commands)
}

/// The text is generated from the provider's own tables, so no SDK is needed.
fn provider(name: &str, example: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let package = format!("ccm-provider-{name}");
    run(&format!("{name}-{example}"), &["--package", &package, "--no-default-features"], arguments)
}

fn example(name: &str, arguments: &[&str]) -> anyhow::Result<String> {
    run(name, &["--package", "ccm"], arguments)
}

fn run(name: &str, package: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
    let run = [&["run", "--quiet"], package, &["--example", name, "--"]].concat();
    Ok(table::fit(&output_of(program(&format!("examples/{name}"), &run).args(arguments))?))
}

fn page(name: &str, check: bool, make: impl FnOnce(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let path = Metadata::read()?.workspace_root.join(name);
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = make(&old).with_context(|| name.to_owned())?;
    if new == old {
        return Ok(());
    }
    ensure!(!check, "{name} is stale: run `cargo xtask reference` and commit what it writes");
    std::fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

/// The page with this text between the two markers of a part.
fn replace(page: &str, part: &str, text: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- generated: {part} -->\n"), format!("<!-- end of {part} -->"));
    let cut = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = cut.with_context(|| format!("expected the lines {begin:?} and {end:?}"))?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let page = "# A\n<!-- generated: x -->\nold\n<!-- end of x -->\nrest\n";
        let new = replace(page, "x", "new\n").unwrap();
        assert_eq!(new, "# A\n<!-- generated: x -->\nnew\n<!-- end of x -->\nrest\n");
        assert_eq!(replace(&new, "x", "new\n").unwrap(), new);
    }

    #[test]
    fn a_page_without_markers_is_an_error_that_names_them() {
        let error = replace("# A\n", "x", "new").unwrap_err().to_string();
        assert!(error.contains("<!-- generated: x -->"), "{error}");
    }
}
