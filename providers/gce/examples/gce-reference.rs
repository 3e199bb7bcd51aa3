//! Prints a generated part of the pages in `docs/`: `config`, `annotations`, `flags` or `permissions`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).and_then(|part| ccm_provider_gce::reference(&part)) {
        Some(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}
