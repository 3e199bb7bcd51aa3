//! The port of the component `metrics`.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ccm_test_bed::Bed;
use ccm_test_suite::{Process, deadline};

use crate::rendered::{args, documents, with_components, workload};
use crate::tools::not_run;

/// Whether the port is open.
fn listens(address: &str, port: u16) -> bool {
    TcpStream::connect((address, port)).is_ok()
}

/// If pods only have IPv6 addresses, Prometheus connects to one of these. This test must listen on all addresses,
/// because it tests exactly that.
#[tokio::test(flavor = "multi_thread")]
async fn the_port_is_on_the_addresses_of_both_families() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(text) = with_components(&["metrics"]) else { return };
    if TcpListener::bind("[::1]:0").is_err() {
        return not_run("this machine has no ::1");
    }
    // Free on both: other tests listen on 127.0.0.1 only.
    let ports = std::iter::repeat_with(|| ccm_test_bed::free_port().unwrap());
    let port = ports.take(100).find(|port| TcpListener::bind(("::1", *port)).is_ok()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut args = args(workload(&documents(&text)));
    args.extend(["--cloud-provider=fake".into(), format!("--secure-port={port}"), "--leader-elect=false".into()]);
    args.push(format!("--kubeconfig={}", bed.kubeconfig().display()));
    args.push("--dry-run".into());
    let process = Process::start(env!("CARGO_BIN_EXE_ccm-as-shipped"), &args, &folder.path().join("log"));
    deadline(Duration::from_secs(60), || process.output(), async || listens("127.0.0.1", port)).await;
    assert!(listens("::1", port), "{}", process.output());
}
