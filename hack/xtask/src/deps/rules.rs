//! The table. To add a crate, add a row and explain the boundary in the review.

/// The allowed dependencies of one crate, except development dependencies.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) folder: &'static str,
    pub(crate) workspace: Workspace,
    pub(crate) externals: Externals,
    /// External crates that are allowed without some features.
    pub(crate) features: &'static [(&'static str, &'static [&'static str])],
}

impl Rule {
    /// Whether its modules may have import cycles.
    pub(crate) fn may_circle(&self) -> bool {
        self.folder.starts_with("tests/")
    }
}

pub(crate) enum Workspace {
    Anything,
    Only(&'static [&'static str]),
    OnlyWithOptional { always: &'static [&'static str], optional: &'static [&'static str] },
}

pub(crate) enum Externals {
    Anything,
    Only(&'static [&'static str]),
    Except(&'static [&'static [&'static str]]),
}

/// A Kubernetes client.
const KUBE: &[&str] = &["kube", "kube-client", "kube-core", "kube-derive", "kube-runtime"];
/// HTTP, in either direction.
const HTTP: &[&str] = &["axum", "h2", "hyper", "hyper-util", "reqwest", "ureq"];
/// Only for programs: command lines, and errors that no caller can match on.
const EDGE: &[&str] = &["anyhow", "clap", "eyre", "tracing-subscriber"];

const fn library(
    name: &'static str,
    folder: &'static str,
    workspace: &'static [&'static str],
    banned: &'static [&'static [&'static str]],
) -> Rule {
    Rule { name, folder, workspace: Workspace::Only(workspace), externals: Externals::Except(banned), features: &[] }
}

/// Providers use the contract and the kit: no controller, no other provider, no Kubernetes client.
const fn provider(name: &'static str, folder: &'static str) -> Rule {
    library(name, folder, &["ccm-provider", "ccm-kit"], &[KUBE, EDGE])
}

/// Tests and automation may use everything; shipped crates may not use them.
const fn tool(name: &'static str, folder: &'static str) -> Rule {
    Rule { name, folder, workspace: Workspace::Anything, externals: Externals::Anything, features: &[] }
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "ccm-provider",
        folder: "providers/api",
        workspace: Workspace::Only(&[]),
        // Out-of-tree authors compile this crate; each entry is a cost for all of them.
        externals: Externals::Only(&[
            "async-trait",
            "futures",
            "ipnet",
            "jiff",
            // Their programs depend on it anyway, through the core.
            "prometheus",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        features: &[("tokio", &["fs", "full", "macros", "net", "process", "rt", "rt-multi-thread", "signal"])],
    },
    library("ccm-kit", "providers/kit", &["ccm-provider"], &[KUBE, EDGE]),
    provider("ccm-provider-aws", "providers/aws"),
    provider("ccm-provider-azure", "providers/azure"),
    provider("ccm-provider-fake", "providers/fake"),
    provider("ccm-provider-gce", "providers/gce"),
    provider("ccm-provider-openstack", "providers/openstack"),
    library("ccm-runtime", "controllers/runtime", &["ccm-provider", "ccm-kit"], &[EDGE]),
    // All I/O of the controllers goes through the runtime and the contract, which makes them testable.
    library("ccm-controllers", "controllers", &["ccm-provider", "ccm-runtime"], &[KUBE, HTTP, EDGE]),
    Rule {
        name: "ccm",
        folder: "ccm",
        workspace: Workspace::OnlyWithOptional {
            always: &["ccm-controllers", "ccm-kit", "ccm-provider", "ccm-runtime"],
            optional: &[
                "ccm-provider-aws",
                "ccm-provider-azure",
                "ccm-provider-fake",
                "ccm-provider-gce",
                "ccm-provider-openstack",
            ],
        },
        externals: Externals::Anything,
        features: &[],
    },
    tool("ccm-demo", "hack/demo"),
    tool("xtask", "hack/xtask"),
    tool("ccm-benches", "tests/benches"),
    tool("ccm-cloudsim", "tests/cloudsim"),
    tool("ccm-conformance", "tests/conformance"),
    // Out-of-tree authors compile it: it needs only the provider API.
    library("ccm-provider-contract", "tests/contract", &["ccm-provider"], &[KUBE, HTTP, EDGE]),
    tool("ccm-fuzz", "tests/fuzz"),
    tool("ccm-test-apiserver", "tests/apiserver"),
    tool("ccm-test-bed", "tests/bed"),
    tool("ccm-test-manifests", "tests/manifests"),
    tool("ccm-test-openstack", "tests/openstack-bed"),
    tool("ccm-test-simulation", "tests/simulation"),
    tool("ccm-test-suite", "tests/suite"),
];
