//! All keys of the file; they are spelled only here.

use std::time::Duration;

use ccm_kit::document::did_you_mean;
use ccm_kit::gcfg::{Field, Key, Table};
use ccm_provider::address::parse_cidr;
use ccm_provider::duration::{self, ParseError};

use super::{
    BlockStorage, Class, Global, LB_METHODS, LoadBalancerConfig, Metadata, MetadataSource, Networking, OVN, Route,
};

const WAS_LEGACY: &str = "Known to the in-tree provider only.";
const DURATION: &str = "duration";
const ID: &str = "ID";

type Doubt = Result<Option<String>, String>;

#[rustfmt::skip]
pub(super) static GLOBAL: Table<Global> = Table {
    section: "Global",
    doc: "Where Keystone is, and the login. With `use-clouds`, clouds.yaml fills the keys that are empty here.",
    keys: &[
        Key::new("auth-url", Field::Text(|g| &mut g.auth_url), "",
            "URL of Keystone, with or without `/v3`. Required, here or in clouds.yaml."),
        Key::new("user-id", Field::Text(|g| &mut g.user_id), "", "User by ID; instead of `username`."),
        Key::new("username", Field::Text(|g| &mut g.username), "", "User by name; needs a user domain."),
        Key::new("password", Field::Text(|g: &mut Global| &mut g.password.0), "", "Password of the user.").secret(),
        Key::new("tenant-id", Field::Text(|g| &mut g.tenant_id), "", "Project by ID; takes precedence over `tenant-name`."),
        Key::new("tenant-name", Field::Text(|g| &mut g.tenant_name), "", "Project by name; needs a project domain."),
        Key::new("trust-id", Field::Text(|g| &mut g.trust_id), "",
            "Trust to log in with; the project does not count then."),
        Key::new("trustee-id", Field::Text(|g| &mut g.trustee_id), "",
            "With `trust-id`: the user by ID, instead of the one above."),
        Key::new("trustee-password", Field::Text(|g: &mut Global| &mut g.trustee_password.0), "",
            "With `trust-id`: its password, instead of the one above.").secret(),
        Key::new("domain-id", Field::Text(|g| &mut g.domain_id), "",
            "Domain of the user and of the project, where those have no key of their own. Without a project: the scope of the login."),
        Key::new("domain-name", Field::Text(|g| &mut g.domain_name), "", "The same by name."),
        Key::new("tenant-domain-id", Field::Text(|g| &mut g.tenant_domain_id), "", "Domain of the project."),
        Key::new("tenant-domain-name", Field::Text(|g| &mut g.tenant_domain_name), "", "The same by name."),
        Key::new("user-domain-id", Field::Text(|g| &mut g.user_domain_id), "", "Domain of the user."),
        Key::new("user-domain-name", Field::Text(|g| &mut g.user_domain_name), "", "The same by name."),
        Key::new("region", Field::Text(|g| &mut g.region), "",
            "Region whose endpoints are used, and the region of the nodes. Without it the first endpoint of any region is used, and nodes get no region label."),
        Key::new("os-endpoint-type",
            Field::Custom {
                kind: "`public`, `internal`, `admin`",
                set: |g, value| {
                    g.endpoint_type = if value.is_empty() { None } else { Some(value.parse()?) };
                    Ok(())
                },
            },
            "public",
            "Which endpoints of the catalog are used."),
        Key::new("ca-file", Field::Text(|g| &mut g.ca_file), "",
            "File of PEM certificates; they replace those of the system."),
        Key::new("cafilecontents", Field::Text(|g| &mut g.ca_file_contents), "",
            "The certificates themselves. Only without `ca-file`."),
        Key::new("tls-insecure", Field::Lenient { kind: "`true`", set: tls_insecure }, "",
            "Exactly `true`: certificates are not verified. With any other text they are."),
        Key::new("cert-file", Field::Text(|g| &mut g.cert_file), "", "Client certificate. Only with `key-file`."),
        Key::new("key-file", Field::Text(|g| &mut g.key_file), "", "Its key."),
        Key::new("token", Field::Text(|g: &mut Global| &mut g.token.0), "",
            "A token of Keystone instead of user and password. When it expires, nothing works any more.").secret(),
        Key::new("use-clouds", Field::Flag(|g| &mut g.use_clouds), "false",
            "Read clouds.yaml: the file of `clouds-file` or of `OS_CLIENT_CONFIG_FILE`, else the first in the working folder, `~/.config/openstack` and `/etc/openstack`."),
        Key::new("clouds-file", Field::Text(|g| &mut g.clouds_file), "", "Path of clouds.yaml."),
        Key::new("cloud", Field::Text(|g| &mut g.cloud), "",
            "Entry of clouds.yaml. Without it, that of `OS_CLOUD`, or the only one."),
        Key::new("application-credential-id", Field::Text(|g| &mut g.application_credential_id), "",
            "Application credential by ID; takes precedence over password and token."),
        Key::new("application-credential-name", Field::Text(|g| &mut g.application_credential_name), "",
            "The same by name; needs the user."),
        Key::new("application-credential-secret", Field::Text(|g: &mut Global| &mut g.application_credential_secret.0), "",
            "Its secret.").secret(),
        Key::new("secret-name", Field::Retired::<Global>, "", "Named a Secret of the cluster.").note(WAS_LEGACY),
        Key::new("secret-namespace", Field::Retired::<Global>, "", "Its namespace.").note(WAS_LEGACY),
        Key::new("kubeconfig-path", Field::Retired::<Global>, "", "The way to it.").note(WAS_LEGACY),
        Key::new("availability-zone", Field::Retired::<Global>, "", "Zone of the node itself.").note(WAS_LEGACY),
    ],
};

#[rustfmt::skip]
pub(super) static NETWORKING: Table<Networking> = Table {
    section: "Networking",
    doc: "Which addresses nodes get.",
    keys: &[
        Key::new("ipv6-support-disabled", Field::Flag(|n| &mut n.is_ipv6_disabled), "false",
            "Nodes get no IPv6 addresses."),
        Key::new("public-network-name", Field::List(|n| &mut n.public_networks), "",
            "Networks whose addresses are external ones. One line for each."),
        Key::new("internal-network-name", Field::List(|n| &mut n.internal_networks), "",
            "If set, only the addresses of these networks are internal ones; those of other networks are left out. One line for each."),
        Key::new("address-sort-order", Field::Lenient { kind: "list of CIDRs", set: sort_order }, "",
            "Order of a node's addresses: those of the first network first. Commas or blanks between the networks."),
    ],
};

#[rustfmt::skip]
pub(super) static LOAD_BALANCER: Table<LoadBalancerConfig> = Table {
    section: "LoadBalancer",
    doc: "Load balancers of Octavia. Annotations of a Service override most keys.",
    keys: &[
        Key::new("enabled", Field::Flag(|l| &mut l.enabled), "true",
            "Whether Services of type LoadBalancer are served."),
        Key::new("lb-version", Field::Text(|l| &mut l.lb_version), "", "Only `v2` is possible."),
        Key::new("subnet-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.subnet_id, v) }, "",
            "Subnet of the load balancer's address, and of the members unless `member-subnet-id` is set. Without subnet and network, that of a node."),
        Key::new("member-subnet-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.member_subnet_id, v) }, "",
            "Subnet of the members."),
        Key::new("network-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.network_id, v) }, "",
            "Network of the load balancer's address."),
        Key::new("floating-network-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.floating_network_id, v) }, "",
            "External network of floating IPs. Without it, one is searched."),
        Key::new("floating-subnet-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.floating_subnet_id, v) }, "",
            "Subnet of floating IPs."),
        Key::new("floating-subnet", Field::Text(|l| &mut l.floating_subnet), "",
            "The same by a pattern of names: `*`, `?`, `[ab]`, `{a,b}`; after `~` a regular expression; `!` in front negates."),
        Key::new("floating-subnet-tags", Field::Text(|l| &mut l.floating_subnet_tags), "",
            "The same by tags: `a,b` any of them, `&a,b` all, `!a,b` none, `!&a,b` not all."),
        Key::new("lb-method", Field::Lenient { kind: "string", set: lb_method }, "ROUND_ROBIN",
            "Algorithm of pools. The provider `ovn` needs `SOURCE_IP_PORT`."),
        Key::new("lb-provider", Field::Lenient { kind: "string", set: lb_provider }, "amphora",
            "Provider driver of Octavia: `amphora`, `amphorav2`, `octavia`, `ovn`, `f5`, or another."),
        Key::new("create-monitor", Field::Flag(|l| &mut l.create_monitor), "false",
            "Health monitors for Services that say nothing else."),
        Key::new("monitor-delay", Field::Lenient { kind: DURATION, set: |l, v| monitor_time(&mut l.monitor_delay, v) }, "5s",
            "Interval of health checks, in whole seconds."),
        Key::new("monitor-timeout", Field::Lenient { kind: DURATION, set: |l, v| monitor_time(&mut l.monitor_timeout, v) }, "3s",
            "How long a health check may take, in whole seconds. Not longer than the interval."),
        Key::new("monitor-max-retries", Field::Lenient { kind: "integer", set: |l, v| retries(&mut l.monitor_max_retries, v) }, "1",
            "Successes until a member gets traffic."),
        Key::new("monitor-max-retries-down",
            Field::Lenient { kind: "integer", set: |l, v| retries(&mut l.monitor_max_retries_down, v) }, "3",
            "Failures until it gets none. 0: Octavia's default, 3."),
        Key::new("manage-security-groups", Field::Flag(|l| &mut l.manage_security_groups), "false",
            "A security group for each Service, on the ports of its nodes."),
        Key::new("internal-lb", Field::Flag(|l| &mut l.internal_lb), "false",
            "No Service gets a floating IP, whatever its annotation says."),
        Key::new("node-selector", Field::Text(|l| &mut l.node_selector), "",
            "Labels of the nodes that become members: `key=value,key`."),
        Key::new("cascade-delete", Field::Flag(|l| &mut l.cascade_delete), "true",
            "Delete a load balancer with everything in it in one call."),
        Key::new("flavor-id", Field::Lenient { kind: ID, set: |l, v| id(&mut l.flavor_id, v) }, "",
            "Flavor of Octavia."),
        Key::new("availability-zone", Field::Text(|l| &mut l.availability_zone), "", "Availability zone of Octavia."),
        Key::new("enable-ingress-hostname", Field::Flag(|l| &mut l.enable_ingress_hostname), "false",
            "With the PROXY protocol, publish a hostname instead of the address."),
        Key::new("ingress-hostname-suffix", Field::Text(|l| &mut l.ingress_hostname_suffix), "nip.io",
            "End of that hostname."),
        Key::new("default-tls-container-ref", Field::Text(|l| &mut l.default_tls_container_ref), "",
            "Certificate of Barbican for Services that name none."),
        Key::new("container-store", Field::Lenient { kind: "`barbican`, `external`", set: container_store }, "barbican",
            "Where certificates are. They are looked up in `barbican` only."),
        Key::new("max-shared-lb", Field::Lenient { kind: "integer", set: max_shared }, "2",
            "How many Services may share a load balancer."),
        Key::new("provider-requires-serial-api-calls", Field::Flag(|l| &mut l.serial_calls), "false",
            "Create and change each part of a load balancer by a call of its own."),
        Key::new("use-octavia", Field::Retired::<LoadBalancerConfig>, "", "Chose Octavia, which is always used now.")
            .note(WAS_LEGACY),
    ],
};

#[rustfmt::skip]
pub(super) static CLASS: Table<Class> = Table {
    section: "LoadBalancerClass",
    doc: "Places that Services choose by `loadbalancer.openstack.org/class`, one section each; the case of the name matters. Its keys override those of `[LoadBalancer]`.",
    keys: &[
        Key::new("floating-network-id", Field::Lenient { kind: ID, set: |c, v| id(&mut c.floating_network_id, v) }, "",
            "External network of floating IPs."),
        Key::new("floating-subnet-id", Field::Lenient { kind: ID, set: |c, v| id(&mut c.floating_subnet_id, v) }, "",
            "Subnet of floating IPs."),
        Key::new("floating-subnet", Field::Text(|c| &mut c.floating_subnet), "", "The same by a pattern of names."),
        Key::new("floating-subnet-tags", Field::Text(|c| &mut c.floating_subnet_tags), "", "The same by tags."),
        Key::new("network-id", Field::Lenient { kind: ID, set: |c, v| id(&mut c.network_id, v) }, "",
            "Network of the load balancer's address."),
        Key::new("subnet-id", Field::Lenient { kind: ID, set: |c, v| id(&mut c.subnet_id, v) }, "",
            "Subnet of the load balancer's address."),
        Key::new("member-subnet-id", Field::Lenient { kind: ID, set: |c, v| id(&mut c.member_subnet_id, v) }, "",
            "Subnet of the members."),
    ],
};

#[rustfmt::skip]
pub(super) static ROUTE: Table<Route> = Table {
    section: "Route",
    doc: "Routes to pods.",
    keys: &[Key::new("router-id", Field::Lenient { kind: ID, set: |r, v| id(&mut r.router_id, v) }, "",
        "Router of Neutron that gets the routes. Without it there are none.")],
};

#[rustfmt::skip]
pub(super) static METADATA: Table<Metadata> = Table {
    section: "Metadata",
    doc: "Where the program learns about the instance it runs on, and how long requests may take.",
    keys: &[
        Key::new("search-order", Field::Custom { kind: "list of `configDrive`, `metadataService`", set: search_order },
            "configDrive,metadataService",
            "Checked and without other effect, as upstream: nothing that the program does needs the instance it runs on."),
        Key::new("request-timeout", Field::Lenient { kind: DURATION, set: request_timeout }, "60s",
            "How long any request to OpenStack may take, not only those for metadata. `0` is the default."),
    ],
};

#[rustfmt::skip]
pub(super) static BLOCK_STORAGE: Table<BlockStorage> = Table {
    section: "BlockStorage",
    doc: "For the labels of volumes. Other keys belong to the CSI driver and are ignored.",
    keys: &[
        Key::new("bs-version", Field::Lenient { kind: "`v3`, `auto`", set: bs_version }, "auto",
            "Version of the Cinder API. It is `v3` in any case."),
        Key::new("ignore-volume-az", Field::Flag(|b| &mut b.ignore_volume_az), "false", "Volumes get no zone label."),
    ],
};

fn tls_insecure(global: &mut Global, value: &str) -> Doubt {
    global.tls_insecure = if value.is_empty() { None } else { Some(value == "true") };
    let is_doubtful = !["", "true", "false"].contains(&value);
    Ok(is_doubtful.then(|| "certificates are verified: only the exact text true switches that off".to_owned()))
}

fn bs_version(_: &mut BlockStorage, value: &str) -> Doubt {
    let is_fine = ["", "v3", "auto"].contains(&value);
    Ok((!is_fine).then(|| "only v3 is spoken, and used; remove the key".to_owned()))
}

fn sort_order(networking: &mut Networking, value: &str) -> Doubt {
    let items = value.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty());
    let (mut order, mut bad) = (Vec::new(), Vec::new());
    for item in items {
        match parse_cidr(item) {
            Some(network) => order.push(network),
            None => bad.push(format!("{item:?}")),
        }
    }
    networking.sort_order = order;
    Ok((!bad.is_empty()).then(|| format!("ignored, as no CIDR: {}", bad.join(", "))))
}

/// UUIDs with hyphens or without.
fn id(field: &mut String, value: &str) -> Doubt {
    value.clone_into(field);
    let lengths: Vec<usize> = value.split('-').map(str::len).collect();
    let is_uuid = matches!(lengths.as_slice(), [8, 4, 4, 4, 12] | [32]);
    let is_hex = value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let is_fine = value.is_empty() || is_uuid && is_hex;
    Ok((!is_fine).then(|| "does not look like an ID; write a UUID".to_owned()))
}

/// One of `words`, or another value with a warning.
fn known(field: &mut String, value: &str, words: &[&str], doubt: &str) -> Option<String> {
    value.clone_into(field);
    let hint = || did_you_mean(value, words).unwrap_or_default();
    (!words.contains(&value)).then(|| format!("{doubt}; known are {}{}", words.join(", "), hint()))
}

fn lb_method(config: &mut LoadBalancerConfig, value: &str) -> Doubt {
    Ok(known(&mut config.lb_method, value, &LB_METHODS, "unknown, Octavia may refuse it"))
}

fn lb_provider(config: &mut LoadBalancerConfig, value: &str) -> Doubt {
    let words = ["amphora", "amphorav2", "octavia", OVN, "f5"];
    let doubt = known(&mut config.lb_provider, value, &words, "unknown, used as it is");
    Ok(doubt.filter(|_| !value.is_empty()))
}

fn container_store(config: &mut LoadBalancerConfig, value: &str) -> Doubt {
    Ok(known(&mut config.container_store, value, &["barbican", "external"], "unknown, certificates are not looked up"))
}

/// A duration; a bare number is in seconds. A negative one, which upstream accepts, becomes zero.
fn time(value: &str) -> Result<(Duration, Option<String>), String> {
    match (duration::parse(value), value.parse::<u32>()) {
        (Ok(time), _) => Ok((time, None)),
        (Err(_), Ok(seconds)) => {
            let doubt = format!("without a unit, read as seconds; write {seconds}s");
            Ok((Duration::from_secs(seconds.into()), Some(doubt)))
        }
        (Err(ParseError::Negative(_)), _) => Ok((Duration::ZERO, Some("negative, read as 0".to_owned()))),
        _ => Err("not a duration; write for example 5s, 1m or 1m30s".to_owned()),
    }
}

fn monitor_time(field: &mut Duration, value: &str) -> Doubt {
    let (time, doubt) = time(value)?;
    *field = time;
    let sent = (time.as_secs() == 0 || time.subsec_nanos() > 0).then(|| {
        let refused = if time.as_secs() == 0 { ", which Octavia refuses" } else { "" };
        format!("Octavia gets whole seconds: {}{refused}", time.as_secs())
    });
    Ok(sent.or(doubt))
}

fn request_timeout(metadata: &mut Metadata, value: &str) -> Doubt {
    let (time, doubt) = time(value)?;
    metadata.request_timeout = if time.is_zero() { Metadata::default().request_timeout } else { time };
    Ok(doubt)
}

/// The kit's number parser, for keys that also warn.
fn integer(value: &str, min: i64) -> Result<i64, String> {
    ccm_kit::gcfg::table::integer(value, min, i32::MAX.into())
}

fn retries(field: &mut i64, value: &str) -> Doubt {
    *field = integer(value, 0)?;
    Ok((!(1..=10).contains(field)).then(|| "Octavia takes numbers from 1 to 10".to_owned()))
}

fn max_shared(config: &mut LoadBalancerConfig, value: &str) -> Doubt {
    config.max_shared_lb = integer(value, i32::MIN.into())?;
    Ok((config.max_shared_lb < 1).then(|| "no Service can have a load balancer named by annotation".to_owned()))
}

fn search_order(metadata: &mut Metadata, value: &str) -> Result<(), String> {
    if value.is_empty() {
        metadata.search_order = Metadata::default().search_order;
        return Ok(());
    }
    let source = |item: &str| match item.trim() {
        "configDrive" => Ok(MetadataSource::ConfigDrive),
        "metadataService" => Ok(MetadataSource::MetadataService),
        other => Err(format!("{other:?} is unknown; write configDrive, metadataService, or both with a comma")),
    };
    let order = value.split(',').map(source).collect::<Result<Vec<_>, _>>()?;
    if order.len() > 2 {
        return Err("more than two elements; write configDrive, metadataService, or both with a comma".to_owned());
    }
    metadata.search_order = order;
    Ok(())
}
