//! Writes to ports.
//!
//! Routes and Services change different fields of the same ports, at the same time on a new cluster, and Neutron
//! rejects a change of a port that has changed since it was read. So this process serializes its writes to a port and
//! bases each one on the result of the previous one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::network::Port;
use super::operation::PORT_UPDATE;
use super::session::Message;
use super::{ApiError, Client};

/// Maximum number of writes of a port that other programs change in between.
const TRIES: u32 = 5;
/// A writer whose request hangs is not waited for any longer: Neutron rejects a change of an older revision.
const TURN: Duration = Duration::from_secs(10);
/// Plans from older reads have ended after this time.
const KEPT: Duration = Duration::from_secs(1800);

/// A port after the last write, locked by the current writer.
type Turn = Arc<tokio::sync::Mutex<Option<Port>>>;

/// The written ports, with the time of the last request for each.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<String, (Instant, Turn)>>);

impl Turns {
    fn of(&self, port: &str) -> Turn {
        let now = Instant::now();
        let mut turns = self.0.lock();
        if !turns.contains_key(port) {
            turns.retain(|_, (asked, turn)| now - *asked < KEPT || Arc::strong_count(turn) > 1);
        }
        let (asked, turn) = turns.entry(port.to_owned()).or_insert_with(|| (now, Turn::default()));
        *asked = now;
        turn.clone()
    }
}

impl Client {
    /// Changes a port. `change` returns the fields to write for the current port; `None`: nothing to do. It is called
    /// again if another program changed the port in between. Returns `false` if the port is gone.
    pub(crate) async fn change_port(
        &self,
        read: &Port,
        change: impl Fn(&Port) -> Option<Value> + Send + Sync,
    ) -> Result<bool, ApiError> {
        let turn = self.turns.of(&read.id);
        let mut last = match read.revision_number {
            Some(_) => tokio::time::timeout(TURN, turn.lock()).await.ok(),
            None => Some(turn.lock().await),
        };
        let mut port = match last.as_mut().and_then(|last| last.take()) {
            Some(written) if written.revision_number > read.revision_number => written,
            _ => read.clone(),
        };
        let mut tries = 1;
        loop {
            let Some(fields) = change(&port) else {
                if let Some(last) = &mut last {
                    **last = Some(port);
                }
                return Ok(true);
            };
            match self.update_port(&port, fields).await {
                Ok(written) => {
                    if let Some(last) = &mut last {
                        **last = written;
                    }
                    return Ok(true);
                }
                Err(error) if error.status == Some(412) && tries < TRIES => {
                    let Some(fresh) = self.port(&port.id).await? else { return Ok(false) };
                    (port, tries) = (fresh, tries + 1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a port if it has not changed since it was read. Returns the new port if the answer has it.
    async fn update_port(&self, port: &Port, fields: Value) -> Result<Option<Port>, ApiError> {
        let message = Message {
            path: format!("ports/{}", port.id),
            body: Some(json!({ "port": fields })),
            revision: port.revision_number,
        };
        let answer = self.write(PORT_UPDATE, &message).await;
        // Also after an error: the answer may be lost.
        *self.ports_written.lock() = Some(Instant::now());
        Ok(answer?.get_mut("port").and_then(|port| serde_json::from_value(port.take()).ok()))
    }
}
