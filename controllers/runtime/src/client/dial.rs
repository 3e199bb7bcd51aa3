//! One connection at a time: who asks while another is being made waits for that one, and shares it if it is HTTP/2.
//!
//! hyper-util's pool has every request that finds no connection make one of its own. Two that become ready at the same
//! moment are both used, and with a watch on the second one it stays open for minutes.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::Connection as _;
use tower::{BoxError, ServiceExt};

use super::connection::{Dial, Io};

/// How long the pool may take to hand a new connection to all who wait for one. It takes no time at all.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// Makes the connections of one pool.
#[derive(Clone)]
pub(super) struct Dialer {
    dial: Dial,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Held by whoever makes a connection.
    turn: tokio::sync::Mutex<()>,
    shared: Mutex<Shared>,
}

/// The connections that all requests can share.
#[derive(Default)]
struct Shared {
    made: u64,
    /// Lives as long as the newest of them.
    newest: Weak<()>,
}

impl Dialer {
    pub(super) fn new(dial: Dial) -> Self {
        Self { dial, state: Arc::default() }
    }

    pub(super) async fn connect(self, target: Uri) -> Result<Io, BoxError> {
        let mut known = self.made();
        let _turn = loop {
            let turn = self.state.turn.lock().await;
            let made = self.made();
            if made == known {
                break turn;
            }
            // The pool has given it to whoever asked for this one.
            drop(turn);
            tokio::time::sleep(HANDED_OVER).await;
            if self.newest_lives() {
                return Err(io::Error::other("another connection is there by now").into());
            }
            known = made;
        };
        let io = self.dial.clone().oneshot(target).await?;
        if !io.connected().is_negotiated_h2() {
            return Ok(io);
        }
        let life = Arc::new(());
        let mut shared = self.state.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Shared { made: shared.made + 1, newest: Arc::downgrade(&life) };
        Ok(io.with_life(life))
    }

    fn made(&self) -> u64 {
        self.state.shared.lock().unwrap_or_else(PoisonError::into_inner).made
    }

    fn newest_lives(&self) -> bool {
        self.state.shared.lock().unwrap_or_else(PoisonError::into_inner).newest.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use hyper_util::client::legacy::connect::{Connected, Connection};
    use hyper_util::rt::TokioIo;
    use tokio::task::JoinSet;

    use super::super::connection::boxed;
    use super::*;

    const TAKES: Duration = Duration::from_millis(100);

    /// Nothing but what was agreed upon in TLS.
    struct Agreed {
        http2: bool,
        io: TokioIo<tokio::io::DuplexStream>,
    }

    impl hyper::rt::Read for Agreed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: hyper::rt::ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_read(cx, buffer)
        }
    }

    impl hyper::rt::Write for Agreed {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.io).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_shutdown(cx)
        }
    }

    impl Connection for Agreed {
        fn connected(&self) -> Connected {
            if self.http2 { Connected::new().negotiated_h2() } else { Connected::new() }
        }
    }

    /// A dialer of connections that take a while, and how many it has begun.
    fn dialer(http2: bool) -> (Dialer, Arc<AtomicUsize>) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let dial = tower::service_fn(move |_: Uri| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(TAKES).await;
                Ok::<_, io::Error>(Agreed { http2, io: TokioIo::new(tokio::io::duplex(1).0) })
            }
        });
        (Dialer::new(boxed(dial)), begun)
    }

    /// What becomes of five requests at the same time, and how many connections were begun after which time.
    async fn five(http2: bool, keep: bool) -> (usize, usize, Duration) {
        let (dialer, begun) = dialer(http2);
        let (start, mut all, mut kept) = (tokio::time::Instant::now(), JoinSet::new(), Vec::new());
        for _ in 0..5 {
            all.spawn(dialer.clone().connect(Uri::from_static("https://api")));
        }
        let mut connected = 0;
        while let Some(one) = all.join_next().await {
            if let Ok(io) = one.unwrap() {
                connected += 1;
                kept.extend(keep.then_some(io));
            }
        }
        (connected, begun.load(Ordering::SeqCst), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_while_a_connection_is_made_makes_no_other_one() {
        assert_eq!(five(true, true).await, (1, 1, TAKES + HANDED_OVER));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ended_at_once_keeps_nobody_from_the_next_one() {
        let (connected, begun, _) = five(true, false).await;
        assert_eq!((connected, begun), (5, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_cannot_be_shared_are_made_for_each_who_asks() {
        assert_eq!(five(false, true).await, (5, 5, TAKES * 5));
    }
}
