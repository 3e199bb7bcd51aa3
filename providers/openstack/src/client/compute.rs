//! Nova: servers and flavors.

use std::collections::BTreeMap;

use ccm_kit::models;

use super::operation::{FLAVOR_GET, FLAVOR_LIST, SERVER_GET, SERVER_LIST};
use super::{ApiError, Client, Query, escaped};

/// The page size of server lists.
pub(crate) const PAGE: usize = 1000;

models! {
    /// A server.
    pub(crate) struct Server {
        pub(crate) id: String,
        pub(crate) name: String,
        /// `ACTIVE`, `SHUTOFF`, …
        pub(crate) status: String,
        #[serde(rename = "accessIPv4")]
        pub(crate) access_ipv4: String,
        #[serde(rename = "accessIPv6")]
        pub(crate) access_ipv6: String,
        pub(crate) metadata: BTreeMap<String, String>,
        /// By the name of the network.
        pub(crate) addresses: BTreeMap<String, Vec<Address>>,
        #[serde(rename = "OS-EXT-AZ:availability_zone")]
        pub(crate) zone: String,
        pub(crate) flavor: ServerFlavor,
        /// A hash of the host and the project; empty until there is a host.
        #[serde(rename = "hostId")]
        pub(crate) host_id: String,
    }

    /// An address of a server.
    pub(crate) struct Address {
        pub(crate) addr: String,
        /// `fixed`, or `floating`; empty counts as fixed.
        #[serde(rename = "OS-EXT-IPS:type")]
        pub(crate) kind: String,
    }

    /// The flavor of a server: its name since microversion 2.47, before that its ID.
    pub(crate) struct ServerFlavor {
        pub(crate) id: String,
        pub(crate) original_name: String,
    }

    /// A flavor.
    pub(crate) struct Flavor {
        pub(crate) id: String,
        pub(crate) name: String,
    }
}

/// A name as a pattern for any case: some databases of Nova distinguish case, and some do not. Only what is needed is
/// escaped: each database parses patterns in its own way.
fn in_any_case(name: &str) -> String {
    let pattern = |c: char| match c {
        _ if c.is_ascii_alphabetic() => format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()),
        _ if "\\.+*?()|[]{}^$".contains(c) => format!("\\{c}"),
        _ => c.to_string(),
    };
    name.chars().map(pattern).collect()
}

impl Client {
    /// All servers of the project.
    pub(crate) async fn servers(&self) -> Result<Vec<Server>, ApiError> {
        let query = Query::default().with("limit", &PAGE.to_string());
        self.list(SERVER_LIST, "servers/detail", query, "servers").await
    }

    /// The servers with this name of a node, which is in lower case; without one, those whose name differs in case.
    pub(crate) async fn servers_named(&self, name: &str) -> Result<Vec<Server>, ApiError> {
        let query = Query::default().with("name", &format!("^{}$", in_any_case(name)));
        let mut servers: Vec<Server> = self.list(SERVER_LIST, "servers/detail", query, "servers").await?;
        let is_there = servers.iter().any(|server| server.name == name);
        servers.retain(|server| server.name == name || !is_there && server.name.eq_ignore_ascii_case(name));
        Ok(servers)
    }

    /// A server; `None` if Nova reports that it does not exist.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<Server>, ApiError> {
        self.find(SERVER_GET, format!("servers/{id}"), "server").await
    }

    /// A flavor; `None` if Nova reports that it does not exist.
    pub(crate) async fn flavor(&self, id: &str) -> Result<Option<Flavor>, ApiError> {
        self.find(FLAVOR_GET, format!("flavors/{}", escaped(id)), "flavor").await
    }

    /// All flavors visible to the project.
    pub(crate) async fn flavors(&self) -> Result<Vec<Flavor>, ApiError> {
        self.list(FLAVOR_LIST, "flavors/detail", Query::default(), "flavors").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_in_a_flavor_is_what_is_missing() {
        let flavor: Flavor = serde_json::from_value(serde_json::json!({"id": "f", "name": null})).unwrap();
        assert_eq!(flavor, Flavor { id: "f".to_owned(), name: String::new() });
    }

    #[test]
    fn the_pattern_of_a_name_ignores_case_and_escapes_as_the_go_program() {
        assert_eq!(in_any_case("n-1.x_A"), r"[nN]-1\.[xX]_[aA]");
        let odd = r"a+b(c)[d]{e}^f$g|h?i*j\k";
        let pattern = regex::Regex::new(&format!("^{}$", in_any_case(odd))).unwrap();
        assert!(pattern.is_match(odd) && pattern.is_match(&odd.to_uppercase()));
    }
}
