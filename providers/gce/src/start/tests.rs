use super::*;

#[test]
fn an_endpoint_ends_with_its_version_and_a_slash() {
    for (text, expected) in [
        ("", None),
        ("https://x/compute/v1", Some("https://x/compute/v1/")),
        ("https://x/compute/v1/", Some("https://x/compute/v1/")),
        ("https://x/compute/v1/projects/", Some("https://x/compute/v1/")),
    ] {
        assert_eq!(endpoint(text).as_deref(), expected, "{text}");
    }
    let override_is = |url: &str| resource_manager(&|_| given(url), "googleapis.com");
    assert_eq!(override_is(""), "https://cloudresourcemanager.googleapis.com/");
    assert_eq!(override_is("http://127.0.0.1:1"), "http://127.0.0.1:1/");
}

#[test]
fn zones_of_the_metadata_server_have_four_parts() {
    assert_eq!(zone_of("projects/12/zones/us-central1-b").unwrap(), "us-central1-b");
    for text in ["us-central1-b", "projects/12/zones", "projects/12/regions/r", ""] {
        assert!(zone_of(text).is_err(), "{text}");
    }
}
