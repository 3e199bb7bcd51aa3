//! The version of this program.
//!
//! The version is that of the crate. Release builds set the rest in the compiler's environment; without it, there are
//! placeholders. No build script calls git: it would run at every commit, and a container build may not have git.

/// Build information, as in the Go programs (`k8s.io/apimachinery/pkg/version` `Info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// First number of the version.
    pub major: &'static str,
    /// Second number of the version.
    pub minor: &'static str,
    /// `vX.Y.Z`, or the value of `--version=vX.Y.Z-suffix`.
    pub git_version: String,
    /// `CCM_GIT_COMMIT` of the build.
    pub git_commit: &'static str,
    /// `CCM_GIT_TREE_STATE` of the build: `clean` or `dirty`.
    pub git_tree_state: &'static str,
    /// `CCM_BUILD_DATE` of the build, as in `2026-01-31T12:00:00Z`.
    pub build_date: &'static str,
    /// Always `rustc`.
    pub compiler: &'static str,
    /// Operating system and architecture with Go's names: `linux/amd64`.
    pub platform: String,
}

/// The version of the crate, with the `v`.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The commit and the date of a build by cargo alone, as in the Go programs.
const UNKNOWN: &str = "unknown";
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// The build information of this program.
pub fn info(reported: Option<&str>) -> Info {
    Info {
        major: env!("CARGO_PKG_VERSION_MAJOR"),
        minor: env!("CARGO_PKG_VERSION_MINOR"),
        git_version: reported.unwrap_or(VERSION).to_owned(),
        git_commit: option_env!("CCM_GIT_COMMIT").unwrap_or(UNKNOWN),
        git_tree_state: option_env!("CCM_GIT_TREE_STATE").unwrap_or_default(),
        build_date: option_env!("CCM_BUILD_DATE").unwrap_or(EPOCH),
        compiler: "rustc",
        platform: platform(),
    }
}

/// Operating system and architecture with Go's names.
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

impl Info {
    /// Commit, state of the tree and date of the build, as far as they are known.
    pub fn build(&self) -> [Option<&'static str>; 3] {
        let known = |text: &'static str, unknown| Some(text).filter(|text| !text.is_empty() && *text != unknown);
        [known(self.git_commit, UNKNOWN), known(self.git_tree_state, ""), known(self.build_date, EPOCH)]
    }

    /// One line for `--version=raw`, in the form of the Go programs.
    pub fn raw(&self) -> String {
        let Self { major, minor, git_version, git_commit, git_tree_state, build_date, compiler, platform } = self;
        format!(
            "version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{git_version:?}, GitCommit:{git_commit:?}, \
             GitTreeState:{git_tree_state:?}, BuildDate:{build_date:?}, GoVersion:\"\", Compiler:{compiler:?}, \
             Platform:{platform:?}}}"
        )
    }
}

/// Validates the argument of `--version=vX.Y.Z…`: only the suffix may differ from [`VERSION`].
///
/// # Errors
///
/// The text of the Go programs.
pub fn check(asked: &str) -> Result<(), String> {
    if asked == VERSION {
        return Ok(());
    }
    let (numbers, suffix) = split(asked).ok_or_else(|| format!("could not parse {asked:?} as version"))?;
    if numbers.split('.').count() != 3 {
        return Err(format!("illegal version string {asked:?}"));
    }
    if let Some(number) = numbers.split('.').find(|number| number.len() > 1 && number.starts_with('0')) {
        return Err(format!("illegal zero-prefixed version component {number:?} in {asked:?}"));
    }
    if !is_suffix(suffix) {
        return Err(format!("could not parse pre-release/metadata ({suffix}) in version {asked:?}"));
    }
    if split(VERSION).is_none_or(|(own, _)| own != numbers) {
        return Err(format!("version {asked:?} must match major/minor/patch of default version {VERSION:?}"));
    }
    Ok(())
}

/// The numbers after the `v`, with dots, and the rest; `None` without a number.
fn split(version: &str) -> Option<(&str, &str)> {
    let text = version.strip_prefix('v').unwrap_or(version);
    let mut end = 0;
    let mut rest = text;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            break;
        }
        end = text.len() - rest.len() + digits;
        match rest.get(digits..).and_then(|after| after.strip_prefix('.')) {
            Some(after) => rest = after,
            None => break,
        }
    }
    (end > 0).then(|| text.split_at(end))
}

/// Whether the text is empty, `-pre`, `+build` or `-pre+build`.
fn is_suffix(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    };
    let (pre, build) = text.split_once('+').map_or((text, None), |(pre, build)| (pre, Some(build)));
    let pre_is_right = pre.is_empty() || pre.strip_prefix('-').is_some_and(word);
    pre_is_right && build.is_none_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_suffix_of_the_reported_version_can_be_chosen() {
        assert_eq!(check(VERSION), Ok(()));
        assert_eq!(check(&format!("{VERSION}-eks.1+abc")), Ok(()));
        assert_eq!(
            check("v99.0.0"),
            Err(format!("version \"v99.0.0\" must match major/minor/patch of default version {VERSION:?}"))
        );
        let rows = [
            ("v", "could not parse \"v\" as version"),
            ("vx", "could not parse \"vx\" as version"),
            ("v1.2", "illegal version string \"v1.2\""),
            ("v1.2.3.4", "illegal version string \"v1.2.3.4\""),
            ("v01.2.3", "illegal zero-prefixed version component \"01\" in \"v01.2.3\""),
            ("v1.2.3-ü", "could not parse pre-release/metadata (-ü) in version \"v1.2.3-ü\""),
            ("v1.2.3x", "could not parse pre-release/metadata (x) in version \"v1.2.3x\""),
            ("v1.2.3-", "could not parse pre-release/metadata (-) in version \"v1.2.3-\""),
            ("v1.2.3-a+b+c", "could not parse pre-release/metadata (-a+b+c) in version \"v1.2.3-a+b+c\""),
        ];
        for (text, expected) in rows {
            assert_eq!(check(text), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_raw_form_names_everything() {
        let info = info(Some("v0.1.0-x"));
        let raw = info.raw();
        assert!(raw.starts_with("version.Info{Major:\"") && raw.contains("GitVersion:\"v0.1.0-x\""), "{raw}");
        let date = Info { build_date: "2026-01-02T03:04:05Z", git_commit: "", git_tree_state: "", ..info.clone() };
        assert_eq!(date.build(), [None, None, Some("2026-01-02T03:04:05Z")]);
        let neither = Info { git_commit: UNKNOWN, build_date: EPOCH, ..date };
        assert_eq!(neither.build(), [None; 3]);
        assert!(info.platform.starts_with("linux/") || !cfg!(target_os = "linux"), "{}", info.platform);
    }
}
