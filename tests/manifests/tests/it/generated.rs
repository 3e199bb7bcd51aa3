//! The generated files meet the requirements of an audit. `cargo xtask manifests --check` checks that they are current.

use serde_json::Value;

use crate::rendered::{documents, kustomize};
use crate::tools::read;

#[test]
fn no_role_has_a_wildcard_and_every_rule_has_a_reason() {
    let mut rules = 0;
    for name in
        ["base", "components/service-account-credentials", "components/controller-roles", "components/leader-migration"]
    {
        let text = read(&format!("{name}/rbac.yaml"));
        assert!(!text.contains('*'), "{name}");
        for document in documents(&text) {
            rules += document["rules"].as_array().map_or(0, Vec::len);
        }
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[1].starts_with("- apiGroups")) {
            assert!(pair[0].starts_with("# "), "{name}: a rule without a reason: {pair:?}");
        }
    }
    assert!(rules > 15, "{rules}");
}

#[test]
fn the_patch_of_the_install_page_takes_the_right_to_delete_away() {
    let page = read("README.md");
    let block = page.split("\n```yaml\n").find(|block| block.contains("kind: ClusterRole")).unwrap();
    let patch = block.split("\n```").next().unwrap();
    let deletes = |more: &str| {
        let text = kustomize(&[("kustomization.yaml", format!("resources:\n- ../../base\n{more}"))])?;
        Some(documents(&text).iter().any(|one| one["rules"].to_string().contains("\"delete\"")))
    };
    let (Some(before), Some(after)) = (deletes(""), deletes(patch)) else { return };
    assert!(before && !after);
}

#[test]
fn grants_on_leases_and_tokens_are_limited_by_name() {
    let mut seen = 0;
    for name in [
        "base/rbac.yaml",
        "components/service-account-credentials/rbac.yaml",
        "components/service-account-credentials-gce/roles.yaml",
        "components/leader-migration/rbac.yaml",
    ] {
        for document in documents(&read(name)) {
            for rule in document["rules"].as_array().into_iter().flatten() {
                let has = |field: &str, word: &str| {
                    rule[field].as_array().into_iter().flatten().any(|value: &Value| value == word)
                };
                // RBAC does not know the name of the object in a create request.
                let plain_create = has("verbs", "create") && !has("resources", "serviceaccounts/token");
                if ["leases", "serviceaccounts", "serviceaccounts/token"].iter().any(|r| has("resources", r))
                    && !plain_create
                {
                    seen += 1;
                    assert!(rule["resourceNames"].is_array(), "{name}: {rule}");
                }
            }
        }
    }
    assert_eq!(seen, 7);
}
