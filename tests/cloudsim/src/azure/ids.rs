//! IDs of Resource Manager.

/// The ID of a resource, or of a collection if its last name is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    pub subscription: String,
    pub group: String,
    /// `Microsoft.Network` or `Microsoft.Compute`.
    pub namespace: String,
    /// Types and names: `loadBalancers/lb`, `backendAddressPools/pool`.
    pub parts: Vec<(String, String)>,
}

impl Id {
    /// Parses an ID; the fixed segments are compared regardless of case.
    pub fn parse(text: &str) -> Option<Id> {
        let mut segments = text.trim_matches('/').split('/');
        let mut after = |word: &str| {
            segments.next().filter(|segment| segment.eq_ignore_ascii_case(word)).and_then(|_| segments.next())
        };
        let (subscription, group) = (after("subscriptions")?.to_owned(), after("resourceGroups")?.to_owned());
        let namespace = after("providers")?.to_owned();
        let mut parts = Vec::new();
        while let Some(kind) = segments.next() {
            parts.push((kind.to_owned(), segments.next().unwrap_or_default().to_owned()));
        }
        (!parts.is_empty()).then_some(Id { subscription, group, namespace, parts })
    }

    /// The ID as text.
    pub fn text(&self) -> String {
        let Id { subscription, group, namespace, parts } = self;
        let mut text = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}");
        for (kind, name) in parts {
            text.push_str(&format!("/{kind}/{name}"));
        }
        text
    }

    /// The text in lower case, by which IDs are compared.
    pub fn key(&self) -> String {
        self.text().to_lowercase()
    }

    /// The type in lower case: `microsoft.network/loadbalancers`.
    pub fn kind(&self) -> String {
        let types: Vec<&str> = self.parts.iter().map(|(kind, _)| kind.as_str()).collect();
        format!("{}/{}", self.namespace, types.join("/")).to_lowercase()
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.parts.last().map(|(_, name)| name.as_str()).unwrap_or_default()
    }

    /// The resource at the first level, such as the load balancer of a pool.
    pub fn root(&self) -> Id {
        Id { parts: self.parts.iter().take(1).cloned().collect(), ..self.clone() }
    }

    /// The enclosing resource, if any.
    pub fn parent(&self) -> Option<Id> {
        let parts = self.parts.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default();
        (!parts.is_empty()).then(|| Id { parts, ..self.clone() })
    }

    /// A resource in this one.
    #[must_use]
    pub fn child(&self, kind: &str, name: &str) -> Id {
        let mut id = self.clone();
        id.parts.push((kind.to_owned(), name.to_owned()));
        id
    }

    /// The key of the resource group.
    pub(super) fn group_key(&self) -> String {
        group_key(&self.subscription, &self.group)
    }
}

/// The key of a resource group.
pub(super) fn group_key(subscription: &str, group: &str) -> String {
    format!("/subscriptions/{subscription}/resourcegroups/{group}").to_lowercase()
}

/// The ID of a resource of `Microsoft.Network`.
pub fn network(subscription: &str, group: &str, kind: &str, name: &str) -> Id {
    id(subscription, group, "Microsoft.Network", kind, name)
}

/// The ID of a resource of `Microsoft.Compute`.
pub fn compute(subscription: &str, group: &str, kind: &str, name: &str) -> Id {
    id(subscription, group, "Microsoft.Compute", kind, name)
}

fn id(subscription: &str, group: &str, namespace: &str, kind: &str, name: &str) -> Id {
    Id {
        subscription: subscription.to_owned(),
        group: group.to_owned(),
        namespace: namespace.to_owned(),
        parts: vec![(kind.to_owned(), name.to_owned())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_regardless_of_case() {
        let text = "/SUBSCRIPTIONS/s/resourcegroups/RG/providers/Microsoft.Network/loadBalancers/lb/probes/p";
        let id = Id::parse(text).unwrap();
        assert_eq!(id.kind(), "microsoft.network/loadbalancers/probes");
        assert_eq!((id.name(), id.root().name(), id.parent().unwrap()), ("p", "lb", id.root()));
        let text = "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/loadBalancers/lb";
        assert_eq!(id.root().text(), text);
        assert_eq!(Id::parse("/subscriptions/s/resourceGroups/rg"), None);
    }
}
