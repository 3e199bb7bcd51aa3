//! The start, before the first controller runs: the configuration file, clouds.yaml, the login, the environment.

use ccm_provider::{ErrorClass, Finding};

pub(crate) mod clouds;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod login;

/// All problems of a configuration file, including those of the login, which are unknown if clouds.yaml fills keys.
pub(crate) fn lint(text: &str) -> Vec<Finding> {
    let mut findings = config::Config::lint(text);
    if let Ok((config, _)) = config::Config::parse(Some(text))
        && !config.global.reads_clouds()
    {
        match login::Login::from(&config.global) {
            Ok((_, doubts)) => findings.extend(doubts),
            Err(error) => {
                if let ErrorClass::Invalid { findings: problems } = error.class() {
                    findings.extend(problems);
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lint_reports_the_login_unless_clouds_yaml_may_complete_it() {
        let keys = |text: &str| lint(text).into_iter().map(|finding| finding.key).collect::<Vec<_>>();
        let url = "[Global]\nauth-url = https://k\nuser-id = u\nx = 1\n";
        assert_eq!(keys(url), ["[Global] x", "[Global] password"]);
        assert_eq!(keys(&format!("{url}password = p\n")), ["[Global] x", "[Global] tenant-id"]);
        assert_eq!(keys(&format!("{url}use-clouds = true\n")), ["[Global] x"]);
        assert_eq!(keys(&format!("{url}use-clouds = maybe\n")), ["[Global] x", "[Global] use-clouds"]);
    }
}
