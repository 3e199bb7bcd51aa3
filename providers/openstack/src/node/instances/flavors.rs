//! The instance types of servers: the names of their flavors.
//!
//! Upstream: `getInstanceType` in `pkg/openstack/instances.go`, which fails forever once the flavor is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Bulk, Interrupted, Known, Limits};
use ccm_provider::ProviderError;

use crate::client::compute::{Flavor, Server};
use crate::client::operation::FLAVOR_GET;
use crate::client::{ApiError, Client, seen};
use crate::node::labels::is_value;

/// A flavor does not change: operators delete it and create another.
const KEPT: Duration = Duration::from_secs(3600);
/// A deleted flavor is not requested again for this time.
const MISS_KEPT: Duration = Duration::from_secs(600);
const AT_ONCE: usize = 100;

/// The reference of a server to its flavor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlavorRef {
    Id(String),
    /// A name that is no label value: its ID is needed.
    Name(String),
}

/// Flavors that were read.
#[derive(Debug)]
pub(super) struct Flavors(Known<Read>);

/// Instance types by flavor; a flavor that cannot be read fails only its own servers.
pub(super) type Types = Result<BTreeMap<FlavorRef, Result<String, ApiError>>, ProviderError>;

#[derive(Debug)]
struct Read(Client);

impl Flavors {
    pub(super) fn new(client: Client) -> Self {
        Self(Known::new(Read(client), Limits::of(AT_ONCE), KEPT, MISS_KEPT))
    }

    /// Reads the flavors needed for the instance types of these servers.
    pub(super) async fn of(&self, servers: impl Iterator<Item = &Server>) -> Types {
        let wanted: BTreeSet<FlavorRef> = servers.filter_map(|server| embedded(server).err().flatten()).collect();
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let types = self.0.get(&wanted, KEPT, None).await?;
        // An error is not kept.
        types.iter().filter(|(_, answer)| answer.is_err()).for_each(|(flavor, _)| self.0.forget(flavor));
        Ok(types)
    }
}

/// The type in the server itself, or the flavor that has it.
fn embedded(server: &Server) -> Result<&str, Option<FlavorRef>> {
    let (id, name) = (&server.flavor.id, &server.flavor.original_name);
    match () {
        () if is_value(name) => Ok(name),
        () if !id.is_empty() => Err(Some(FlavorRef::Id(id.clone()))),
        () if !name.is_empty() => Err(Some(FlavorRef::Name(name.clone()))),
        () => Err(None),
    }
}

/// The instance type of a server; empty if there is none that is a valid label value.
pub(super) fn instance_type(server: &Server, types: &Types) -> Result<String, ProviderError> {
    let flavor = match embedded(server) {
        Ok(name) => return Ok(name.to_owned()),
        Err(flavor) => flavor,
    };
    let found = match &flavor {
        None => None,
        Some(flavor) => types.as_ref().map_err(Clone::clone)?.get(flavor).cloned().transpose()?,
    };
    // A deleted flavor still has the ID.
    let found = found.or_else(|| Some(server.flavor.id.clone()).filter(|id| is_value(id)));
    if found.is_none() {
        tracing::warn!(
            server = server.id,
            ?flavor,
            "flavor original_name/id not found: the node gets no instance type"
        );
    }
    Ok(found.unwrap_or_default())
}

/// The name of the flavor if it is a valid label value, else the ID.
fn type_of(flavor: Flavor) -> Option<String> {
    [flavor.name, flavor.id].into_iter().find(|text| is_value(text))
}

#[async_trait]
impl Bulk for Read {
    type Item = FlavorRef;
    type Answer = Result<String, ApiError>;
    type Error = ApiError;

    async fn call(&self, flavors: &[FlavorRef]) -> Result<BTreeMap<FlavorRef, Self::Answer>, ApiError> {
        let (mut types, mut names) = (BTreeMap::new(), BTreeSet::new());
        for flavor in flavors {
            match flavor {
                FlavorRef::Name(name) => drop(names.insert(name)),
                FlavorRef::Id(id) => {
                    let found = seen(self.0.flavor(id)).await.map(|found| found.and_then(type_of)).transpose();
                    types.extend(found.map(|answer| (flavor.clone(), answer)));
                }
            }
        }
        if !names.is_empty() {
            match seen(self.0.flavors()).await {
                Ok(all) => {
                    let named = all.into_iter().filter(|flavor| names.contains(&flavor.name));
                    let typed = named.filter_map(|flavor| Some((flavor.name.clone(), type_of(flavor)?)));
                    types.extend(typed.map(|(name, text)| (FlavorRef::Name(name), Ok(text))));
                }
                Err(error) => {
                    types.extend(names.into_iter().map(|name| (FlavorRef::Name(name.clone()), Err(error.clone()))));
                }
            }
        }
        Ok(types)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(FLAVOR_GET, how)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(flavor: &serde_json::Value) -> Server {
        serde_json::from_value(json!({"id": "x", "flavor": flavor})).unwrap()
    }

    fn flavor(id: &str, name: &str) -> Flavor {
        Flavor { id: id.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_embedded_name_is_the_type_and_costs_no_read() {
        let named = server(&json!({"original_name": "m1.tiny", "vcpus": 1}));
        assert_eq!(embedded(&named), Ok("m1.tiny"));
        assert_eq!(instance_type(&named, &Ok(BTreeMap::new())).unwrap(), "m1.tiny");
    }

    #[test]
    fn a_flavor_whose_name_is_no_label_gives_its_id() {
        assert_eq!(type_of(flavor("42", "m1 tiny/x")).unwrap(), "42");
        assert_eq!(type_of(flavor("42", "m1.tiny")).unwrap(), "m1.tiny");
        assert_eq!(type_of(flavor("a b", "m1 tiny/x")), None);
        let odd = server(&json!({"original_name": "m1 tiny/x"}));
        let name = FlavorRef::Name("m1 tiny/x".to_owned());
        assert_eq!(embedded(&odd), Err(Some(name.clone())));
        assert_eq!(instance_type(&odd, &Ok([(name, Ok("42".to_owned()))].into())).unwrap(), "42");
    }

    #[test]
    fn a_deleted_flavor_gives_its_id_and_no_error() {
        let old = server(&json!({"id": "42"}));
        assert_eq!(embedded(&old), Err(Some(FlavorRef::Id("42".to_owned()))));
        assert_eq!(instance_type(&old, &Ok(BTreeMap::new())).unwrap(), "42");
        for nothing in [json!({}), json!(null), json!({"id": "a b"}), json!({"original_name": "m1 tiny/x"})] {
            assert_eq!(instance_type(&server(&nothing), &Ok(BTreeMap::new())).unwrap(), "");
        }
    }

    #[test]
    fn a_flavor_that_could_not_be_read_is_an_error_only_for_its_servers() {
        let failed = Err(ProviderError::unknown("no answer"));
        assert!(instance_type(&server(&json!({"id": "42"})), &failed).is_err());
        assert_eq!(instance_type(&server(&json!({"original_name": "m1"})), &failed).unwrap(), "m1");
    }
}
