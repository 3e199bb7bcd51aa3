use std::fs;

use ccm_kit::gcfg::Secret;

use super::*;
use crate::start::config::{Config, EndpointType};
use crate::start::login::Login;

/// The folders of the test's files.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(files: &[(&str, &str)]) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = disk.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        disk
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn fill(&self, conf: &str, variables: &[(&str, String)]) -> Result<(Global, Vec<String>), String> {
        let mut global = Config::parse(Some(&format!("[Global]\n{conf}\n"))).unwrap().0.global;
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let folders = [self.path("one"), self.path("two")];
        let cut = |text: &str| text.replace(&format!("{}/", self.0.path().display()), "");
        match fill(&mut global, &variable, &folders) {
            Ok(findings) => Ok((global, findings.iter().map(|finding| cut(&finding.to_string())).collect())),
            Err(error) => {
                assert!(matches!(error.class(), ErrorClass::Invalid { .. }));
                Err(cut(&error.to_string()))
            }
        }
    }

    fn good(&self, conf: &str) -> Global {
        let (global, findings) = self.fill(conf, &[]).unwrap();
        assert_eq!(findings, Vec::<String>::new());
        global
    }

    fn bad(&self, conf: &str) -> String {
        let error = self.fill(conf, &[]).unwrap_err();
        error.strip_prefix("failed to read clouds.yaml: ").unwrap_or(&error).to_owned()
    }
}

const TWO: &str = "clouds:\n  a: {region_name: A}\n  b: {region_name: B}\n";

#[test]
fn every_value_fills_its_key() {
    let disk = Disk::new(&[(
        "one/clouds.yaml",
        r#"
clouds:
  only:
    profile: ""
    auth_type: password
    region_name: RegionOne
    regions: [RegionOne, {name: RegionTwo}]
    interface: internalURL
    identity_api_version: 3
    verify: false
    cacert: /ca
    cert: /cert
    key: /key
    auth:
      auth_url: https://keystone
      user_id: u
      username: n
      password: 0123
      project_id: 12e45678901234567890123456789012
      project_name: tn
      trust_id: tr
      domain_id: d
      domain_name: dn
      project_domain_id: td
      project_domain_name: tdn
      user_domain_id: ud
      user_domain_name: udn
      application_credential_id: ai
      application_credential_name: an
      application_credential_secret: as
      token: tok
      allow_reauth: true
"#,
    )]);
    let global = disk.good("use-clouds = true");
    let expected = Config::parse(Some(
        "[Global]\nauth-url=https://keystone\nuser-id=u\nusername=n\npassword=0123\n\
         tenant-id=12e45678901234567890123456789012\ntenant-name=tn\ntrust-id=tr\ndomain-id=d\ndomain-name=dn\n\
         tenant-domain-id=td\ntenant-domain-name=tdn\nuser-domain-id=ud\nuser-domain-name=udn\n\
         application-credential-id=ai\napplication-credential-name=an\napplication-credential-secret=as\ntoken=tok\n\
         region=RegionOne\nos-endpoint-type=internal\nca-file=/ca\ncert-file=/cert\nkey-file=/key\n\
         tls-insecure=true\nuse-clouds=true\n",
    ));
    assert_eq!(global, expected.unwrap().0.global);
}

/// Pitfall 7.
#[test]
fn a_password_of_cloud_conf_wins_with_and_without_cloud() {
    let yaml = "clouds:\n  c:\n    auth: {auth_url: 'https://k/v3', username: n, password: yaml, domain_id: default}\n";
    let disk = Disk::new(&[("one/clouds.yaml", yaml)]);
    for conf in ["use-clouds = true", "use-clouds = true\ncloud = c", "cloud = c"] {
        let global = disk.good(&format!("{conf}\npassword = conf\ntls-insecure = false"));
        let (login, _) = Login::from(&global).unwrap();
        assert_eq!(login.body.pointer("/auth/identity/password/user/password").unwrap(), "conf", "{conf}");
        assert_eq!(global.username, "n");
    }
    assert_eq!(disk.good("password = conf").username, "", "clouds.yaml is read only on request");
}

#[test]
fn cloud_conf_decides_on_verification_and_endpoints() {
    let disk = Disk::new(&[("one/clouds.yaml", "clouds:\n  c: {verify: False, endpoint_type: admin, interface: x}\n")]);
    assert_eq!(disk.good("cloud = c").tls_insecure, Some(true));
    assert_eq!(disk.good("cloud = c").endpoint_type, Some(EndpointType::Admin));
    let global = disk.good("cloud = c\ntls-insecure = false\nos-endpoint-type = internal");
    assert_eq!((global.tls_insecure, global.endpoint_type), (Some(false), Some(EndpointType::Internal)));
}

#[test]
fn the_file_is_searched_in_order() {
    let region = |name: &str| format!("clouds:\n  c: {{region_name: {name}}}\n");
    let files = ["env", "conf", "one/clouds.yaml", "two/clouds.yaml", "one/clouds.yml"];
    let texts = files.map(region);
    let files: Vec<(&str, &str)> = files.into_iter().zip(texts.iter().map(String::as_str)).collect();
    let disk = Disk::new(&files);
    let env = [(FILE_VARIABLE, disk.path("env").display().to_string())];
    let conf = format!("use-clouds = true\nclouds-file = {}", disk.path("conf").display());
    let found = |conf: &str, env: &[(&str, String)]| {
        let (global, findings) = disk.fill(conf, env).unwrap();
        (global.region, findings)
    };
    assert_eq!(found(&conf, &env), ("conf".to_owned(), vec![]));
    assert_eq!(found("use-clouds = true", &env), ("env".to_owned(), vec![]));
    fs::remove_file(disk.path("conf")).unwrap();
    let (region, findings) = found(&conf, &env);
    assert_eq!(region, "one/clouds.yaml");
    assert!(findings.len() == 1 && findings[0].contains("there is no such file"), "{findings:?}");
    for (gone, next) in [("one/clouds.yaml", "two/clouds.yaml"), ("two/clouds.yaml", "one/clouds.yml")] {
        fs::remove_file(disk.path(gone)).unwrap();
        assert_eq!(found("use-clouds = true", &[]).0, next);
    }
    let folders = folders(Some(Path::new("/home/x")));
    assert_eq!(folders, [Path::new(""), Path::new("/home/x/.config/openstack"), Path::new("/etc/openstack")]);
}

#[test]
fn the_entry_is_named_by_file_or_environment_or_is_the_only_one() {
    let disk = Disk::new(&[("one/clouds.yaml", TWO)]);
    let env = [(CLOUD_VARIABLE, "b".to_owned())];
    assert_eq!(disk.fill("cloud = a", &env).unwrap().0.region, "A");
    assert_eq!(disk.fill("use-clouds = true", &env).unwrap().0.region, "B");
    assert_eq!(
        disk.bad("use-clouds = true"),
        "could not find cloud: one/clouds.yaml has 2 entries; set [Global] cloud"
    );
    assert_eq!(disk.bad("cloud = c"), "cloud c does not exist in clouds.yaml: one/clouds.yaml has a, b");
}

#[test]
fn secure_wins_over_the_entry_and_that_over_its_profile() {
    let disk = Disk::new(&[
        (
            "one/clouds.yaml",
            "clouds:\n  c:\n    profile: vendor\n    region_name: entry\n    auth: {username: entry, password: entry}\n\
             \x20 old: {cloud: vendor}\n  lost: {profile: gone}\n",
        ),
        ("two/secure.yaml", "clouds:\n  c:\n    auth: {password: secure}\n"),
        (
            "two/clouds-public.yaml",
            "public-clouds:\n  vendor:\n    region_name: vendor\n    auth: {auth_url: 'https://vendor', password: vendor}\n",
        ),
    ]);
    let global = disk.good("cloud = c");
    let found = [&global.auth_url, &global.username, &global.password.0, &global.region];
    assert_eq!(found, ["https://vendor", "entry", "secure", "entry"]);
    assert_eq!(disk.good("cloud = old").region, "vendor");
    assert_eq!(disk.bad("cloud = lost"), "cloud gone, the profile of lost, does not exist");

    let disk = Disk::new(&[("one/clouds.yaml", "clouds: {c: {profile: vendor, region_name: r}}\n")]);
    let (global, findings) = disk.fill("cloud = c", &[]).unwrap();
    assert_eq!((global.region.as_str(), findings.len()), ("r", 1));
}

/// Upstream also looks for the other spelling.
#[test]
fn secure_and_public_clouds_may_end_with_yml() {
    let disk = Disk::new(&[
        ("one/clouds.yaml", "clouds: {c: {profile: vendor}}\n"),
        ("one/secure.yml", "clouds: {c: {auth: {password: yml}}}\n"),
        ("two/clouds-public.yml", "public-clouds: {vendor: {region_name: yml}}\n"),
    ]);
    let global = disk.good("cloud = c");
    assert_eq!((&*global.password.0, &*global.region), ("yml", "yml"));
    fs::write(disk.path("two/secure.yaml"), "clouds: {c: {auth: {password: yaml}}}\n").unwrap();
    assert_eq!(disk.good("cloud = c").password.0, "yaml");
}

#[test]
fn the_default_domain_is_that_of_names_without_one() {
    let filled = |auth: &str, conf: &str| {
        let yaml = format!("clouds: {{c: {{auth: {{default_domain: dd, {auth}}}}}}}\n");
        let global = Disk::new(&[("one/clouds.yaml", &yaml)]).good(&format!("cloud = c\n{conf}"));
        [global.user_domain_id, global.tenant_domain_id, global.domain_id].join(",")
    };
    assert_eq!(filled("username: n, project_name: p", ""), "dd,dd,");
    assert_eq!(filled("user_id: u, project_id: p", ""), ",,");
    assert_eq!(filled("username: n, project_name: p, user_domain_name: own", ""), ",dd,");
    assert_eq!(filled("username: n, project_name: p", "domain-id = d"), ",,d");
    assert_eq!(filled("username: n, project_name: p, domain_name: d", ""), ",,");
}

/// Merge keys of YAML, as vendors write them.
#[test]
fn entries_may_share_parts_by_anchors() {
    let yaml = "base: &base {auth_url: 'https://k', username: n}\n\
                clouds:\n  a: {auth: {<<: *base, password: p}}\n  b: {auth: *base}\n";
    let disk = Disk::new(&[("one/clouds.yaml", yaml)]);
    let global = disk.good("cloud = a");
    assert_eq!([&*global.auth_url, &*global.username, &*global.password.0], ["https://k", "n", "p"]);
    assert_eq!(disk.good("cloud = b").username, "n");
}

#[test]
fn a_missing_or_broken_file_is_a_clear_error() {
    let disk = Disk::new(&[]);
    assert_eq!(
        disk.bad("use-clouds = true"),
        "no clouds.yaml found: there is none at one/clouds.yaml, two/clouds.yaml; set [Global] clouds-file"
    );
    for (text, problem) in [
        ("clouds: {c: {auth: {password: [hunter2]}}}", "one/clouds.yaml: "),
        ("clouds: {c: {auth: {password: hunter2", "one/clouds.yaml: "),
        ("clouds: [hunter2]", "one/clouds.yaml: "),
        ("clouds: {c: {interface: intern}}", "interface = \"intern\": not an endpoint type"),
        ("", "could not find cloud: one/clouds.yaml has 0 entries"),
        ("# nothing\n", "could not find cloud: one/clouds.yaml has 0 entries"),
        ("clouds:\n", "could not find cloud: one/clouds.yaml has 0 entries"),
    ] {
        let error = Disk::new(&[("one/clouds.yaml", text)]).bad("use-clouds = true");
        assert!(error.starts_with(problem) && !error.contains("hunter2"), "{text}: {error}");
    }
    assert_eq!(Disk::new(&[("one/clouds.yaml", "clouds:\n  c:\n")]).good("cloud = c").region, "");
}

#[test]
fn a_login_that_the_go_program_takes_from_clouds_yaml_is_named() {
    let global = |cloud: &str, password: &str| Global {
        cloud: cloud.to_owned(),
        password: Secret(password.to_owned()),
        ..Global::default()
    };
    let found = ignored_upstream(&global("c", "geheim")).unwrap();
    assert!(found.message.ends_with("win: password"), "{found}");
    assert_eq!(ignored_upstream(&global("c", "")), None);
    assert_eq!(ignored_upstream(&global("", "geheim")), None, "clouds.yaml only fills");
}
