//! The audit log of the API server, parsed.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// One finished request. Texts are empty if the request has no such value.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// User name; the impersonated user's, if any.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` and so on; for a path that is not a resource, the
    /// lower-case HTTP method.
    pub verb: String,
    /// API group; empty for the core group.
    pub api_group: String,
    /// Plural name, such as `nodes`.
    pub resource: String,
    /// Subresource, such as `status` or `token`.
    pub subresource: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    pub namespace: String,
    /// The whole path with its query.
    pub request_uri: String,
    /// HTTP status; 0 if there was no response.
    pub code: u16,
    /// The `User-Agent` of the client.
    pub user_agent: String,
    /// Time of arrival, RFC 3339 with microseconds: the texts sort like the times.
    pub received: String,
    /// The body, if [`crate::Options::audit_bodies`] enabled it.
    pub body: Option<Value>,
}

impl AuditEntry {
    /// Whether its target is this resource, in any API group, or, as in `nodes/status`, this subresource.
    pub fn is_about(&self, resource: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.resource == resource && self.subresource == subresource
    }

    /// Whether the verb is a write. Includes reviews and tokens, which are created too.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    fn parse(line: &[u8]) -> anyhow::Result<Self> {
        let event: Value = serde_json::from_slice(line).context("reading a line of the audit log")?;
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let user =
            if event.get("impersonatedUser").is_some_and(Value::is_object) { "/impersonatedUser" } else { "/user" };
        Ok(Self {
            user: text(&format!("{user}/username")),
            verb: text("/verb"),
            api_group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            name: text("/objectRef/name"),
            namespace: text("/objectRef/namespace"),
            request_uri: text("/requestURI"),
            code: event
                .pointer("/responseStatus/code")
                .and_then(Value::as_u64)
                .and_then(|code| code.try_into().ok())
                .unwrap_or_default(),
            user_agent: text("/userAgent"),
            received: text("/requestReceivedTimestamp"),
            body: event.get("requestObject").cloned(),
        })
    }
}

/// One line for the message of a failed assertion.
impl std::fmt::Display for AuditEntry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { received, user, verb, request_uri, code, user_agent, .. } = self;
        write!(out, "{received} {code} {user} ({user_agent}): {verb} {request_uri}")?;
        self.body.as_ref().map_or(Ok(()), |body| write!(out, " {body}"))
    }
}

/// Reads the new entries of the audit log.
///
/// The API server writes the entry of a request when it ends, which can be slightly after the client receives its
/// response; the entry of a watch when it is closed. To wait for an entry, read until it appears. To assert that there
/// is none, first wait for the entry of a later request.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
}

impl AuditLog {
    pub(crate) fn new(path: &Path, offset: u64) -> Self {
        Self { path: path.to_owned(), offset }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The entries since the last call, at first those of this test, in the order in which the requests ended.
    pub fn read(&mut self) -> anyhow::Result<Vec<AuditEntry>> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.with_context(|| format!("opening {}", self.path.display()))?,
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.offset))?;
        file.read_to_end(&mut bytes)?;
        // The last line may be incomplete.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        self.offset += u64::try_from(whole)?;
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(AuditEntry::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn check(line: &str, expected: &AuditEntry) {
        assert_eq!(&AuditEntry::parse(line.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn an_entry_has_the_user_and_the_request() {
        check(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"patch",
            "requestURI":"/api/v1/nodes/a/status?fieldManager=x","user":{"username":"u","groups":["g","h"]},
            "userAgent":"ccm/1","objectRef":{"resource":"nodes","name":"a","apiVersion":"v1","subresource":"status"},
            "responseStatus":{"metadata":{},"code":200},"requestObject":{"a":1},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z"}"#,
            &AuditEntry {
                user: "u".into(),
                verb: "patch".into(),
                resource: "nodes".into(),
                subresource: "status".into(),
                name: "a".into(),
                request_uri: "/api/v1/nodes/a/status?fieldManager=x".into(),
                code: 200,
                user_agent: "ccm/1".into(),
                received: "2026-01-01T00:00:00.000001Z".into(),
                body: Some(serde_json::json!({"a": 1})),
                ..AuditEntry::default()
            },
        );
        check(
            r#"{"verb":"get","requestURI":"/healthz?verbose","user":{"username":"admin"},
            "impersonatedUser":{"username":"u","groups":["g"]}}"#,
            &AuditEntry {
                user: "u".into(),
                verb: "get".into(),
                request_uri: "/healthz?verbose".into(),
                ..AuditEntry::default()
            },
        );
        assert!(AuditEntry::parse(b"{").is_err());
    }

    #[test]
    fn a_subresource_is_another_resource_and_reviews_are_writes() {
        let entry = |resource: &str, subresource: &str, verb: &str| AuditEntry {
            resource: resource.into(),
            subresource: subresource.into(),
            verb: verb.into(),
            ..AuditEntry::default()
        };
        assert!(entry("nodes", "", "get").is_about("nodes"));
        assert!(!entry("nodes", "status", "get").is_about("nodes"));
        assert!(entry("nodes", "status", "get").is_about("nodes/status"));
        assert!(entry("tokenreviews", "", "create").is_write());
        assert!(!entry("nodes", "", "watch").is_write());
    }

    #[test]
    fn each_whole_line_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = AuditLog::new(&path, 0);
        assert_eq!(log.read().unwrap(), []);

        let mut file = File::create(&path).unwrap();
        let verbs = |entries: Vec<AuditEntry>| entries.into_iter().map(|entry| entry.verb).collect::<Vec<_>>();
        file.write_all(b"{\"verb\":\"get\",\"user\":{\"username\":\"u\"}}\n{\"verb\":\"li").unwrap();
        assert_eq!(verbs(log.read().unwrap()), ["get"]);
        assert_eq!(log.read().unwrap(), []);
        file.write_all(b"st\"}\n{\"verb\":\"patch\",\"user\":{\"username\":\"u\"}}\n").unwrap();
        assert_eq!(verbs(log.read().unwrap()), ["list", "patch"]);
        assert_eq!(verbs(AuditLog::new(&path, 0).read().unwrap()), ["get", "list", "patch"]);
    }
}
