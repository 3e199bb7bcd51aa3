//! The cloud-controller-manager with the providers that are compiled in.
//!
//! The `main` of an out-of-tree provider looks like this one, with its own factory registered.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: ccm::Allocator = ccm::Allocator;

fn main() -> ExitCode {
    let app = ccm::App::new();
    #[cfg(feature = "aws")]
    let app = app.register(ccm_provider_aws::Factory);
    #[cfg(feature = "azure")]
    let app = app.register(ccm_provider_azure::Factory::default());
    #[cfg(feature = "fake")]
    let app = app.register(ccm_provider_fake::Factory);
    #[cfg(feature = "gce")]
    let app = app.register(ccm_provider_gce::Factory::default());
    #[cfg(feature = "openstack")]
    let app = app.register(ccm_provider_openstack::Factory);
    app.run(std::env::args_os())
}
