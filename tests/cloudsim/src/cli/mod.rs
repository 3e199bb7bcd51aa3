//! The command line: common flags, and the flags of each cloud.

pub(crate) mod aws;
pub(crate) mod azure;
pub(crate) mod gce;
pub(crate) mod openstack;

use serde::de::DeserializeOwned;
use std::io::Read;

/// The flags of all clouds.
#[derive(Debug, Default)]
pub(crate) struct Common {
    port: Option<u16>,
    admin_port: Option<u16>,
    until_eof: bool,
}

impl Common {
    /// Parses a common flag; a file of options replaces the current options.
    fn takes<O: DeserializeOwned>(&mut self, flag: &str, options: &mut O) -> Result<bool, String> {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let number = || value.parse::<u16>().map_err(|_| format!("{flag}: not a port number"));
        match name {
            "--port" => self.port = Some(number()?),
            "--admin-port" => self.admin_port = Some(number()?),
            "--options" => {
                *options = serde_json::from_str(&file(value)?).map_err(|error| format!("{value}: {error}"))?;
            }
            "--until-eof" => self.until_eof = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns when the process must stop.
    fn wait(&self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(stopped(self.until_eof)).map_err(|error| error.to_string())
    }
}

fn file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

async fn stopped(until_eof: bool) -> std::io::Result<()> {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    if until_eof {
        std::thread::spawn(move || {
            // End of input and an error both mean that the parent process has exited.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(ended);
        });
    } else {
        // Never dropped, so that `end` never resolves.
        std::mem::forget(ended);
    }
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
        _ = end => Ok(()),
    }
}
