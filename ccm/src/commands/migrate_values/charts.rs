//! The keys of the charts of the Go programs.

use serde_json::{Map, Value, json};

use super::{Converted, at, is_empty, text};

/// What to do with a key.
pub(super) enum Take {
    /// The same value, under this key.
    As(&'static str),
    /// The value of this flag.
    Flag(&'static str),
    With(fn(&mut Converted<'_>, &str, &Value)),
    /// The same, also for an empty value: it deletes a default of that chart.
    Always(fn(&mut Converted<'_>, &str, &Value)),
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// Something that the user must decide.
    Open(&'static str),
}

use Take::{Always, As, Flag, Nothing, Open, With};

pub(super) struct Chart {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Its own values, as JSON, where this chart has others.
    pub(super) defaults: &'static str,
    pub(super) rows: &'static [(&'static str, Take)],
    /// What depends on several keys.
    pub(super) last: fn(&mut Converted<'_>, &Value),
}

const IMAGE: Take =
    Open("the project publishes no image: set image.repository and image.tag to the one that you built");
/// `CLOUD_CONFIG` in the container of the chart for OpenStack.
const OPENSTACK_FILE: &str = "/etc/config/cloud.conf";
const ROLES: Take = Open(
    "the roles have the name of the release (fullnameOverride); remove those of the other chart with it, and change what refers to them by name",
);

pub(super) const CHARTS: [Chart; 3] = [
    Chart {
        name: "aws",
        about: "the chart of cloud-provider-aws (0.0.11)",
        defaults: r#"{"args": ["--v=2", "--cloud-provider=aws"], "serviceAccountName": "cloud-controller-manager",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""}, "resources": {"requests": {"cpu": "200m"}},
            "hostNetworking": false}"#,
        rows: &[
            ("namespace", Open("give it to helm: --namespace")),
            ("args", With(arguments)),
            ("image.repository", IMAGE),
            ("image.tag", IMAGE),
            ("imagePullSecrets", As("imagePullSecrets")),
            ("nameOverride", As("fullnameOverride")),
            ("nodeSelector", Always(node_selector)),
            (
                "clusterRoleRules",
                Open(
                    "the chart has the rules that this program uses; put only rules of your own into rbac.additionalRules",
                ),
            ),
            ("resources", As("resources")),
            ("env", As("extraEnv")),
            ("securityContext", As("containerSecurityContext")),
            ("podSecurityContext", As("podSecurityContext")),
            ("podAnnotations", As("podAnnotations")),
            ("tolerations", Always(tolerations)),
            ("dnsPolicy", As("dnsPolicy")),
            ("clusterRoleName", ROLES),
            ("roleBindingName", ROLES),
            ("serviceAccountName", As("serviceAccount.name")),
            ("serviceAccount.annotations", As("serviceAccount.annotations")),
            ("roleName", Nothing("the Role extension-apiserver-authentication-reader of the cluster is bound")),
            ("extraVolumes", As("extraVolumes")),
            ("extraVolumeMounts", As("extraVolumeMounts")),
            ("hostNetworking", As("hostNetwork")),
        ],
        last: aws,
    },
    Chart {
        name: "azure",
        about: "the chart of cloud-provider-azure (1.36)",
        defaults: r#"{"infra": {"clusterName": "kubernetes"}, "cloudControllerManager": {
            "allocateNodeCidrs": "true", "cloudConfig": "/etc/kubernetes/azure.json", "clusterCIDR": "10.244.0.0/16",
            "configureCloudRoutes": "true", "securePort": 10268, "replicas": 1,
            "containerResourceManagement":
                {"requestsCPU": "100m", "requestsMem": "128Mi", "limitsCPU": "4", "limitsMem": "2Gi"},
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "federatedTokenPath": "/var/run/secrets/azure/tokens"}, "cloudNodeManager": {"enabled": true}}"#,
        rows: &[
            ("infra.clusterName", As("clusterName")),
            ("cloudControllerManager.enabled", With(enabled)),
            ("cloudControllerManager.allocateNodeCidrs", Flag("allocate-node-cidrs")),
            ("cloudControllerManager.bindAddress", Flag("bind-address")),
            ("cloudControllerManager.caCertDir", Nothing("the image has certificates; mount others with extraVolumes")),
            (
                "cloudControllerManager.certDir",
                Open(
                    "the container cannot write there: leave it out, and the certificate of the port is in memory; with files of \
                     your own set flags.tls-cert-file and flags.tls-private-key-file",
                ),
            ),
            ("cloudControllerManager.cloudConfig", With(file_of_the_node)),
            ("cloudControllerManager.cloudConfigSecretName", Flag("cloud-config-secret-name")),
            ("cloudControllerManager.clusterCIDR", Flag("cluster-cidr")),
            ("cloudControllerManager.configureCloudRoutes", Flag("configure-cloud-routes")),
            ("cloudControllerManager.contentionProfiling", Flag("contention-profiling")),
            ("cloudControllerManager.controllerStartInterval", Flag("controller-start-interval")),
            ("cloudControllerManager.enableDynamicReloading", Flag("enable-dynamic-reloading")),
            ("cloudControllerManager.http2MaxStreamsPerConnection", Flag("http2-max-streams-per-connection")),
            ("cloudControllerManager.imageRepository", IMAGE),
            ("cloudControllerManager.imageName", IMAGE),
            ("cloudControllerManager.imageTag", IMAGE),
            ("cloudControllerManager.imagePullPolicy", As("image.pullPolicy")),
            ("cloudControllerManager.kubeAPIBurst", Flag("kube-api-burst")),
            ("cloudControllerManager.kubeAPIContentType", Flag("kube-api-content-type")),
            ("cloudControllerManager.kubeAPIQPS", Flag("kube-api-qps")),
            ("cloudControllerManager.kubeconfig", Flag("kubeconfig")),
            ("cloudControllerManager.leaderElect", Flag("leader-elect")),
            ("cloudControllerManager.leaderElectLeaseDuration", Flag("leader-elect-lease-duration")),
            ("cloudControllerManager.leaderElectRenewDeadline", Flag("leader-elect-renew-deadline")),
            ("cloudControllerManager.leaderElectRetryPeriod", Flag("leader-elect-retry-period")),
            ("cloudControllerManager.leaderElectResourceLock", Flag("leader-elect-resource-lock")),
            ("cloudControllerManager.logVerbosity", Flag("v")),
            ("cloudControllerManager.master", Flag("master")),
            ("cloudControllerManager.minResyncPeriod", Flag("min-resync-period")),
            ("cloudControllerManager.nodeStatusUpdateFrequency", Flag("node-status-update-frequency")),
            ("cloudControllerManager.replicas", With(replicas)),
            ("cloudControllerManager.updateStrategy", With(update_strategy)),
            ("cloudControllerManager.profiling", Flag("profiling")),
            ("cloudControllerManager.routeReconciliationPeriod", Flag("route-reconciliation-period")),
            ("cloudControllerManager.securePort", Flag("secure-port")),
            ("cloudControllerManager.useServiceAccountCredentials", Flag("use-service-account-credentials")),
            ("cloudControllerManager.containerResourceManagement.requestsCPU", As("resources.requests.cpu")),
            ("cloudControllerManager.containerResourceManagement.requestsMem", As("resources.requests.memory")),
            ("cloudControllerManager.containerResourceManagement.limitsCPU", As("resources.limits.cpu")),
            ("cloudControllerManager.containerResourceManagement.limitsMem", As("resources.limits.memory")),
            ("cloudControllerManager.tolerations", Always(tolerations)),
            ("cloudControllerManager.nodeSelector", Always(node_selector)),
            ("cloudControllerManager.federatedTokenPath", With(federated_token)),
            ("cloudNodeManager", With(node_manager)),
        ],
        last: azure,
    },
    Chart {
        name: "openstack",
        about: "the chart openstack-cloud-controller-manager (2.36)",
        defaults: r#"{"enabledControllers": ["cloud-node", "cloud-node-lifecycle", "route", "service"],
            "serviceAccountName": "cloud-controller-manager", "cluster": {"name": "kubernetes"},
            "secret": {"enabled": true, "create": true, "name": "cloud-config"}, "dnsPolicy": "ClusterFirst",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "podSecurityContext": {"runAsUser": 1001},
            "extraVolumes": [{"name": "k8s-certs", "hostPath": {"path": "/etc/kubernetes/pki"}}],
            "extraVolumeMounts": [{"name": "k8s-certs", "mountPath": "/etc/kubernetes/pki", "readOnly": true}]}"#,
        rows: &[
            ("commonAnnotations", As("commonAnnotations")),
            ("imagePullSecrets", As("imagePullSecrets")),
            ("image.repository", IMAGE),
            ("image.tag", IMAGE),
            ("nameOverride", As("fullnameOverride")),
            ("extraInitContainers", As("initContainers")),
            ("extraEnv", As("extraEnv")),
            ("resources", As("resources")),
            ("livenessProbe", Nothing("the chart has a probe of its own, at /livez")),
            ("readinessProbe", Nothing("the chart has a probe of its own, at /readyz")),
            ("dnsPolicy", As("dnsPolicy")),
            ("nodeSelector", Always(node_selector)),
            ("tolerations", Always(tolerations)),
            ("podAnnotations", As("podAnnotations")),
            ("podLabels", As("podLabels")),
            ("podSecurityContext", As("podSecurityContext")),
            ("securityContext", As("containerSecurityContext")),
            ("enabledControllers", As("controllers")),
            ("controllerExtraArgs", With(container_arguments)),
            ("serviceMonitor.enabled", With(service_monitor)),
            ("serviceMonitor.additionalLabels", As("metrics.serviceMonitor.labels")),
            ("secret.enabled", Nothing("see cloudConfig")),
            ("secret.create", With(own_secret)),
            ("secret.name", Nothing("see cloudConfig")),
            ("logVerbosityLevel", Flag("v")),
            ("cloudConfigContents", Nothing("see cloudConfig")),
            ("cloudConfig.global", Nothing("see cloudConfig")),
            ("cloudConfig.networking", Nothing("see cloudConfig")),
            ("cloudConfig.loadBalancer", Nothing("see cloudConfig")),
            ("cloudConfig.blockStorage", Nothing("see cloudConfig")),
            ("cloudConfig.metadata", Nothing("see cloudConfig")),
            ("cloudConfig.route", Nothing("see cloudConfig")),
            ("hostAliases", As("hostAliases")),
            ("priorityClassName", As("priorityClassName")),
            ("extraVolumes", As("extraVolumes")),
            ("extraVolumeMounts", As("extraVolumeMounts")),
            ("cluster.name", As("clusterName")),
            ("clusterRoleName", ROLES),
            ("serviceAccountName", As("serviceAccount.name")),
        ],
        last: openstack,
    },
];

/// A list of arguments, or a text that holds one in YAML.
fn arguments(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let in_text = || {
        let lines = text(value);
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let item =
            |line: &str| line.strip_prefix('-').filter(|rest| rest.starts_with(' ')).unwrap_or(line).trim().to_owned();
        lines.map(item).map(|item| item.trim_matches(['"', '\'']).to_owned()).collect::<Vec<String>>()
    };
    let all: Vec<String> = value.as_array().map_or_else(in_text, |items| items.iter().map(text).collect());
    let mut all = all.into_iter();
    while let Some(argument) = all.next() {
        // The value of a flag may be the next argument.
        let value = if converted.wants_value(&argument) { all.next() } else { None };
        converted.argument(key, &value.map_or(argument.clone(), |value| format!("{argument}={value}")));
    }
}

/// The container of the chart for OpenStack has two variables, and its arguments are a template.
fn container_arguments(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let name = text(at(&converted.given, "cluster.name"));
    let all = text(value).replace("$(CLOUD_CONFIG)", OPENSTACK_FILE).replace("$(CLUSTER_NAME)", &name);
    arguments(converted, key, &all.into());
}

/// Without a rule of its own, the chart also asks for control-plane nodes. As in Helm, null deletes a label that the other
/// chart sets.
fn node_selector(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let labels: Map<String, Value> = value.as_object().cloned().unwrap_or_default();
    let labels: Map<String, Value> = labels.into_iter().filter(|(_, value)| !value.is_null()).collect();
    converted.set("affinity", json!({}));
    if labels.is_empty() {
        return converted.took(key, "affinity: {}, for any node");
    }
    converted.set("nodeSelector", labels.into());
    converted.took(key, "nodeSelector, and affinity: {}");
}

/// Without a list the chart has tolerations of its own.
fn tolerations(converted: &mut Converted<'_>, key: &str, value: &Value) {
    converted.set("tolerations", value.as_array().cloned().unwrap_or_default().into());
    converted.took(key, "tolerations");
}

/// Helm merges maps, and the API server takes `rollingUpdate` only with its own type.
fn update_strategy(converted: &mut Converted<'_>, key: &str, value: &Value) {
    converted.set("updateStrategy", value.clone());
    if !matches!(at(value, "type").as_str(), None | Some("RollingUpdate")) {
        converted.set("updateStrategy.rollingUpdate", Value::Null);
    }
    converted.took(key, "updateStrategy");
}

/// The other chart has the program `cloud-node-manager` too, which initializes nodes.
fn node_manager(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let what = match text(at(value, "enabled")).as_str() {
        "true" => {
            "cloud-node-manager initializes the nodes, and `helm uninstall` of the old chart removes it: then no new node is \
             initialized. Keep it (in place of the uninstall, upgrade the old chart with \
             --set cloudControllerManager.enabled=false), or remove \"-cloud-node\" from controllers"
        }
        _ => {
            "the old chart had no cloud-node-manager: if no other program initializes the nodes, remove \"-cloud-node\" from \
             controllers"
        }
    };
    converted.open(key, what);
}

/// A Secret that the uninstall removes.
fn own_secret(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let secret = text(at(&converted.given, "secret.name"));
    match text(value).as_str() {
        "true" => converted.open(
            key,
            &format!(
                "`helm uninstall` of the old chart removes the Secret {secret}: if other pods mount it, such as those of the Cinder \
                 CSI driver, save it before and apply it again after"
            ),
        ),
        _ => converted.took(key, "nothing: see cloudConfig"),
    }
}

fn enabled(converted: &mut Converted<'_>, key: &str, value: &Value) {
    match text(value).as_str() {
        "true" => converted.took(key, "nothing: this chart installs the program"),
        _ => {
            converted.open(key, "that chart did not install the program: whether this one should is for you to decide");
        }
    }
}

fn replicas(converted: &mut Converted<'_>, key: &str, value: &Value) {
    converted.set("kind", "Deployment".into());
    converted.set("replicas", value.clone());
    converted.took(key, "kind: Deployment, and replicas");
}

fn service_monitor(converted: &mut Converted<'_>, key: &str, value: &Value) {
    converted.set("metrics.serviceMonitor.enabled", value.clone());
    if text(value) == "true" {
        converted.set("bindAddress", "0.0.0.0".into());
    }
    converted.took(
        key,
        "metrics.serviceMonitor.enabled, with bindAddress 0.0.0.0. The label job of the metrics is the name of the Service, \
         which is another one here: alerts of your own must name it",
    );
}

/// A volume with its mount, read only.
fn mount(converted: &mut Converted<'_>, name: &str, path: &str, volume: Value) {
    let mut volume = volume;
    if let Some(fields) = volume.as_object_mut() {
        fields.insert("name".into(), name.into());
    }
    let mount = json!({"name": name, "mountPath": path, "readOnly": true});
    for (key, item) in [("extraVolumes", volume), ("extraVolumeMounts", mount)] {
        if let Some(items) = converted.values.entry(key).or_insert_with(|| json!([])).as_array_mut() {
            items.push(item);
        }
    }
}

fn file_of_the_node(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let path = text(value);
    mount(converted, "etc-kubernetes", "/etc/kubernetes", json!({"hostPath": {"path": "/etc/kubernetes"}}));
    converted.flag(key, "cloud-config", &path);
    converted.open(
        key,
        "the pods run as user 65532, which must be able to read the file of the node; else set podSecurityContext.runAsUser: 0 \
         and runAsNonRoot: false, or use cloudConfig.existingSecret without flags.cloud-config",
    );
}

fn federated_token(converted: &mut Converted<'_>, key: &str, value: &Value) {
    let token =
        json!({"audience": "api://AzureADTokenExchange", "expirationSeconds": 3600, "path": "azure-identity-token"});
    let volume = json!({"projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": token}]}});
    mount(converted, "azure-identity-token", &text(value), volume);
    converted.took(key, "extraVolumes and extraVolumeMounts");
}

/// `--configure-cloud-routes` is on by default, and does nothing without `--cluster-cidr`. This chart passes the second only
/// with the first.
fn routes(converted: &mut Converted<'_>, _values: &Value) {
    let current = Value::Object(converted.values.clone());
    let range = at(&current, "routes.clusterCIDR");
    match at(&current, "routes.enabled") {
        _ if is_empty(range) => {}
        Value::Bool(false) => converted.flag("routes.enabled=false with --cluster-cidr", "cluster-cidr", &text(range)),
        Value::Null => {
            converted.set("routes.enabled", true.into());
            converted.took("--configure-cloud-routes (default)", "routes.enabled");
        }
        _ => {}
    }
}

/// The Go programs serve at all addresses, this one at 127.0.0.1, which the kubelet does not reach in the network of pods.
fn all_addresses(converted: &mut Converted<'_>) {
    if !converted.values.contains_key("bindAddress") {
        converted.set("bindAddress", "0.0.0.0".into());
        converted.took("--bind-address (default)", "bindAddress");
    }
}

/// The class of the pods in the charts for AWS and Azure.
fn priority(converted: &mut Converted<'_>) {
    converted.set("priorityClassName", "system-node-critical".into());
    converted.took("(fixed there) priorityClassName", "priorityClassName");
}

fn aws(converted: &mut Converted<'_>, values: &Value) {
    routes(converted, values);
    all_addresses(converted);
    priority(converted);
}

fn azure(converted: &mut Converted<'_>, values: &Value) {
    routes(converted, values);
    all_addresses(converted);
    priority(converted);
    // What its list tolerates, and this chart's does not.
    if !converted.values.contains_key("tolerations") {
        let etcd = json!([{"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"}]);
        converted.set("extraTolerations", etcd);
        converted.took("cloudControllerManager.tolerations (default)", "extraTolerations");
    }
    converted.set("controllers", json!(["*", "-cloud-node"]));
    converted.set("serviceAccount.name", "cloud-controller-manager".into());
    converted.took("(fixed there) --controllers=*,-cloud-node", "controllers");
    converted.took("(fixed there) serviceAccountName", "serviceAccount.name");
}

fn openstack(converted: &mut Converted<'_>, values: &Value) {
    routes(converted, values);
    let (secret, sections) = (at(values, "secret"), at(values, "cloudConfig"));
    let is_on = |name: &str| text(at(secret, name)) == "true";
    let name = text(at(secret, "name"));
    if !is_on("enabled") {
        // Unless an argument of the user names another.
        if at(&converted.values.clone().into(), "flags.cloud-config").is_null() {
            converted.flag("secret.enabled=false", "cloud-config", OPENSTACK_FILE);
        }
        let what = "the file of flags.cloud-config comes from elsewhere: see that it is there, or set cloudConfig";
        return converted.open("secret.enabled", what);
    }
    // Files beside it, such as the certificates of `ca-file`, and arguments name its path in the container.
    converted.set("cloudConfig.mountPath", "/etc/config".into());
    if !is_on("create") {
        converted.set("cloudConfig.existingSecret", name.into());
        return converted.took("secret", "cloudConfig.existingSecret, at /etc/config");
    }
    let contents = text(at(values, "cloudConfigContents"));
    if !is_empty(at(values, "cloudConfigContents")) {
        converted.set("cloudConfig.inline", contents.into());
        return converted.took("cloudConfigContents", "cloudConfig.inline, a Secret named after the release");
    }
    if sections.as_object().is_none_or(|sections| sections.values().all(is_empty)) {
        return converted
            .open("cloudConfig", "the chart needs a cloud.conf: set cloudConfig.inline or cloudConfig.existingSecret");
    }
    let titles = [
        ("global", "Global"),
        ("networking", "Networking"),
        ("loadBalancer", "LoadBalancer"),
        ("blockStorage", "BlockStorage"),
        ("metadata", "Metadata"),
        ("route", "Route"),
    ];
    let mut file = String::new();
    for (key, title) in titles {
        let Some(fields) = at(sections, key).as_object() else { continue };
        file += &format!("[{title}]\n");
        // An empty key is not set.
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            file += &format!("{name} = {}\n", Value::from(text(value)));
        }
    }
    converted.set("cloudConfig.inline", file.into());
    converted.took("cloudConfig", "cloudConfig.inline, a Secret named after the release");
}
