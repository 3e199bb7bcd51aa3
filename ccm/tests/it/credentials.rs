//! Identities and user agents of the requests to the API server, from the audit log of a real one.

mod real_apiserver {
    use ccm_test_bed::{AuditEntry, AuditLog, Bed, Options};
    use serde_json::json;

    use crate::process::Process;
    use crate::scene::{create_node, create_service, set_ready, taint, until};

    const CLOUD: &str = r#"
unlisted: error
interfaces: {routes: true}
instances:
- {name: new, type: large, addresses: [{type: InternalIP, address: 10.0.0.1}]}
- {name: stopped, shutdown: true}
faults:
# A route that is made says nothing.
- {call: CreateRoute, node: new, times: 1, error: full}
"#;
    const ACCOUNT: &str = "system:serviceaccount:kube-system:";

    /// The writes of each of the four controllers in the scene: client name, resource, and name of the object if it
    /// matters.
    const WRITES: [(&str, &str, &str); 7] = [
        ("node-controller", "nodes", "new"),
        // By the other controller with this client name.
        ("node-controller", "nodes", "stopped"),
        ("node-controller", "events", ""),
        ("service-controller", "services/status", "web"),
        ("service-controller", "events", ""),
        ("route-controller", "nodes/status", "new"),
        ("route-controller", "events", ""),
    ];

    fn is_write_of(entry: &AuditEntry, (client, resource, name): (&str, &str, &str)) -> bool {
        let by = entry.user_agent.starts_with("ccm/v") && entry.user_agent.ends_with(client);
        // Audit entries of created events have no name.
        by && entry.is_write() && entry.is_about(resource) && (name.is_empty() || entry.name == name)
    }

    /// A list or a watch of a shared store. It appears in the log after it has ended.
    fn is_read_of(entry: &AuditEntry, resource: &str) -> bool {
        let reads = matches!(&*entry.verb, "list" | "watch");
        reads && entry.user_agent.starts_with("ccm/") && entry.is_about(resource)
    }

    /// Reads the audit log until it contains each of these.
    async fn read_until<T: Copy + std::fmt::Debug>(
        (entries, audit): (&mut Vec<AuditEntry>, &mut AuditLog),
        wanted: &[T],
        is: impl Fn(&AuditEntry, T) -> bool,
    ) {
        for wanted in wanted {
            until(&format!("{wanted:?}"), async || {
                entries.extend(audit.read().unwrap());
                entries.iter().any(|entry| is(entry, *wanted))
            })
            .await;
        }
    }

    /// Creates objects that each controller writes to.
    async fn furnish(bed: &Bed) {
        let new = json!({"taints": [taint()], "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]});
        create_node(bed, "new", new).await;
        set_ready(bed, "new", "True").await;
        create_node(bed, "stopped", json!({"providerID": "fake://stopped"})).await;
        set_ready(bed, "stopped", "Unknown").await;
        create_service(bed, "web", json!({})).await;
    }

    /// The requests of a manager with a client certificate, until all controllers have written objects and events; and
    /// its log.
    async fn asked(flags: &[&str]) -> Option<(Vec<AuditEntry>, String)> {
        let bed = Bed::reused(Options::default().audit()).await.unwrap()?;
        let folder = tempfile::tempdir().unwrap();
        let cloud = folder.path().join("cloud.yaml");
        std::fs::write(&cloud, CLOUD).unwrap();
        furnish(&bed).await;
        let kubeconfig = bed.kubeconfig_for_user("base", &["system:masters"]).unwrap();
        let (kubeconfig, cloud) = (kubeconfig.display().to_string(), format!("--cloud-config={}", cloud.display()));
        let mut args = vec!["--cloud-provider=fake", "--kubeconfig", &kubeconfig, "--secure-port=0", "--v=2", &cloud];
        args.extend(["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--route-reconciliation-period=1s"]);
        args.extend(["--node-monitor-period=500ms"]);
        args.extend(flags);
        let mut process = Process::start(&args);
        let (mut entries, mut audit) = (Vec::new(), bed.audit());
        read_until((&mut entries, &mut audit), &WRITES, is_write_of).await;
        process.end();
        read_until((&mut entries, &mut audit), &["nodes", "services"], is_read_of).await;
        Some((entries, process.log()))
    }

    /// The program's requests with this client name; fails if there are none.
    fn agent<'a>(entries: &'a [AuditEntry], name: &str) -> Vec<&'a AuditEntry> {
        let ours: Vec<&AuditEntry> = entries
            .iter()
            .filter(|entry| entry.user_agent.starts_with("ccm/v") && entry.user_agent.ends_with(&format!("/{name}")))
            .collect();
        assert!(!ours.is_empty(), "nobody is {name}");
        ours
    }

    /// The shared stores are read once, by the process, not by each controller.
    fn stores_are_read_by_the_process(entries: &[AuditEntry]) {
        let reads = entries.iter().filter(|entry| is_read_of(entry, "nodes") || is_read_of(entry, "services"));
        for entry in reads {
            assert!(entry.user == "base" && entry.user_agent.ends_with("/shared-informers"), "{entry:?}");
        }
    }

    #[tokio::test]
    async fn with_accounts_each_controller_writes_as_itself_and_the_rest_as_the_process() {
        let Some((entries, log)) = asked(&["--use-service-account-credentials"]).await else { return };
        for part in ["cloud-controller-manager", "leader-election"] {
            assert!(agent(&entries, part).iter().all(|entry| entry.user == "base"), "{part}");
        }
        for name in ["node-controller", "service-controller", "route-controller"] {
            let account = format!("{ACCOUNT}{name}");
            for entry in agent(&entries, &account) {
                // A conflict is valid: two controllers may write to one node at the same time.
                assert!(entry.user == account && (entry.code < 300 || entry.code == 409), "{entry:?}");
            }
            let made = |entry: &AuditEntry| entry.is_about("serviceaccounts") && entry.request_uri.contains(name);
            assert!(entries.iter().any(made), "{name}");
        }
        for write in WRITES {
            let account = format!("{ACCOUNT}{}", write.0);
            for entry in entries.iter().filter(|entry| is_write_of(entry, write)) {
                assert!(entry.user == account && entry.user_agent.ends_with(&format!("/{account}")), "{entry:?}");
            }
        }
        stores_are_read_by_the_process(&entries);
        // The process itself creates accounts and tokens, and makes no writes of controllers.
        let base: Vec<_> = entries.iter().filter(|entry| entry.user == "base" && entry.is_write()).collect();
        assert!(base.iter().any(|entry| entry.subresource == "token"), "{base:#?}");
        for entry in base {
            let allowed = ["leases", "serviceaccounts", "events"].contains(&&*entry.resource);
            assert!(allowed, "the process wrote: {entry:?}");
        }
        assert!(!log.contains("eyJ"), "a token is in the log");
    }

    #[tokio::test]
    async fn without_accounts_all_is_the_process_and_the_user_agent_separates_the_parts() {
        let Some((entries, _)) = asked(&["--use-service-account-credentials=false", "--kube-api-qps=100"]).await else {
            return;
        };
        let ours: Vec<_> = entries.iter().filter(|entry| entry.user_agent.starts_with("ccm/")).collect();
        assert!(ours.iter().all(|entry| entry.user == "base"), "{ours:#?}");
        agent(&entries, "leader-election");
        for write in WRITES {
            for entry in entries.iter().filter(|entry| is_write_of(entry, write)) {
                assert!(entry.user_agent.ends_with(&format!("/{}", write.0)), "{entry:?}");
            }
        }
        stores_are_read_by_the_process(&entries);
        assert!(!ours.iter().any(|entry| entry.is_about("serviceaccounts")));
    }
}
