//! IDs of objects. Azure compares them without case, and answers in varying case.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// `/subscriptions/…/resourceGroups/…/providers/Microsoft.Network/loadBalancers/lb/backendAddressPools/pool`, in the case
/// in which it was written. Comparisons ignore case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ArmId(String);

/// A text that is not an ID of an object in a resource group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoArmId(pub(crate) String);

impl std::fmt::Display for NoArmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let want = "/subscriptions/<id>/resourceGroups/<group>/providers/<namespace>/<type>/<name>";
        write!(f, "{:?} is not the ID of an Azure object; expected {want}", self.0)
    }
}

impl std::error::Error for NoArmId {}

/// Compares two texts without case, as Azure compares IDs and names.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The segments before the types and names: `subscriptions`, its value, `resourceGroups`, its value, `providers`, and
/// the namespace.
const HEAD: usize = 6;

impl ArmId {
    /// Reads an ID, of an object at any depth.
    pub(crate) fn parse(text: &str) -> Result<Self, NoArmId> {
        let refuse = || NoArmId(text.to_owned());
        let parts: Vec<&str> = text.strip_prefix('/').ok_or_else(refuse)?.split('/').collect();
        let is = |place: usize, name: &str| parts.get(place).is_some_and(|part| same(part, name));
        let is_whole =
            parts.len() >= HEAD + 2 && parts.len().is_multiple_of(2) && parts.iter().all(|part| !part.is_empty());
        let is_id = is_whole && is(0, "subscriptions") && is(2, "resourceGroups") && is(4, "providers");
        if is_id { Ok(Self(text.to_owned())) } else { Err(refuse()) }
    }

    /// The ID of an object. `kind` is `Microsoft.Network/loadBalancers`.
    pub(crate) fn new(subscription: &str, group: &str, kind: &str, name: &str) -> Self {
        Self(format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{kind}/{name}"))
    }

    /// The ID of an object inside this one: `backendAddressPools`, `pool`.
    #[must_use]
    pub(crate) fn child(&self, kind: &str, name: &str) -> Self {
        Self(format!("{}/{kind}/{name}", self.0))
    }

    /// The text, as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text in lower case, as a key of maps.
    pub(crate) fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    fn part(&self, place: usize) -> &str {
        self.0.split('/').nth(place + 1).unwrap_or_default()
    }

    /// The subscription.
    pub(crate) fn subscription(&self) -> &str {
        self.part(1)
    }

    /// The resource group.
    pub(crate) fn group(&self) -> &str {
        self.part(3)
    }

    /// The name of the object itself: the last segment.
    pub(crate) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// `Microsoft.Network/loadBalancers/backendAddressPools`
    pub(crate) fn kind(&self) -> String {
        let types = self.0.split('/').skip(HEAD + 1).step_by(2);
        std::iter::once(self.part(HEAD - 1)).chain(types).collect::<Vec<_>>().join("/")
    }

    /// Whether the object is of this kind: `Microsoft.Network/loadBalancers`.
    pub(crate) fn is(&self, kind: &str) -> bool {
        same(&self.kind(), kind)
    }

    /// The name of the object or parent of this type: for `loadBalancers`, `lb`.
    pub(crate) fn named(&self, kind: &str) -> Option<&str> {
        let mut parts = self.0.split('/').skip(HEAD + 1);
        std::iter::from_fn(|| Some((parts.next()?, parts.next()?)))
            .find(|(own, _)| same(own, kind))
            .map(|(_, name)| name)
    }

    /// The object that contains this one; `None` if it is in a resource group.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (rest, _) = self.0.rsplit_once('/')?;
        let (parent, _) = rest.rsplit_once('/')?;
        Self::parse(parent).ok()
    }
}

impl std::fmt::Display for ArmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for ArmId {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

impl Eq for ArmId {}

impl PartialOrd for ArmId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ArmId {
    fn cmp(&self, other: &Self) -> Ordering {
        let folded = |id: &Self| id.0.bytes().map(|byte| byte.to_ascii_lowercase()).collect::<Vec<_>>();
        folded(self).cmp(&folded(other))
    }
}

impl Hash for ArmId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

impl TryFrom<String> for ArmId {
    type Error = NoArmId;

    fn try_from(text: String) -> Result<Self, NoArmId> {
        Self::parse(&text)
    }
}

impl From<ArmId> for String {
    fn from(id: ArmId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;

    const POOL: &str =
        "/subscriptions/S/resourceGroups/Rg/providers/Microsoft.Network/loadBalancers/Lb/backendAddressPools/P";

    #[test]
    fn an_id_keeps_its_case_and_is_compared_without_it() {
        let id = ArmId::parse(POOL).unwrap();
        let lower = ArmId::parse(&POOL.to_ascii_lowercase()).unwrap();
        assert_eq!(id.as_str(), POOL);
        assert_eq!(id, lower);
        assert_eq!(HashSet::from([id.clone(), lower.clone()]).len(), 1);
        assert_eq!(BTreeSet::from([id.clone(), lower]).len(), 1);
        assert_eq!(
            ArmId::new("S", "Rg", "Microsoft.Network/loadBalancers", "Lb").child("backendAddressPools", "P"),
            id
        );
    }

    #[test]
    fn the_parts_of_an_id() {
        let id = ArmId::parse(POOL).unwrap();
        assert_eq!((id.subscription(), id.group(), id.name()), ("S", "Rg", "P"));
        assert_eq!(id.kind(), "Microsoft.Network/loadBalancers/backendAddressPools");
        assert_eq!(
            (id.named("LoadBalancers"), id.named("backendaddresspools"), id.named("x")),
            (Some("Lb"), Some("P"), None)
        );
        let parent = id.parent().unwrap();
        assert!(parent.is("microsoft.network/loadbalancers"), "{parent}");
        assert_eq!((parent.name(), parent.parent()), ("Lb", None));
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in [
            "",
            "/",
            "lb",
            "/subscriptions/s/resourceGroups/g",
            &POOL[1..],
            &format!("{POOL}/x"),
            &format!("{POOL}/"),
            &POOL.replace("Rg", ""),
        ] {
            let error = ArmId::parse(text).unwrap_err();
            assert_eq!(error, NoArmId(text.to_owned()));
            assert!(error.to_string().contains("expected /subscriptions/"), "{error}");
        }
    }
}
