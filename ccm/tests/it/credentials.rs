//! Who asks the API server for what, and under which name: the audit log of the real one.

mod real_apiserver {
    use std::time::{Duration, Instant};

    use ccm_test_bed::{AuditEntry, AuditLog, Bed, Options};

    use crate::process::Process;

    const CLOUD: &str =
        "unlisted: error\ninstances:\n- {name: n1, type: t, addresses: [{type: InternalIP, address: 10.0.0.1}]}\n";
    const ACCOUNT: &str = "system:serviceaccount:kube-system:";

    /// Reads until an entry is what is waited for, and answers all up to then.
    async fn entries(audit: &mut AuditLog, last: impl Fn(&AuditEntry) -> bool) -> Vec<AuditEntry> {
        let (mut entries, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while !entries.iter().any(&last) {
            assert!(Instant::now() < deadline, "never seen; {} other entries: {entries:#?}", entries.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
            entries.extend(audit.read().unwrap());
        }
        entries
    }

    /// What a manager whose own identity is a client certificate asked for until its node was initialized and that told.
    async fn asked(flags: &[&str]) -> Option<(Vec<AuditEntry>, String)> {
        let bed = Bed::start_with(Options::default().audit()).await.unwrap()?;
        let folder = tempfile::tempdir().unwrap();
        let cloud = folder.path().join("cloud.yaml");
        std::fs::write(&cloud, CLOUD).unwrap();
        let node = serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]},
        });
        let (status, body) = bed.request("POST", "/api/v1/nodes", &bed.token, Some(&node)).await.unwrap();
        assert_eq!(status, 201, "{body}");
        let kubeconfig = bed.kubeconfig_for_user("base", &["system:masters"]).unwrap();
        let (kubeconfig, cloud) = (kubeconfig.display().to_string(), format!("--cloud-config={}", cloud.display()));
        let mut args = vec!["--cloud-provider=fake", "--kubeconfig", &kubeconfig, "--secure-port=0", "--v=2", &cloud];
        args.extend(flags);
        let mut process = Process::start(&args);
        let mut audit = bed.audit();
        let told = |entry: &AuditEntry| entry.is_about("events") && entry.user_agent.contains("node-controller");
        let entries = entries(&mut audit, told).await;
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0), "{}", process.log());
        bed.stop().await;
        Some((entries, process.log()))
    }

    /// The program's requests that end in this name, which has to be there.
    fn agent<'a>(entries: &'a [AuditEntry], name: &str) -> Vec<&'a AuditEntry> {
        let ours: Vec<&AuditEntry> = entries
            .iter()
            .filter(|entry| entry.user_agent.starts_with("ccm/v") && entry.user_agent.ends_with(&format!("/{name}")))
            .collect();
        assert!(!ours.is_empty(), "nobody is {name}");
        ours
    }

    #[tokio::test]
    async fn with_accounts_each_controller_writes_as_itself_and_the_rest_as_the_process() {
        let Some((entries, log)) = asked(&["--use-service-account-credentials"]).await else { return };
        for part in ["cloud-controller-manager", "leader-election"] {
            assert!(agent(&entries, part).iter().all(|entry| entry.user == "base"), "{part}");
        }
        let own = agent(&entries, &format!("{ACCOUNT}node-controller"));
        assert!(
            own.iter().all(|entry| entry.user == format!("{ACCOUNT}node-controller") && entry.code < 300),
            "{own:#?}"
        );
        assert!(own.iter().any(|entry| entry.is_about("nodes") && entry.is_write()));
        assert!(own.iter().any(|entry| entry.is_about("events")), "events go with the controller's identity");
        // The process itself has accounts made and tokens, and writes nothing that a controller writes.
        let base: Vec<_> = entries.iter().filter(|entry| entry.user == "base" && entry.is_write()).collect();
        assert!(base.iter().any(|entry| entry.subresource == "token"), "{base:#?}");
        for entry in base {
            let allowed = ["leases", "serviceaccounts", "events"].contains(&&*entry.resource);
            assert!(allowed, "the process wrote: {entry:?}");
        }
        for name in ["node-controller", "service-controller"] {
            let made = |entry: &AuditEntry| entry.is_about("serviceaccounts") && entry.request_uri.contains(name);
            assert!(entries.iter().any(made), "{name}");
        }
        assert!(!log.contains("eyJ"), "a token is in the log");
    }

    #[tokio::test]
    async fn without_accounts_all_is_the_process_and_the_user_agent_tells_the_parts_apart() {
        let Some((entries, _)) = asked(&["--kube-api-qps=100"]).await else { return };
        let ours: Vec<_> = entries.iter().filter(|entry| entry.user_agent.starts_with("ccm/")).collect();
        assert!(ours.iter().all(|entry| entry.user == "base"), "{ours:#?}");
        agent(&entries, "leader-election");
        assert!(agent(&entries, "node-controller").iter().any(|entry| entry.is_about("nodes") && entry.is_write()));
        assert!(!ours.iter().any(|entry| entry.is_about("serviceaccounts")));
    }
}
