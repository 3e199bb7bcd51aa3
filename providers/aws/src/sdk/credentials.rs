//! Credentials: the SDK's chain, or a role assumed with it; and the reason if there are none.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::imds;
use aws_config::imds::client::error::ImdsError;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_sts::error::{ProvideErrorMetadata, SdkError};
use ccm_kit::http::causes;
use ccm_kit::{Life, Renewed};
use futures::FutureExt as _;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};

use super::metadata::{FROM_A_POD, REQUIRED};
use crate::start::config::Role;

/// Session duration of an assumed role; the default of the SDKs.
const SESSION: Duration = Duration::from_secs(15 * 60);

/// Credentials are renewed this long before their end, or after half of a shorter lifetime. The metadata service has new
/// ones five minutes before.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// Credentials without an end are read again after this time: a file may have others.
const READ_AGAIN: SignedDuration = SignedDuration::from_mins(15);

/// Variables that name a source of credentials, for the message that none was found.
const SOURCES: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];

/// The credentials of a provider, renewed in the background. With the cache of the SDK, the requests of the last minute
/// wait for the provider, and fail if it does.
pub(super) fn renewed(provider: impl ProvideCredentials + 'static) -> SharedCredentialsProvider {
    let provider = Arc::new(provider);
    let read = move || {
        let provider = provider.clone();
        async move {
            let credentials = provider.provide_credentials().await.map_err(|error| causes(&error, None))?;
            Ok(Issued { life: life(credentials.expiry()), credentials })
        }
        .boxed()
    };
    let late = |how: ccm_kit::Interrupted| format!("credentials: {how}");
    SharedCredentialsProvider::new(InBackground(Renewed::new(read, late, |issued: &Issued| issued.life)))
}

#[derive(Debug)]
struct InBackground(Renewed<Issued, String>);

struct Issued {
    credentials: Credentials,
    life: Option<Life>,
}

fn life(expiry: Option<SystemTime>) -> Option<Life> {
    let now = Timestamp::now();
    let Some(expiry) = expiry else { return Some(Life { renew: now + READ_AGAIN, end: Timestamp::MAX }) };
    let end = Timestamp::try_from(expiry).ok()?;
    // Those that appear expired are not used.
    Life::new(now, end, RENEW_BEFORE).or(Some(Life { renew: end, end }))
}

impl ProvideCredentials for InBackground {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let issued = self.0.get().await.map_err(CredentialsError::provider_error)?;
            Ok(issued.value.credentials.clone())
        })
    }
}

/// The SDK's chain (environment, profile, web identity, container, metadata service) with a reason for its failure. The
/// SDK itself only reports that no provider had credentials, and logs the reason at debug level.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) chain: DefaultCredentialsChain,
    pub(super) metadata: imds::Client,
    pub(super) is_metadata_off: bool,
}

impl ProvideCredentials for Explained {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            match self.chain.provide_credentials().await {
                Err(CredentialsError::CredentialsNotLoaded(_)) => Err(nothing_found(&self.metadata_reason().await)),
                Err(error) => Err(match of_metadata(&error) {
                    Some(cause) => nothing_found(&metadata_failure(cause)),
                    None => CredentialsError::provider_error(format!("{}{}", causes(&error, None), hint(&error))),
                }),
                found => found,
            }
        })
    }
}

impl Explained {
    /// Why the metadata service returned no credentials.
    async fn metadata_reason(&self) -> String {
        if self.is_metadata_off {
            return "the instance metadata service is switched off by AWS_EC2_METADATA_DISABLED".to_owned();
        }
        match self.metadata.get("/latest/meta-data/iam/security-credentials/").await {
            Ok(_) => "the instance metadata service names a role but gave no credentials of it".to_owned(),
            Err(error) if status(&error) == Some(404) => {
                "the instance has no role; attach an instance profile".to_owned()
            }
            Err(error) => metadata_failure(&error),
        }
    }
}

fn nothing_found(metadata: &str) -> CredentialsError {
    let set: Vec<&str> = SOURCES.into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
    let environment = match set.as_slice() {
        [] => "the environment names no source of credentials".to_owned(),
        set => format!("the environment sets {}, which is not enough", set.join(", ")),
    };
    CredentialsError::provider_error(format!("no AWS credentials: {environment}, and {metadata}"))
}

/// The metadata service's error inside an error of the chain.
fn of_metadata(error: &CredentialsError) -> Option<&ImdsError> {
    std::iter::successors(std::error::Error::source(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<ImdsError>())
}

/// A remediation for an error of the chain, if the SDK does not give one.
fn hint(error: &CredentialsError) -> String {
    let text = causes(error, None);
    let has = |word: &str| text.contains(word);
    let fixed = if has("ExpiredToken") {
        "; the token has expired: check that the kubelet renews the projected token, and the clock of this host"
    } else if has("InvalidIdentityToken") || has("No OpenIDConnect provider") {
        "; the OIDC provider of the cluster must be known to IAM, with the audience of the token"
    } else if has("AssumeRoleWithWebIdentity") && has("AccessDenied") {
        "; the trust policy of the role in AWS_ROLE_ARN must allow sts:AssumeRoleWithWebIdentity to this service account"
    } else if has("No such file") {
        let file = std::env::var("AWS_WEB_IDENTITY_TOKEN_FILE").unwrap_or_else(|_| "that the profile names".to_owned());
        return format!("; the file {file} is not there: is the volume mounted?");
    } else {
        ""
    };
    fixed.to_owned()
}

/// How to do without the metadata service.
const WITHOUT_METADATA: &str = "do without it: credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                                AWS_PROFILE), and a file for --cloud-config with the section [Global] and its keys Region, VPC, \
                                KubernetesClusterID, and either SubnetID or RoleARN, which is a role that these credentials assume";

/// Why the metadata service did not answer.
pub(super) fn metadata_failure(error: &ImdsError) -> String {
    match (error, status(error)) {
        (_, Some(403)) => format!(
            "the instance metadata service refuses (HTTP 403): it is switched off for this instance; switch it on (aws ec2 \
             modify-instance-metadata-options --instance-id ID --http-endpoint enabled), or {WITHOUT_METADATA}"
        ),
        (_, Some(status)) => format!("the instance metadata service answered HTTP {status}"),
        (ImdsError::FailedToLoadToken(_) | ImdsError::IoError(_), None) => {
            let text = causes(error, None);
            // Only the service of EC2 requires one.
            let firmware = || is_instance(Path::new("/sys/class/dmi/id"));
            let advice = without_answer(text.contains(REQUIRED).then_some(true).or_else(firmware));
            format!("the instance metadata service did not answer ({text}): {advice}")
        }
        (_, None) => causes(error, None),
    }
}

/// Whether this machine is an EC2 instance, by the vendor that its firmware names; `None`: it names none.
fn is_instance(firmware: &Path) -> Option<bool> {
    let texts = ["sys_vendor", "bios_version"].map(|name| std::fs::read_to_string(firmware.join(name)).ok());
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    // `Amazon EC2`; instances on Xen have a version such as `4.11.amazon`.
    (!texts.is_empty()).then(|| texts.iter().any(|text| text.to_ascii_lowercase().contains("amazon")))
}

fn without_answer(is_instance: Option<bool>) -> String {
    match is_instance {
        Some(true) => FROM_A_POD.to_owned(),
        Some(false) => format!("this machine is not an EC2 instance: {WITHOUT_METADATA}"),
        None => format!("{FROM_A_POD}; on a machine that is not an EC2 instance, {WITHOUT_METADATA}"),
    }
}

fn status(error: &ImdsError) -> Option<u16> {
    match error {
        ImdsError::ErrorResponse(answer) => Some(answer.response().status().as_u16()),
        ImdsError::FailedToLoadToken(_) => {
            let sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
            sources.into_iter().any(|source| source.to_string().contains("forbidden")).then_some(403)
        }
        _ => None,
    }
}

/// A role, assumed with other credentials. The SDK's own provider cannot send additional headers.
///
/// Upstream: `pkg/services/aws_sts.go`. The two headers guard against a confused deputy: a trust policy may test them
/// (`aws:SourceAccount`, `aws:SourceArn`). They are set before signing and so are part of the signature.
#[derive(Debug)]
pub(super) struct AssumedRole {
    pub(super) sts: aws_sdk_sts::Client,
    pub(super) role: Role,
    pub(super) source: Option<HeaderValue>,
}

impl ProvideCredentials for AssumedRole {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.assume())
    }
}

impl AssumedRole {
    async fn assume(&self) -> Result<Credentials, CredentialsError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let request = self
            .sts
            .assume_role()
            .role_arn(&self.role.arn)
            .role_session_name(format!("ccm-{}", now.as_millis()))
            .duration_seconds(i32::try_from(SESSION.as_secs()).unwrap_or(900));
        let (account, source) = (self.role.account.clone(), self.source.clone());
        let sent = request.customize().mutate_request(move |request| {
            let headers = request.headers_mut();
            headers.insert("x-amz-source-account", account.clone());
            if let Some(source) = source.as_ref().and_then(|source| source.to_str().ok()) {
                headers.insert("x-amz-source-arn", source.to_owned());
            }
        });
        let answer = sent.send().await.map_err(|error| self.refused(&error))?;
        let made = answer.credentials.ok_or_else(|| self.unusable("without credentials"))?;
        let expiry = SystemTime::try_from(made.expiration).map_err(|_| self.unusable("with an unreadable expiry"))?;
        Ok(Credentials::builder()
            .access_key_id(made.access_key_id)
            .secret_access_key(made.secret_access_key)
            .session_token(made.session_token)
            .expiry(expiry)
            .provider_name("AssumeRole")
            .build())
    }

    fn unusable(&self, what: &str) -> CredentialsError {
        CredentialsError::provider_error(format!("role {} ([Global] RoleARN): STS answered {what}", self.role.arn))
    }

    fn refused<E>(&self, error: &SdkError<E>) -> CredentialsError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let remediation = match error.meta().code().unwrap_or_default() {
            "AccessDenied" => {
                "; the trust policy of the role must allow these credentials sts:AssumeRole (with matching aws:SourceAccount and \
                 aws:SourceArn, if it has such conditions), and their own policy must allow it too"
            }
            "RegionDisabledException" => "; STS is not active for the account in this region",
            "ExpiredToken" | "ExpiredTokenException" => "; the credentials that should assume it have expired",
            "SignatureDoesNotMatch" => "; check the secret key and the clock of this host",
            _ => "",
        };
        let text = match (error.meta().code(), error.meta().message()) {
            (Some(code), message) => format!("{code}: {}", message.unwrap_or_default()),
            (None, _) => causes(error, None),
        };
        CredentialsError::provider_error(format!(
            "cannot assume role {} ([Global] RoleARN): {text}{remediation}",
            self.role.arn
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_instances_is_not_given_on_other_machines() {
        let firmware = |files: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            is_instance(folder.path())
        };
        assert_eq!(firmware(&[("sys_vendor", "Amazon EC2\n")]), Some(true));
        assert_eq!(firmware(&[("sys_vendor", "Xen\n"), ("bios_version", "4.11.amazon\n")]), Some(true));
        assert_eq!(firmware(&[("sys_vendor", "LENOVO\n"), ("bios_version", "N2\n")]), Some(false));
        assert_eq!(firmware(&[]), None);
        let says = |is_instance, part| without_answer(is_instance).contains(part);
        assert!(says(Some(true), "hop-limit") && !says(Some(true), "no EC2 instance"));
        assert!(!says(Some(false), "hop-limit") && says(Some(false), "AWS_ACCESS_KEY_ID"));
        assert!(says(None, "hop-limit") && says(None, "AWS_ACCESS_KEY_ID"));
    }
}
