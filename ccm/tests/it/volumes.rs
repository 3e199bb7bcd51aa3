//! Labels and node affinity of volumes, by the controller and by the webhook, on a real API server.

mod real_apiserver {
    use ccm::webhook::persistent_volume::{NAME, PATH};
    use ccm_provider::VolumeSource;
    use ccm_test_bed::CCM_USER;
    use serde_json::{Value, json};

    use crate::https::free_port;
    use crate::scene::{Scene, bind, create, create_role, post, register, send, until, until_initialized};
    use crate::webhook::{HOOKS, certify, create_hook};

    const ZONE: &str = "topology.kubernetes.io/zone";
    const REGION: &str = "topology.kubernetes.io/region";
    const HOOK: &str = "cloud-pvl-admission.k8s.io";
    const CLOUD: &str = r#"
interfaces: {pvLabels: true}
volumes:
- {id: vol-1, labels: {topology.kubernetes.io/zone: b__a, topology.kubernetes.io/region: r}}
faults:
- {call: GetLabelsForVolume, volume: vol-gone, kind: DiskNotFound}
"#;

    const VOLUMES: &str = "/api/v1/persistentvolumes";
    const FLAGS: [&str; 2] = ["--secure-port=0", "--configure-cloud-routes=false"];

    fn ebs(id: &str) -> Value {
        json!({"awsElasticBlockStore": {"volumeID": id}})
    }

    fn csi() -> Value {
        json!({"csi": {"driver": "disk.example.com", "volumeHandle": "vol-1"}})
    }

    fn local() -> Value {
        json!({"hostPath": {"path": "/tmp/x"}})
    }

    fn volume(name: &str, source: &Value) -> Value {
        let mut spec = source.clone();
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    }

    fn provisioned(name: &str, source: &Value) -> Value {
        let mut volume = volume(name, source);
        volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "disk.example.com"});
        volume
    }

    fn zone(volume: &Value) -> &str {
        volume["metadata"]["labels"][ZONE].as_str().unwrap_or_default()
    }

    fn added() -> Value {
        json!([{"key": REGION, "operator": "In", "values": ["r"]}, {"key": ZONE, "operator": "In", "values": ["a", "b"]}])
    }

    fn terms(volume: &Value) -> &Value {
        &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    }

    impl Scene {
        async fn make(&self, volume: &Value) -> Value {
            create(&self.bed, VOLUMES, volume.clone()).await
        }

        async fn get(&self, name: &str) -> Value {
            let (status, body) = self.bed.get(&format!("/api/v1/persistentvolumes/{name}")).await.unwrap();
            assert_eq!(status, 200, "{body}");
            serde_json::from_str(&body).unwrap()
        }

        async fn until_labeled(&self, name: &str) -> Value {
            until(&format!("{name} is labeled"), async || !zone(&self.get(name).await).is_empty()).await;
            self.get(name).await
        }

        fn asked(&self) -> Vec<String> {
            let log = self.calls();
            let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let asked = lines.filter(|line| line["call"] == "GetLabelsForVolume" && line["phase"] == "start");
            asked.map(|line| line["args"]["volume"].as_str().unwrap().to_owned()).collect()
        }

        async fn change_hook(&self, change: &Value) {
            let path = format!("{HOOKS}/{HOOK}");
            let (status, old) = self.bed.get(&path).await.unwrap();
            assert_eq!(status, 200, "{old}");
            let mut hooks: Value = serde_json::from_str(&old).unwrap();
            for (key, value) in change.as_object().unwrap() {
                match value {
                    Value::Object(fields) => fields.iter().for_each(|(field, value)| {
                        hooks["webhooks"][0][key][field] = value.clone();
                    }),
                    value => hooks["webhooks"][0][key] = value.clone(),
                }
            }
            send(&self.bed, "PUT", &path, &hooks).await;
        }
    }

    #[tokio::test]
    async fn the_controller_labels_only_volumes_that_users_declare() {
        let Some(scene) = Scene::new(CLOUD, &FLAGS).await else { return };
        let own = json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]);
        let mut bound = volume("bound", &csi());
        bound["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": own}});
        let mut old = provisioned("old", &ebs("vol-1"));
        old["metadata"]["labels"] =
            json!({"failure-domain.beta.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/region": "y"});
        // These sources are still part of the API, although kubelets mount them only with a CSI driver.
        let ours = [
            volume("ebs", &ebs("vol-1")),
            volume("pd", &json!({"gcePersistentDisk": {"pdName": "vol-1"}})),
            volume(
                "azure",
                &json!({"azureDisk": {"diskName": "vol-1", "kind": "Managed",
                "diskURI": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/vol-1"}}),
            ),
            volume("cinder", &json!({"cinder": {"volumeID": "vol-1"}})),
            volume("vsphere", &json!({"vsphereVolume": {"volumePath": "vol-1"}})),
            volume("csi", &csi()),
            bound,
        ];
        let others = [volume("local", &local()), provisioned("dynamic", &csi()), old, volume("unknown", &ebs("vol-2"))];
        for volume in ours.iter().chain(&others) {
            scene.make(volume).await;
        }
        scene.make(&volume("gone", &ebs("vol-gone"))).await;
        let flags = ["--leader-elect=false", "--controllers=pvlabel"];
        let mut process = scene.start(&flags);
        for name in ["ebs", "pd", "azure", "cinder", "vsphere", "csi"] {
            let labeled = scene.until_labeled(name).await;
            assert_eq!((zone(&labeled), &labeled["metadata"]["labels"][REGION]), ("b__a", &json!("r")));
            assert_eq!(terms(&labeled)[0]["matchExpressions"], added(), "{name}");
        }
        assert_eq!(terms(&scene.until_labeled("bound").await), &own);
        process.wait_for("error querying AWS EBS volume vol-gone: disk is not found");
        let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dgone";
        let emitted = async || scene.bed.get(events).await.unwrap().1.contains("FailedToLabelVolume");
        until("an event is emitted", emitted).await;
        for name in ["local", "dynamic", "old", "unknown", "gone"] {
            let volume = scene.get(name).await;
            assert_eq!((zone(&volume), &volume["spec"]["nodeAffinity"]), ("", &Value::Null), "{name}");
        }
        let mut asked = scene.asked();
        asked.sort_unstable();
        asked.dedup();
        // Volumes whose ID only the driver understands are identified by name: `csi` and `bound`.
        assert_eq!(asked, ["bound", "csi", "vol-1", "vol-2", "vol-gone"]);

        process.end();
        let versions = async || {
            let (_, body) = scene.bed.get(VOLUMES).await.unwrap();
            let list: Value = serde_json::from_str(&body).unwrap();
            let items = list["items"].as_array().unwrap().clone();
            items.into_iter().map(|volume| volume["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
        };
        let (before, questions) = (versions().await, scene.asked().len());
        let _again = scene.start(&flags);
        // It looks up again only the two that could not be labeled.
        until("asked again", async || scene.asked().len() >= questions + 2).await;
        scene.make(&volume("last", &csi())).await;
        scene.until_labeled("last").await;
        let after = versions().await;
        assert!(after.len() == before.len() + 1 && before.iter().all(|version| after.contains(version)), "{after:?}");
    }

    #[tokio::test]
    async fn without_rights_on_volumes_it_says_so_once_and_everything_else_goes_on() {
        let Some(scene) = Scene::new(CLOUD, &FLAGS).await else { return };
        // The role of a Go program: no permissions for PersistentVolumes.
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes", "nodes/status", "services", "events"], "verbs": ["*"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "get"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"],
                "resourceNames": ["node-controller", "route-controller", "service-controller"]},
        ]);
        create_role(&scene.bed, "go-ccm", rules).await;
        bind(&scene.bed, "go-ccm", "User", CCM_USER).await;
        scene.make(&volume("pv", &csi())).await;
        let kubeconfig = scene.bed.kubeconfig_with(&scene.bed.ccm_token).unwrap();
        let process = scene.start_as(&kubeconfig, &["--leader-elect=false"]);
        process.wait_for("grant `list` and `watch` on persistentvolumes, or switch");
        // With one service account per controller: the role grants no token for that of this controller, as kOps's.
        let flags = ["--leader-elect=false", "--use-service-account-credentials", "--controllers=cloud-node,pvlabel"];
        let accounts = scene.start_as(&kubeconfig, &flags);
        accounts.wait_for(
            "Skipping \"persistentvolume-label-controller\": its account kube-system/pvl-controller is out of reach",
        );
        assert!(accounts.log().contains("Started \"cloud-node-controller\""));
        assert!(!accounts.log().contains("get token failed"), "{}", accounts.log());
        let account = "/api/v1/namespaces/kube-system/serviceaccounts/pvl-controller";
        assert_eq!(scene.bed.get(account).await.unwrap().0, 404, "an account that is of no use is not made");
        drop(accounts);
        for name in ["a", "b"] {
            register(&scene.bed, name).await;
            until_initialized(&scene.bed, name).await;
        }
        assert_eq!(process.log().matches("persistentvolumes is forbidden").count(), 1, "{}", process.log());
        assert_eq!(scene.asked(), [""; 0]);
    }

    #[tokio::test]
    async fn a_standby_labels_volumes_while_they_are_made_and_an_outage_blocks_no_others() {
        let Some(scene) = Scene::new(CLOUD, &FLAGS).await else { return };
        let (certificate, key) = (scene.text("tls.crt"), scene.text("tls.key"));
        let bundle = certify(&certificate, &key);
        let port = free_port();
        let common = ["--controllers=*,-pvlabel", "-v=2"];
        let leader = scene.start(&common);
        leader.wait_for("successfully acquired lease");
        let flags = [
            "--feature-gates=CloudControllerManagerWebhook=true".to_owned(),
            format!("--webhooks={NAME}"),
            "--webhook-bind-address=127.0.0.1".into(),
            format!("--webhook-secure-port={port}"),
            format!("--webhook-tls-cert-file={certificate}"),
            format!("--webhook-tls-private-key-file={key}"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(common).collect();
        let mut standby = scene.start(&flags);
        standby.wait_for(&format!("Serving securely on 127.0.0.1:{port}"));
        let volumes = json!({
            "clientConfig": {"url": format!("https://127.0.0.1:{port}{PATH}"), "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["persistentvolumes"]}],
            "matchConditions": [{"name": "ours", "expression": VolumeSource::match_condition(&VolumeSource::ALL)}],
            "timeoutSeconds": 5,
        });
        create_hook(&scene.bed, HOOK, volumes).await;

        // The API server applies its own configuration with a delay.
        let mut tries = 0;
        let labeled = async || {
            tries += 1;
            let (_, answer) = post(&scene.bed, VOLUMES, &volume(&format!("try-{tries}"), &csi())).await;
            !zone(&answer).is_empty()
        };
        until("the webhook is asked", labeled).await;
        let made = scene.make(&volume("ebs", &ebs("vol-1"))).await;
        assert_eq!((zone(&made), &terms(&made)[0]["matchExpressions"]), ("b__a", &added()));
        let mut mine = volume("mine", &ebs("vol-1"));
        mine["metadata"]["labels"] = json!({ZONE: "mine", "other": "stays"});
        mine["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["x"]}]}]}});
        let made = scene.make(&mine).await;
        assert_eq!((zone(&made), &made["metadata"]["labels"]["other"]), ("b__a", &json!("stays")));
        assert_eq!(terms(&made), terms(&mine));

        let asked = scene.asked().len();
        let (status, answer) = post(&scene.bed, VOLUMES, &volume("lost", &ebs("vol-gone"))).await;
        assert_eq!((status, &answer["reason"]), (403, &json!("Forbidden")), "{answer}");
        let text = answer["message"].as_str().unwrap();
        assert!(
            text.ends_with("denied the request: error querying AWS EBS volume vol-gone: disk is not found"),
            "{text}"
        );
        for (name, made) in [("local", volume("local", &local())), ("dynamic", provisioned("dynamic", &csi()))] {
            assert_eq!(zone(&scene.make(&made).await), "", "{name}");
        }
        assert_eq!(scene.asked().len(), asked + 1, "only about the lost one");
        assert!(!standby.log().contains("successfully acquired lease"));

        // Another certificate: the process loads it without a restart, and the API server gets its CA bundle.
        let renewed = certify(&certificate, &key);
        standby.wait_for("Loaded new serving certificates");
        let (status, answer) = post(&scene.bed, VOLUMES, &volume("unknown-signer", &csi())).await;
        // An earlier connection may still be open; a new one fails with the old CA bundle.
        assert!(status == 201 || status == 500, "{answer}");
        scene.change_hook(&json!({"clientConfig": {"caBundle": renewed}})).await;
        let mut tries = 0;
        let works = async || {
            tries += 1;
            let (status, answer) = post(&scene.bed, VOLUMES, &volume(&format!("renewed-{tries}"), &csi())).await;
            status == 201 && zone(&answer) == "b__a"
        };
        until("the new certificate works", works).await;

        // While the webhook is down, only the creation of volumes that it reviews fails.
        standby.end();
        let (status, answer) = post(&scene.bed, VOLUMES, &volume("blocked", &ebs("vol-1"))).await;
        assert_eq!(status, 500, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(HOOK), "{answer}");
        for made in [volume("local-2", &local()), provisioned("dynamic-2", &csi())] {
            scene.make(&made).await;
        }
        scene.change_hook(&json!({"failurePolicy": "Ignore"})).await;
        let ignored = async || post(&scene.bed, VOLUMES, &volume("blocked", &ebs("vol-1"))).await.0 == 201;
        until("the failure is ignored", ignored).await;
        assert_eq!(zone(&scene.get("blocked").await), "");
    }
}
