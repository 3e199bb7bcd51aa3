//! The caller in a SigV4 signature. The signature itself is not verified: there is no shared secret.

use super::Service;
use super::error::ApiError;
use super::options::Options;
use http::HeaderMap;

/// The caller in the `Authorization` header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    pub access_key: String,
    /// The region of the credential scope.
    pub region: String,
    /// The service name of the credential scope.
    pub service: String,
    /// The names of the signed headers, lower case, in order.
    pub signed_headers: Vec<String>,
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Parses the `Authorization` header; `None` if it is missing.
pub fn parse(headers: &HeaderMap) -> Result<Option<Caller>, ApiError> {
    let Some(header) = headers.get(http::header::AUTHORIZATION) else { return Ok(None) };
    let bad = |what: &str| ApiError::new("IncompleteSignature", format!("Authorization header {what}."));
    let text = header.to_str().map_err(|_| bad("is no text"))?;
    let rest = text.strip_prefix(ALGORITHM).ok_or_else(|| bad("does not name the algorithm AWS4-HMAC-SHA256"))?;
    let field = |name: &str| {
        rest.split(',')
            .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| bad(&format!("requires '{name}' parameter")))
    };
    let signature = field("Signature")?;
    if signature.len() != 64 || !signature.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad("has a signature that is not 64 hexadecimal digits"));
    }
    let credential = field("Credential")?;
    // In theory the access key may contain slashes: parse the scope from its end.
    let mut scope = credential.rsplitn(5, '/');
    let (Some("aws4_request"), Some(service), Some(region), Some(date), Some(access_key)) =
        (scope.next(), scope.next(), scope.next(), scope.next(), scope.next())
    else {
        return Err(bad("has a credential that is not <key>/<date>/<region>/<service>/aws4_request"));
    };
    let stamp = headers.get("x-amz-date").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if date.len() != 8 || !stamp.starts_with(date) {
        return Err(bad("has a credential whose date is not that of X-Amz-Date"));
    }
    Ok(Some(Caller {
        access_key: access_key.to_owned(),
        region: region.to_owned(),
        service: service.to_owned(),
        signed_headers: field("SignedHeaders")?.split(';').map(str::to_owned).collect(),
    }))
}

/// Checks the scope and the signed headers of a caller against the called service.
pub fn check(caller: &Caller, headers: &HeaderMap, service: Service, options: &Options) -> Result<(), ApiError> {
    let refuse = |text: String| Err(ApiError::unauthorized(service, "SignatureDoesNotMatch", text));
    if caller.region != options.region {
        return refuse(format!(
            "Credential should be scoped to a valid region, not '{}' (this is {}).",
            caller.region, options.region
        ));
    }
    let signed = |name: &str| caller.signed_headers.iter().any(|header| header == name);
    let unsigned = headers
        .keys()
        .map(http::HeaderName::as_str)
        .find(|name| (*name == "host" || name.starts_with("x-amz-")) && !signed(name));
    match unsigned {
        Some(name) => refuse(format!("The header {name} must be signed.")),
        None if !signed("host") => refuse("The header host must be signed.".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", authorization.parse().unwrap());
        headers.insert("host", "x".parse().unwrap());
        headers.insert("x-amz-date", "20261121T100000Z".parse().unwrap());
        headers
    }

    fn good(region: &str, signed: &str) -> HeaderMap {
        headers(&format!(
            "AWS4-HMAC-SHA256 Credential=AKIA/20261121/{region}/ec2/aws4_request, SignedHeaders={signed}, Signature={}",
            "0".repeat(64)
        ))
    }

    #[test]
    fn a_signature_names_caller_and_scope() {
        let headers = good("us-west-2", "host;x-amz-date");
        let caller = parse(&headers).unwrap().unwrap();
        assert_eq!((caller.access_key.as_str(), caller.service.as_str()), ("AKIA", "ec2"));
        assert_eq!(check(&caller, &headers, Service::Ec2, &Options::default()), Ok(()));
        assert_eq!(parse(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn wrong_region_unsigned_headers_and_broken_forms_are_refused() {
        let refused = |headers: HeaderMap| {
            let caller = parse(&headers).unwrap().unwrap();
            check(&caller, &headers, Service::Ec2, &Options::default()).unwrap_err()
        };
        assert_eq!(refused(good("eu-west-1", "host;x-amz-date")).code, "AuthFailure");
        assert!(refused(good("us-west-2", "host")).message.contains("x-amz-date"));
        assert!(refused(good("us-west-2", "x-amz-date")).message.contains("host"));
        assert!(parse(&headers("Bearer x")).is_err());
        assert!(parse(&headers("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=00")).is_err());
    }
}
