//! The roles that the Go programs have in the field: their accounts and permissions, as published in July and August 2026,
//! and what works with them. A test runs the program with each of them.
//!
//! The page has them with the policies of the clouds: each provider has a test that runs its policies, and writes
//! `policies.txt`.

use anyhow::{Context as _, ensure};

/// API group, resources, verbs.
pub type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The role of a Go program.
#[derive(Debug)]
pub struct Field {
    /// Who publishes it.
    pub program: &'static str,
    /// Whether its manifest sets `--use-service-account-credentials`.
    pub own_accounts: bool,
    /// In parts, since many have the same ones.
    pub rules: &'static [&'static [Rule]],
    /// The accounts for which it grants tokens by name.
    pub tokens: &'static [&'static str],
    /// The resources without which nodes, Services or routes fail: an error of `migrate-check`.
    pub fails: &'static [&'static str],
    /// The resources that only this program needs: a warning of `migrate-check`.
    pub lacks: &'static [&'static str],
}

const EVENTS: Rule = ("", &["events"], &["create", "patch", "update"]);
const ALL_OF_NODES: Rule = ("", &["nodes"], &["*"]);
const NODE_STATUS: Rule = ("", &["nodes/status"], &["patch"]);
const SERVICES: Rule = ("", &["services"], &["list", "patch", "update", "watch"]);
const SERVICE_STATUS: Rule = ("", &["services/status"], &["list", "patch", "update", "watch"]);
const VOLUMES: Rule = ("", &["persistentvolumes"], &["get", "list", "update", "watch"]);
const ENDPOINTS: Rule = ("", &["endpoints"], &["create", "get", "list", "watch", "update"]);
const LEASES: Rule = ("coordination.k8s.io", &["leases"], &["create", "get", "list", "watch", "update"]);
const LEASES_UNWATCHED: Rule = ("coordination.k8s.io", &["leases"], &["create", "get", "update"]);
const TOKENS: Rule = ("", &["serviceaccounts/token"], &["create"]);
const CONFIG_MAPS: Rule = ("", &["configmaps"], &["get", "list", "watch"]);

/// Of the programs for AWS and Azure.
const COMMON: &[Rule] = &[EVENTS, ALL_OF_NODES, NODE_STATUS, SERVICES, SERVICE_STATUS, VOLUMES, ENDPOINTS];
/// Of cloud-provider-openstack.
const OPENSTACK: &[Rule] = &[
    LEASES_UNWATCHED,
    EVENTS,
    NODE_STATUS,
    SERVICES,
    ("", &["services/status"], &["patch"]),
    TOKENS,
    ("", &["serviceaccounts"], &["create", "get"]),
    ENDPOINTS,
    CONFIG_MAPS,
];
/// Of cloud-provider-gcp, before it wrote the status of Services by itself; the others add rules.
pub const GCP: &[Rule] = &[
    EVENTS,
    LEASES,
    ("", &["endpoints", "serviceaccounts"], &["create", "get", "update"]),
    ("", &["nodes"], &["get", "update", "patch"]),
    ("", &["namespaces"], &["get"]),
    ("", &["nodes/status"], &["patch", "update"]),
    ("", &["secrets"], &["create", "delete", "get", "update"]),
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("*", &["*"], &["list", "watch"]),
    TOKENS,
    ("events.k8s.io", &["events"], &["create", "patch", "update"]),
];

/// What the manifest of cloud-provider-gcp adds since 2025.
const GCP_SERVICES: &[Rule] =
    &[("", &["services"], &["create", "get", "update"]), ("", &["services/status"], &["patch", "update"])];
const ENDPOINT_SLICES: Rule = ("discovery.k8s.io", &["endpointslices"], &["get", "list", "watch"]);
const REVIEWS: &[Rule] = &[
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

pub const FIELD: [Field; 12] = [
    Field {
        program: "the chart of cloud-provider-aws, and KubeOne on AWS",
        own_accounts: false,
        tokens: &[],
        rules: &[COMMON, &[("", &["serviceaccounts"], &["create"]), LEASES, TOKENS], REVIEWS],
        fails: &[],
        lacks: &["persistentvolumes"],
    },
    Field {
        program: "the example of cloud-provider-aws",
        own_accounts: true,
        tokens: &[],
        rules: &[COMMON, &[("", &["serviceaccounts"], &["create", "get", "list", "watch"]), LEASES, TOKENS]],
        fails: &[],
        lacks: &["events", "persistentvolumes", "subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "the example of cloud-provider-aws with its overlay superset-role",
        own_accounts: false,
        tokens: &["node-controller", "service-controller", "route-controller"],
        rules: &[&[
            EVENTS,
            ("", &["nodes"], &["get", "list", "patch", "update", "watch"]),
            NODE_STATUS,
            SERVICES,
            ("", &["services/status"], &["patch", "update"]),
            ("", &["serviceaccounts"], &["create"]),
            ENDPOINTS,
            LEASES,
        ]],
        // `delete`: the Go program cannot delete the nodes of instances that are gone either.
        fails: &["nodes"],
        lacks: &["persistentvolumes", "subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "kOps on AWS",
        own_accounts: true,
        tokens: &["node-controller", "route-controller", "service-controller"],
        rules: &[
            COMMON,
            &[("", &["serviceaccounts"], &["create", "get"]), LEASES, ("", &["secrets"], &["list", "watch"])],
        ],
        fails: &[],
        lacks: &["events", "persistentvolumes", "serviceaccounts/token", "subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "the chart of cloud-provider-openstack, and KubeOne and kOps on OpenStack",
        own_accounts: false,
        tokens: &[],
        rules: &[
            OPENSTACK,
            &[ALL_OF_NODES, ("", &["persistentvolumes"], &["*"]), ("", &["secrets"], &["list", "get", "watch"])],
        ],
        fails: &[],
        lacks: &["subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "the manifests of cloud-provider-openstack",
        own_accounts: false,
        tokens: &[],
        rules: &[OPENSTACK, &[("", &["nodes"], &["get", "list", "watch", "patch", "update", "delete"])]],
        fails: &[],
        lacks: &["persistentvolumes", "subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "kubespray on OpenStack",
        own_accounts: true,
        tokens: &[],
        rules: &[OPENSTACK, &[ALL_OF_NODES, ("", &["persistentvolumes"], &["*"])], REVIEWS],
        fails: &[],
        lacks: &["events", "persistentvolumes"],
    },
    Field {
        program: "the chart of cloud-provider-azure, and KubeOne and kOps on Azure",
        own_accounts: false,
        tokens: &[],
        rules: &[
            COMMON,
            &[
                ("", &["serviceaccounts"], &["create", "get", "list", "watch", "update"]),
                ("", &["secrets"], &["get", "list", "watch"]),
                LEASES_UNWATCHED,
                ENDPOINT_SLICES,
            ],
        ],
        fails: &[],
        lacks: &["persistentvolumes", "subjectaccessreviews", "tokenreviews"],
    },
    Field {
        program: "the manifest of cloud-provider-gcp",
        own_accounts: true,
        tokens: &[],
        rules: &[GCP, GCP_SERVICES],
        fails: &[],
        lacks: &["events", "persistentvolumes", "subjectaccessreviews"],
    },
    Field {
        program: "KubeOne on Google Cloud",
        own_accounts: false,
        tokens: &[],
        rules: &[GCP, GCP_SERVICES, &[("", &["configmaps"], &["create"]), ("", &["nodes"], &["delete"])]],
        fails: &[],
        lacks: &["persistentvolumes", "subjectaccessreviews"],
    },
    Field {
        program: "OpenShift",
        own_accounts: true,
        tokens: &[],
        rules: &[
            &[
                ("", &["nodes", "services"], &["get", "list", "watch"]),
                ("", &["events"], &["create", "patch"]),
                ("", &["serviceaccounts"], &["create", "get"]),
                TOKENS,
                ("coordination.k8s.io", &["leases"], &["get", "list", "update", "create"]),
            ],
            REVIEWS,
        ],
        fails: &[],
        lacks: &["events", "persistentvolumes"],
    },
    Field {
        program: "kOps on Google Cloud",
        own_accounts: true,
        tokens: &[],
        rules: &[GCP, &[("", &["services/status"], &["patch", "update"])]],
        fails: &[],
        lacks: &["events", "persistentvolumes", "subjectaccessreviews"],
    },
];

/// The page with the tables.
pub const PAGE: &str = "migration/permissions.md";
const BEGIN: &str = "<!-- generated: results -->\n";
const END: &str = "<!-- end of results -->";
const PARTS: [&str; 5] = ["Nodes", "Services", "Routes", "Labels of volumes", "Requests to `/metrics`"];
/// The clouds, and the programs there.
const PROGRAMS: [(&str, &str); 4] = [
    ("aws", "aws-cloud-controller-manager"),
    ("azure", "The cloud-controller-manager of cloud-provider-azure"),
    ("gce", "The cloud-controller-manager of cloud-provider-gcp"),
    ("openstack", "openstack-cloud-controller-manager"),
];
const WORKS: &str = "works";

/// The page with the current tables. `read` reads a file of the manifests.
pub fn page(read: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let old = read(PAGE)?;
    let cut = old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = cut.with_context(|| format!("manifests/{PAGE}: expected the lines {BEGIN:?} and {END:?}"))?;
    let mut text = String::new();
    let mut unused: Vec<&str> = FIELD.iter().map(|field| field.program).collect();
    for (cloud, program) in PROGRAMS {
        text += &format!("## {program}\n");
        for line in read(&format!("../providers/{cloud}/tests/it/policies.txt"))?.lines() {
            let [policy, roles, results @ ..] = &line.split(" | ").collect::<Vec<_>>()[..] else { continue };
            let roles: Vec<&str> = roles.split("; ").collect();
            text += &format!("\n{}\n", crate::item("", &format!("**Policy**: {policy}")));
            text += &items(&roles, results).with_context(|| format!("policies.txt of {cloud}: {line:?}"))?;
            unused.retain(|program| !roles.contains(program));
        }
        text += "\n";
    }
    ensure!(unused.is_empty(), "no policy is used with the roles of {}", unused.join(", "));
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

/// What each role lacks with a policy. Roles with the same results are in one item.
fn items(roles: &[&str], results: &[&str]) -> anyhow::Result<String> {
    let mut rows: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for role in roles {
        let field =
            FIELD.iter().find(|field| field.program == *role).with_context(|| format!("no role of {role:?}"))?;
        let of_role = field.results();
        ensure!(results.len() + 1 == of_role.len(), "expected {} results", of_role.len() - 1);
        let both = of_role.iter().zip(results.iter().copied().chain([WORKS])).map(|(role, policy)| {
            let parts = [role, policy].into_iter().filter(|part| *part != WORKS).collect::<Vec<_>>();
            if parts.is_empty() { WORKS.to_owned() } else { parts.join("; ") }
        });
        let both = both.collect();
        match rows.iter_mut().find(|(_, cells)| *cells == both) {
            Some((names, _)) => names.push(role),
            None => rows.push((vec![role], both)),
        }
    }
    let item = |(names, cells): &(Vec<&str>, Vec<String>)| {
        let lacks = PARTS.iter().zip(cells).filter(|(_, cell)| *cell != WORKS);
        let lacks: String = lacks.map(|(part, cell)| crate::item("  - ", &format!("{part}: {cell}"))).collect();
        let all = if lacks.is_empty() { ": all works" } else { "" };
        crate::item("- ", &format!("{}{all}", names.join("; "))) + &lacks
    };
    Ok(rows.iter().map(item).collect())
}

impl Field {
    /// What works in Kubernetes, in the order of the columns.
    fn results(&self) -> [String; 5] {
        let nodes = match self.fails.contains(&"nodes") {
            true => "nodes whose instance is gone stay, as before, without `delete` of `nodes`",
            false => WORKS,
        };
        let without = |missing: &[&str], of: &[&'static str]| {
            let lacking: Vec<String> =
                of.iter().filter(|one| missing.contains(one)).map(|one| format!("`{one}`")).collect();
            if lacking.is_empty() { WORKS.to_owned() } else { format!("not without {}", lacking.join(", ")) }
        };
        [
            nodes.to_owned(),
            without(self.fails, &["services", "services/status"]),
            without(self.fails, &["nodes/status"]),
            without(self.lacks, &["persistentvolumes"]),
            without(self.lacks, &["tokenreviews", "subjectaccessreviews"]),
        ]
    }
}
