//! `--help`: the flags in sections, in the format of the Go programs, wrapped to the terminal.

use std::fmt::Write as _;

use ccm_provider::flag::{Flag, Kind};

use crate::flags::{gates, table, value};
use crate::program::Program;

/// If the column is narrower than this, descriptions start on their own line.
const NARROW: usize = 24;
/// The indent of those descriptions.
const NARROW_INDENT: usize = 16;

/// The whole text, for lines of `width` characters; `None` for lines of any length.
pub(crate) fn text(program: &Program, width: Option<usize>) -> String {
    let name = program.name;
    let runs = wrap(&format!("Without a command, {name} runs the controllers."), 0, width.unwrap_or_default());
    format!("{}{runs}\n\n{}", commands(program, width), usage(program, width))
}

/// Its beginning: what the program is, and its commands.
pub(crate) fn commands(program: &Program, width: Option<usize>) -> String {
    let about = wrap(program.about, 0, width.unwrap_or_default());
    let column = program.commands.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 4;
    let line = |(name, about): &(&str, &str)| {
        let about = wrap(about, column, width.unwrap_or_default());
        format!("  {name:0$}{about}\n", column - 2)
    };
    let commands: String = program.commands.iter().map(line).collect();
    let hint = wrap(&format!("`{} COMMAND --help` describes a command.", program.name), 0, width.unwrap_or_default());
    format!("{about}\n\nCommands:\n{commands}\n{hint}\n")
}

/// The text without its first paragraph, which the Go programs print for an invalid argument.
pub(crate) fn usage(program: &Program, width: Option<usize>) -> String {
    let mut text = format!("Usage:\n  {0} [flags]\n  {0} COMMAND [flags]\n", program.name);
    for section in sections(program) {
        let mut flags: Vec<&Flag> =
            program.flags.iter().filter(|flag| flag.section == section && !flag.hidden).collect();
        flags.sort_by_key(|flag| flag.name);
        if !flags.is_empty() {
            let _ = write!(text, "\n{section}:\n\n{}", lines(program, &flags, width));
        }
    }
    text
}

/// The sections in table order. Those of providers and added controllers precede the generic ones.
pub(crate) fn sections(program: &Program) -> Vec<&'static str> {
    let mut own: Vec<&'static str> = Vec::new();
    for flag in table::FLAGS {
        if own.last() != Some(&flag.section) {
            own.push(flag.section);
        }
    }
    let mut added: Vec<&'static str> = Vec::new();
    for flag in &program.flags {
        if !own.contains(&flag.section) && !added.contains(&flag.section) {
            added.push(flag.section);
        }
    }
    let before = own.iter().position(|section| *section == table::WEBHOOK).unwrap_or(own.len());
    own.splice(before..before, added);
    own
}

/// The help text of a flag, with the parts that depend on the program.
pub(crate) fn description(program: &Program, flag: &Flag) -> String {
    let names = |all: &[(&'static str, bool)], what: &str| {
        let list = |keep: fn(&(&'static str, bool)) -> bool| {
            let mut names: Vec<&str> = all.iter().filter(|row| keep(row)).map(|(name, _)| *name).collect();
            names.sort_unstable();
            names.join(", ")
        };
        format!("\nAll {what}: {}\nDisabled-by-default {what}: {}", list(|_| true), list(|(_, on)| !on))
    };
    match flag.name {
        "controllers" => {
            let all: Vec<_> = program.controllers.iter().map(|known| (known.name, known.on_by_default)).collect();
            let only = program.on_by_default.iter();
            let only = only.map(|(provider, name)| format!("\nOn by default with --cloud-provider={provider}: {name}"));
            format!("{}{}{}", flag.help, names(&all, "controllers"), only.collect::<String>())
        }
        "webhooks" => {
            let all: Vec<_> = program.webhooks.iter().map(|webhook| (webhook.name, true)).collect();
            format!("{}{}", flag.help, names(&all, "webhooks"))
        }
        "feature-gates" => format!("{} Options are:\n{}", flag.help, gates::help().join("\n")),
        _ => flag.help.to_owned(),
    }
}

/// The first sentence of a flag's help text.
pub(crate) fn summary(flag: &Flag) -> &'static str {
    flag.help.split_inclusive(". ").next().unwrap_or_default().trim_end_matches([' ', '.'])
}

/// The default in the help; `None` for zero values.
pub(crate) fn default(flag: &Flag) -> Option<String> {
    match flag.kind {
        _ if matches!(flag.default, "" | "0" | "0s" | "false") => None,
        Kind::Text => Some(format!("{:?}", flag.default)),
        kind => Some(
            value::normalize(kind, flag.default).map_or_else(|_| flag.default.into(), |v| value::display(kind, &v)),
        ),
    }
}

pub(crate) fn lines(program: &Program, flags: &[&Flag], width: Option<usize>) -> String {
    let heads: Vec<String> = flags.iter().map(|flag| head(flag)).collect();
    let column = heads.iter().map(|head| head.chars().count()).max().unwrap_or_default() + 3;
    let mut text = String::new();
    for (flag, head) in flags.iter().zip(&heads) {
        let mut about = description(program, flag);
        if let Some(default) = default(flag) {
            let _ = write!(about, " (default {default})");
        }
        let narrow = width.is_some_and(|width| width < column + NARROW);
        let wrapped = wrap(&about, if narrow { NARROW_INDENT } else { column }, width.unwrap_or_default());
        if narrow {
            let _ = writeln!(text, "{head}\n{:NARROW_INDENT$}{wrapped}", "");
        } else {
            let _ = writeln!(text, "{head:column$}{wrapped}");
        }
    }
    text
}

/// `  -v, --v Level`
fn head(flag: &Flag) -> String {
    let short = flag.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    let space = if flag.kind.as_str().is_empty() { "" } else { " " };
    format!("  {short}--{}{space}{}", flag.name, flag.kind.as_str())
}

/// Breaks lines at spaces so that none exceeds `width`, if it is not 0; indents all but the first.
pub(crate) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = if width == 0 { usize::MAX } else { width.saturating_sub(indent).max(1) };
    let margin = format!("\n{:indent$}", "");
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join(&margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_those_of_the_go_program_and_in_its_order() {
        let sections = sections(&Program::default());
        let order = ["Debugging flags", "Leader-migration flags", "Generic flags", "Cloud-node-controller flags"];
        assert_eq!(sections[..4], order);
        assert_eq!(sections.last(), Some(&"Global flags"));
    }

    #[test]
    fn flags_of_others_stand_under_their_own_heading_before_those_of_all_programs() {
        const OTHER: Flag = Flag::new("Cloud flags", "cloud-thing", Kind::List, "a,b", "A thing.");
        let mut program = Program::default();
        program.flags.push(OTHER);
        let text = usage(&program, None);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is missing"));
        assert!(at("\nService-lb-controller flags:\n") < at("\nCloud flags:\n"));
        assert!(at("\nCloud flags:\n") < at("\nSecure serving flags:\n"));
        assert!(text.contains("\nCloud flags:\n\n      --cloud-thing strings   A thing. (default [a,b])\n"), "{text}");
    }

    #[test]
    fn the_commands_stand_first_each_with_one_sentence() {
        let program = Program { commands: crate::commands::summaries().collect(), ..Program::default() };
        let text = text(&program, Some(120));
        let (_, list) = text.split_once("\n\nCommands:\n").unwrap();
        let (list, _) = list.split_once("\n\n").unwrap();
        assert_eq!(list.lines().count(), program.commands.len(), "{list}");
        assert!(text.lines().take(20).any(|line| line.starts_with("  plan  ")), "{text}");
        for line in list.lines() {
            assert!(line.ends_with('.') && line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for width in [40, 80, 200] {
            for line in text(&Program::default(), Some(width)).lines() {
                let words = line.split_whitespace().count();
                assert!(line.chars().count() <= width || words <= 2, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn hidden_flags_are_not_shown_and_lists_of_names_are() {
        let text = text(&Program::default(), None);
        assert!(!text.contains("--node-sync-period") && !text.contains("--allow-untagged-cloud"));
        assert!(text.contains("All controllers: cloud-node-controller, cloud-node-lifecycle-controller, "), "{text}");
        assert!(text.contains("CloudControllerManagerWebhook=true|false (ALPHA - default=false)"));
        assert!(text.contains("  -v, --v Level  ") && text.contains("  -h, --help  "), "{text}");
    }
}
