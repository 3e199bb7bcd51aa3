//! `completion bash|zsh|fish|powershell`: a shell script that completes commands, flags, their values, and objects.
//!
//! Each script asks the program, with `__complete`, and only puts the answer into the line.

use ccm_kit::document::did_you_mean;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Call, Command, kubeconfig};
use crate::exit::{Failure, Verdict};

pub(super) const NAME: &str = "completion";

pub(super) const COMMAND: Command = Command {
    name: NAME,
    words: "bash | zsh | fish | powershell",
    about: "Prints a script that completes commands, flags and objects in a shell.",
    details: "\
The script asks this program at each completion: for the names of objects, it asks the cluster of the kubeconfig.

  source <(ccm completion bash)      for example in ~/.bashrc",
    flags: &[],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[],
    like_running: false,
    run,
};

/// The shells, each with its script.
pub(super) const SHELLS: [(&str, &str); 4] = [
    ("bash", include_str!("completion/script.bash")),
    ("fish", include_str!("completion/script.fish")),
    ("powershell", include_str!("completion/script.ps1")),
    ("zsh", include_str!("completion/script.zsh")),
];

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let script = match &call.words[..] {
            [shell] => SHELLS.iter().find(|(name, _)| name == shell),
            _ => None,
        };
        let Some((_, script)) = script else {
            let word = call.words.first().map_or("", String::as_str);
            let hint = did_you_mean(word, &SHELLS.map(|(name, _)| name)).unwrap_or_default();
            let text = "completion: expected the name of one shell: bash, zsh, fish or powershell";
            return Err(Failure::error(format!("{text}{hint}")));
        };
        // `kubectl ccm` is the program kubectl-ccm.
        super::print(&script.replace("PROGRAM", &call.program.name.replace(' ', "-")));
        Ok(Verdict::Clean)
    }
    .boxed()
}
