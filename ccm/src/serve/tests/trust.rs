//! Authorities of client certificates that change while the process runs.

use std::sync::Arc;
use std::time::Duration;

use ccm_runtime::Metrics;
use ccm_test_bed::{Authority, Pki};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Offer, PATIENCE, status};
use super::{Log, values};
use crate::serve::{Authentication, Authorization, Health, Serving, State, bind};

#[tokio::test]
async fn a_new_client_ca_file_counts_at_once_also_for_connections_that_are_open() {
    let log = Log::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let pki = Pki::write(folder.path()).unwrap();
    let (old, new) = (pki.pem(Authority::Client), pki.pem(Authority::FrontProxy));
    let [olds, news] = [Authority::Client, Authority::FrontProxy].map(|authority| {
        let made = pki.sign(authority, "ann", "ann", &["system:masters"], false).unwrap();
        (made.certificate_pem, made.key_pem)
    });
    std::fs::write(&file, old).unwrap();
    let path = file.display().to_string();
    let mut errors = Vec::new();
    let values = values(&[("client-ca-file", &[&path]), ("authentication-skip-lookup", &["true"])]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let serving = Serving::from_values(&values, free.ip(), free.port(), &mut errors);
    let authentication = Authentication::from_values(&values, &mut errors);
    let authorization = Authorization::from_values(&values, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let metrics = Metrics::new();
    let mut listening = bind(&serving, &authentication, &authorization, "test", &metrics).await.unwrap().unwrap();
    listening.look = Duration::from_millis(10);
    let state = State {
        metrics,
        health: Health::new(),
        configz: serde_json::json!({}),
        debug: Arc::new(|| serde_json::json!({})),
        page: Arc::new(String::new),
        profiling: false,
    };
    let _server = AbortOnDropHandle::new(tokio::spawn(listening.serve(state)));

    let connect = async |identity| Offer { identity: Some(identity), ..Offer::default() }.connect(free).await.unwrap();
    let asked = async |identity| status(&mut connect(identity).await, "/metrics").await.unwrap();
    assert_eq!((asked(&olds).await, asked(&news).await), (200, 401));
    let mut open = connect(&olds).await;
    assert_eq!(status(&mut open, "/metrics").await, Some(200));

    // As Kubernetes updates a mounted Secret: by replacing the file.
    let replace = |text: &str| {
        std::fs::write(file.with_extension("new"), text).unwrap();
        std::fs::rename(file.with_extension("new"), &file).unwrap();
    };
    replace(new);
    let taken = async { while asked(&news).await != 200 {} };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    assert_eq!(asked(&olds).await, 401);
    assert_eq!(status(&mut open, "/metrics").await, Some(401));

    replace("no certificate");
    log.wait_for("the authorities of clients stay as they were").await;
    assert_eq!((asked(&olds).await, asked(&news).await), (401, 200));
    replace(&format!("{old}{new}"));
    let taken = async { while asked(&olds).await != 200 {} };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    assert_eq!((asked(&olds).await, asked(&news).await), (200, 200));
}
