//! The flags as Markdown: the reference in `README.md`.

use std::fmt::Write as _;

use ccm_provider::flag::{Flag, Kind};

use super::help;
use crate::flags::value;
use crate::program::Program;

/// Tables of all flags of a program, one per section; the last one contains the deprecated flags.
pub fn markdown(program: &Program) -> String {
    let mut text = String::new();
    for section in help::sections(program) {
        let shown = |flag: &&Flag| flag.section == section && !flag.hidden;
        push_table(&mut text, program, section, program.flags.iter().filter(shown).collect());
    }
    let deprecated = program.flags.iter().filter(|flag| flag.deprecated.is_some()).collect();
    push_table(&mut text, program, "Deprecated flags", deprecated);
    text
}

fn push_table(text: &mut String, program: &Program, section: &str, mut flags: Vec<&Flag>) {
    if flags.is_empty() {
        return;
    }
    flags.sort_by_key(|flag| flag.name);
    // Writing to a String cannot fail.
    let _ = write!(text, "\n### {section}\n\n| Flag | Default | Meaning |\n|---|---|---|\n");
    for flag in flags {
        let _ = writeln!(text, "| {} | {} | {} |", name(flag), default(flag), meaning(program, flag));
    }
}

fn name(flag: &Flag) -> String {
    let short = flag.short.map_or_else(String::new, |short| format!("`-{short}`, "));
    let word = flag.kind.as_str();
    let space = if word.is_empty() { "" } else { " " };
    format!("{short}`--{}`{space}{word}", flag.name)
}

fn default(flag: &Flag) -> String {
    let shown = value::normalize(flag.kind, flag.default).map(|values| match flag.kind {
        Kind::List => values.join(","),
        kind => value::display(kind, &values),
    });
    match shown {
        Ok(text) if !text.is_empty() && text != "[]" => format!("`{text}`"),
        _ => String::new(),
    }
}

fn meaning(program: &Program, flag: &Flag) -> String {
    let text = help::description(program, flag).replace('|', "\\|").replace('*', "\\*").replace('\n', "<br>");
    match flag.deprecated {
        Some(instead) if !text.ends_with(instead) => format!("{text} {instead}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_one_row() {
        let program = Program::default();
        let page = markdown(&program);
        for flag in &program.flags {
            let cell = format!("`--{}`", flag.name);
            let rows = page.lines().filter(|line| line.split(" | ").next().is_some_and(|name| name.contains(&cell)));
            assert_eq!(rows.count(), 1, "{}", flag.name);
        }
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 4, "{line}");
        }
    }
}
