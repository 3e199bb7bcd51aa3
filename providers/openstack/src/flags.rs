//! Flags of this provider, in addition to the program's.

use ccm_provider::flag::{Flag, Kind};

/// The prefix of the user agent.
pub(crate) const USER_AGENT: &str = "user-agent";

pub(crate) static FLAGS: [Flag; 1] = [Flag::new(
    "OpenStack",
    USER_AGENT,
    Kind::Repeated,
    "",
    "Text in front of the user agent of calls to OpenStack. May be given more than once.",
)];

/// The user agent of calls: the last text of the flag comes first, as upstream.
pub(crate) fn user_agent(texts: &[String], version: &str) -> String {
    let base = format!("openstack-cloud-controller-manager/{version}");
    texts.iter().filter(|text| !text.is_empty()).fold(base, |agent, text| format!("{text} {agent}"))
}

/// The flags as a table in Markdown.
pub(crate) fn reference() -> String {
    let row = |flag: &Flag| format!("| `--{}` | {} |\n", flag.name, flag.help);
    let rows: String = FLAGS.iter().map(row).collect();
    format!("| Flag | Meaning |\n| --- | --- |\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_stands_in_front_of_the_user_agent() {
        assert_eq!(user_agent(&[], "v1.2.3"), "openstack-cloud-controller-manager/v1.2.3");
        let texts = ["my cluster".to_owned(), "b/2".to_owned()];
        assert_eq!(user_agent(&texts, "v1"), "b/2 my cluster openstack-cloud-controller-manager/v1");
        assert!(reference().contains("| `--user-agent` |"));
    }
}
