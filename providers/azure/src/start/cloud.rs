//! Clouds and their endpoints.
//!
//! Upstream: `pkg/azclient/cloud.go`. In order, each over the one before: the built-in cloud, the answer of
//! `resourceManagerEndpoint`, and on Azure Stack the file of `AZURE_ENVIRONMENT_FILEPATH`.

use bytes::Bytes;
use ccm_kit::http::Client;
use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};
use http::Request;
use serde_json::Value;

use super::config::{Config, Variable};
use super::endpoints::{STACK, endpoints};
use crate::client::id::same;
use crate::client::view::text;

const STACK_FILE: &str = "AZURE_ENVIRONMENT_FILEPATH";
const DISCOVERY: &str = "metadata/endpoints?api-version=2019-05-01";

/// A cloud. URLs end with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cloud {
    /// The Resource Manager.
    pub(crate) arm: String,
    /// Entra ID or AD FS.
    pub(crate) login: String,
    /// What tokens are for.
    pub(crate) audience: String,
    /// Whether the API versions are those of Azure Stack, and there are no zones.
    pub(crate) is_stack: bool,
}

impl Cloud {
    fn built_in(name: &str) -> Option<Self> {
        let [arm, login, audience] = endpoints(name)?.map(|host| format!("https://{host}/"));
        Some(Self { arm, login, audience, is_stack: false })
    }

    /// The cloud of a configuration.
    pub(crate) async fn of(config: &Config, http: &Client, variable: Variable<'_>) -> Result<Self, ProviderError> {
        let identity = &config.identity;
        let (name, endpoint) = (&*identity.cloud, &*identity.endpoint);
        let public = || Self::built_in("").unwrap_or_else(|| Self::empty(endpoint));
        let mut cloud = Self::built_in(name).unwrap_or_else(public);
        if !endpoint.is_empty() {
            let answer = discover(endpoint, http).await?;
            cloud.discovered(&answer, name, endpoint);
        }
        if same(name, STACK) {
            cloud.is_stack = !identity.disable_stack;
            if let Some(path) = variable(STACK_FILE).filter(|path| !path.is_empty()) {
                let unusable = |why: String| invalid(STACK_FILE, &path, why);
                let content = std::fs::read_to_string(&path).map_err(|error| unusable(error.to_string()))?;
                let file = serde_json::from_str(&content).map_err(|_| unusable("no JSON document".to_owned()))?;
                cloud.overridden(&file);
            }
        }
        Ok(cloud)
    }

    fn empty(endpoint: &str) -> Self {
        Self { arm: endpoint.to_owned(), login: String::new(), audience: endpoint.to_owned(), is_stack: false }
    }

    /// Takes the endpoints of the entry with this name; of the first one without a name. Without such an entry the cloud
    /// stays.
    fn discovered(&mut self, answer: &Value, name: &str, endpoint: &str) {
        let entries = answer.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_meant = |entry: &&Value| name.is_empty() || same(text(entry, "/name"), name);
        let Some(entry) = entries.iter().find(is_meant) else { return };
        let arm = text(entry, "/resourceManager");
        self.arm = slashed(if arm.is_empty() { endpoint } else { arm });
        let (login, audience) =
            (text(entry, "/authentication/loginEndpoint"), text(entry, "/authentication/audiences/0"));
        if !login.is_empty() {
            self.login = slashed(login);
        }
        if !audience.is_empty() {
            self.audience = audience.to_owned();
        }
    }

    /// Takes the endpoints of an environment file.
    fn overridden(&mut self, file: &Value) {
        let (arm, audience) = (text(file, "/resourceManagerEndpoint"), text(file, "/tokenAudience"));
        if !arm.is_empty() && !audience.is_empty() {
            (self.arm, self.audience) = (slashed(arm), audience.to_owned());
        }
        let login = text(file, "/activeDirectoryEndpoint");
        if !login.is_empty() {
            self.login = slashed(login);
        }
    }

    /// The scope of tokens of Entra ID.
    pub(crate) fn scope(&self) -> String {
        format!("{}/.default", self.audience.trim_end_matches('/'))
    }
}

fn slashed(url: &str) -> String {
    format!("{}/", url.trim_end_matches('/'))
}

/// An error about a setting.
pub(crate) fn invalid(key: &str, value: &str, message: impl Into<String>) -> ProviderError {
    let finding = Finding { value: Some(value.to_owned()), ..Finding::new(Severity::Error, key, message.into()) };
    let line = ccm_kit::gcfg::table::line(&finding);
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, line)
}

async fn discover(endpoint: &str, http: &Client) -> Result<Value, ProviderError> {
    let key = "resourceManagerEndpoint";
    let request = Request::get(format!("{}{DISCOVERY}", slashed(endpoint))).body(Bytes::new());
    let request = request.map_err(|_| invalid(key, endpoint, "not a URL; expected https://host"))?;
    let answer = http.send(request).await.and_then(|answer| answer.json());
    answer.map_err(|failure| {
        let why = [&*failure.code, &*failure.message].into_iter().filter(|part| !part.is_empty());
        let why = why.collect::<Vec<_>>().join(": ");
        let message = format!("{key} = {endpoint:?}: the endpoints of the cloud cannot be read: {why}");
        ProviderError::new(ErrorClass::Transient { after: None }, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn built_in(name: &str) -> Cloud {
        Cloud::built_in(name).unwrap()
    }

    #[test]
    fn clouds_are_found_by_name_in_any_case() {
        assert_eq!(built_in("").arm, "https://management.azure.com/");
        assert_eq!(built_in("AZURECHINACLOUD").login, "https://login.chinacloudapi.cn/");
        assert_eq!(built_in("AzureUSGovernment"), built_in("azureusgovernmentcloud"));
        assert_eq!(built_in("AzurePublicCloud").scope(), "https://management.core.windows.net/.default");
        assert_eq!(Cloud::built_in("AzureGermanCloud"), None);
    }

    #[test]
    fn the_named_entry_of_the_answer_wins_over_the_built_in_cloud() {
        let answer = json!([
            {"name": "Other", "resourceManager": "https://other"},
            {"name": "mine", "authentication": {"loginEndpoint": "https://login", "audiences": ["https://a/", "https://b"]}},
        ]);
        let mut cloud = built_in("");
        cloud.discovered(&answer, "MINE", "https://arm");
        let expected = Cloud {
            arm: "https://arm/".to_owned(),
            login: "https://login/".to_owned(),
            audience: "https://a/".to_owned(),
            is_stack: false,
        };
        assert_eq!(cloud, expected);
        assert_eq!(cloud.scope(), "https://a/.default");
        let mut cloud = built_in("");
        cloud.discovered(&answer, "", "https://arm");
        assert_eq!((&*cloud.arm, &*cloud.login), ("https://other/", &*built_in("").login));
        let mut cloud = built_in("");
        cloud.discovered(&answer, "missing", "https://arm");
        assert_eq!(cloud, built_in(""));
    }

    #[test]
    fn an_environment_file_needs_both_the_endpoint_and_the_audience() {
        let mut cloud = built_in("");
        cloud.overridden(
            &json!({"resourceManagerEndpoint": "https://stack", "activeDirectoryEndpoint": "https://adfs/"}),
        );
        assert_eq!((&*cloud.arm, &*cloud.login), (&*built_in("").arm, "https://adfs/"));
        cloud.overridden(&json!({"resourceManagerEndpoint": "https://stack", "tokenAudience": "https://aud"}));
        assert_eq!((&*cloud.arm, &*cloud.audience), ("https://stack/", "https://aud"));
    }
}
