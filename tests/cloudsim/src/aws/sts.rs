//! Security Token Service: the caller's identity, and credentials for a role.

use super::{ApiError, Call, Service, World, Xml};
use crate::core::clock::later;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The issued credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StsState {
    /// The sessions by access key ID.
    pub sessions: BTreeMap<String, Session>,
}

/// A session of an assumed role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub role_arn: String,
    pub name: String,
    pub external_id: Option<String>,
    pub expires: Timestamp,
    /// The request's `x-amz-*` headers (except the token) by name, and whether the signature covers each.
    pub headers: BTreeMap<String, (String, bool)>,
}

/// The error for expired credentials in the service's vocabulary.
pub fn expired_error(service: Service) -> ApiError {
    match service {
        Service::Ec2 => ApiError::new("RequestExpired", "Request has expired."),
        Service::Elb | Service::Elbv2 | Service::Sts => {
            ApiError::with_status(403, "ExpiredToken", "The security token included in the request is expired")
        }
    }
}

/// The error for a caller whose session has expired.
pub fn expired(world: &World, call: &Call) -> Option<ApiError> {
    let session = world.sts.sessions.get(&call.caller.as_ref()?.access_key)?;
    (session.expires <= world.now()).then(|| expired_error(call.service))
}

/// Executes a call.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.action.as_str() {
        "AssumeRole" => assume(world, call),
        "AssumeRoleWithWebIdentity" => {
            call.params.required("WebIdentityToken")?;
            assume(world, call)
        }
        "GetCallerIdentity" => Ok(identity(world, call)),
        other => Err(ApiError::unknown_action(other)),
    }
}

fn identity(world: &World, call: &Call) -> Xml {
    let account = &world.options.account;
    let key = call.caller.as_ref().map(|caller| caller.access_key.as_str()).unwrap_or_default();
    let (arn, user) = match world.sts.sessions.get(key) {
        Some(session) => (session_arn(&session.role_arn, &session.name), format!("AROASIM:{}", session.name)),
        None => (format!("arn:aws:iam::{account}:user/simulated"), "AIDASIM".to_owned()),
    };
    let mut xml = Xml::new();
    xml.text("Arn", &arn);
    xml.text("UserId", &user);
    xml.text("Account", account);
    xml
}

fn assume(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let role_arn = call.params.required("RoleArn")?.to_owned();
    let name = call.params.required("RoleSessionName")?.to_owned();
    let seconds = call.params.int("DurationSeconds")?.unwrap_or(3600);
    if !(900..=43_200).contains(&seconds) {
        return Err(ApiError::bad_value("DurationSeconds", &seconds.to_string(), "It must be from 900 to 43200."));
    }
    if !(role_arn.starts_with("arn:") && role_arn.contains(":iam::") && role_arn.contains(":role/")) {
        return Err(ApiError::new("ValidationError", format!("{role_arn} is invalid")));
    }
    let life = Duration::from_secs(u64::try_from(seconds).unwrap_or(3600));
    let expires = later(world.now(), life);
    let key = format!("ASIA{}", world.hex(16).to_uppercase());
    let (secret, token) = (world.hex(40), world.hex(64));
    let mut xml = Xml::new();
    xml.elem("Credentials", |xml| {
        xml.text("AccessKeyId", &key);
        xml.text("SecretAccessKey", &secret);
        xml.text("SessionToken", &token);
        // The caller uses the machine's clock, not the virtual clock.
        xml.value("Expiration", later(Timestamp::now(), life).strftime("%Y-%m-%dT%H:%M:%SZ"));
    });
    xml.elem("AssumedRoleUser", |xml| {
        xml.text("AssumedRoleId", &format!("AROASIM:{name}"));
        xml.text("Arn", &session_arn(&role_arn, &name));
    });
    let external_id = call.params.get("ExternalId").map(str::to_owned);
    let session = Session { role_arn, name, external_id, expires, headers: amz_headers(call) };
    world.sts.sessions.insert(key, session);
    Ok(xml)
}

fn amz_headers(call: &Call) -> BTreeMap<String, (String, bool)> {
    let signed = |name: &str| {
        call.caller.as_ref().is_some_and(|caller| caller.signed_headers.iter().any(|header| header == name))
    };
    call.headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-amz-") && name.as_str() != "x-amz-security-token")
        .map(|(name, value)| {
            let value = value.to_str().unwrap_or_default().to_owned();
            (name.as_str().to_owned(), (value, signed(name.as_str())))
        })
        .collect()
}

fn session_arn(role_arn: &str, name: &str) -> String {
    let role = role_arn.rsplit('/').next().unwrap_or_default();
    let prefix = role_arn.split(":role/").next().unwrap_or_default().replace(":iam:", ":sts:");
    format!("{prefix}:assumed-role/{role}/{name}")
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_assumed_role_is_a_session_that_ends() {
        let clock = crate::core::clock::Mode::Stepped { start: Timestamp::UNIX_EPOCH };
        let mut world = World::new(Arc::new(Options { clock, ..Options::default() }));
        let form = "RoleArn=arn:aws:iam::123456789012:role/ccm&RoleSessionName=s&DurationSeconds=900&ExternalId=e";
        let mut call = Call::direct(Service::Sts, "AssumeRole", form).unwrap();
        call.headers.insert("x-amz-source-arn", "arn:aws:eks:x".parse().unwrap());
        let xml = handle(&mut world, &call).unwrap();
        assert!(xml.as_str().contains("arn:aws:sts::123456789012:assumed-role/ccm/s"), "{}", xml.as_str());
        let (key, session) = world.sts.sessions.iter().next().unwrap();
        assert_eq!(session.headers["x-amz-source-arn"], ("arn:aws:eks:x".to_owned(), false));
        assert_eq!(session.external_id.as_deref(), Some("e"));
        let caller = super::super::sigv4::Caller { access_key: key.clone(), ..Default::default() };
        let mut next = Call::direct(Service::Elb, "DescribeLoadBalancers", "").unwrap();
        next.caller = Some(caller);
        assert_eq!(expired(&world, &next), None);
        world.clock.step(Duration::from_secs(901));
        assert_eq!(expired(&world, &next).unwrap().code, "ExpiredToken");
    }

    #[test]
    fn a_role_that_is_no_arn_is_refused() {
        let mut world = World::new(Arc::new(Options::default()));
        let call = Call::direct(Service::Sts, "AssumeRole", "RoleArn=ccm&RoleSessionName=s").unwrap();
        assert_eq!(handle(&mut world, &call).unwrap_err().code, "ValidationError");
    }
}
