//! Ways to reach and to convince the API server, on the real one.

mod real_apiserver {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ccm_test_bed::Bed;

    use crate::process::Process;

    struct Kubeconfig<'a> {
        bed: &'a Bed,
        folder: &'a Path,
        user: String,
        cluster: String,
    }

    impl Kubeconfig<'_> {
        fn write(&self) -> String {
            let ca = self.folder.join("ca.pem");
            std::fs::write(&ca, &self.bed.ca_pem).unwrap();
            let path = self.folder.join("kubeconfig");
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: '{}'{}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers:\n- name: u\n  user: {{{}}}\n",
                self.bed.url,
                ca.display(),
                self.cluster,
                self.user
            );
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        }
    }

    fn start(kubeconfig: &str) -> Process {
        let lease = format!("--leader-elect-resource-name=connect-{}", uuid::Uuid::new_v4());
        Process::start(&["--cloud-provider=fake", "--kubeconfig", kubeconfig, "--secure-port=0", &lease, "--v=2"])
    }

    async fn connects(user: impl FnOnce(&Bed, &Path) -> String, cluster: &str) {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let user = user(bed, folder.path());
        let config = Kubeconfig { bed, folder: folder.path(), user, cluster: cluster.to_owned() };
        let mut process = start(&config.write());
        process.wait_for("Started \"cloud-node-controller\"");
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
        assert!(!process.log().contains(&bed.token), "the token is in the log");
    }

    #[tokio::test]
    async fn a_token_in_the_kubeconfig_works() {
        connects(|bed, _| format!("token: {}", bed.token), "").await;
    }

    #[tokio::test]
    async fn an_exec_plugin_works() {
        connects(
            |bed, folder| {
                let script = folder.join("plugin.sh");
                let answer = format!(
                    r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{}"}}}}"#,
                    bed.token
                );
                std::fs::write(&script, format!("echo '{answer}'\n")).unwrap();
                format!(
                    "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}'], interactiveMode: Never}}",
                    script.display()
                )
            },
            "",
        )
        .await;
    }

    #[tokio::test]
    async fn a_proxy_url_is_used() {
        let used = Arc::new(AtomicUsize::new(0));
        let proxy = proxy(used.clone());
        connects(|bed, _| format!("token: {}", bed.token), &format!(", proxy-url: 'http://{proxy}'")).await;
        if Bed::shared().await.unwrap().is_some() {
            assert!(used.load(Ordering::SeqCst) > 0, "no connection went through the proxy");
        }
    }

    #[tokio::test]
    async fn a_token_file_is_read_again_when_it_changes() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "not-a-token").unwrap();
        let user = format!("tokenFile: '{}'", token.display());
        let config = Kubeconfig { bed, folder: folder.path(), user, cluster: String::new() };
        let process = start(&config.write());
        process.wait_for("Unauthorized");
        std::fs::write(&token, &bed.token).unwrap();
        // It is read again because of the 401, and not only once a minute.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(45);
        while !process.log().contains("Started \"cloud-node-controller\"") {
            assert!(std::time::Instant::now() < deadline, "{}", process.log());
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    #[tokio::test]
    async fn a_client_certificate_works() {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "clients");
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(params, ca_key);
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("clients.pem");
        std::fs::write(&ca_file, ca.pem()).unwrap();
        let options = ccm_test_bed::Options::default().apiserver_arg(format!("--client-ca-file={}", ca_file.display()));
        let Some(bed) = Bed::start_with(options).await.unwrap() else { return };
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "ccm");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        params.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let (cert_file, key_file) = (folder.path().join("client.pem"), folder.path().join("client.key"));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let user = format!("client-certificate: '{}', client-key: '{}'", cert_file.display(), key_file.display());
        let config = Kubeconfig { bed: &bed, folder: folder.path(), user, cluster: String::new() };
        let process = start(&config.write());
        process.wait_for("Started \"cloud-node-controller\"");
    }

    /// A proxy that understands CONNECT and counts.
    fn proxy(used: Arc<AtomicUsize>) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let used = used.clone();
                // A connection that breaks is the client's to notice.
                std::thread::spawn(move || tunnel(client, &used));
            }
        });
        address
    }

    fn tunnel(mut client: TcpStream, used: &AtomicUsize) -> Option<()> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).ok()?;
            head.extend(byte);
        }
        let head = String::from_utf8(head).ok()?;
        let target = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
        let mut server = TcpStream::connect(target).ok()?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
        used.fetch_add(1, Ordering::SeqCst);
        let (mut from_client, mut to_server) = (client.try_clone().ok()?, server.try_clone().ok()?);
        std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
        std::io::copy(&mut server, &mut client).ok().map(drop)
    }
}
