//! The program with its secure port, and clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_test_bed::{Bed, ClientCertificate};
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use crate::process::Process;

pub(crate) fn free_port() -> u16 {
    ccm_test_bed::free_port().unwrap()
}

/// Sends a request and reads the response: status, head and body.
pub(crate) fn exchange(port: u16, identity: Option<(&str, &str)>, request: &[u8]) -> (u16, String, String) {
    let mut stream = send(port, identity, request);
    let mut answer = Vec::new();
    // The server may close without close_notify.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// Sends a request, or a part of one. The connection stays open until the result is dropped.
pub(crate) fn send(
    port: u16,
    identity: Option<(&str, &str)>,
    request: &[u8],
) -> StreamOwned<ClientConnection, TcpStream> {
    let config = ccm_test_bed::trusting_client(None, rustls::ALL_VERSIONS, identity);
    let name = ServerName::try_from("localhost").unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
    stream.write_all(request).unwrap();
    stream
}

/// Repeats the request until the response has this status.
pub(crate) fn until(status: u16, ask: impl Fn() -> (u16, String)) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (seen, body) = ask();
        if seen == status {
            return body;
        }
        assert!(Instant::now() < deadline, "still {seen} instead of {status}: {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program, serving on a port.
pub(crate) struct Served {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Served {
    pub(crate) fn start(bed: &Bed, flags: &[&str]) -> Self {
        Self::start_at(bed, free_port(), flags)
    }

    pub(crate) fn start_at(bed: &Bed, port: u16, flags: &[&str]) -> Self {
        let kubeconfig = bed.kubeconfig().display().to_string();
        let flag = |name: &str| format!("--{name}={kubeconfig}");
        let port_flag = format!("--secure-port={port}");
        let lease = format!("--leader-elect-resource-name=serving-{}", uuid::Uuid::new_v4());
        let (kube, authn, authz) =
            (flag("kubeconfig"), flag("authentication-kubeconfig"), flag("authorization-kubeconfig"));
        let mut args =
            vec!["--cloud-provider=fake", "--bind-address=127.0.0.1", &kube, &authn, &authz, &port_flag, &lease];
        args.extend(flags);
        let process = Process::start(&args);
        process.wait_for("Serving securely on");
        Self { process, port }
    }

    /// Waits until the cluster has been listed.
    pub(crate) fn until_ready(&self) {
        let began = Instant::now();
        while self.ask("/readyz", None, "").0 != 200 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", self.ask("/readyz?verbose", None, ""));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ask(&self, path: &str, certificate: Option<&ClientCertificate>, headers: &str) -> (u16, String) {
        let identity = certificate.map(|own| (own.certificate_pem.as_str(), own.key_pem.as_str()));
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let (status, _, body) = exchange(self.port, identity, request.as_bytes());
        (status, body)
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}
