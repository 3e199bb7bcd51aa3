//! Flags of this provider, in addition to those of the program.

use ccm_provider::flag::{Flag, Kind};

use crate::extras::tagging;

/// Whether Fargate nodes that are not Ready get the shutdown taint.
pub(crate) const FARGATE_SHUTDOWN: &str = "aws-fargate-shutdown-taint";

const OWN: Flag = Flag::new(
    "AWS",
    FARGATE_SHUTDOWN,
    Kind::Bool,
    "true",
    "Give Fargate nodes that are not Ready the taint of stopped instances, as the Go program does.",
);

pub(crate) static FLAGS: [Flag; 7] = {
    let [tags, resources, rate, burst, workers, batching] = tagging::FLAGS;
    [OWN, tags, resources, rate, burst, workers, batching]
};

/// The flags as a table in Markdown.
pub(crate) fn reference() -> String {
    let mut text = String::from("| Flag | Default | Meaning |\n| --- | --- | --- |\n");
    for flag in &FLAGS {
        let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
        text.push_str(&format!("| `--{}` | {default} | {} |\n", flag.name, flag.help));
    }
    text
}
