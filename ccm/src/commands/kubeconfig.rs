//! The kubeconfig of the user who runs a command, as kubectl finds it.
//!
//! Only for commands: the manager uses `--kubeconfig` or its service account, as the Go programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::options::Options;

/// Without `--kubeconfig` and `--master`: `$KUBECONFIG`, else `~/.kube/config`. If there is neither, a command in a pod
/// uses its service account.
///
/// # Errors
///
/// `KUBECONFIG` names no file that exists, or several, which kubectl merges.
pub(super) fn or_of_user(mut options: Options) -> Result<Options, Failure> {
    if options.kubeconfig.is_empty() && options.master.is_empty() {
        options.kubeconfig = find(|name| std::env::var_os(name), Path::is_file).map_err(Failure::error)?;
    }
    Ok(options)
}

/// Empty: there is no file.
fn find(variable: impl Fn(&str) -> Option<OsString>, is_file: impl Fn(&Path) -> bool) -> Result<String, String> {
    let text = |path: &Path| path.display().to_string();
    if let Some(list) = variable("KUBECONFIG").filter(|list| !list.is_empty()) {
        let named: Vec<PathBuf> = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
        let files: Vec<&PathBuf> = named.iter().filter(|path| is_file(path)).collect();
        return match files.as_slice() {
            [one] => Ok(text(one)),
            [] => Err(format!("KUBECONFIG={}: no such file; correct it, or set --kubeconfig", list.display())),
            _ => Err(format!(
                "KUBECONFIG={} names several files; set --kubeconfig to one (kubectl config view --flatten --minify merges them)",
                list.display()
            )),
        };
    }
    let home = variable("HOME").map(|home| Path::new(&home).join(".kube/config"));
    Ok(home.filter(|path| is_file(path)).map(|path| text(&path)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], files: &[&str]) -> Result<String, String> {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        find(variable, |path| files.iter().any(|file| path == Path::new(file)))
    }

    #[test]
    fn the_variable_comes_before_the_file_in_the_home_folder() {
        let (home, both) = (("HOME", "/home/me"), ["/home/me/.kube/config", "/x"]);
        assert_eq!(found(&[home, ("KUBECONFIG", "/x")], &both).as_deref(), Ok("/x"));
        assert_eq!(found(&[home, ("KUBECONFIG", "")], &both).as_deref(), Ok("/home/me/.kube/config"));
        assert_eq!(found(&[home, ("KUBECONFIG", "/gone:/x:")], &both).as_deref(), Ok("/x"));
        assert_eq!(found(&[home], &["/x"]).as_deref(), Ok(""), "in a pod");
        assert_eq!(found(&[], &[]).as_deref(), Ok(""));
    }

    #[test]
    fn a_variable_without_a_file_or_with_several_is_an_error() {
        let error = |list, files: &[&str]| found(&[("KUBECONFIG", list)], files).unwrap_err();
        assert!(error("/gone", &[]).starts_with("KUBECONFIG=/gone: no such file"));
        assert!(error("/x:/y", &["/x", "/y"]).contains("names several files; set --kubeconfig to one"));
    }
}
