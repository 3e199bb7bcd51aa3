//! Kubeconfigs for the program, and the program with a kubeconfig.

use std::path::Path;

use ccm_test_bed::Bed;

use crate::process::Process;

/// The lines that differ between tests.
pub(crate) struct Kubeconfig {
    pub(crate) server: String,
    /// Additional keys of the cluster, starting with a comma.
    pub(crate) cluster: String,
    /// Keys of the user.
    pub(crate) user: String,
    /// The CA certificate; `None` for no entry.
    pub(crate) ca_pem: Option<String>,
}

impl Kubeconfig {
    /// A kubeconfig with the credentials of this API server's administrator.
    pub(crate) fn of(bed: &Bed) -> Self {
        let user = format!("token: {}", bed.token);
        Self { server: bed.url.clone(), cluster: String::new(), user, ca_pem: Some(bed.ca_pem.clone()) }
    }

    pub(crate) fn server(self, server: impl Into<String>) -> Self {
        Self { server: server.into(), ..self }
    }

    pub(crate) fn cluster(self, cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into(), ..self }
    }

    pub(crate) fn user(self, user: impl Into<String>) -> Self {
        Self { user: user.into(), ..self }
    }

    pub(crate) fn ca_pem(self, ca_pem: Option<String>) -> Self {
        Self { ca_pem, ..self }
    }

    pub(crate) fn write(&self, folder: &Path) -> String {
        let ca = folder.join("ca.pem");
        let authority = self.ca_pem.as_ref().map_or(String::new(), |pem| {
            std::fs::write(&ca, pem).unwrap();
            format!(", certificate-authority: '{}'", ca.display())
        });
        let path = folder.join("kubeconfig");
        let Self { server, cluster, user, .. } = self;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{server}'{authority}{cluster}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers:\n- name: u\n  user: {{{user}}}\n",
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The program with this kubeconfig and its own lease.
    pub(crate) fn start(&self, folder: &Path, more: &[&str], environment: &[(&str, &str)]) -> Process {
        let kubeconfig = self.write(folder);
        let lease = format!("--leader-elect-resource-name=connect-{}", uuid::Uuid::new_v4());
        let args = ["--cloud-provider=fake", "--kubeconfig", &kubeconfig, "--secure-port=0", &lease, "--v=2"];
        Process::start_with(&[&args, more].concat(), environment)
    }
}

pub(crate) fn certificate_user(certificate: &Path, key: &Path) -> String {
    format!("client-certificate: '{}', client-key: '{}'", certificate.display(), key.display())
}
