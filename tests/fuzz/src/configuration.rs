//! Configuration files.

use std::path::PathBuf;

use ccm_provider::CloudConfig;

/// YAML, with the parser of all configuration files.
pub(crate) fn document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match ccm_kit::document::parse(text) {
        Ok(tree) => {
            let json = tree.to_string();
            let again = ccm_kit::document::parse(&json).expect("JSON is YAML");
            assert_eq!(tree, again, "read again from {json}");
        }
        Err(error) => assert!(!error.problems().is_empty()),
    }
}

/// The INI dialect of Go programs.
pub(crate) fn gcfg(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(document) = ccm_kit::gcfg::parse(text) else { return };
    let written = document.to_string();
    let again = ccm_kit::gcfg::parse(&written).expect("what is written is gcfg");
    // Positions differ, but the resulting text does not.
    assert_eq!(written, again.to_string(), "from {text:?}");
}

/// The file of the fake cloud.
pub(crate) fn cloud_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // These keys name files that the provider would write.
    let files = ["callLog", "stateFile"];
    match ccm_kit::document::parse(text) {
        Ok(tree) if files.iter().any(|key| tree.get(key).is_some_and(|value| !value.is_null())) => return,
        _ => {}
    }
    let config = CloudConfig { path: PathBuf::from("/nowhere/cloud.yaml"), text: text.to_owned() };
    if let Err(error) = ccm_provider_fake::Fake::new(Some(&config)) {
        assert!(error.to_string().starts_with("/nowhere/cloud.yaml: "), "{error}");
    }
}
