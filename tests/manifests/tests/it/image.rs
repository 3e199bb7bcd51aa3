//! The parts of the Dockerfile that can be checked without a container engine; `hack/image.sh check` runs the content.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use ccm_test_manifests::workspace;

use crate::rendered::{documents, workload};
use crate::tools::{not_run, read};

struct Instruction {
    name: String,
    rest: String,
}

/// The instructions, with continued lines joined.
fn instructions() -> Vec<Instruction> {
    let text = fs::read_to_string(workspace().join("Dockerfile")).unwrap().replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split =
        |line: &str| line.split_once(' ').map(|(name, rest)| (name.to_uppercase(), rest.trim().to_owned())).unwrap();
    lines.map(split).map(|(name, rest)| Instruction { name, rest }).collect()
}

/// The last stage.
fn last_stage(all: &[Instruction]) -> &[Instruction] {
    let start = all.iter().rposition(|instruction| instruction.name == "FROM").unwrap();
    &all[start..]
}

fn only<'a>(stage: &'a [Instruction], name: &str) -> &'a str {
    let mut found = stage.iter().filter(|instruction| instruction.name == name);
    let first = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "more than one {name}");
    &first.rest
}

#[test]
fn the_image_holds_one_program_run_by_a_user_without_rights() {
    let all = instructions();
    // The image has the content that `hack/image.sh check` runs.
    assert!(all.iter().any(|i| i.name == "RUN" && i.rest.contains("hack/image.sh build \"$FEATURES\" /out")));
    let stage = last_stage(&all);
    assert_eq!(only(stage, "FROM"), "scratch");
    assert_eq!(only(stage, "COPY"), "--from=build /out/ /");
    assert_eq!(only(stage, "ENTRYPOINT"), r#"["/ccm"]"#);
    assert_eq!(only(stage, "ENV"), "PATH=/usr/local/bin:/bin");
    assert_eq!(only(stage, "EXPOSE"), "10258");
    let names: Vec<&str> = stage.iter().map(|instruction| instruction.name.as_str()).collect();
    assert!(
        names.iter().all(|name| ["FROM", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT"].contains(name)),
        "{names:?}"
    );

    // A number, because the kubelet cannot check runAsNonRoot with a name.
    let (user, group) = only(stage, "USER").split_once(':').unwrap();
    let documents = documents(&read("base/daemonset.yaml"));
    let security = &workload(&documents)["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(security["runAsUser"].to_string(), user);
    assert_eq!(security["runAsGroup"].to_string(), group);
    assert!(user.parse::<u32>().unwrap() > 0);
}

#[test]
fn the_toolchain_is_pinned_to_the_one_of_the_workspace() {
    let all = instructions();
    let toolchain = all.iter().find_map(|i| i.rest.strip_prefix("RUST_VERSION=").filter(|_| i.name == "ARG")).unwrap();
    let cargo = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let wanted = cargo.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap().trim_end_matches('"');
    assert!(toolchain == wanted || toolchain.starts_with(&format!("{wanted}.")), "{toolchain}, {wanted}");
    let bases: Vec<&str> =
        all.iter().filter_map(|i| i.rest.strip_prefix("BASE=").filter(|_| i.name == "ARG")).collect();
    assert!(bases.len() == 1 && bases[0].contains("${RUST_VERSION}"), "{bases:?}");
    for from in all.iter().filter(|instruction| instruction.name == "FROM") {
        assert!(from.rest.contains(" ${BASE} ") || from.rest == "scratch", "{}", from.rest);
    }
}

/// A default would be the wrong provider for some users, whose program would exit at each start.
#[test]
fn an_image_without_a_choice_of_providers_is_not_built() {
    let all = instructions();
    assert!(all.iter().any(|i| i.name == "ARG" && i.rest == "FEATURES"));
    let check = all.iter().find(|i| i.name == "RUN").unwrap();
    let run = |features: &str| {
        let output = Command::new("sh").args(["-c", &check.rest]).env("FEATURES", features).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (built, said) = run("");
    assert!(!built && said.contains("--build-arg FEATURES="), "{said}");
    assert_eq!(run("aws"), (true, String::new()));
}

/// In place of cargo: the program is what the compiler is given.
const CARGO: &str = r#"#!/bin/sh
for target; do :; done
mkdir -p "$CARGO_TARGET_DIR/$target/dist"
echo "$CCM_GIT_COMMIT $CCM_GIT_TREE_STATE $CCM_BUILD_DATE" >"$CARGO_TARGET_DIR/$target/dist/ccm"
"#;

#[test]
fn the_program_in_an_image_is_given_its_commit() {
    if Command::new("git").arg("--version").output().is_err() {
        return not_run("no git on the PATH, which hack/image.sh asks for the commit");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("tree/hack")).unwrap();
    fs::create_dir(path("bin")).unwrap();
    fs::copy(workspace().join("hack/image.sh"), path("tree/hack/image.sh")).unwrap();
    fs::write(path("bin/cargo"), CARGO).unwrap();
    fs::set_permissions(path("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |program: &str, arguments: &[&str], commit: &str| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(path("tree")).env("CARGO_TARGET_DIR", path("target"));
        command.env("PATH", format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap()));
        command.env("CCM_GIT_COMMIT", commit).env_remove("CCM_GIT_TREE_STATE").env_remove("CCM_BUILD_DATE");
        command.env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+02:00");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let built = |commit: &str| {
        run("hack/image.sh", &["build", "fake", path("out").to_str().unwrap()], commit);
        fs::read_to_string(path("out/ccm")).unwrap()
    };
    assert_eq!(built(""), "  \n", "not in a repository");
    run("git", &["init", "--quiet"], "");
    run("git", &["add", "."], "");
    run("git", &["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=all"], "");
    let head = run("git", &["rev-parse", "HEAD"], "");
    assert_eq!(built(""), format!("{} clean 2026-01-02T01:04:05Z\n", head.trim()));
    assert_eq!(built("abc"), "abc  \n", "the caller knows it");
    let script = fs::read_to_string(path("tree/hack/image.sh")).unwrap();
    fs::write(path("tree/hack/image.sh"), script + "\n").unwrap();
    assert_eq!(built(""), format!("{} dirty 2026-01-02T01:04:05Z\n", head.trim()));

    let all = instructions();
    for name in ["CCM_GIT_COMMIT", "CCM_GIT_TREE_STATE", "CCM_BUILD_DATE"] {
        assert!(all.iter().any(|i| i.name == "ARG" && i.rest == name), "the container build has no git: {name}");
    }
}

#[test]
fn nothing_secret_or_foreign_gets_into_a_layer() {
    for instruction in instructions() {
        assert_ne!(instruction.name, "ADD");
        let text = instruction.rest.to_lowercase();
        for word in ["secret", "password", "token", "curl ", "wget "] {
            assert!(!text.contains(word), "{} {}", instruction.name, instruction.rest);
        }
    }
    // The build context is an allowlist.
    let ignored = fs::read_to_string(workspace().join(".dockerignore")).unwrap();
    let mut lines = ignored.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"));
    let sent: Vec<&str> = lines.filter_map(|line| line.strip_prefix('!')).collect();
    let cargo = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = cargo.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    for member in members.split(',').map(|member| member.trim().trim_matches('"')).filter(|member| !member.is_empty()) {
        let included = sent.iter().any(|path| member == *path || member.starts_with(&format!("{path}/")));
        assert!(included, "cargo needs all members of the workspace, and {member} is not sent");
    }
}
