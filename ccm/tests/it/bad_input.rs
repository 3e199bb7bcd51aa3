//! Invalid files, ports and servers: the message names the error.

use std::io::{Read, Write};

use crate::process::{Process, run};

fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn errors_in_the_cloud_config_are_named() {
    let rows: [(&str, &[&str]); 3] = [
        ("instances: [{name: a, adresses: []}]", &["adresses", "instances[0]", "addresses"]),
        ("instances: [{name: a, exists: 'yes'}]", &["instances[0].exists"]),
        ("instances: [{name: twin}, {name: twin}]", &["twin"]),
    ];
    for (text, expected) in rows {
        let file = config(text);
        let path = format!("--cloud-config={}", file.path().display());
        let ended = run(&["--cloud-provider=fake", &path, "--master=http://127.0.0.1:1", "--secure-port=0"]);
        assert_eq!(ended.code, Some(255), "{}", ended.stderr);
        ended.reports(&["could not init cloud provider \"fake\": "]);
        ended.reports(expected);
    }
}

#[test]
fn a_broken_kubeconfig_is_named() {
    let file = config("clusters: [{name: 1}]");
    let path = file.path().display().to_string();
    let ended = run(&["--cloud-provider=fake", "--kubeconfig", &path]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&format!("the kubeconfig {path}: ")), "{}", ended.stderr);
}

#[test]
fn an_api_server_that_is_not_there_is_waited_for_and_sigterm_ends_the_wait_with_0() {
    let mut process = Process::start(&["--cloud-provider=fake", "--master=http://127.0.0.1:1", "--secure-port=0"]);
    process.wait_for("cannot reach the API server");
    process.end();
}

#[test]
fn without_election_an_absent_api_server_ends_with_255_after_ten_seconds() {
    let mut process = Process::start(&[
        "--cloud-provider=fake",
        "--master=http://127.0.0.1:1",
        "--secure-port=0",
        "--leader-elect=false",
    ]);
    assert_eq!(process.wait(), Some(255));
    assert!(process.log().contains("failed to wait for apiserver being healthy"), "{}", process.log());
}

#[test]
fn an_html_page_instead_of_the_api_is_called_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let master = format!("--master=http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            // The response does not depend on the request.
            let _ = stream.read(&mut request);
            let page = "<html><body>Bad gateway</body></html>";
            let _ = write!(
                stream,
                "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                page.len()
            );
        }
    });
    let process = Process::start(&["--cloud-provider=fake", &master, "--secure-port=0"]);
    process.wait_for("answered 502 Bad Gateway with something that is not a Kubernetes status");
    process.wait_for("Bad gateway</body>");
}

fn migration(text: &str) -> crate::process::Ended {
    let file = config(text);
    let path = format!("--leader-migration-config={}", file.path().display());
    run(&["--cloud-provider=fake", "--kubeconfig=/nonexistent", "--enable-leader-migration", &path])
}

#[test]
fn every_mistake_of_a_leader_migration_is_named_and_ends_with_1() {
    let ended = migration(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nresourceLock: leases\n\
         controllerLeaders: [{name: service-lb-controller}]\n",
    );
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    ended.reports(&[
        "Error: leader migration configuration \"",
        "leaderName: Required value: leaderName must be set",
        "controllerLeaders[0].component: Required value",
        "resourceLock: unknown key",
    ]);
}

#[test]
fn a_leader_migration_of_an_unknown_controller_is_a_warning() {
    let ended = migration(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n\
         controllerLeaders: [{name: servise, component: '*'}, {name: service, component: '*'}]\n",
    );
    let text = "] the leader migration lists \"servise\", which is not a controller of this program\n";
    assert!(ended.stderr.contains(text) && !ended.stderr.contains("\"service\""), "{}", ended.stderr);
}

#[test]
fn an_argument_that_is_no_text_is_named() {
    use std::os::unix::ffi::OsStrExt as _;

    let word = std::ffi::OsStr::from_bytes(b"--cluster-name=\xff");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ccm")).arg(word).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("the argument \"--cluster-name=\\xFF\" is not valid UTF-8"), "{stderr}");
}
