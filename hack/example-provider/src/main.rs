//! The program: all flags, controllers and endpoints of the cloud-controller-manager, with its own provider only.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: ccm::Allocator = ccm::Allocator;

fn main() -> ExitCode {
    example_ccm::app().run(std::env::args_os())
}
