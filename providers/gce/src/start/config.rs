//! The file of `--cloud-config`, "gce.conf", read once.
//!
//! Upstream: `ConfigGlobal` in `providers/gce/gce.go`. Accepts what upstream accepts; unknown sections and keys, which
//! upstream silently ignores, are warnings.

use ccm_kit::gcfg::{self, Field, Key, Reader, Secret, Table, table::refuse};
use ccm_provider::{Finding, ProviderError, Severity};

use super::invalid;

/// The value of `token-url` that selects Application Default Credentials.
pub(crate) const DEFAULT_CREDENTIALS: &str = "nil";
/// The alpha feature that leaves new internal balancers to another controller.
pub(crate) const ILB_SUBSETS: &str = "ILBSubsets";
/// The alpha feature that never changes instance groups.
pub(crate) const SKIP_GROUPS: &str = "SkipIGsManagement";

/// `[global]`. A string is empty if its key is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Config {
    pub(crate) token_url: String,
    pub(crate) token_body: Secret,
    pub(crate) project_id: String,
    pub(crate) network_project_id: String,
    pub(crate) network_name: String,
    pub(crate) subnetwork_name: String,
    pub(crate) stack_type: String,
    pub(crate) secondary_range_name: String,
    pub(crate) node_tags: Vec<String>,
    pub(crate) node_instance_prefix: String,
    pub(crate) regional: bool,
    pub(crate) multizone: bool,
    pub(crate) api_endpoint: String,
    pub(crate) container_api_endpoint: String,
    pub(crate) local_zone: String,
    pub(crate) alpha_features: Vec<String>,
    pub(crate) external_instance_groups_prefix: String,
}

pub(crate) static GLOBAL: Table<Config> = Table {
    section: "global",
    doc: "Absent keys come from the metadata server of the instance. A start without one needs `project-id`, `local-zone`, \
          `network-name` and another `token-url`.",
    keys: &[
        Key::new(
            "token-url",
            Field::Text(|c: &mut Config| &mut c.token_url),
            "",
            "Where tokens come from. Absent: the default service account of the instance. `nil`: Application Default Credentials. A URL: it is asked for tokens with the token of the instance.",
        ),
        Key::new(
            "token-body",
            Field::Text(|c: &mut Config| &mut c.token_body.0),
            "",
            "What is sent to the URL of `token-url`.",
        )
        .secret(),
        Key::new(
            "project-id",
            Field::Text(|c: &mut Config| &mut c.project_id),
            "",
            "Project of the cluster, by ID or number. Absent: that of the instance.",
        ),
        Key::new(
            "network-project-id",
            Field::Text(|c: &mut Config| &mut c.network_project_id),
            "",
            "Project of the network, by ID or number: the host project of a shared VPC. Absent: `project-id`.",
        ),
        Key::new(
            "network-name",
            Field::Text(|c: &mut Config| &mut c.network_name),
            "",
            "Network, by name or URL. Absent: that of the first NIC of the instance.",
        ),
        Key::new(
            "subnetwork-name",
            Field::Text(|c: &mut Config| &mut c.subnetwork_name),
            "",
            "Subnetwork of internal load balancers, by name or URL. Absent: the one of an automatic network, else that of the nodes.",
        ),
        Key::new(
            "stack-type",
            Field::Lenient {
                kind: "`IPV4`, `IPV6`, `IPV4_IPV6`",
                set: |c, value| {
                    value.clone_into(&mut c.stack_type);
                    let is_known = matches!(value, "" | "IPV4" | "IPV6" | "IPV4_IPV6");
                    Ok((!is_known).then(|| "not IPV4, IPV6 or IPV4_IPV6: taken for IPV4".to_owned()))
                },
            },
            "",
            "With `IPV6`, the IPv6 addresses of nodes come first.",
        ),
        Key::new(
            "secondary-range-name",
            Field::Text(|c: &mut Config| &mut c.secondary_range_name),
            "",
            "Accepted without effect: the allocators that used it are not there.",
        )
        .note("Deprecated."),
        Key::new(
            "node-tags",
            Field::List(|c: &mut Config| &mut c.node_tags),
            "",
            "Network tag of the nodes, for firewall rules; once for each tag, commas do not separate. Absent: found from the instances.",
        ),
        Key::new(
            "node-instance-prefix",
            Field::Text(|c: &mut Config| &mut c.node_instance_prefix),
            "",
            "Lists only instances whose names begin with it.",
        ),
        Key::new(
            "regional",
            Field::Flag(|c: &mut Config| &mut c.regional),
            "false",
            "Works in all zones of the region.",
        ),
        Key::new("multizone", Field::Flag(|c: &mut Config| &mut c.multizone), "false", "The same as `regional`."),
        Key::new(
            "api-endpoint",
            Field::Text(|c: &mut Config| &mut c.api_endpoint),
            "",
            "Base of the Compute API, with its version: `https://compute.googleapis.com/compute/v1/`.",
        ),
        Key::new(
            "container-api-endpoint",
            Field::Text(|c: &mut Config| &mut c.container_api_endpoint),
            "",
            "Base of the API of GKE. Accepted; this program does not call it.",
        ),
        Key::new(
            "local-zone",
            Field::Text(|c: &mut Config| &mut c.local_zone),
            "",
            "Zone of the cluster; its region is that of all load balancers. Absent: that of the instance.",
        ),
        Key::new(
            "alpha-features",
            Field::List(|c: &mut Config| &mut c.alpha_features),
            "",
            "`ILBSubsets` leaves new internal load balancers to another controller; `SkipIGsManagement` never changes instance groups. Others have no effect.",
        ),
        Key::new(
            "external-instance-groups-prefix",
            Field::Text(|c: &mut Config| &mut c.external_instance_groups_prefix),
            "",
            "Internal load balancers use the instance groups whose names begin with it as they are, if all of their members are hosts of the load balancer; an instance may be in one balanced group only. They are never changed. Has no effect with `SkipIGsManagement`.",
        )
        .note("Of OpenShift; upstream ignores it."),
    ],
};

impl Config {
    /// Parses the file. Also returns findings about it. The error has all problems with key and line.
    pub(crate) fn parse(text: &str) -> Result<(Self, Vec<Finding>), ProviderError> {
        let document = gcfg::parse(text).map_err(|error| invalid(format!("gce.conf: {error}")))?;
        // The older gcfg of upstream does not know \b, which other versions read as a backspace.
        let entries = document.sections.iter().flat_map(|section| &section.entries);
        let escaped = |value: &Option<String>| value.as_deref().is_some_and(|value| value.contains('\u{8}'));
        if let Some(entry) = entries.into_iter().find(|entry| escaped(&entry.value)) {
            let problem = "unknown escape sequence \\b in the value; known are \\\" \\\\ \\n \\t";
            return Err(invalid(format!("gce.conf: {}: {}: {problem}", entry.at, entry.key)));
        }
        let mut reader = Reader::new(&document, Severity::Warning);
        let config: Self = reader.section(&GLOBAL);
        let findings = reader.finish();
        refuse("gce.conf", &findings)?;
        Ok((config, findings))
    }

    /// Whether an alpha feature is enabled.
    pub(crate) fn has(&self, feature: &str) -> bool {
        self.alpha_features.iter().any(|name| name == feature)
    }

    /// Whether the provider manages all zones of the region.
    pub(crate) fn manages_region(&self) -> bool {
        self.regional || self.multizone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap().0
    }

    #[test]
    fn p01_unknown_keys_are_warnings_and_names_have_any_case() {
        let (config, findings) = Config::parse("[Global]\nProject-ID = p\nunknown = x\n[other]\na = b\n").unwrap();
        assert_eq!(config.project_id, "p");
        let lines: Vec<String> = findings.iter().map(gcfg::table::line).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(findings.iter().all(|finding| finding.severity == Severity::Warning));
        assert!(lines[0].contains("unknown") && lines[1].contains("[other]"), "{lines:?}");
    }

    #[test]
    fn p02_commas_do_not_separate_node_tags() {
        assert_eq!(config("[global]\nnode-tags = a,b\n").node_tags, ["a,b"]);
        assert_eq!(config("[global]\nnode-tags = a\nnode-tags = b\n").node_tags, ["a", "b"]);
        assert_eq!(config("[global]\nnode-tags = a\nnode-tags\nnode-tags = b\n").node_tags, ["b"]);
    }

    #[test]
    fn p03_a_boolean_without_a_value_is_true() {
        assert!(config("[global]\nmultizone\n").manages_region());
        assert!(config("[global]\nregional = Yes\n").manages_region());
        assert!(!config("[global]\nmultizone = off\n").manages_region());
        assert!(Config::parse("[global]\nproject-id\n").is_err());
    }

    #[test]
    fn p64_an_unknown_escape_is_a_syntax_error_with_its_line() {
        let error = Config::parse("[global]\nproject-id = \"a\\b\"\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("\\b"), "{error}");
        assert!(Config::parse("[global]\nproject-id = \"a\\x\"\n").unwrap_err().to_string().contains("line 2"));
        assert_eq!(config("[global]\nproject-id = \"a\\tb\" # c\n").project_id, "a\tb");
    }

    #[test]
    fn the_body_of_a_token_request_is_never_shown() {
        let config = config("[global]\ntoken-body = \"hush\"\n");
        assert_eq!(config.token_body.0, "hush");
        assert!(!format!("{config:?}").contains("hush"));
    }
}
