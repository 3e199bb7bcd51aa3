//! Requirements of the simulated AWS: a build with the AWS SDK, and an environment without other AWS settings.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Runs the demo in another process if this one cannot use AWS, and returns its exit code. `None`: it can.
pub(crate) fn elsewhere() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = command(&args)?;
    Some(become_it(command))
}

/// Replaces this process, so that the new one has the signals and the terminal. Returns only on failure.
fn become_it(mut command: Command) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let error = command.exec();
    eprintln!("Error: cannot run {}: {error}", command.get_program().display());
    ExitCode::FAILURE
}

/// The same demo with the AWS SDK, which the default build does not have.
#[cfg(not(feature = "aws"))]
fn command(args: &[OsString]) -> Option<Command> {
    eprintln!(
        "The simulated AWS is driven by the real provider, and that needs the AWS SDK. Compiling it for the first time takes some \
         minutes and 7 GB of memory; later starts take seconds."
    );
    Some(build(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args))
}

/// The same demo without the user's AWS settings: their profile could select real AWS.
#[cfg(feature = "aws")]
fn command(args: &[OsString]) -> Option<Command> {
    let foreign = foreign(std::env::vars_os());
    if foreign.is_empty() && EMPTY.iter().all(|name| std::env::var_os(name).is_some_and(|value| value == NOTHING)) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(args);
    for name in &foreign {
        command.env_remove(name);
    }
    command.envs(EMPTY.map(|name| (name, NOTHING)));
    Some(command)
}

/// The cargo command for it.
#[cfg(any(test, not(feature = "aws")))]
fn build(cargo: OsString, args: &[OsString]) -> Command {
    let mut command = Command::new(cargo);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    command.args(["run", "--profile", "demo", "--manifest-path", manifest]);
    command.args(["--package", "ccm-demo", "--features", "aws", "--"]);
    command.args(args);
    command
}

/// Settings files that the SDK reads; here they are empty.
#[cfg(feature = "aws")]
const EMPTY: [&str; 2] = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"];
#[cfg(feature = "aws")]
const NOTHING: &str = "/dev/null";

/// Variables that change the endpoint or the identity of calls.
#[cfg(feature = "aws")]
fn foreign(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<OsString> {
    let is_foreign = |name: &OsString| {
        let name = name.to_string_lossy();
        (name.starts_with("AWS_") && !EMPTY.contains(&&*name)) || name.eq_ignore_ascii_case("http_proxy")
    };
    variables.map(|(name, _)| name).filter(is_foreign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_asked_for_the_feature_and_given_the_words_of_the_user() {
        let command = build("my-cargo".into(), &["--cloud-provider=aws".into(), "--fast".into()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(command.get_program(), "my-cargo");
        assert!(
            words.join(" ").contains("--package ccm-demo --features aws -- --cloud-provider=aws --fast"),
            "{words:?}"
        );
    }

    #[cfg(feature = "aws")]
    #[test]
    fn settings_that_select_another_endpoint_are_removed() {
        let variables = ["AWS_PROFILE", "HOME", "http_proxy", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL_EC2"];
        let foreign = foreign(variables.into_iter().map(|name| (name.into(), "x".into())));
        assert_eq!(foreign, ["AWS_PROFILE", "http_proxy", "AWS_ENDPOINT_URL_EC2"]);
    }
}
