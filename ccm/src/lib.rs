//! The Kubernetes cloud-controller-manager as a library: flags, wiring, serving, exit codes.
//!
//! [`App`] is all that a program needs:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     ccm::App::new().register(ccm_provider_fake::Factory).run(std::env::args_os())
//! }
//! ```

mod app;
mod exit;
pub mod logging;
pub mod manager;
pub mod options;
mod serve;

pub use app::{App, install_tls};
pub use exit::{Exit, Failure};
