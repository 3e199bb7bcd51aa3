//! moto, an independent simulation of AWS, as a child process. The behavior suite runs against it and against the
//! simulation of this crate.
//!
//! `hack/moto.sh` installs it; `hack/moto/server.py` serves it with corrections. It is slow with many resources: use
//! fewer than 50 instances.

use crate::cache;
use crate::core::client::send;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

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
    /// Starts a server and waits until it listens. `None`, with a line on stderr, if moto is not installed. With
    /// `CI=true` that is an error.
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
pub fn python() -> io::Result<Option<PathBuf>> {
    let folder = cache::complete(cache_folder(), REQUIREMENTS, "no moto; hack/moto.sh installs it")?;
    Ok(folder.map(|folder| folder.join("bin/python")))
}

/// The installation folder of `hack/moto.sh`.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    cache::folder("moto", "moto", REQUIREMENTS)
}
