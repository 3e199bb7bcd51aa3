//! The common parts of clouds with JSON over REST: a table of routes, calls, answers and errors.

use super::server::Request;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value};

/// A route of a cloud with the state `W`.
#[derive(Debug)]
pub struct Route<W: 'static> {
    /// The service name in ledger, faults and throttles.
    pub service: &'static str,
    pub method: &'static str,
    /// The path; `{}` matches one segment.
    pub path: &'static str,
    /// The action name in ledger, faults and throttles.
    pub action: &'static str,
    /// Whether it changes something visible to users.
    pub mutating: bool,
    /// Executes the call.
    pub run: fn(&mut W, &Call) -> Result<Reply, Problem>,
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    pub service: &'static str,
    pub action: &'static str,
    pub mutating: bool,
    pub method: Method,
    /// The raw path, without the query.
    pub path: String,
    /// The values of the `{}` of the route.
    pub ids: Vec<String>,
    /// The decoded query parameters, in order.
    pub query: Vec<(String, String)>,
    /// The raw body.
    pub body: Bytes,
    pub headers: HeaderMap,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    /// The body: JSON, unless [`Reply::kind`] is set.
    pub body: Vec<u8>,
    /// The content type; empty means JSON.
    pub kind: &'static str,
    pub headers: Vec<(&'static str, String)>,
    /// The number of listed objects.
    pub items: u64,
    /// A defect of the request that the service tolerates.
    pub violation: Option<String>,
}

/// An error of a service, before it is rendered in the service's own format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub status: u16,
    /// The error code or type of the service.
    pub code: String,
    pub message: String,
    /// Whether the call violates the service's API: a defect of the caller.
    pub violation: bool,
    /// Causes in the service's own format; null if it has none.
    pub details: Value,
    /// The seconds after which the caller may try again, if the service says so.
    pub retry_after: Option<u64>,
}

/// The reason why no route matches a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No route has this path.
    Path,
    /// Routes have this path, but another method.
    Method,
}

impl Problem {
    /// An error that a caller must expect.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        let (violation, details, retry_after) = (false, Value::Null, None);
        Problem { status, code: code.to_owned(), message: message.into(), violation, details, retry_after }
    }

    /// An error that indicates a defect of the caller.
    pub fn violation(status: u16, code: &str, message: impl Into<String>) -> Self {
        Problem { violation: true, ..Problem::new(status, code, message) }
    }
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        Reply { status, body: serde_json::to_vec(value).unwrap_or_default(), ..Reply::default() }
    }

    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Reply { status, ..Reply::default() }
    }

    /// Converts it to an HTTP response.
    pub fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = if self.kind.is_empty() { "application/json" } else { self.kind };
        let headers = std::iter::once(("content-type", kind.to_owned())).chain(self.headers);
        for (name, value) in headers {
            if let Ok(value) = http::HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl Call {
    /// The first value of a query parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a query parameter.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of the n-th `{}`, from 0.
    pub fn id(&self, n: usize) -> &str {
        self.ids.get(n).map(String::as_str).unwrap_or_default()
    }

    /// A header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Whether the method is POST, i.e. a creation.
    pub fn method_is_post(&self) -> bool {
        self.method == Method::POST
    }

    /// The body, if it is a JSON object.
    pub fn object(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Finds the route of a request; some services compare paths regardless of case.
pub fn find<W>(
    routes: &'static [Route<W>],
    request: &Request,
    caseless: bool,
) -> Result<(&'static Route<W>, Call), Lost> {
    let path = request.uri().path();
    let mut lost = Lost::Path;
    for route in routes {
        let Some(ids) = ids(route.path, path, caseless) else { continue };
        if Method::from_bytes(route.method.as_bytes()).is_ok_and(|method| method == request.method()) {
            let call = Call {
                service: route.service,
                action: route.action,
                mutating: route.mutating,
                method: request.method().clone(),
                path: path.to_owned(),
                ids,
                query: query(request.uri().query().unwrap_or_default()),
                body: request.body().clone(),
                headers: request.headers().clone(),
            };
            return Ok((route, call));
        }
        lost = Lost::Method;
    }
    Err(lost)
}

/// The values of the `{}` of a template, if the path matches. A trailing slash is ignored.
fn ids(template: &str, path: &str, caseless: bool) -> Option<Vec<String>> {
    let mut ids = Vec::new();
    let mut segments = path.trim_end_matches('/').split('/');
    for wanted in template.trim_end_matches('/').split('/') {
        let segment = segments.next()?;
        if wanted == "{}" && !segment.is_empty() {
            ids.push(percent_decode_str(segment).decode_utf8_lossy().into_owned());
        } else if wanted != segment && !(caseless && wanted.eq_ignore_ascii_case(segment)) {
            return None;
        }
    }
    segments.next().is_none().then_some(ids)
}

/// Decodes a query.
pub fn query(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Percent-encodes everything but letters, digits and `-._~:`.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut (), _: &Call) -> Result<Reply, Problem> {
        Ok(Reply::empty(204))
    }

    const fn route(method: &'static str, path: &'static str, action: &'static str) -> Route<()> {
        Route { service: "s", method, path, action, mutating: false, run: nothing }
    }

    static ROUTES: &[Route<()>] =
        &[route("GET", "/a/detail", "list"), route("GET", "/a/{}", "get"), route("PUT", "/a/{}/b/{}", "put")];

    fn found_as(caseless: bool, method: &str, uri: &str) -> Result<(&'static str, Vec<String>), Lost> {
        let request = http::Request::builder().method(method).uri(uri).body(Bytes::new()).unwrap();
        find(ROUTES, &request, caseless).map(|(route, call)| (route.action, call.ids))
    }

    fn found(method: &str, uri: &str) -> Result<(&'static str, Vec<String>), Lost> {
        found_as(false, method, uri)
    }

    #[test]
    fn a_request_finds_the_first_route_that_fits() {
        assert_eq!(found("GET", "/a/detail").unwrap().0, "list");
        assert_eq!(found("GET", "/a/x%2Fy?q=1"), Ok(("get", vec!["x/y".to_owned()])));
        assert_eq!(found("PUT", "/a/1/b/2/"), Ok(("put", vec!["1".to_owned(), "2".to_owned()])));
        assert_eq!(found("PUT", "/a/1"), Err(Lost::Method));
        assert_eq!(found("GET", "/b"), Err(Lost::Path));
        assert_eq!(found("PUT", "/A/1/b/2"), Err(Lost::Path));
        assert_eq!(found_as(true, "PUT", "/A/X/B/2"), Ok(("put", vec!["X".to_owned(), "2".to_owned()])));
    }

    #[test]
    fn queries_are_decoded_and_keep_their_order() {
        let pairs = query("name=%5Ea+b%24&id=1&id=2&x");
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("name", "^a b$"), ("id", "1"), ("id", "2"), ("x", "")]);
        assert_eq!(encoded("a b/ü:c"), "a%20b%2F%C3%BC:c");
    }
}
