//! `cargo xtask check-tree`: crates that must not be linked into the program, not even as indirect dependencies.

use anyhow::bail;

use crate::metadata;

struct Ban {
    name: &'static str,
    /// Prefix of the versions; empty for all.
    version: &'static str,
    reason: &'static str,
}

const fn ban(name: &'static str, version: &'static str, reason: &'static str) -> Ban {
    Ban { name, version, reason }
}

const ONE_TLS: &str = "there is one TLS provider, aws-lc-rs";
const ONE_HYPER: &str = "there is one copy of hyper, version 1";
const TEST_ONLY: &str = "the program never links a simulator or a test bed";

const BANS: &[Ban] = &[
    ban("hyper", "0.", ONE_HYPER),
    ban("http", "0.", ONE_HYPER),
    ban("h2", "0.3.", ONE_HYPER),
    ban("openssl", "", ONE_TLS),
    ban("openssl-sys", "", ONE_TLS),
    ban("native-tls", "", ONE_TLS),
    ban("ring", "", ONE_TLS),
    ban("async-std", "", "there is one async runtime, tokio"),
    ban("ccm-test-bed", "", TEST_ONLY),
    ban("ccm-test-apiserver", "", TEST_ONLY),
    ban("ccm-cloudsim", "", TEST_ONLY),
];

pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    crate::no_arguments(arguments)?;
    let tree = metadata::output(&[
        "tree",
        "--locked",
        "--package=ccm",
        "--all-features",
        "--edges=normal,build",
        "--prefix=none",
        "--format={p}",
    ])?;
    let found = banned(&tree);
    if !found.is_empty() {
        bail!("`cargo tree --package ccm --all-features --invert <crate>` says why:\n  {}", found.join("\n  "));
    }
    println!("check-tree: none of {} unwanted crates is in the program", BANS.len());
    Ok(())
}

/// `tree` has one `name vVERSION …` per line.
fn banned(tree: &str) -> Vec<String> {
    let mut found: Vec<String> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
            let ban = BANS.iter().find(|ban| ban.name == name && version.starts_with(ban.version))?;
            Some(format!("{name} {version}: {}", ban.reason))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_is_found_and_the_wanted_one_is_not() {
        let tree = "ccm v0.1.0 (/w/ccm)\nhyper v1.12.0\nhyper v0.14.30\nopenssl-probe v0.2.0\nring v0.17.14 (*)\n";
        let found = banned(tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("hyper 0.14.30:") && found[1].starts_with("ring 0.17.14:"), "{found:?}");
    }
}
