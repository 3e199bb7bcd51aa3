//! Errors of connections, requests and responses. The messages name the remedy.

use std::error::Error;
use std::io;
use std::time::Duration;

use ccm_provider::duration;
use http::StatusCode;
use kube::client::AuthError;
use rustls::CertificateError;
use serde::Deserialize;

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither flag is given and the process does not run in a pod.
    #[error(
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable (give --kubeconfig or --master, or run in a pod with a service account: {0})"
    )]
    None(String),
    /// The kubeconfig is invalid.
    #[error("the kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The reason, with all causes.
        reason: String,
    },
    /// The address is invalid.
    #[error("--master {0:?}: {1}")]
    Master(String, String),
    /// TLS or credentials are invalid.
    #[error("cannot set up the connection to the API server: {0}")]
    Setup(String),
    /// `--use-service-account-credentials`: a controller gets no separate identity.
    #[error("--use-service-account-credentials: service account {account}: {error}")]
    Account {
        /// `<namespace>/<name>`
        account: String,
        /// The API server's answer.
        error: ApiError,
    },
}

/// The reason why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The API server answered with an error.
    #[error("{message}")]
    Status {
        /// HTTP status code.
        code: u16,
        /// Reason word: `Conflict`, `NotFound`, …
        reason: String,
        /// Its message.
        message: String,
        /// From the `Retry-After` header or the status details.
        retry_after: Option<Duration>,
    },
    /// No answer. A write may or may not have taken effect.
    #[error("cannot reach the API server: {0}")]
    Transport(String),
    /// No answer in time. A write may or may not have taken effect.
    #[error("the API server did not answer within {}", duration::format(*.0))]
    Deadline(Duration),
    /// The limits `--kube-api-qps` and `--kube-api-burst` would have delayed the request past its deadline. Not sent.
    #[error("not sent: --kube-api-qps and --kube-api-burst would keep the request back past its deadline; raise them")]
    Paced,
    /// A malformed answer.
    #[error("the answer of the API server cannot be read: {0}")]
    Decode(String),
}

impl ApiError {
    fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            _ => 0,
        }
    }

    /// Whether the status is 403: the identity lacks a permission.
    pub fn is_forbidden(&self) -> bool {
        self.code() == 403
    }

    /// Whether the status is 401: the server rejects the credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.code() == 401
    }

    /// Whether the status is 404: the object does not exist. A proxy's page with this code proves nothing about the
    /// object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, reason, .. } if reason == "NotFound")
    }

    /// Whether the status is 409: another client wrote in between, or the object exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether the status is 410: the requested version has expired.
    pub fn is_gone(&self) -> bool {
        self.code() == 410
    }

    /// Whether the status is 504 because the requested version is newer than any that the server knows.
    pub fn is_too_large_version(&self) -> bool {
        matches!(self, Self::Status { code: 504, message, .. } if message.contains("Too large resource version"))
    }

    /// Whether the refusal is permanent: a retry of the same request is useless.
    pub fn is_refused(&self) -> bool {
        matches!(self.code(), 400 | 401 | 403 | 404 | 405 | 409 | 410 | 413 | 415 | 422)
    }

    /// The wait that the server requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// Creates an error from a Kubernetes `Status`, or from any other body that came with the status code.
pub(crate) fn status_error(http: StatusCode, body: &[u8], retry_after: Option<Duration>) -> ApiError {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.message.is_empty() || !status.reason.is_empty() => ApiError::Status {
            code: if status.code == 0 { http.as_u16() } else { status.code },
            reason: status.reason,
            message: status.message,
            retry_after: retry_after
                .or_else(|| Some(Duration::from_secs(status.details?.retry_after_seconds.filter(|s| *s > 0)?))),
        },
        _ => {
            let text: String = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
            let text: String = text.chars().take(200).collect();
            ApiError::Status {
                code: http.as_u16(),
                reason: String::new(),
                message: format!(
                    "the API server, or a proxy before it, answered {http} with something that is not a Kubernetes status: {text:?}"
                ),
                retry_after,
            }
        }
    }
}

/// An error and all its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// An error of kube in one line, without what a credential plugin printed: that may be a token.
pub(super) fn explain(error: &kube::Error) -> String {
    let plugin = match error {
        kube::Error::Auth(error) => Some(error),
        kube::Error::Service(error) => error.downcast_ref(),
        _ => None,
    };
    plugin.map_or_else(|| chain(error), credentials)
}

fn credentials(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let stderr: String = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
            let stderr: String = stderr.chars().take(200).collect();
            format!("the exec plugin of the kubeconfig failed ({}): {stderr:?}", out.status)
        }
        AuthError::AuthExecStart(cause) => {
            format!("the exec plugin of the kubeconfig cannot be started: {cause}; is it in the image and in PATH?")
        }
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            "the exec plugin of the kubeconfig printed something that is not an ExecCredential".to_owned()
        }
        AuthError::ExecPluginFailed => "the exec plugin of the kubeconfig printed no status".to_owned(),
        AuthError::AuthExec(_) => "the credential plugin of the kubeconfig failed".to_owned(),
        error => chain(error),
    }
}

/// The server that a client connects to, for error messages.
pub(super) struct Peer {
    /// Host and port.
    pub(super) host: String,
    /// The source of the trusted certificates.
    pub(super) trust: String,
    /// The proxy in between.
    pub(super) proxy: Option<String>,
}

/// The host name of a server has no address.
#[derive(Debug, thiserror::Error)]
#[error("dns error")]
pub(super) struct Unresolved(#[source] pub(super) io::Error);

/// The meaning of a transport error, and its remedy.
pub(super) fn transport(error: &kube::Error, peer: &Peer) -> ApiError {
    let text = explain(error);
    let hint = match &peer.proxy {
        // The types of these errors are private to hyper-util.
        Some(proxy) if text.contains("tunnel error") || text.contains("SOCKS error") => {
            proxy_hint(&text, proxy, &peer.host)
        }
        _ => direct_hint(error, peer),
    };
    ApiError::Transport(format!("{hint}: {text}"))
}

fn proxy_hint(text: &str, proxy: &str, host: &str) -> String {
    if text.contains("failed to create underlying connection") {
        format!("{proxy} cannot be reached, or {host} belongs into NO_PROXY")
    } else if text.contains("proxy authorization required") {
        format!("{proxy} wants another user and password; they are given as http://user:password@host:port")
    } else {
        format!("{proxy} does not lead to {host}")
    }
}

fn direct_hint(error: &kube::Error, Peer { host, trust, .. }: &Peer) -> String {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer};
    let certificate = causes(error).find_map(|cause| match cause.downcast_ref()? {
        rustls::Error::InvalidCertificate(wrong) => Some(wrong),
        _ => None,
    });
    match certificate {
        Some(UnknownIssuer) => format!("the certificate of {host} is not signed by {trust}"),
        Some(NotValidForName | NotValidForNameContext { .. }) => {
            format!("the certificate of {host} is made for other names: connect by one of them, or set tls-server-name")
        }
        Some(Expired | ExpiredContext { .. }) => {
            format!("the certificate of {host} has expired, or the clock of this machine is wrong")
        }
        _ if causes(error).any(<dyn Error>::is::<Unresolved>) => {
            format!("the name {host} cannot be resolved: check the address in the kubeconfig or --master, and the DNS")
        }
        _ if causes(error).any(is_refused) => {
            format!("nothing listens at {host}: check the address in the kubeconfig or --master")
        }
        _ => host.clone(),
    }
}

fn is_refused(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// An error and all errors that it wraps.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        // The source of an `io::Error` is the source of the error that it wraps.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inside) => Some(inside),
            None => error.source(),
        }
    })
}
