//! `[ServiceOverride "…"]` as endpoint resolvers of the SDK.
//!
//! An endpoint URL would set the address, but only a resolver can set what requests are signed for.

use aws_smithy_types::endpoint::{Endpoint, EndpointAuthScheme};

use crate::client::operation::Service;
use crate::start::config::ServiceOverride;

/// Resolves every request to one address.
#[derive(Debug, Clone)]
pub(super) struct Overridden(Endpoint);

impl Overridden {
    pub(super) fn new(service: Service, entry: &ServiceOverride) -> Self {
        // The names in IAM and in signatures are the same for all services called here.
        let name = if entry.signing_name.is_empty() { service.iam() } else { &entry.signing_name };
        let scheme = EndpointAuthScheme::with_capacity("sigv4", 2)
            .put("signingName", name.to_owned())
            .put("signingRegion", entry.signing_region.clone());
        Self(Endpoint::builder().url(entry.url.clone()).auth_scheme(scheme).build())
    }
}

macro_rules! resolve {
    ($($service:ident),*) => {$(
        impl $service::config::endpoint::ResolveEndpoint for Overridden {
            fn resolve_endpoint<'a>(
                &'a self,
                _: &'a $service::config::endpoint::Params,
            ) -> $service::config::endpoint::EndpointFuture<'a> {
                $service::config::endpoint::EndpointFuture::ready(Ok(self.0.clone()))
            }
        }
    )*};
}

resolve!(aws_sdk_ec2, aws_sdk_elasticloadbalancing, aws_sdk_elasticloadbalancingv2, aws_sdk_sts);
