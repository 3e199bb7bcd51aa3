//! The names of clouds with known endpoints.

/// Its endpoints are asked from its Resource Manager.
pub(super) const STACK: &str = "AzureStackCloud";

/// The hosts of the Resource Manager, of the login, and of the audience of tokens.
pub(super) fn endpoints(cloud: &str) -> Option<[&'static str; 3]> {
    match &*cloud.to_ascii_lowercase() {
        "" | "azurecloud" | "azurepubliccloud" => {
            Some(["management.azure.com", "login.microsoftonline.com", "management.core.windows.net"])
        }
        "azurechinacloud" => {
            Some(["management.chinacloudapi.cn", "login.chinacloudapi.cn", "management.core.chinacloudapi.cn"])
        }
        "azureusgovernment" | "azureusgovernmentcloud" => {
            Some(["management.usgovcloudapi.net", "login.microsoftonline.us", "management.usgovcloudapi.net"])
        }
        _ => None,
    }
}
