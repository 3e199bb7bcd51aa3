//! moto, an independent simulation of AWS, as a child process. The behaviour suite runs against it and against the
//! simulation of this crate.
//!
//! `hack/moto.sh` installs it; `hack/moto/server.py` serves it with corrections. It is slow with many resources: use
//! fewer than 50 instances.

use crate::core::client::send;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::{env, fs, io};

/// The versions that `hack/moto.sh` pins.
const REQUIREMENTS: &str = include_str!("../../../hack/moto/requirements.txt");

/// A running server; dropping it stops the process. The server also stops when this process ends.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    // The kernel closes it when this process dies, which stops the server.
    _alive: Option<ChildStdin>,
    address: SocketAddr,
}

impl Moto {
    /// Starts a server and waits until it listens. `None`, with a line on stderr, if moto is not installed.
    ///
    /// # Errors
    /// moto does not start, or is not installed although `CI=true` is set.
    pub fn start() -> io::Result<Option<Self>> {
        let Some(python) = python()? else { return Ok(None) };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/moto/server.py");
        let mut child = Command::new(python)
            .arg("-B")
            .arg(script)
            // moto must never connect to AWS, regardless of the test environment.
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // Returns when the server has printed its line, or has exited.
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Ok(address) = line.trim().parse::<SocketAddr>() else {
            let status = child.wait()?;
            return Err(io::Error::other(format!("hack/moto/server.py ended at once: {status}; it said {line:?}")));
        };
        let moto = Self { child, _alive: stdin, address };
        moto.reset()?;
        Ok(Some(moto))
    }

    /// The address on 127.0.0.1.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`, the endpoint of every service.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Deletes all resources.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn reset(&self) -> io::Result<()> {
        let answer = send("POST", &format!("{}/moto-api/reset", self.url()), &[], "")?;
        if answer.status == 200 { Ok(()) } else { Err(io::Error::other(format!("resetting moto: {answer:?}"))) }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python interpreter with moto; `None` and errors as for [`Moto::start`].
///
/// # Errors
/// None is found although `CI=true` is set.
pub fn python() -> io::Result<Option<PathBuf>> {
    let found = cache_folder().filter(|folder| {
        // The script copies this file last: a folder with other versions, or an incomplete one, is ignored.
        fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|pins| pins == REQUIREMENTS)
    });
    match found {
        Some(folder) => Ok(Some(folder.join("bin/python"))),
        None => not_here("no moto; hack/moto.sh installs it").map(|()| None),
    }
}

/// The installation folder of `hack/moto.sh`.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let version = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("moto=="))?;
    let root = env::var_os("XDG_CACHE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(root.join("ccm").join(format!("moto-{version}")))
}

/// Reports a missing component on stderr, bypassing the test harness, which would capture it; an error if `CI=true` is
/// set.
pub(crate) fn not_here(reason: &str) -> io::Result<()> {
    if env::var("CI").is_ok_and(|value| value == "true") {
        return Err(io::Error::other(reason));
    }
    // Once per reason: a line per test would be noise.
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if crate::core::lock(&REPORTED).insert(reason.to_owned()) {
        io::stderr().write_all(format!("\nNOT RUN: {reason}\n").as_bytes())?;
    }
    Ok(())
}
