//! Prints the reference of the flags, or the help of the command that is named, for the pages in `docs/`.

/// The width of the pages.
const WIDTH: usize = 120;

fn main() {
    match std::env::args().nth(1) {
        None => print!("{}", ccm::options::reference::markdown(&ccm::Program::default())),
        Some(name) => {
            let help = ccm::command_reference(&name, WIDTH).unwrap_or_default();
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            println!("```text\n{}\n```", lines.join("\n").trim_end());
        }
    }
}
