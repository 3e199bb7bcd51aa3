//! SIGTERM and SIGINT.

use tokio_util::sync::CancellationToken;

/// The first SIGTERM or SIGINT drains, the second ends the process at once.
pub(super) async fn watch(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        tracing::error!("signals cannot be received: the process ends without draining");
        return;
    };
    let mut next = async || {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    };
    let name = next().await;
    tracing::info!("{name}: ending work in flight; a second signal ends the process at once");
    stop.cancel();
    let name = next().await;
    tracing::warn!("{name} again: ending at once");
    crate::logging::flush_within(std::time::Duration::from_millis(200));
    std::process::exit(1);
}
