//! Flags of this provider, in addition to the program's.

use ccm_kit::gcfg::table::refuse;
use ccm_provider::flag::{Flag, FlagValues, Kind};
use ccm_provider::{ConfigSource, Finding, ProviderError, SecretKey, Severity};

const SECTION: &str = "Azure";
const RELOAD: &str = "enable-dynamic-reloading";
const SECRET_NAME: &str = "cloud-config-secret-name";
const SECRET_NAMESPACE: &str = "cloud-config-secret-namespace";
const SECRET_KEY: &str = "cloud-config-key";
const NODE_FILTER: &str = "node-filter-requirements";
const LOCK: &str = "azure-resource-lock";
const ALLOCATOR: &str = "cidr-allocator-type";

pub(crate) static FLAGS: [Flag; 6] = [
    Flag::new(
        SECTION,
        RELOAD,
        Kind::Bool,
        "false",
        "Changes of the configuration take effect without a restart: of the file of --cloud-config, else of the Secret.",
    ),
    Flag::new(
        SECTION,
        SECRET_NAME,
        Kind::Text,
        "",
        "With --enable-dynamic-reloading and without --cloud-config: the Secret that holds the configuration.",
    ),
    Flag::new(SECTION, SECRET_NAMESPACE, Kind::Text, "kube-system", "The namespace of the Secret."),
    Flag::new(SECTION, SECRET_KEY, Kind::Text, "cloud-config", "The key of the Secret that holds the configuration."),
    Flag::new(
        SECTION,
        NODE_FILTER,
        Kind::Text,
        "",
        "A label selector: all controllers ignore other nodes. Not with node-ipam-controller, which would assign their ranges again.",
    ),
    Flag::new(
        SECTION,
        LOCK,
        Kind::Bool,
        "false",
        "Not supported: no other program may change the resources of the cluster.",
    ),
];

/// The source of the configuration.
pub(crate) fn config_source(flags: &FlagValues) -> ConfigSource {
    let reload = flags.bool(RELOAD);
    let is_secret = reload && flags.text("cloud-config").is_empty() && !flags.text(SECRET_NAME).is_empty();
    let secret = is_secret.then(|| SecretKey {
        namespace: flags.text(SECRET_NAMESPACE),
        name: flags.text(SECRET_NAME),
        key: flags.text(SECRET_KEY),
    });
    ConfigSource { secret, reload }
}

/// Whether changes of the configuration take effect while the program runs.
pub(crate) fn is_reloading(flags: &FlagValues) -> bool {
    flags.bool(RELOAD)
}

/// The nodes that exist for this program.
pub(crate) fn node_selector(flags: &FlagValues) -> Option<String> {
    Some(flags.text(NODE_FILTER)).filter(|selector| !selector.is_empty())
}

/// The error for a start without a configuration.
pub(crate) fn no_config() -> ProviderError {
    let message = format!("no configuration: give --cloud-config, or --{RELOAD} with --{SECRET_NAME}");
    ProviderError::new(ccm_provider::ErrorClass::Invalid { findings: Vec::new() }, message)
}

pub(crate) fn check(flags: &FlagValues) -> Result<(), ProviderError> {
    let mut findings = Vec::new();
    let mut refuse_flag = |flag: &str, value: String, message: &str| {
        findings.push(Finding { value: Some(value), ..Finding::new(Severity::Error, format!("--{flag}"), message) });
    };
    if flags.bool(LOCK) {
        refuse_flag(
            LOCK,
            "true".to_owned(),
            "not supported: remove the flag, and let no other program change the same objects",
        );
    }
    let filter = flags.text(NODE_FILTER);
    if !filter.is_empty() && flags.bool("allocate-node-cidrs") {
        let message = "node-ipam-controller would assign the ranges of the other nodes again: remove one of the two flags, or label \
                       the other nodes kubernetes.azure.com/managed=false";
        refuse_flag(NODE_FILTER, filter, message);
    }
    let allocator = flags.text(ALLOCATOR);
    if allocator == "CloudAllocator" {
        let message = "not supported: use RangeAllocator with --node-cidr-mask-size, or with --node-cidr-mask-size-ipv4 and \
                       --node-cidr-mask-size-ipv6";
        refuse_flag(ALLOCATOR, allocator, message);
    }
    refuse("the flags cannot be used with Azure", &findings)
}

/// The user agent of calls.
pub(crate) fn user_agent(configured: &str) -> String {
    match configured.trim() {
        "" => concat!("kubernetes-cloudprovider/v", env!("CARGO_PKG_VERSION")).to_owned(),
        agent => agent.to_owned(),
    }
}

/// The flags as a table in Markdown.
pub(crate) fn reference() -> String {
    let default = |flag: &Flag| if flag.default.is_empty() { "–".to_owned() } else { format!("`{}`", flag.default) };
    let row = |flag: &Flag| format!("| `--{}` | {} | {} |\n", flag.name, default(flag), flag.help);
    let rows: String = FLAGS.iter().map(row).collect();
    format!("| Flag | Default | Meaning |\n| --- | --- | --- |\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(given: &[(&'static str, &str)]) -> FlagValues {
        let mut values = FlagValues::default();
        for flag in &FLAGS {
            values.insert(flag.name, vec![flag.default.to_owned()], false);
        }
        for (name, value) in given {
            values.insert(name, vec![(*value).to_owned()], true);
        }
        values
    }

    #[test]
    fn the_file_goes_before_the_secret() {
        let source = |given: &[(&'static str, &str)]| {
            let source = config_source(&values(given));
            (source.reload, source.secret.map(|secret| secret.to_string()))
        };
        let secret = "Secret kube-system/azure, key cloud-config".to_owned();
        assert_eq!(source(&[(SECRET_NAME, "azure")]), (false, None));
        assert_eq!(source(&[(SECRET_NAME, "azure"), (RELOAD, "true")]), (true, Some(secret)));
        assert_eq!(source(&[(SECRET_NAME, "azure"), (RELOAD, "true"), ("cloud-config", "/f")]), (true, None));
    }

    #[test]
    fn a_user_agent_of_blanks_is_none() {
        assert_eq!(user_agent(" \n"), user_agent(""));
        assert_eq!(user_agent("capz\n"), "capz");
    }

    #[test]
    fn what_is_not_supported_names_the_alternative() {
        let error = |flag: &'static str, value: &str| check(&values(&[(flag, value)])).unwrap_err().to_string();
        assert!(error(LOCK, "true").contains("--azure-resource-lock = \"true\": not supported: remove the flag"));
        assert!(error(ALLOCATOR, "CloudAllocator").contains("use RangeAllocator with --node-cidr-mask-size"));
        let filtered = [(NODE_FILTER, "a=b"), ("allocate-node-cidrs", "true")];
        assert!(check(&values(&filtered)).unwrap_err().to_string().contains("kubernetes.azure.com/managed=false"));
        assert_eq!(node_selector(&values(&filtered)).as_deref(), Some("a=b"));
        assert!(check(&values(&filtered[..1])).is_ok());
        assert!(check(&values(&[(ALLOCATOR, "RangeAllocator")])).is_ok());
    }
}
