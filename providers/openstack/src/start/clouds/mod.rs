//! clouds.yaml, as the OpenStack command line clients use it: it fills the empty keys of `[Global]`.
//!
//! Upstream: `openstack/clientconfig` of gophercloud/utils. Upstream reads the file a second time at the login when
//! `cloud` is set, and then ignores a password of `[Global]`. Here `[Global]` always takes precedence, key by key;
//! `verify: false` and `trust_id` count as well.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::Global;

#[cfg(test)]
mod tests;

/// Reads an environment variable.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

const FILE_VARIABLE: &str = "OS_CLIENT_CONFIG_FILE";
const CLOUD_VARIABLE: &str = "OS_CLOUD";
const PUBLIC: [&str; 2] = ["clouds-public.yaml", "clouds-public.yml"];
const SECURE: [&str; 2] = ["secure.yaml", "secure.yml"];
const CLOUDS: [&str; 2] = ["clouds.yaml", "clouds.yml"];

/// The folders in which the files are searched.
pub(crate) fn folders(home: Option<&Path>) -> Vec<PathBuf> {
    let of_home = home.map(|home| home.join(".config/openstack"));
    [Some(PathBuf::new()), of_home, Some("/etc/openstack".into())].into_iter().flatten().collect()
}

/// clouds.yaml and secure.yaml. Entries may be empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Clouds {
    clouds: Option<BTreeMap<String, Option<Entry>>>,
}

/// clouds-public.yaml.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PublicClouds {
    #[serde(rename = "public-clouds")]
    clouds: Option<BTreeMap<String, Option<Entry>>>,
}

/// A cloud. All values are texts, so that an unquoted number stays as written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    profile: Option<String>,
    /// The older name of `profile`.
    cloud: Option<String>,
    auth: Option<Auth>,
    region_name: Option<String>,
    endpoint_type: Option<String>,
    interface: Option<String>,
    verify: Option<String>,
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth_url: Option<String>,
    user_id: Option<String>,
    username: Option<String>,
    password: Option<String>,
    project_id: Option<String>,
    project_name: Option<String>,
    trust_id: Option<String>,
    domain_id: Option<String>,
    domain_name: Option<String>,
    project_domain_id: Option<String>,
    project_domain_name: Option<String>,
    user_domain_id: Option<String>,
    user_domain_name: Option<String>,
    application_credential_id: Option<String>,
    application_credential_name: Option<String>,
    application_credential_secret: Option<String>,
    token: Option<String>,
    /// ID of the domain of user and project if nothing else specifies one.
    default_domain: Option<String>,
}

/// Fills the empty keys of `[Global]` from clouds.yaml, if `[Global]` enables it.
pub(crate) fn fill(
    global: &mut Global,
    variable: Variable<'_>,
    folders: &[PathBuf],
) -> Result<Vec<Finding>, ProviderError> {
    if !global.reads_clouds() {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let (file, clouds) = clouds_file(global, variable, folders, &mut findings)?;
    let (name, entry) = chosen(global, variable, &file, clouds.clouds.unwrap_or_default())?;
    let secure = find::<Clouds>(folders, &SECURE)?.and_then(|(_, secure)| secure.clouds?.remove(&name)?);
    let profile = entry.profile.as_ref().or(entry.cloud.as_ref()).filter(|profile| !profile.is_empty());
    let profile = profile.map(|profile| public(folders, profile, &name, &mut findings)).transpose()?.flatten();
    tracing::info!(file = %file.display(), cloud = name, "clouds.yaml fills what [Global] leaves empty");
    // The first entry with a value takes precedence.
    let mut default_domain = String::new();
    for entry in [secure, Some(entry), profile].into_iter().flatten() {
        entry
            .fill(global, &mut default_domain)
            .map_err(|problem| error(&format!("{}: {name}", file.display()), problem))?;
    }
    fill_domains(global, &default_domain);
    Ok(findings)
}

/// Sets the domain of a user and a project that are named without one.
fn fill_domains(global: &mut Global, default_domain: &str) {
    if !(global.domain_id.is_empty() && global.domain_name.is_empty()) {
        return;
    }
    let has_user = global.user_id.is_empty() && !global.username.is_empty();
    if has_user && global.user_domain_id.is_empty() && global.user_domain_name.is_empty() {
        default_domain.clone_into(&mut global.user_domain_id);
    }
    let has_project = global.tenant_id.is_empty() && !global.tenant_name.is_empty();
    if has_project && global.tenant_domain_id.is_empty() && global.tenant_domain_name.is_empty() {
        default_domain.clone_into(&mut global.tenant_domain_id);
    }
}

/// The login keys in `[Global]` that the Go program ignores: with `cloud` it takes the whole login from clouds.yaml.
pub(crate) fn ignored_upstream(global: &Global) -> Option<Finding> {
    let login = [
        ("auth-url", !global.auth_url.is_empty()),
        ("user-id", !global.user_id.is_empty()),
        ("username", !global.username.is_empty()),
        ("password", !global.password.is_empty()),
        ("tenant-id", !global.tenant_id.is_empty()),
        ("tenant-name", !global.tenant_name.is_empty()),
        ("token", !global.token.is_empty()),
        ("application-credential-id", !global.application_credential_id.is_empty()),
        ("application-credential-name", !global.application_credential_name.is_empty()),
        ("application-credential-secret", !global.application_credential_secret.is_empty()),
    ];
    let set: Vec<&str> = login.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect();
    (!global.cloud.is_empty() && !set.is_empty()).then(|| {
        let text = format!(
            "the Go program logs in with what clouds.yaml has; here these keys of [Global] win: {}",
            set.join(", ")
        );
        Finding::new(Severity::Warning, "[Global] cloud", text)
    })
}

/// The clouds.yaml to use.
fn clouds_file(
    global: &Global,
    variable: Variable<'_>,
    folders: &[PathBuf],
    findings: &mut Vec<Finding>,
) -> Result<(PathBuf, Clouds), ProviderError> {
    let named = Some(global.clouds_file.clone()).filter(|path| !path.is_empty()).or_else(|| variable(FILE_VARIABLE));
    if let Some(path) = named.filter(|path| !path.is_empty()).map(PathBuf::from) {
        if let Some(clouds) = read(&path)? {
            return Ok((path, clouds));
        }
        let key = if global.clouds_file.is_empty() { FILE_VARIABLE } else { "[Global] clouds-file" };
        let mut finding =
            Finding::new(Severity::Warning, key, "there is no such file; clouds.yaml is searched elsewhere");
        finding.value = Some(path.display().to_string());
        findings.push(finding);
    }
    find(folders, &CLOUDS)?.ok_or_else(|| {
        let places: Vec<String> =
            folders.iter().map(|folder| folder.join("clouds.yaml").display().to_string()).collect();
        error(
            "[Global] use-clouds",
            format!("no clouds.yaml found: there is none at {}; set [Global] clouds-file", places.join(", ")),
        )
    })
}

/// The entry to use, and its name.
fn chosen(
    global: &Global,
    variable: Variable<'_>,
    file: &Path,
    mut clouds: BTreeMap<String, Option<Entry>>,
) -> Result<(String, Entry), ProviderError> {
    let named = Some(global.cloud.clone()).filter(|name| !name.is_empty());
    let named = named.or_else(|| variable(CLOUD_VARIABLE)).filter(|name| !name.is_empty());
    let name = match (named, clouds.keys().next()) {
        (Some(name), _) => name,
        (None, Some(only)) if clouds.len() == 1 => only.clone(),
        _ => {
            let message =
                format!("could not find cloud: {} has {} entries; set [Global] cloud", file.display(), clouds.len());
            return Err(error("[Global] cloud", message));
        }
    };
    match clouds.remove(&name) {
        Some(entry) => Ok((name, entry.unwrap_or_default())),
        None => {
            let known: Vec<String> = clouds.into_keys().collect();
            let message = format!(
                "cloud {name} does not exist in clouds.yaml: {} has {}",
                file.display(),
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
            Err(error("[Global] cloud", message))
        }
    }
}

/// The entry of clouds-public.yaml on which an entry builds.
fn public(
    folders: &[PathBuf],
    profile: &str,
    cloud: &str,
    findings: &mut Vec<Finding>,
) -> Result<Option<Entry>, ProviderError> {
    let Some((file, public)) = find::<PublicClouds>(folders, &PUBLIC)? else {
        let message =
            format!("cloud {cloud} names this profile, but there is no clouds-public.yaml; it does not count");
        let mut finding = Finding::new(Severity::Warning, "profile", message);
        finding.value = Some(profile.to_owned());
        findings.push(finding);
        return Ok(None);
    };
    match public.clouds.unwrap_or_default().remove(profile) {
        Some(entry) => Ok(entry),
        None => {
            Err(error(&file.display().to_string(), format!("cloud {profile}, the profile of {cloud}, does not exist")))
        }
    }
}

impl Entry {
    fn fill(self, global: &mut Global, default_domain: &mut String) -> Result<(), String> {
        let auth = self.auth.unwrap_or_default();
        let texts = [
            (&mut global.auth_url, auth.auth_url),
            (&mut global.user_id, auth.user_id),
            (&mut global.username, auth.username),
            (&mut global.password.0, auth.password),
            (&mut global.tenant_id, auth.project_id),
            (&mut global.tenant_name, auth.project_name),
            (&mut global.trust_id, auth.trust_id),
            (&mut global.domain_id, auth.domain_id),
            (&mut global.domain_name, auth.domain_name),
            (&mut global.tenant_domain_id, auth.project_domain_id),
            (&mut global.tenant_domain_name, auth.project_domain_name),
            (&mut global.user_domain_id, auth.user_domain_id),
            (&mut global.user_domain_name, auth.user_domain_name),
            (&mut global.application_credential_id, auth.application_credential_id),
            (&mut global.application_credential_name, auth.application_credential_name),
            (&mut global.application_credential_secret.0, auth.application_credential_secret),
            (&mut global.token.0, auth.token),
            (default_domain, auth.default_domain),
            (&mut global.region, self.region_name),
            (&mut global.ca_file, self.cacert),
            (&mut global.cert_file, self.cert),
            (&mut global.key_file, self.key),
        ];
        for (field, value) in texts {
            if field.is_empty() {
                *field = value.unwrap_or_default();
            }
        }
        let kind = self.endpoint_type.filter(|kind| !kind.is_empty()).or(self.interface).unwrap_or_default();
        if global.endpoint_type.is_none() && !kind.is_empty() {
            // The Python clients also accept the older values: publicURL.
            let word = kind.trim_end_matches("URL");
            global.endpoint_type = Some(word.parse().map_err(|problem| format!("interface = {kind:?}: {problem}"))?);
        }
        if global.tls_insecure.is_none() {
            let is_no = |word: String| matches!(word.to_lowercase().as_str(), "false" | "no" | "off");
            global.tls_insecure = self.verify.map(is_no);
        }
        Ok(())
    }
}

/// The first file with one of these names: in any folder by the first name, then by the second.
fn find<T: DeserializeOwned + Default>(
    folders: &[PathBuf],
    names: &[&str],
) -> Result<Option<(PathBuf, T)>, ProviderError> {
    for path in names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))) {
        if let Some(found) = read(&path)? {
            return Ok(Some((path, found)));
        }
    }
    Ok(None)
}

/// Reads a YAML file; `None`: there is none.
fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<Option<T>, ProviderError> {
    let failed = |problem: String| error(&path.display().to_string(), format!("{}: {problem}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed: Result<Option<T>, _> = serde_saphyr::from_str_with_options(&text, options);
    match parsed {
        Ok(found) => Ok(Some(found.unwrap_or_default())),
        Err(problem) => Err(failed(problem.render_with_formatter(&serde_saphyr::UserMessageFormatter))),
    }
}

fn error(key: &str, message: impl Into<String>) -> ProviderError {
    let message = message.into();
    let findings = vec![Finding::new(Severity::Error, key, message.clone())];
    ProviderError::new(ErrorClass::Invalid { findings }, format!("failed to read clouds.yaml: {message}"))
}
