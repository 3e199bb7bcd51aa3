//! The identity: which token source the configuration means. The first match wins, as upstream.
//!
//! Upstream: `pkg/azclient/auth.go`.

use ccm_kit::http::Client;
use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};

use super::cloud::{Cloud, invalid};
use super::config::IdentityConfig;
use crate::client::id::same;
use crate::client::session::{Identities, NetworkIdentity};
use crate::client::token::Tokens;
use crate::client::token::source::{Application, Audience, Managed, Proof};

/// The address of the metadata service of the machine.
pub(crate) const METADATA: &str = "http://169.254.169.254";
/// Overrides it, as in Azure's own libraries.
pub(crate) const METADATA_VARIABLE: &str = "AZURE_POD_IDENTITY_AUTHORITY_HOST";

/// The connections of token sources.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) http: Client,
    /// Never through a proxy.
    pub(crate) direct: Client,
    /// The metadata service.
    pub(crate) metadata: String,
}

/// How the program logs in.
#[derive(Debug, PartialEq, Eq)]
enum Method<'a> {
    Application(Proof),
    /// The ID of the identity, or empty.
    Managed(&'a str),
}

/// The method of a configuration.
fn method(config: &IdentityConfig) -> Result<Method<'_>, Vec<Finding>> {
    let mut missing = Vec::new();
    let mut needed = |key: &str, value: &str| {
        if value.is_empty() {
            missing.push(Finding::new(Severity::Error, key, "needed for this kind of login"));
        }
    };
    let method = if config.federated {
        needed("aadFederatedTokenFile", &config.federated_file);
        Method::Application(Proof::Federated(config.federated_file.clone()))
    } else if config.managed {
        return Ok(Method::Managed(&config.user_assigned));
    } else if !config.secret.is_empty() {
        Method::Application(Proof::Secret(config.secret.clone()))
    } else if !config.certificate.is_empty() {
        Method::Application(Proof::Certificate(config.certificate.clone()))
    } else {
        let message = "no credentials: set useManagedIdentityExtension, useFederatedWorkloadIdentityExtension, or \
                       aadClientId with aadClientSecret or aadClientCertPath";
        return Err(vec![Finding::new(Severity::Error, "aadClientId", message)]);
    };
    needed("aadClientId", &config.client);
    if !is_adfs(config) {
        needed("tenantId", &config.tenant);
    }
    if missing.is_empty() { Ok(method) } else { Err(missing) }
}

fn is_adfs(config: &IdentityConfig) -> bool {
    same(&config.system, "adfs")
}

/// All problems of the login.
pub(crate) fn problems(config: &IdentityConfig) -> Vec<Finding> {
    let mut findings = match method(config) {
        Ok(method) => {
            let is_application = matches!(&method, Method::Application(proof) if !matches!(proof, Proof::Federated(_)));
            let other = Some(&config.network_tenant).filter(|_| has_other_tenant(config) && !is_application);
            let message = "another tenant needs a client secret or certificate; set one, or remove the key";
            let finding = |tenant: &String| Finding {
                value: Some(tenant.clone()),
                ..Finding::new(Severity::Error, "networkResourceTenantID", message)
            };
            other.map(finding).into_iter().collect()
        }
        Err(missing) => missing,
    };
    if !config.federated && !config.federated_file.is_empty() {
        let message = "without effect: useFederatedWorkloadIdentityExtension is not set";
        findings.push(Finding::new(Severity::Warning, "aadFederatedTokenFile", message));
    }
    if !["", "azure_ad", "adfs"].iter().any(|system| same(system, &config.system)) {
        let finding = Finding::new(Severity::Warning, "identitySystem", "unknown; treated as azure_ad");
        findings.push(Finding { value: Some(config.system.clone()), ..finding });
    }
    findings
}

fn has_other_tenant(config: &IdentityConfig) -> bool {
    !config.network_tenant.is_empty() && !same(&config.network_tenant, &config.tenant)
}

/// The token sources of a configuration.
pub(crate) fn identities(
    config: &IdentityConfig,
    cloud: &Cloud,
    connections: &Connections,
) -> Result<Identities, ProviderError> {
    let method = method(config).map_err(|missing| {
        let lines: Vec<String> = missing.iter().map(ccm_kit::gcfg::table::line).collect();
        ProviderError::new(ErrorClass::Invalid { findings: missing }, lines.join("; "))
    })?;
    let proof = match method {
        Method::Managed(identity) => {
            let tokens = Tokens::new(Managed {
                http: connections.direct.clone(),
                base: connections.metadata.clone(),
                identity: identity.to_owned(),
                resource: cloud.audience.clone(),
            });
            return Ok(Identities { compute: tokens, network: None });
        }
        Method::Application(proof) => proof,
    };
    if let Proof::Certificate(path) = &proof {
        // Read now, so that the start reports errors.
        let content = std::fs::read(path).map_err(|error| error.to_string());
        let checked = content.and_then(|pem| crate::client::token::certificate::Certificate::parse(&pem));
        checked.map_err(|why| invalid("aadClientCertPath", path, why))?;
    }
    let of_tenant = |tenant: &str| {
        let (path, audience) = match is_adfs(config) {
            true => ("adfs/oauth2/token".to_owned(), Audience::Resource(cloud.audience.clone())),
            false => (format!("{tenant}/oauth2/v2.0/token"), Audience::Scope(cloud.scope())),
        };
        // AD FS may be configured with its path.
        let login = cloud.login.trim_end_matches('/').trim_end_matches("/adfs");
        Tokens::new(Application {
            http: connections.http.clone(),
            url: format!("{login}/{path}"),
            client: config.client.clone(),
            proof: proof.clone(),
            audience,
        })
    };
    let compute = of_tenant(&config.tenant);
    if is_adfs(config) || !has_other_tenant(config) {
        return Ok(Identities { compute, network: None });
    }
    let tokens = of_tenant(&config.network_tenant);
    let subscription = Some(&config.network_subscription).filter(|id| !same(id, &config.subscription)).cloned();
    Ok(Identities { compute, network: Some(NetworkIdentity { tokens, subscription }) })
}

#[cfg(test)]
mod tests {
    use ccm_kit::gcfg::Secret;

    use super::*;

    fn application() -> IdentityConfig {
        IdentityConfig {
            tenant: "t".to_owned(),
            client: "c".to_owned(),
            secret: Secret("hidden".to_owned()),
            ..IdentityConfig::default()
        }
    }

    fn keys(config: &IdentityConfig) -> Vec<String> {
        problems(config).into_iter().map(|finding| finding.key).collect()
    }

    #[test]
    fn the_first_kind_of_login_wins() {
        let secret = application();
        assert_eq!(method(&secret).unwrap(), Method::Application(Proof::Secret(Secret("hidden".to_owned()))));
        let file = IdentityConfig { federated_file: "/f".to_owned(), ..application() };
        assert_eq!(method(&file), method(&secret), "the file alone is not used");
        let federated = IdentityConfig { federated: true, managed: true, ..file };
        assert_eq!(method(&federated).unwrap(), Method::Application(Proof::Federated("/f".to_owned())));
        let managed = IdentityConfig { managed: true, user_assigned: "u".to_owned(), ..application() };
        assert_eq!(method(&managed).unwrap(), Method::Managed("u"));
        let both = IdentityConfig { certificate: "/pem".to_owned(), ..application() };
        assert_eq!(method(&both), method(&secret));
    }

    #[test]
    fn what_a_login_lacks_is_named() {
        assert_eq!(keys(&IdentityConfig::default()), ["aadClientId"]);
        assert_eq!(keys(&application()), Vec::<String>::new());
        let lacking = IdentityConfig { tenant: String::new(), client: String::new(), ..application() };
        assert_eq!(keys(&lacking), ["aadClientId", "tenantId"]);
        assert_eq!(
            keys(&IdentityConfig { system: "ADFS".to_owned(), tenant: String::new(), ..application() }),
            [""; 0]
        );
        assert_eq!(keys(&IdentityConfig { federated: true, ..application() }), ["aadFederatedTokenFile"]);
        let file = IdentityConfig { federated_file: "/f".to_owned(), ..application() };
        let [unused] = &problems(&file)[..] else { panic!("{:?}", problems(&file)) };
        assert_eq!((unused.severity, &*unused.key), (Severity::Warning, "aadFederatedTokenFile"));
        let two = |config| IdentityConfig { network_tenant: "n".to_owned(), ..config };
        assert_eq!(keys(&two(application())), [""; 0]);
        assert_eq!(keys(&two(IdentityConfig { managed: true, ..application() })), ["networkResourceTenantID"]);
        assert_eq!(keys(&IdentityConfig { system: "x".to_owned(), ..application() }), ["identitySystem"]);
    }
}
