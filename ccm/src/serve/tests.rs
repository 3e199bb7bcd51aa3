//! The server in this process, with short limits, and clients that misbehave.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::flag::FlagValues;
use http::StatusCode;
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
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

/// Flags as the parser leaves them.
fn serving(flags: &[(&'static str, &str)]) -> Serving {
    let mut values = FlagValues::default();
    for (name, value) in flags {
        values.insert(name, vec![(*value).to_owned()], true);
    }
    let mut errors = Vec::new();
    // Port 0 is bound to any that is free; the program never binds it.
    let serving = Serving::from_values(&values, [127, 0, 0, 1].into(), 0, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    serving
}

fn start(limits: Limits) -> (AbortOnDropHandle<()>, std::net::SocketAddr) {
    let secured = Secured::bind(&serving(&[])).unwrap();
    let address = secured.listener.local_addr().unwrap();
    let served = tokio::spawn(secured.serve(Arc::new(Hello), None, limits, Duration::from_secs(60)));
    (AbortOnDropHandle::new(served), address)
}

const SHORT: Duration = Duration::from_millis(100);

/// The server ended the connection, however it did.
async fn is_cut_off(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn a_handshake_that_never_comes_or_makes_no_sense_is_cut_off() {
    let (_server, address) = start(Limits { handshake: SHORT, ..Limits::DEFAULT });
    is_cut_off(TcpStream::connect(address).await.unwrap()).await;
    let mut garbage = TcpStream::connect(address).await.unwrap();
    garbage.write_all(&[22, 3, 1, 0, 4, 1, 2, 3, 4]).await.unwrap();
    is_cut_off(garbage).await;
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    is_cut_off(half).await;
}

#[tokio::test]
async fn plain_http_is_told_to_use_https() {
    let (_server, address) = start(Limits::DEFAULT);
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 256];
    let read = plain.read(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(text.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{text}");
}

#[tokio::test]
async fn connections_that_do_nothing_make_room_for_a_new_one() {
    let (_server, address) = start(Limits { connections: 4, ..Limits::DEFAULT });
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let mut probe = TcpStream::connect(address).await.unwrap();
    probe.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    probe.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.0 400");
    is_cut_off(idle.remove(0)).await;
}

#[tokio::test]
async fn new_certificate_files_are_taken_and_bad_ones_are_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let serving = serving(&[("cert-dir", &path)]);
    let (mut reader, _) = Reader::open(&serving).unwrap();
    let file = |name: &str| folder.path().join(name);
    let (certificate, key) = (file("cloud-controller-manager.crt"), file("cloud-controller-manager.key"));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(reader.look(), Look::Same));

    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    std::fs::write(&certificate, other.cert.pem()).unwrap();
    assert!(matches!(reader.look(), Look::Refused(_)), "the key is that of another certificate");
    assert!(matches!(reader.look(), Look::Same), "told once");
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    assert!(matches!(reader.look(), Look::New(_)));
    std::fs::remove_file(&key).unwrap();
    let Look::Refused(error) = reader.look() else { panic!("a missing key is an error") };
    assert!(error.contains("cloud-controller-manager.key"), "{error}");
    // One of the two files alone is refused at the start too, and nothing is written over it.
    assert!(Reader::open(&serving).is_err());
}
