//! The start, before the first controller runs: the configuration file, clouds.yaml, the login, the environment.

use ccm_provider::{ErrorClass, Finding, Severity};

pub(crate) mod clouds;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod login;

/// All problems of a configuration file, including those of the login, which are unknown if clouds.yaml fills keys.
pub(crate) fn lint(text: &str) -> Vec<Finding> {
    let mut findings = config::Config::lint(text);
    findings.extend(cut_secrets(text));
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

/// The secrets of a configuration file that comments cut.
pub(crate) fn cut_secrets(text: &str) -> impl Iterator<Item = Finding> {
    text.lines().filter_map(cut_secret)
}

/// A secret that a comment cuts: outside of quotes it begins in the middle of a word too.
fn cut_secret(line: &str) -> Option<Finding> {
    const SECRETS: [&str; 4] = ["application-credential-secret", "password", "token", "trustee-password"];
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let before = value.get(..value.find(['#', ';'])?)?;
    let is_cut = !before.contains('"') && before.ends_with(|last: char| !last.is_whitespace());
    (is_cut && SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(key))).then(|| {
        let text =
            "its value ends before `#` or `;`, which begin a comment; if they belong to it, put it into double quotes";
        Finding::new(Severity::Warning, format!("[Global] {key}"), text)
    })
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

    #[test]
    fn a_secret_that_a_comment_cuts_is_found_and_not_shown() {
        for (line, is_cut) in [
            ("password=secret$n#1", true),
            ("Password = secret;1", true),
            ("application-credential-secret=secret#", true),
            ("password = \"secret#1\"", false),
            ("password = secret # of the user", false),
            ("password = # none", false),
            ("username = a#b", false),
        ] {
            let found = cut_secret(line);
            assert_eq!(found.is_some(), is_cut, "{line}");
            assert!(!format!("{found:?}").contains("secret$"), "{found:?}");
        }
    }
}
