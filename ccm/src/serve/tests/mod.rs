//! The server in this process, with short limits, and clients of all kinds.

mod client;
mod hostile;
mod routes;
mod tls;
mod trust;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::flag::FlagValues;
use http::StatusCode;
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio_util::task::AbortOnDropHandle;

use super::answer::{self, Answer};
use super::certs::{Look, Reader};
use super::listener::{Handler, Limits};
use super::{Secured, Serving};

struct Hello;

impl Handler for Hello {
    async fn handle(&self, _: http::Request<Incoming>, _: &[CertificateDer<'static>]) -> (Answer, bool) {
        (answer::text(StatusCode::OK, "ok"), true)
    }
}

/// Flags as the parser returns them.
fn values(flags: &[(&'static str, &[&str])]) -> FlagValues {
    let mut values = FlagValues::default();
    for (name, given) in flags {
        values.insert(name, given.iter().map(|value| (*value).to_owned()).collect(), true);
    }
    values
}

fn serving(flags: &[(&'static str, &[&str])]) -> Serving {
    let mut errors = Vec::new();
    // Port 0 binds any free port; the program itself never binds it.
    let serving = Serving::from_values(&values(flags), [127, 0, 0, 1].into(), 0, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    serving
}

/// A server; `period` is the interval at which it rereads its files.
fn serve<H: Handler>(
    serving: &Serving,
    handler: Arc<H>,
    limits: Limits,
    period: Duration,
) -> (AbortOnDropHandle<()>, SocketAddr) {
    let secured = Secured::bind(serving).unwrap();
    let address = secured.listener.local_addr().unwrap();
    let served = tokio::spawn(secured.serve(handler, None, limits, period));
    (AbortOnDropHandle::new(served), address)
}

/// The log of this thread; the runtimes of these tests have no other.
struct Log {
    file: tempfile::NamedTempFile,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Log {
    fn start() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let subscriber =
            tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(file.reopen().unwrap());
        Self { file, _subscriber: tracing::subscriber::set_default(subscriber.finish()) }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file.path()).unwrap()
    }

    async fn wait_for(&self, what: &str) {
        let seen = async {
            while !self.text().contains(what) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let seen = tokio::time::timeout(client::PATIENCE, seen).await;
        assert!(seen.is_ok(), "{what:?} is not in the log:\n{}", self.text());
    }
}

#[tokio::test]
async fn new_certificate_files_are_taken_and_bad_ones_are_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let serving = serving(&[("cert-dir", &[&path])]);
    let (mut reader, _) = Reader::open(&serving).unwrap();
    let file = |name: &str| folder.path().join(name);
    let (certificate, key) = (file("cloud-controller-manager.crt"), file("cloud-controller-manager.key"));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(reader.look(), Look::Same));

    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    std::fs::write(&certificate, other.cert.pem()).unwrap();
    assert!(matches!(reader.look(), Look::Refused(_)), "the key is that of another certificate");
    assert!(matches!(reader.look(), Look::Same), "reported once");
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    assert!(matches!(reader.look(), Look::New(_)));
    std::fs::remove_file(&key).unwrap();
    let Look::Refused(error) = reader.look() else { panic!("a missing key is an error") };
    assert!(error.contains("cloud-controller-manager.key"), "{error}");
    // If only one of the two files exists, the start fails too and does not overwrite it.
    assert!(Reader::open(&serving).is_err());
}
