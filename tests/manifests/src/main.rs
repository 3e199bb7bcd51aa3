//! Writes the generated parts of `manifests/`; with `--check` it only fails if one is stale.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: cargo xtask manifests [--check]");
            return ExitCode::FAILURE;
        }
    };
    match ccm_test_manifests::generate::run(&ccm_test_manifests::workspace().join("manifests"), check) {
        Ok(written) => {
            written.iter().for_each(|name| println!("manifests/{name}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
