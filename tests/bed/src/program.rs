//! Managers as separate processes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "fails a test, as the test would")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Timeout for a program in its own process: real clouds need seconds per change, and more on a busy machine.
pub const LONG: Duration = Duration::from_secs(120);

/// A child process; killed when dropped. Its output is written to a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts a program; stdout and stderr are written to `output`.
    pub fn start(program: &str, args: &[String], output: &Path) -> Self {
        Self::spawn(Command::new(program).args(args), output)
    }

    /// The same with only these environment variables.
    pub fn start_with(program: &str, args: &[String], environment: &[(&str, String)], output: &Path) -> Self {
        let variables = environment.iter().map(|(name, value)| (name, value));
        Self::spawn(Command::new(program).args(args).env_clear().envs(variables), output)
    }

    fn spawn(command: &mut Command, output: &Path) -> Self {
        let file = File::create(output).unwrap();
        let program = command.get_program().to_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, output: output.to_owned() }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal: `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill: {status}");
    }

    /// Its exit status, if it has exited.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Stops it as Kubernetes does.
    pub async fn stop(mut self) {
        self.terminate();
        let status = self.ended(LONG).await;
        assert!(status.success(), "{status}\n{}", self.output());
    }

    /// Waits until it exits by itself.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < limit, "still running after {limit:?}:\n{}", self.output());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has already exited.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Waits in real time until `is_so` returns true; fails with `explain` after `limit`.
pub async fn deadline(limit: Duration, explain: impl Fn() -> String, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < limit, "after {limit:?}: {}", explain());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
