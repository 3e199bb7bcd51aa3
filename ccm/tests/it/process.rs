//! Runs the program and captures its output and exit code.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A running program; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
}

pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    /// stderr without `progress`.
    pub(crate) stderr: String,
    /// Its progress lines, which depend on the load of the machine.
    pub(crate) progress: String,
}

/// Runs the program until it exits.
pub(crate) fn run(args: &[&str]) -> Ended {
    ended(command(args).output().unwrap())
}

/// Runs a command with each of these arguments: it must exit with 1, print nothing, and write this text to stderr.
pub(crate) fn refused(command: &str, more: &[&str], rows: &[(&[&str], &str)]) {
    for (args, text) in rows {
        let ended = run(&[&[command], *args, more].concat());
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
        // No backtrace, no log.
        assert!(ended.stderr.lines().count() < 5, "{args:?}: {}", ended.stderr);
    }
}

/// [`run`] with this text on stdin.
pub(crate) fn run_with(args: &[&str], input: &str) -> Ended {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may exit without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    ended(child.wait_with_output().unwrap())
}

/// The result of a program that the caller ran.
pub(crate) fn ended(output: std::process::Output) -> Ended {
    let stderr = String::from_utf8(output.stderr).unwrap();
    let (progress, stderr) = stderr.split_inclusive('\n').partition(|line| is_progress(line));
    Ended { code: output.status.code(), stdout: String::from_utf8(output.stdout).unwrap(), stderr, progress }
}

/// `listing events … 3s`
fn is_progress(line: &str) -> bool {
    let seconds = line.rsplit_once(" … ").and_then(|(_, took)| took.strip_suffix("s\n"));
    seconds.is_some_and(|seconds| !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()))
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
    // Independent of the environment of the test.
    command
        .args(args)
        .env_remove("HOME")
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null());
    command
}

impl Ended {
    /// The command was not allowed to list nodes, and says which permissions it needs.
    pub(crate) fn assert_may_not_list_nodes(&self) {
        assert_eq!((self.code, &*self.stdout), (Some(1), ""), "{}{}", self.progress, self.stderr);
        self.reports(&["cannot list nodes: ", "needs `get` and `list`"]);
    }

    /// Each of these texts is on stdout.
    #[track_caller]
    pub(crate) fn prints(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.stdout.contains(text), "{text:?} is not in\n{}", self.stdout);
        }
    }

    /// Each of these texts is on stderr.
    #[track_caller]
    pub(crate) fn reports(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in\n{}", self.stderr);
        }
    }
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    pub(crate) fn start_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(args);
        command.envs(environment.iter().copied());
        Self::spawn(command)
    }

    /// Starts another program.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let shared = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = shared.lock();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }

    /// Waits until the log contains a text.
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} is not in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The number of listening TCP ports.
    pub(crate) fn listeners(&self) -> usize {
        let own = format!("/proc/{}", self.child.id());
        let sockets: Vec<String> = std::fs::read_dir(format!("{own}/fd"))
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let tables =
            ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("{own}/net/{table}")).unwrap_or_default());
        let rows = tables.iter().flat_map(|table| table.lines().skip(1));
        let columns = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
        // The fourth column is the state, where 0A is listening, the tenth the socket.
        columns.filter(|row| row[3] == "0A" && sockets.iter().any(|socket| socket == row[9])).count()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Ends the program as a kubelet does; it must exit with 0.
    pub(crate) fn end(&mut self) {
        self.signal("TERM");
        assert_eq!(self.wait(), Some(0), "{}", self.log());
    }

    /// Waits for the exit and returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the program does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
