//! The Kubernetes cloud-controller-manager as a library: flags, wiring, serving, exit codes.
//!
//! [`App`] is all that a program needs:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     ccm::App::new().register(ccm_provider_fake::Factory).run(std::env::args_os())
//! }
//! ```

/// `Debug` for a type with fields that do not implement it: its name and the given fields.
macro_rules! opaque_debug {
    ($type:ident $(<$life:lifetime>)?, $this:ident $(, $field:literal = $value:expr)*) => {
        impl std::fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let _ = $this;
                f.debug_struct(stringify!($type))$(.field($field, $value))*.finish_non_exhaustive()
            }
        }
    };
}

mod app;
mod clients;
mod commands;
pub mod controllers;
mod exit;
pub mod flags;
pub mod logging;
pub mod manager;
pub mod options;
mod page;
pub mod program;
pub mod providers;
pub mod serve;
mod snapshot;
pub mod version;
pub mod webhook;

use ccm_runtime::metrics::Def;

pub use app::{App, install_tls};
pub use commands::reference as command_reference;
pub use controllers::Controller;
pub use exit::{Exit, Failure};
pub use program::Program;
/// The allocator for a program: `#[global_allocator] static ALLOCATOR: ccm::Allocator = ccm::Allocator;`.
///
/// Parsing a list of all instances takes many times the memory of its result. The allocator of the C library keeps most
/// of it until the process ends; this one returns it to the system within seconds, on its own thread.
pub use tikv_jemallocator::Jemalloc as Allocator;

/// All metrics of the program except those of the runtime and the controllers, for the reference page.
pub fn metrics_reference() -> Vec<&'static Def> {
    let manager = [manager::ProgramMetrics::DEFS, manager::ReloadMetrics::DEFS];
    [serve::AccessMetrics::DEFS, webhook::WebhookMetrics::DEFS].into_iter().chain(manager).flatten().copied().collect()
}
