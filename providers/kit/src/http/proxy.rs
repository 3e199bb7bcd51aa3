//! Proxies from the environment, as in Go programs (`golang.org/x/net/http/httpproxy`).

use std::net::IpAddr;

use ipnet::IpNet;
use reqwest::Url;

use super::environment::{Environment, variable};

/// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
pub(super) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    except: Vec<Exception>,
}

/// An entry of `NO_PROXY`.
struct Exception {
    hosts: Hosts,
    port: Option<String>,
}

enum Hosts {
    All,
    Network(IpNet),
    /// The hosts whose name ends with this, which begins with a dot; and the domain itself.
    Domain(String, bool),
}

impl Proxies {
    /// # Errors
    ///
    /// A variable is not the URL of a proxy. The text never quotes it: it may hold a password.
    pub(super) fn from(environment: Environment<'_>) -> Result<Self, String> {
        let except = variable(environment, "NO_PROXY").map(|(_, value)| value).unwrap_or_default();
        Ok(Self {
            http: proxy(environment, "HTTP_PROXY")?,
            https: proxy(environment, "HTTPS_PROXY")?,
            except: except.split(',').filter_map(Exception::parse).collect(),
        })
    }

    /// The proxy for requests to this address.
    ///
    /// The local host and link-local addresses (the metadata service, container credentials) are never requested through
    /// a proxy. Go has the first exception; without the second, every `NO_PROXY` would have to list those addresses.
    pub(super) fn of(&self, target: &Url) -> Option<Url> {
        let proxy = if target.scheme() == "http" { &self.http } else { &self.https };
        let host = target.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = target.port_or_known_default().unwrap_or_default().to_string();
        let is_direct = is_near(host) || self.except.iter().any(|exception| exception.covers(host, &port));
        proxy.clone().filter(|_| !is_direct)
    }
}

fn proxy(environment: Environment<'_>, name: &str) -> Result<Option<Url>, String> {
    let Some((name, value)) = variable(environment, name) else { return Ok(None) };
    // As in Go, `proxy:3128` means `http://proxy:3128`.
    let text = if value.contains("://") { value } else { format!("http://{value}") };
    // As in Go, the proxy resolves the names, also with `socks5`.
    let text = text.replacen("socks5://", "socks5h://", 1);
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "socks5h"));
    let wanted = "expected http://host:port, https:// or socks5://";
    url.map(Some).ok_or_else(|| format!("environment variable {name}: not the URL of a proxy; {wanted}"))
}

fn is_near(host: &str) -> bool {
    match host.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unicast_link_local() || ip.segments().starts_with(&[0xfd00, 0xec2])
        }
        Err(_) => host == "localhost",
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_lowercase();
        if entry == "*" {
            return Some(Self { hosts: Hosts::All, port: None });
        }
        if let Ok(network) = entry.parse() {
            return Some(Self { hosts: Hosts::Network(network), port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port.to_owned())),
            _ => (&*entry, None),
        };
        let host = host.trim_matches(['[', ']']);
        let hosts = match host.parse::<IpAddr>() {
            Ok(address) => Hosts::Network(address.into()),
            Err(_) if host.is_empty() => return None,
            Err(_) => match host.strip_prefix('*').unwrap_or(host) {
                below if below.starts_with('.') => Hosts::Domain(below.to_owned(), false),
                domain => Hosts::Domain(format!(".{domain}"), true),
            },
        };
        Some(Self { hosts, port })
    }

    fn covers(&self, host: &str, port: &str) -> bool {
        let has_host = match &self.hosts {
            Hosts::All => true,
            Hosts::Network(network) => host.parse::<IpAddr>().is_ok_and(|address| network.contains(&address)),
            Hosts::Domain(end, itself) => host.ends_with(end) || (*itself && end.get(1..) == Some(host)),
        };
        has_host && self.port.as_ref().is_none_or(|own| own == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], target: &str) -> Option<String> {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Proxies::from(&get).unwrap().of(&target.parse().unwrap()).map(String::from)
    }

    #[test]
    fn the_scheme_of_the_request_decides_and_both_spellings_of_the_variables_count() {
        let both = [("HTTPS_PROXY", "secure:3128"), ("http_proxy", "http://user:p%40ss@plain:1")];
        assert_eq!(chosen(&both, "https://cloud.example/").as_deref(), Some("http://secure:3128/"));
        assert_eq!(chosen(&both, "http://cloud.example/").as_deref(), Some("http://user:p%40ss@plain:1/"));
        assert_eq!(chosen(&both[1..], "https://cloud.example/"), None);
    }

    #[test]
    fn this_host_and_its_metadata_are_requested_directly() {
        for (target, is_proxied) in [
            ("https://ec2.us-west-2.amazonaws.com/", true),
            ("http://ec2.example/", true),
            ("http://169.254.169.254/latest/api/token", false),
            ("http://169.254.170.23/v1/credentials", false),
            ("http://[fd00:ec2::254]/latest", false),
            ("http://[fd00:ec3::1]/", true),
            ("https://127.0.0.9:8443/", false),
            ("http://[::1]:1/", false),
            ("http://LOCALHOST:1/", false),
            ("https://localhost.example/", true),
        ] {
            let both = [("HTTPS_PROXY", "http://a:1"), ("HTTP_PROXY", "http://a:1")];
            assert_eq!(chosen(&both, target).is_some(), is_proxied, "{target}");
        }
    }

    #[test]
    fn exceptions_are_read_as_in_go() {
        for (except, target, is_proxied) in [
            ("cloud.example", "https://cloud.example/", false),
            ("cloud.example", "https://api.Cloud.example/", false),
            ("cloud.example", "https://mycloud.example/", true),
            (".cloud.example", "https://api.cloud.example/", false),
            (".cloud.example", "https://cloud.example/", true),
            ("*.cloud.example", "https://api.cloud.example/", false),
            ("*.cloud.example", "https://cloud.example/", true),
            ("other, CLOUD.example ", "https://cloud.example/", false),
            ("*", "https://cloud.example/", false),
            ("cloud.example:443", "https://cloud.example/", false),
            ("cloud.example:443", "https://cloud.example:8443/", true),
            ("10.0.0.0/8", "https://10.1.2.3/", false),
            ("10.1.2.3", "https://10.1.2.3:5000/", false),
            ("10.1.2.3:5000", "https://10.1.2.3:5000/", false),
            ("10.1.2.3:5000", "https://10.1.2.3/", true),
            ("2001:db8::/32", "https://[2001:db8::1]/", false),
            ("2001:db8::1", "https://[2001:db8::1]/", false),
            ("[2001:db8::1]:443", "https://[2001:db8::1]/", false),
            ("[2001:db8::1]:443", "https://[2001:db8::1]:5000/", true),
            (",:80,", "https://cloud.example/", true),
        ] {
            let variables = [("HTTPS_PROXY", "http://a:1"), ("no_proxy", except)];
            assert_eq!(chosen(&variables, target).is_some(), is_proxied, "{except:?} and {target}");
        }
    }

    #[test]
    fn a_bad_proxy_is_refused_without_its_password() {
        for value in ["http://user:SECRET@ho st:1", "ftp://user:SECRET@host", "http://"] {
            let get = |name: &str| (name == "https_proxy").then(|| value.to_owned());
            let problem = Proxies::from(&get).err().unwrap();
            assert_eq!(
                problem,
                "environment variable https_proxy: not the URL of a proxy; expected http://host:port, https:// or socks5://"
            );
        }
    }
}
