//! What the failure of a write means for each of its Services, and what the user reads about it.

use std::time::Duration;

use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;

use super::balancer::Edit;
use super::json::{self, same};
use super::names::without_internal;
use super::observed::Kept;
use super::plan::address::AddressChange;
use super::refused::{Refused, STILL_USED, keeping};
use super::shares::Shares;
use crate::annotations as keys;
use crate::client::id::ArmId;

/// What the failure of a write of a shared object means: if the error names objects of some of the Services, these are
/// left out, and the engine plans again.
pub(super) fn explained(refused: &Refused, id: &ArmId, shares: Shares<'_>, error: ProviderError) -> ProviderError {
    let text = error.to_string();
    let named = shares.named(&error);
    let is_of_some = match error.class() {
        ErrorClass::Invalid { .. } | ErrorClass::Unknown | ErrorClass::Conflict => true,
        // The object that one of them names may be out of reach for long, and no other needs it.
        ErrorClass::Denied { .. } | ErrorClass::Transient { .. } if !named.is_empty() => named.len() < shares.len(),
        _ => false,
    };
    // Another object may use for long what one of them gives up.
    let is_of_some = is_of_some || text.contains(STILL_USED);
    let explained = is_of_some.then(|| explained_by(refused, id, shares, &named, &text, error.clone()));
    match movers_stay(refused, id, shares, &named, &error) {
        true => ProviderError::new(ErrorClass::Conflict, text),
        false => explained.unwrap_or(error),
    }
}

fn explained_by(
    refused: &Refused,
    id: &ArmId,
    shares: Shares<'_>,
    named: &[(&str, u64, Duration)],
    text: &str,
    error: ProviderError,
) -> ProviderError {
    let error = match (shares.quoted(&text.to_lowercase()), shares) {
        (Some(annotation), _) => error.wrap(annotation),
        (None, Shares::Security(_)) if named.is_empty() && error.class() != ErrorClass::Conflict => error.wrap(
            format!("{}: the error names no Service, so that the rules of all wait; correct what it says", object(id)),
        ),
        (None, _) if shares.len() > 0 && named.is_empty() && is_final(&error) => {
            error.wrap(format!("{} cannot be written; correct what the error says", object(id)))
        }
        (None, _) => error,
    };
    let again = || ProviderError::new(ErrorClass::Conflict, text.to_owned());
    // The surplus fails alone when it is planned with the limit.
    if matches!(shares, Shares::Balancer(edits) if !edits.is_empty()) && refused.learn(text) {
        return again();
    }
    let count = shares.len();
    let half = if named.is_empty() && is_final(&error) { shares.half(&error) } else { Vec::new() };
    // The engine would not send it again for long.
    let is_passing = shares.has_cut_off() && error.class() != ErrorClass::Conflict || !half.is_empty();
    let passing = |error: ProviderError| match is_passing {
        true => ProviderError::new(ErrorClass::Transient { after: None }, error.to_string()),
        false => error,
    };
    let named = if named.is_empty() { &half } else { named };
    if named.is_empty() || named.len() == count && count > 1 {
        return passing(error);
    }
    for one in named {
        shares.note(refused, *one, error.clone());
    }
    if named.len() < count { again() } else { passing(error) }
}

/// Services that have left another load balancer for this one go back to it, if this one is not written for them soon.
fn movers_stay(
    refused: &Refused,
    id: &ArmId,
    shares: Shares<'_>,
    named: &[(&str, u64, Duration)],
    error: &ProviderError,
) -> bool {
    let Shares::Balancer(edits) = shares else { return false };
    let Some(time) = keeping(error) else { return false };
    let (this, _) = without_internal(id.name());
    let is_meant = |edit: &&Edit| named.is_empty() || named.iter().any(|(key, ..)| *key == edit.key);
    let mut stays = false;
    for edit in edits.iter().filter(is_meant) {
        let former =
            refused.former(&edit.key, edit.fingerprint).filter(|former| edit.is_cut_off && !same(former, this));
        let Some(former) = former else { continue };
        let text = format!(
            "the Service stays on the load balancer {former}, because {} cannot be written; correct what the error says, or \
             let the Service stay there",
            id.name()
        );
        refused.keep(&edit.key, edit.fingerprint, error.clone().wrap(text), time, Kept::Place(former));
        stays = true;
    }
    stays
}

/// A Service that asks for other IP tags keeps an address that may not be deleted, or not be made again.
pub(super) fn address_stays(refused: &Refused, change: &AddressChange, error: &ProviderError) {
    let (Some(fingerprint), Some(time)) = (change.replaced_by, keeping(error)) else { return };
    for edit in &change.edits {
        let text = format!(
            "{}: the Service keeps the public IP address {} with the IP tags that it has",
            keys::PIP_IP_TAGS.row.key,
            change.id.name()
        );
        refused.keep(&edit.key, fingerprint, error.clone().wrap(text), time, Kept::Addresses);
    }
}

/// A subscription whose connections a private link service approves, and to which it is not visible: Azure refuses that.
pub(super) fn approves_unseen(link: &Value) -> Option<&str> {
    let subscriptions =
        |part| json::list(link, &["properties", part, "subscriptions"]).iter().filter_map(Value::as_str);
    let sees = |one: &str| subscriptions("visibility").any(|seen| seen == "*" || same(seen, one));
    subscriptions("autoApproval").find(|one| !sees(one))
}

/// The error with the first of these annotations whose value it quotes. The name of a group is part of all IDs.
pub(super) fn with_annotation<'a>(
    error: ProviderError,
    mut given: impl Iterator<Item = (&'static str, &'a str)>,
) -> ProviderError {
    let text = error.to_string();
    let is_quoted = |value: &str| text.contains(&format!("'{value}'")) || value.contains('/') && text.contains(value);
    match given.find(|(_, value)| is_quoted(value)) {
        Some((key, value)) => error.wrap(format!("{key} {value:?}; correct it, or create what it names")),
        None => error,
    }
}

/// `loadBalancers kubernetes`
pub(super) fn object(id: &ArmId) -> String {
    format!("{} {}", id.kind().rsplit('/').next().unwrap_or_default(), id.name())
}

/// Whether the engine would remember the error as the refusal of a write.
pub(super) fn is_final(error: &ProviderError) -> bool {
    matches!(error.class(), ErrorClass::Invalid { .. } | ErrorClass::Unsupported)
}
