//! The program as users run it, with the providers `azure`, `fake`, `gce`, `openstack` and, with the feature `aws`, `aws`. It is
//! in this package because tests can only find programs of their own package.

use std::process::ExitCode;

fn main() -> ExitCode {
    let app = ccm::App::new()
        .register(ccm_provider_azure::Factory::default())
        .register(ccm_provider_fake::Factory)
        .register(ccm_provider_gce::Factory::default())
        .register(ccm_provider_openstack::Factory)
        .register(ccm_test_suite::Reloading);
    #[cfg(feature = "aws")]
    let app = app.register(ccm_provider_aws::Factory);
    app.run(std::env::args_os())
}
