//! Control plane components that run as pods, identified by command and image, with their flags.

use std::collections::BTreeMap;

use super::objects::{Container, Mount, Pod, Toleration};
use super::variables::Variables;

/// Components with relevant flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Component {
    ControllerManager,
    ApiServer,
    /// The Go program, or this one.
    CloudControllerManager,
}

impl Component {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ControllerManager => "kube-controller-manager",
            Self::ApiServer => "kube-apiserver",
            Self::CloudControllerManager => "cloud-controller-manager",
        }
    }

    /// The component with this executable.
    fn of_program(path: &str) -> Option<Self> {
        match path.rsplit('/').next().unwrap_or_default() {
            "kube-controller-manager" => Some(Self::ControllerManager),
            "kube-apiserver" => Some(Self::ApiServer),
            "ccm" => Some(Self::CloudControllerManager),
            name if name.ends_with("cloud-controller-manager") => Some(Self::CloudControllerManager),
            _ => None,
        }
    }

    /// The component that the entry point of the image starts, by the name of the image. That of a mirror may say nothing:
    /// then the container has the name that manifests of these programs give it. The flag --cloud-provider would not do:
    /// cluster-autoscaler has one too.
    fn of_image(container: &Container, args: &[String]) -> Option<Self> {
        let path = container.image.split('@').next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = last.split(':').next().unwrap_or_default();
        let name = ["-amd64", "-arm64"].iter().find_map(|arch| name.strip_suffix(arch)).unwrap_or(name);
        // Several vendors use the repository's name for the program: cloud-provider-vsphere.
        let named = name.starts_with("cloud-provider-")
            || name.contains("cloud-controller-manager")
            || container.name.ends_with("cloud-controller-manager");
        let vendor = named && args.iter().any(|arg| arg.starts_with("--"));
        Self::of_program(name).or(vendor.then_some(Self::CloudControllerManager))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) component: Component,
    /// `namespace/name`, sorted.
    pub(super) pods: Vec<String>,
    /// Empty if the entry point of the image starts it.
    pub(super) program: String,
    /// The arguments after the program's name.
    pub(super) args: Vec<String>,
    pub(super) account: String,
    pub(super) namespace: String,
    pub(super) host_network: bool,
    pub(super) tolerations: Vec<Toleration>,
    /// Without it, the image determines the user.
    pub(super) user: Option<i64>,
    /// Where files of the node are mounted.
    pub(super) of_node: Vec<String>,
    /// Started by a kubelet from a file: neither scheduled nor evicted.
    pub(super) is_static: bool,
    /// Started by a script of the pod, which needs a shell in the image.
    pub(super) in_shell: bool,
}

impl Running {
    /// `pod kube-system/kube-apiserver-a and 2 more`
    pub(super) fn subject(&self) -> String {
        let more = self.pods.len().saturating_sub(1);
        let first = self.pods.first().map_or("", String::as_str);
        if more == 0 { format!("pod {first}") } else { format!("pod {first} and {more} more") }
    }

    /// Whether it is the user of a kubeconfig for the API server. A static pod has no service account.
    pub(super) fn has_kubeconfig(&self) -> bool {
        self.is_static || self.flags().get("kubeconfig").is_some_and(|path| !path.is_empty())
    }

    /// The user that the API server sees, unless it is that of a kubeconfig.
    pub(super) fn service_account(&self) -> Option<String> {
        let has_one = !self.has_kubeconfig() && !self.account.is_empty();
        has_one.then(|| format!("system:serviceaccount:{}:{}", self.namespace, self.account))
    }

    /// The flags of a component without a flag table: the last value of each; `true` for a flag without a value.
    pub(super) fn flags(&self) -> BTreeMap<String, String> {
        let mut flags = BTreeMap::new();
        let mut args = self.args.iter().peekable();
        while let Some(arg) = args.next() {
            let Some(flag) = arg.strip_prefix("--").filter(|flag| !flag.is_empty()) else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let value = args.next_if(|next| !next.starts_with('-'));
                    (flag, value.cloned().unwrap_or_else(|| "true".to_owned()))
                }
            };
            flags.insert(name.replace('_', "-"), value);
        }
        flags
    }
}

/// Whether a pod runs no more, or is being deleted.
pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some()
}

/// Collects the running components, pod by pod.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<Running>);

impl Found {
    /// Adds the components of one pod, unless it has ended or is being deleted.
    pub(super) fn add(&mut self, pod: &Pod) {
        if has_ended(pod) {
            return;
        }
        for running in pod.spec.containers.iter().filter_map(|container| of(pod, container)) {
            let same = |known: &&mut Running| Running { pods: running.pods.clone(), ..(**known).clone() } == running;
            match self.0.iter_mut().find(same) {
                Some(known) => known.pods.extend(running.pods),
                None => self.0.push(running),
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<Running> {
        self.0.iter_mut().for_each(|running| running.pods.sort());
        self.0.sort_by(|a, b| (a.component, &a.pods).cmp(&(b.component, &b.pods)));
        self.0
    }
}

pub(super) fn of(pod: &Pod, container: &Container) -> Option<Running> {
    let (component, program, args, in_shell) = command_line(container)?;
    let spec = &pod.spec;
    let is_of_node = |mount: &&Mount| spec.volumes.iter().any(|it| it.name == mount.name && it.host_path.is_some());
    // The tolerations that the kubelet and controllers add do not differ between pods in a relevant way.
    Some(Running {
        component,
        pods: vec![format!("{}/{}", pod.metadata.namespace, pod.metadata.name)],
        // The image of this program takes the path of the Go program as its first argument.
        program: if in_shell || !container.command.is_empty() { program } else { String::new() },
        args,
        account: spec.service_account_name.clone(),
        namespace: pod.metadata.namespace.clone(),
        host_network: spec.host_network,
        tolerations: spec.tolerations.clone(),
        user: container.security_context.run_as_user.or(spec.security_context.run_as_user),
        of_node: container.volume_mounts.iter().filter(is_of_node).map(|mount| mount.mount_path.clone()).collect(),
        is_static: pod.metadata.owner_references.iter().any(|owner| owner.kind == "Node"),
        in_shell,
    })
}

/// The component in a container, its program, its arguments, and whether a shell starts it: by the name of the program,
/// possibly behind a wrapper (`/go-runner`) or a shell; without a command, by the name of the image or of the container.
fn command_line(container: &Container) -> Option<(Component, String, Vec<String>, bool)> {
    let variables = Variables::of(container);
    let replaced = |words: &[String]| words.iter().map(|word| variables.in_command(word)).collect::<Vec<_>>();
    let (command, args) = (replaced(&container.command), replaced(&container.args));
    let words: Vec<String> = [command.as_slice(), args.as_slice()].concat();
    let may_be_program = |(at, word): (usize, &String)| at == 0 || at == command.len() || word.starts_with('/');
    let program = words.iter().enumerate().find_map(|(at, word)| {
        let component = Component::of_program(word).filter(|_| may_be_program((at, word)))?;
        Some((component, word.clone(), words.get(at + 1..)?.to_vec(), false))
    });
    let script = || {
        let (component, program, args) = words.iter().find_map(|word| in_script(word, &variables))?;
        Some((component, program, args, true))
    };
    let image = || {
        let component = Component::of_image(container, &args).filter(|_| command.is_empty())?;
        Some((component, String::new(), args.clone(), false))
    };
    program.or_else(script).or_else(image)
}

/// The program in a line of a shell script, and its arguments.
fn in_script(script: &str, variables: &Variables<'_>) -> Option<(Component, String, Vec<String>)> {
    let joined = script.replace("\\\n", " ");
    let variables = variables.clone().not_set_by(&joined);
    joined.lines().filter(|line| !line.trim_start().starts_with('#')).find_map(|line| {
        let words = shell_words(line, &variables);
        // A single word is an argument, not a script.
        let at = words.iter().position(|word| word.contains('/') && Component::of_program(word).is_some());
        let program = words.get(at?)?;
        let component = Component::of_program(program).filter(|_| words.len() > 1)?;
        let ends = |word: &&String| !matches!(&***word, ";" | "&" | "&&" | "|" | "||") && !word.contains('>');
        Some((component, program.clone(), words.iter().skip(at? + 1).take_while(ends).cloned().collect()))
    })
}

/// Splits at spaces outside quotes, removes the quotes, and replaces known variables.
fn shell_words(line: &str, variables: &Variables<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        let is_variable = c == '$' && quote != Some('\'');
        if let Some((value, after)) = is_variable.then(|| variables.in_script(rest.as_str())).flatten() {
            for c in value.chars() {
                match quote.is_none() && c.is_whitespace() {
                    true => words.extend(word.take()),
                    false => word.get_or_insert_default().push(c),
                }
            }
            rest = after.chars();
            continue;
        }
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn running(containers: &Value) -> Vec<Running> {
        let pod = json!({"metadata": {"name": "x", "namespace": "kube-system"}, "spec": {"containers": containers}});
        let mut found = Found::default();
        found.add(&serde_json::from_value(pod).unwrap());
        found.finish()
    }

    fn found(containers: &Value) -> Vec<(Component, Vec<String>)> {
        running(containers).into_iter().map(|running| (running.component, running.args)).collect()
    }

    #[test]
    fn programs_are_found_in_the_pods_of_the_usual_installers() {
        use Component::{ApiServer, CloudControllerManager, ControllerManager};
        let rows = [
            // kubeadm
            (
                json!({"command": ["kube-controller-manager", "--allocate-node-cidrs=true"], "image": "registry.k8s.io/kube-controller-manager:v1.36.3"}),
                ControllerManager,
                vec!["--allocate-node-cidrs=true"],
            ),
            (json!({"command": ["kube-apiserver", "--a", "b"], "image": "x"}), ApiServer, vec!["--a", "b"]),
            // kOps
            (
                json!({"command": ["/go-runner"], "args": ["--log-file=/var/log/kube-controller-manager.log", "--also-stdout",
                    "/usr/local/bin/kube-controller-manager", "--cloud-provider=external"]}),
                ControllerManager,
                vec!["--cloud-provider=external"],
            ),
            // cloud-provider-aws: the image has an entry point
            (
                json!({"image": "registry.k8s.io/provider-aws/cloud-controller-manager:v1.27.1", "args": ["--v=2", "--cloud-provider=aws"]}),
                CloudControllerManager,
                vec!["--v=2", "--cloud-provider=aws"],
            ),
            // cloud-provider-openstack
            (
                json!({"args": ["/bin/openstack-cloud-controller-manager", "--v=1", "--cluster-name=$(CLUSTER_NAME)"],
                    "env": [{"name": "CLUSTER_NAME", "value": "prod"}], "image": "x/y:1"}),
                CloudControllerManager,
                vec!["--v=1", "--cluster-name=prod"],
            ),
            // cloud-provider-vsphere
            (
                json!({"image": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.35.0@sha256:00", "args": ["--cloud-provider=vsphere"]}),
                CloudControllerManager,
                vec!["--cloud-provider=vsphere"],
            ),
            // OpenShift
            (
                json!({"command": ["/bin/bash", "-c", "#!/bin/bash\nset -o allexport\nif [[ -f /etc/kubernetes/apiserver-url.env ]]; then\n  source /etc/kubernetes/apiserver-url.env\nfi\nexec /bin/aws-cloud-controller-manager \\\n--cloud-provider=aws \\\n--cluster-name=\"a b\" \\\n-v=2 1>>/var/log/x 2>&1\n"]}),
                CloudControllerManager,
                vec!["--cloud-provider=aws", "--cluster-name=a b", "-v=2"],
            ),
            // this program, by the chart, with any name of the image
            (
                json!({"name": "cloud-controller-manager", "image": "registry.example.com/infra/cloud:1", "args": ["--cloud-provider=aws"]}),
                CloudControllerManager,
                vec!["--cloud-provider=aws"],
            ),
            (
                json!({"name": "aws-cloud-controller-manager", "image": "example.com/infra/mirror@sha256:00", "args": ["--v=2"]}),
                CloudControllerManager,
                vec!["--v=2"],
            ),
            // this program
            (json!({"image": "example.com/ccm:v0.1.0", "args": ["--v=2"]}), CloudControllerManager, vec!["--v=2"]),
        ];
        for (container, component, args) in rows {
            let args = args.into_iter().map(str::to_owned).collect();
            assert_eq!(found(&json!([container.clone()])), [(component, args)], "{container}");
        }
    }

    #[test]
    fn a_program_that_a_script_starts_needs_a_shell() {
        let of = |container: Value| running(&json!([container]))[0].in_shell;
        assert!(of(json!({"command": ["/bin/bash", "-c", "exec /bin/aws-cloud-controller-manager --v=2"]})));
        assert!(!of(json!({"command": ["/bin/aws-cloud-controller-manager", "--v=2"]})));
        assert!(!of(json!({"image": "example.com/ccm:v0.1.0", "args": ["--v=2"]})));
    }

    #[test]
    fn the_program_is_that_of_the_command_or_script_and_not_of_the_image() {
        let of = |container: Value| running(&json!([container])).remove(0).program;
        assert_eq!(of(json!({"command": ["/bin/sh", "-c", "exec /opt/ccm --v=2"]})), "/opt/ccm");
        assert_eq!(of(json!({"command": ["/go-runner"], "args": ["/bin/ccm", "--v=2"]})), "/bin/ccm");
        assert_eq!(of(json!({"args": ["/bin/openstack-cloud-controller-manager", "--v=2"]})), "");
        assert_eq!(of(json!({"image": "example.com/ccm:1"})), "");
    }

    #[test]
    fn a_script_has_the_variables_of_its_container() {
        let env = json!([{"name": "CN", "value": "a b"}, {"name": "MORE", "value": "--v=2  --x=$(CN)"}]);
        let script = r#"exec /bin/ccm "--cluster-name=${CN}" --y='$CN' --cluster-cidr=$CIDR $MORE"#;
        let args = ["--cluster-name=a b", "--y=$CN", "--cluster-cidr=$CIDR", "--v=2", "--x=a", "b"];
        assert_eq!(running(&json!([{"command": ["/bin/sh", "-c", script], "env": env}]))[0].args, args);
    }

    #[test]
    fn similar_names_are_not_taken_for_a_program() {
        for container in [
            json!({"command": ["/kube-apiserver-healthcheck", "--ca-cert=x"], "image": "registry.k8s.io/kops/kube-apiserver-healthcheck:1.30"}),
            json!({"command": ["/bin/x"], "args": ["--lease", "cloud-controller-manager"], "image": "x"}),
            json!({"command": ["/bin/x", "--kubeconfig", "/var/lib/kube-controller-manager/kubeconfig"]}),
            json!({"image": "docker.io/library/nginx:1", "args": ["--x"]}),
            // It has a flag of the same name.
            json!({"name": "cluster-autoscaler", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0",
                "args": ["--cloud-provider=aws"]}),
            json!({"image": "registry.k8s.io/cloud-provider-gcp/cpgw:1", "args": ["--x"]}),
            json!({"command": ["/bin/sh", "-c", "# /bin/cloud-controller-manager --x\nsleep 1"]}),
        ] {
            assert_eq!(found(&json!([container.clone()])), [], "{container}");
        }
    }

    #[test]
    fn pods_with_the_same_flags_are_reported_once_and_those_that_ended_not_at_all() {
        let pod = |name: &str, flag: &str, phase: &str| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "kube-system"}, "status": {"phase": phase},
                "spec": {"containers": [{"command": ["kube-apiserver", flag]}]}}),
            )
            .unwrap()
        };
        let mut found = Found::default();
        for pod in
            [pod("c", "--a", "Running"), pod("a", "--a", "Pending"), pod("b", "--b", ""), pod("d", "--a", "Failed")]
        {
            found.add(&pod);
        }
        let found = found.finish();
        let subjects: Vec<String> = found.iter().map(Running::subject).collect();
        assert_eq!(subjects, ["pod kube-system/a and 1 more", "pod kube-system/b"]);
    }

    #[test]
    fn flags_of_other_components_have_their_last_value() {
        let command = ["kube-apiserver", "--a=1", "--b_c", "2", "--d", "--a=3", "word", "--e="];
        let flags: Vec<(String, String)> = running(&json!([{"command": command}]))[0].flags().into_iter().collect();
        let expected = [("a", "3"), ("b-c", "2"), ("d", "true"), ("e", "")];
        assert_eq!(flags, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
