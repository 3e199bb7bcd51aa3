//! The network between a manager and the in-memory API server, with faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccm_test_apiserver::{Closed, Handler};
use http::Request;
use http_body_util::BodyExt as _;

/// Whether the API server is reachable. A handle: clones act on the same network.
#[derive(Debug, Clone, Default)]
pub struct Network {
    down: Arc<AtomicBool>,
    explosive: Arc<AtomicBool>,
}

impl Network {
    /// Breaks or restores it. Requests fail at once while it is broken; open watches are not affected (see
    /// [`crate::Rig::set_api_gone`], which ends them too).
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Makes tasks panic when they read a watch of nodes.
    pub fn panic_in_watches(&self) {
        self.explosive.store(true, Ordering::SeqCst);
    }

    /// Whether it is broken.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }
}

/// A client in the same process as the API server; its requests need all these networks.
pub(crate) fn client(handler: Handler, networks: [Network; 2]) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (handler, networks) = (handler.clone(), networks.clone());
        let watches_nodes = request.uri().path() == "/api/v1/nodes";
        async move {
            if networks.iter().any(Network::is_down) {
                return Err(Closed);
            }
            let answer = handler.call(request).await;
            // A response does not arrive if the network is down when it is sent.
            if networks.iter().any(Network::is_down) {
                return Err(Closed);
            }
            answer.map(|answer| {
                answer.map(|body| {
                    let explodes = move || networks.iter().any(|network| network.explosive.load(Ordering::SeqCst));
                    body.map_frame(move |frame| {
                        assert!(!watches_nodes || !explodes(), "the test wants this panic");
                        frame
                    })
                    .boxed_unsync()
                })
            })
        }
    });
    kube::Client::new(service, "default")
}
