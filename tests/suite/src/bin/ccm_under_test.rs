//! The program as users run it, with the fake provider, those for Compute Engine and OpenStack and, with feature `aws`, the
//! one for AWS: a package's tests can only find programs of that package.

use std::process::ExitCode;

fn main() -> ExitCode {
    let app = ccm::App::new()
        .register(ccm_provider_fake::Factory)
        .register(ccm_provider_gce::Factory::default())
        .register(ccm_provider_openstack::Factory)
        .register(ccm_test_suite::Reloading);
    #[cfg(feature = "aws")]
    let app = app.register(ccm_provider_aws::Factory);
    app.run(std::env::args_os())
}
