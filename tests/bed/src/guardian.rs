//! A small shell process that briefly outlives the test process, to stop the remaining processes.
//!
//! A static is never dropped, and nothing is dropped after SIGKILL. But the kernel always closes our end of a pipe, and
//! the guardian reads the other end. It needs no privileges, no unsafe code and only a POSIX shell.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// Reads `watch PID` and `forget PID` as lines; at the end of the input it kills all watched processes and deletes the
/// folder in the first argument. The data is no longer needed, so SIGKILL is sufficient.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pids=' '
while read -r verb pid; do
  case $verb in
    watch) pids="$pids$pid " ;;
    forget) pids="${pids%% $pid *} ${pids#* $pid }" ;;
  esac
done
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
for pause in 0 0.2 1; do sleep "$pause"; rm -rf "$1" 2>/dev/null; [ -e "$1" ] || exit 0; done
"#;

#[derive(Debug)]
pub(crate) struct Guardian {
    shell: Child,
}

impl Guardian {
    /// Starts a guardian that deletes `folder` at its end.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "ccm-bed-guardian"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C or a `kill -- -group` that ends the tests must not end their guardian.
            .process_group(0)
            .spawn()
            .context("starting sh as the guardian of the test bed")?;
        Ok(Self { shell })
    }

    pub(crate) fn watch(&mut self, pid: u32) -> anyhow::Result<()> {
        self.send("watch", pid)
    }

    /// Must be called before the process is reaped: afterwards its PID may be reused.
    pub(crate) fn forget(&mut self, pid: u32) -> anyhow::Result<()> {
        self.send("forget", pid)
    }

    fn send(&mut self, verb: &str, pid: u32) -> anyhow::Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the guardian of the test bed is gone")?;
        writeln!(pipe, "{verb} {pid}").context("writing to the guardian of the test bed")
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn watched_processes_die_with_the_pipe_and_forgotten_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let doomed = folder.path().join("data");
        std::fs::create_dir(&doomed).unwrap();
        let (mut first, mut spared, mut last) = (sleeper(), sleeper(), sleeper());
        let mut guardian = Guardian::start(&doomed).unwrap();
        for child in [&first, &spared, &last] {
            guardian.watch(child.id()).unwrap();
        }
        guardian.forget(spared.id()).unwrap();
        drop(guardian);

        assert!(!first.wait().unwrap().success());
        assert!(!last.wait().unwrap().success());
        assert!(spared.try_wait().unwrap().is_none(), "the forgotten process was killed");
        assert!(!doomed.exists());
        spared.kill().unwrap();
        spared.wait().unwrap();
    }
}
