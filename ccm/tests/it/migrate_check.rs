//! `ccm migrate-check` as a process: its findings in a cluster with problems; it writes nothing.

use crate::process::{refused, run};

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_fix() {
    let rows: [(&[&str], &str); 6] = [
        (&["--no-such"], "Error: unknown flag: --no-such"),
        (&["-o", "github", "--cloud-provider=fake"], "Error: --output=github: expected text or json"),
        (&["node/x", "--cloud-provider=fake"], "Error: migrate-check takes no arguments, got \"node/x\""),
        (&[], "Error: --cloud-provider=NAME is missing ("),
        (&["--cloud-provider=fake", "--kubeconfig=/nonexistent"], "Error: the kubeconfig /nonexistent: "),
        (&["--cloud-provider=fake", "--master=http://127.0.0.1:1"], "nothing listens at 127.0.0.1:1"),
    ];
    refused("migrate-check", &[], &rows);
    let ended = run(&["migrate-check", "--cloud-provider=nowhere", "--master=http://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(255));
}

mod real_apiserver {
    use std::path::Path;

    use serde_json::{Value, json};

    use crate::process::Ended;
    use crate::scene::{Scene, bind, create, create_node, create_role, create_service, register, taint, writes};

    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

    /// Creates the service accounts that pods need, because no controller creates them in this cluster.
    async fn scene(cloud: &str) -> Option<Scene> {
        let scene = Scene::new(cloud, &["--configure-cloud-routes=false"]).await?;
        for account in ["default", "cloud-controller-manager"] {
            scene.bed.service_account_token("kube-system", account).await.unwrap();
        }
        Some(scene)
    }

    impl Scene {
        async fn pod(&self, name: &str, spec: Value) {
            let mut all = json!({"automountServiceAccountToken": false, "hostNetwork": true});
            all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"}, "spec": all});
            create(&self.bed, "/api/v1/namespaces/kube-system/pods", pod).await;
        }

        fn check_as(&self, kubeconfig: &Path, more: &[&str]) -> Ended {
            self.ccm_as(kubeconfig, &[&["migrate-check"], more].concat())
        }

        fn check(&self, more: &[&str]) -> Ended {
            self.check_as(&self.bed.kubeconfig(), more)
        }
    }

    /// `error check subject` of each finding that is not of severity info.
    fn found(ended: &Ended) -> Vec<String> {
        let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
        assert_eq!((&document["kind"], &document["version"]), (&json!("MigrateCheck"), &json!(1)));
        let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
        let checks = document["checks"].as_array().unwrap().iter().filter(|check| check["severity"] != "info");
        let lines = checks.map(|check| ["severity", "check", "subject"].map(|key| text(check, key)).join(" "));
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    /// The static pod as written by kubeadm.
    fn kubeadm(more: &[&str]) -> Value {
        let command = [
            "kube-controller-manager",
            "--allocate-node-cidrs=true",
            "--bind-address=127.0.0.1",
            "--cluster-cidr=10.244.0.0/16",
            "--cluster-name=kubernetes",
            "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
            "--kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--leader-elect=true",
            "--use-service-account-credentials=true",
        ];
        let image = "registry.k8s.io/kube-controller-manager:v1.36.3";
        let command = [&command, more].concat();
        json!({"containers": [{"name": "kube-controller-manager", "image": image, "command": command}]})
    }

    /// The API server as started by kOps.
    fn kops(more: &[&str]) -> Value {
        let args = [
            "--log-file=/var/log/kube-apiserver.log",
            "--also-stdout",
            "/usr/local/bin/kube-apiserver",
            "--secure-port=443",
        ];
        let image = "registry.k8s.io/kube-apiserver-amd64:v1.30.2";
        let args = [&args, more].concat();
        json!({"containers": [
            {"name": "kube-apiserver", "image": image, "command": ["/go-runner"], "args": args},
            {"name": "healthcheck", "image": "registry.k8s.io/kops/kube-apiserver-healthcheck:1.30.0",
                "command": ["/kube-apiserver-healthcheck"], "args": ["--ca-cert=/secrets/ca.crt"]},
        ]})
    }

    /// The DaemonSet of cloud-provider-aws.
    fn aws(args: &[&str], tolerations: &Value) -> Value {
        json!({"serviceAccountName": "cloud-controller-manager", "tolerations": tolerations, "containers": [{
            "name": "aws-cloud-controller-manager", "args": args,
            "image": "registry.k8s.io/provider-aws/cloud-controller-manager:v1.27.1"}]})
    }

    #[tokio::test]
    async fn without_a_provider_that_starts_the_programs_that_run_are_compared() {
        let Some(scene) = scene("instances: 7").await else { return };
        scene.pod("kube-controller-manager-a", kubeadm(&["--cloud-provider=aws"])).await;
        let ended = scene.check(&["-o", "json"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let pod = "cloud-provider pod kube-system/kube-controller-manager-a";
        let expected = [format!("error {pod}"), format!("error {pod}"), "error provider fake".into()];
        assert_eq!(found(&ended), expected);
    }

    #[tokio::test]
    async fn problems_of_a_cluster_are_reported_with_their_fix_and_nothing_is_written() {
        let Some(scene) = scene("unlisted: missing\ninstances: [{name: fresh}, {name: bare}]").await else { return };
        register(&scene.bed, "fresh").await;
        create_node(&scene.bed, "stranger", json!({"providerID": "aws:///us-east-1a/i-0123456789abcdef0"})).await;
        create_node(&scene.bed, "bare", json!({})).await;
        create_node(&scene.bed, "lost", json!({"providerID": "fake://lost"})).await;
        scene.pod("kube-controller-manager-a", kubeadm(&["--cloud-provider=aws"])).await;
        scene.pod("kube-apiserver-a", kops(&["--cloud-provider=external"])).await;
        let args = [
            "--v=2",
            "--cloud-provider=fake",
            "--port=0",
            "--cluster-name=prod",
            "--leader-elect-resource-name=aws",
            "--use-service-account-credentials=true",
            "--configure-cloud-routes=false",
        ];
        scene.pod("aws-ccm-b", aws(&args, &json!([]))).await;
        scene.pod("aws-ccm-c", aws(&args, &json!([]))).await;
        create_service(&scene.bed, "web", json!({})).await;
        let held =
            json!({"holderIdentity": "b_1", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "rke2-cloud-controller-manager"}, "spec": held});
        create(&scene.bed, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease).await;
        let webhook = json!({"name": "nodes.policy.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "policy", "name": "policy"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]}]});
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "policy"}, "webhooks": [webhook]});
        create(&scene.bed, WEBHOOKS, policy).await;
        let mut audit = scene.bed.audit();
        audit.read().unwrap();

        let ended = scene.check(&["-o", "json"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""), "{}", ended.stdout);
        let ccm = "pod kube-system/aws-ccm-b and 1 more";
        let expected = [
            // Two findings: the cloud provider runs in it, and it is another provider.
            "error cloud-provider pod kube-system/kube-controller-manager-a".to_owned(),
            "error cloud-provider pod kube-system/kube-controller-manager-a".into(),
            format!("error cluster-name {ccm}"),
            format!("error flags {ccm}"),
            "error instances node lost".into(),
            "error kubelet node bare".into(),
            format!("error leader-election {ccm}"),
            "error lease lease kube-system/rke2-cloud-controller-manager".into(),
            "error node-deletion node lost".into(),
            "error rbac leases".into(),
            "error rbac leases".into(),
            "error rbac nodes".into(),
            "error rbac nodes/status".into(),
            "error rbac services".into(),
            "error rbac services/status".into(),
            format!("error toleration {ccm}"),
            "error webhook validatingwebhook policy/nodes.policy.example.com".into(),
            format!("warning cloud-config {ccm}"),
            "warning cloud-provider pod kube-system/kube-apiserver-a".into(),
            format!("warning flag-value {ccm}"),
            "warning node-initialization node fresh".into(),
            "warning node-provider-id node stranger".into(),
            "warning provider-ids node stranger".into(),
            "warning rbac configmaps".into(),
            "warning rbac events".into(),
            "warning rbac subjectaccessreviews".into(),
            "warning rbac tokenreviews".into(),
            "warning service-plan service default/web".into(),
        ];
        assert_eq!(found(&ended), expected);

        let ended = scene.check(&[]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""));
        assert!(ended.stdout.contains("\n17 errors, 11 warnings, "), "{}", ended.stdout);
        ended.prints(&[
            "error    toleration           pod kube-system/aws-ccm-b and 1 more: it does not tolerate \
             node.cloudprovider.kubernetes.io/uninitialized: on new nodes alone it cannot start, and no other program \
             removes that taint -> add the toleration {key: node.cloudprovider.kubernetes.io/uninitialized, operator: \
             Exists}, as in manifests/base\n",
            "error    rbac                 services/status: system:serviceaccount:kube-system:cloud-controller-manager may not patch services/status: address of the load balancer, and the finalizer -> kubectl apply -f manifests/base/rbac.yaml, or: kubectl create clusterrole ccm-services-status-patch --verb=patch --resource=services/status && kubectl create clusterrolebinding ccm-services-status-patch --clusterrole=ccm-services-status-patch --serviceaccount=kube-system:cloud-controller-manager\n",
        ]);
        let elsewhere = found(&scene.check(&["-o", "json", "--namespace=default"]));
        assert!(!elsewhere.iter().any(|line| line.contains("pod ")), "{elsewhere:?}");

        let entries = audit.read().unwrap();
        assert!(entries.iter().any(|entry| entry.is_about("subjectaccessreviews")), "{entries:?}");
        assert_eq!(writes(&entries), [""; 0]);
        assert!(scene.calls().contains("GetLoadBalancer"), "{}", scene.calls());
        scene.assert_no_writes_to_the_cloud();
    }

    #[tokio::test]
    async fn a_cluster_that_is_ready_ends_with_0() {
        let Some(scene) = scene("").await else { return };
        create_node(&scene.bed, "good", json!({"providerID": "fake://good"})).await;
        scene.pod("kube-controller-manager-a", kubeadm(&["--cloud-provider=external"])).await;
        scene.pod("kube-apiserver-a", kops(&[])).await;
        let args =
            ["--v=2", "--cloud-provider=fake", "--configure-cloud-routes=false", "--cloud-config=/etc/cloud.yaml"];
        scene.pod("aws-ccm", aws(&args, &json!([taint()]))).await;
        bind(&scene.bed, "cluster-admin", "User", ccm_test_bed::CCM_USER).await;
        let ended = scene.check(&["-o", "json"]);
        assert_eq!(found(&ended), Vec::<String>::new());
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        let ended = scene.check(&[]);
        assert!(ended.stdout.contains("\n0 errors, 0 warnings, "), "{}", ended.stdout);
        assert!(
            ended
                .stdout
                .lines()
                .all(|line| line.is_empty() || line.starts_with("info ") || line.starts_with("0 errors"))
        );
    }

    #[tokio::test]
    async fn the_user_of_a_kubeconfig_must_be_named() {
        let Some(scene) = scene("").await else { return };
        create_node(&scene.bed, "good", json!({"providerID": "fake://good"})).await;
        let args = [
            "--cloud-provider=fake",
            "--configure-cloud-routes=false",
            "--cloud-config=/etc/cloud.yaml",
            "--kubeconfig=/etc/kubernetes/ccm.conf",
        ];
        scene.pod("aws-ccm", aws(&args, &json!([taint()]))).await;
        assert_eq!(found(&scene.check(&["-o", "json"])), ["warning rbac"], "nothing is granted to anybody");
        let named = ["-o", "json", "--account=system:cloud-controller-manager"];
        assert!(found(&scene.check(&named)).contains(&"error rbac nodes".to_owned()));
        bind(&scene.bed, "cluster-admin", "User", "system:cloud-controller-manager").await;
        assert_eq!(found(&scene.check(&named)), [""; 0]);
    }

    #[tokio::test]
    async fn each_missing_permission_is_one_warning_with_the_permission_to_grant() {
        let Some(scene) = scene("").await else { return };
        let nobody = scene.bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let ended = scene.check_as(&nobody, &[]);
        ended.assert_may_not_list_nodes();

        let rules = json!([{"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["list"]}]);
        create_role(&scene.bed, "two-lists", rules).await;
        bind(&scene.bed, "two-lists", "User", "nobody").await;
        let ended = scene.check_as(&nobody, &["-o", "json"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""));
        let unread: Vec<String> = found(&ended).into_iter().filter(|line| line.contains("unread")).collect();
        assert_eq!(
            unread,
            [
                "warning unread leases.coordination.k8s.io",
                "warning unread mutatingwebhookconfigurations.admissionregistration.k8s.io",
                "warning unread namespaces",
                "warning unread pods",
                "warning unread validatingwebhookconfigurations.admissionregistration.k8s.io",
            ]
        );
        let text = scene.check_as(&nobody, &[]).stdout;
        for part in [
            "  pods: cannot be listed, so that flags of what runs now are not checked: pods is forbidden",
            "--verb=list --resource=pods",
            "the permissions were checked for the user of this command, not for the account of the program",
            "; the user of this command may not ",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("user of this command").count(), 2, "one finding: {text}");
    }
}
