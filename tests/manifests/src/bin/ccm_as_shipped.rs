//! The shipped program with the fake provider: a package's tests can only find programs of that package.

use std::process::ExitCode;

fn main() -> ExitCode {
    ccm::App::new().register(ccm_provider_fake::Factory).run(std::env::args_os())
}
