//! The common parts of both kinds of load balancers: names, tags, pages, subnets, security groups and interfaces.

use super::ec2::{Subnet, Tags, security_groups};
use super::{ApiError, Call, World, Xml};
use std::collections::BTreeSet;

/// The maximum number of security groups of a load balancer: AWS's fixed limit for both kinds.
const GROUPS: usize = 5;

/// The error for a parameter that is invalid by itself.
pub(super) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new("ValidationError", message)
}

/// The error for a request that contradicts the current state.
pub(super) fn contradiction(message: impl Into<String>) -> ApiError {
    ApiError::new("InvalidConfigurationRequest", message)
}

/// Checks the names of load balancers and target groups: at most 32 letters, digits and hyphens, no hyphen at the ends.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), ApiError> {
    if name.chars().count() > 32 {
        return Err(invalid(format!("{what} name '{name}' cannot be longer than '32' characters")));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        let text = "can only contain characters that are alphanumeric characters or hyphens(-)";
        return Err(invalid(format!("{what} name '{name}' {text}")));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(invalid(format!("{what} name '{name}' cannot begin or end with '-'")));
    }
    Ok(())
}

/// The tags of a request, checked against AWS's rules: no duplicate key, none with the prefix `aws:`.
pub(super) fn tags(call: &Call) -> Result<Tags, ApiError> {
    let items = call.params.items("Tags");
    let tags = call.params.tags("Tags")?;
    if tags.len() < items.len() {
        return Err(ApiError::new("DuplicateTagKeys", "Tag keys must be unique"));
    }
    match tags.keys().find(|key| key.starts_with("aws:")) {
        // unverified: the error code for reserved keys.
        Some(key) => Err(invalid(format!("The tag key '{key}' is reserved"))),
        None => Ok(tags),
    }
}

/// Merges new tags into existing ones, up to the quota.
pub(super) fn add_tags(world: &World, mut tags: Tags, new: Tags) -> Result<Tags, ApiError> {
    tags.extend(new);
    if tags.len() > world.options.limits.tags {
        return Err(ApiError::new("TooManyTags", "The maximum number of tags on the resource has been exceeded"));
    }
    Ok(tags)
}

/// Writes tags in the common format of both services.
pub(super) fn write_tags(xml: &mut Xml, tags: &Tags) {
    xml.list("Tags", "member", tags, |xml, (key, value)| {
        xml.text("Key", key);
        xml.text("Value", value);
    });
}

/// An answer with a list of objects and the marker of the next page.
pub(super) fn listing<T>(name: &str, objects: Vec<T>, next: Option<&str>, write: impl FnMut(&mut Xml, T)) -> Xml {
    let mut xml = Xml::new();
    xml.count(objects.len());
    xml.list(name, "member", objects, write);
    xml.opt("NextMarker", next);
    xml
}

/// Selects a page of keys by the request's `PageSize` and `Marker`: the keys of the page, and the next marker.
pub(super) fn page(call: &Call, mut keys: Vec<String>) -> Result<(Vec<String>, Option<String>), ApiError> {
    keys.sort_unstable();
    let size = call.params.int("PageSize")?.unwrap_or(400);
    let size = usize::try_from(size).ok().filter(|size| (1..=400).contains(size)).ok_or_else(|| {
        invalid(format!("Value '{size}' at 'pageSize' failed to satisfy constraint: it must be between 1 and 400"))
    })?;
    let after = match call.params.get("Marker") {
        None => None,
        Some(marker) => Some(marker.strip_prefix("after:").ok_or_else(|| invalid("The marker is not valid"))?),
    };
    let mut rest = keys.into_iter().filter(|key| after.is_none_or(|after| key.as_str() > after));
    let page: Vec<String> = rest.by_ref().take(size).collect();
    let next = rest.next().and(page.last().map(|last| format!("after:{last}")));
    Ok((page, next))
}

/// Checks the subnets of a load balancer: they exist, in one VPC, at most one per zone.
pub(super) fn check_subnets<'a>(
    world: &'a World,
    ids: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<(&'a str, &'a Subnet)>, ApiError> {
    let mut subnets: Vec<(&str, &Subnet)> = Vec::new();
    for id in ids {
        let Some(subnet) = world.ec2.subnets.get(id) else {
            return Err(ApiError::new("SubnetNotFound", format!("The subnet ID '{id}' does not exist")));
        };
        if let Some((other, _)) = subnets.iter().find(|(_, other)| other.vpc != subnet.vpc) {
            return Err(contradiction(format!("Subnets '{other}' and '{id}' are not in the same VPC")));
        }
        if subnets.iter().any(|(_, other)| other.zone == subnet.zone) {
            let text = "cannot be attached to multiple subnets in the same Availability Zone";
            return Err(contradiction(format!("A load balancer {text}: '{id}' in {}", subnet.zone)));
        }
        subnets.push((id, subnet));
    }
    Ok(subnets)
}

/// Checks security groups: they exist, are in this VPC, and do not exceed the limit.
pub(super) fn check_groups(world: &World, vpc: &str, ids: &[String]) -> Result<(), ApiError> {
    for id in ids {
        if !security_groups::find(world, id).is_ok_and(|group| group.vpc == vpc) {
            let text = format!("Security group '{id}' does not exist in VPC '{vpc}'");
            return Err(ApiError::new("InvalidSecurityGroup", text));
        }
    }
    if ids.len() > GROUPS {
        return Err(contradiction(format!("A load balancer can have at most {GROUPS} security groups")));
    }
    Ok(())
}

/// Checks that the VPC of a public load balancer has an internet gateway.
pub(super) fn check_gateway(world: &World, vpc: &str, internal: bool) -> Result<(), ApiError> {
    if internal || world.ec2.gateways.values().any(|gateway| gateway.vpc.as_deref() == Some(vpc)) {
        return Ok(());
    }
    Err(ApiError::new("InvalidSubnet", format!("VPC {vpc} has no internet gateway")))
}

/// Whether the request's `Scheme` is `internal`.
pub(super) fn is_internal(call: &Call) -> Result<bool, ApiError> {
    match call.params.get("Scheme") {
        None | Some("internet-facing") => Ok(false),
        Some("internal") => Ok(true),
        Some(other) => Err(ApiError::new("InvalidScheme", format!("The scheme '{other}' is not valid"))),
    }
}

/// The strings of a list in the request, without duplicates.
pub(super) fn unique(call: &Call, name: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    call.params.list(name).into_iter().filter(|text| seen.insert(*text)).map(str::to_owned).collect()
}

/// `amazonaws.com`, or the suffix of another partition.
pub(super) fn dns_suffix(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// The partition in ARNs.
pub(super) fn partition(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "aws-cn"
    } else if region.starts_with("us-gov-") {
        "aws-us-gov"
    } else {
        "aws"
    }
}

/// A time in the format of these services, in milliseconds.
pub(super) fn time(at: jiff::Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at).to_string()
}
