//! Table tests of flags and digests.

use ccm_provider::flag::FlagValues;

use super::flags::{FLAGS, Settings, check};
use super::{digest, names};

fn values(given: &[(&'static str, &str)]) -> FlagValues {
    let mut values = FlagValues::default();
    for flag in &FLAGS {
        let default = if flag.default.is_empty() { Vec::new() } else { vec![flag.default.to_owned()] };
        values.insert(flag.name, default, false);
    }
    for (name, value) in given {
        values.insert(name, value.split(';').map(str::to_owned).collect(), true);
    }
    values
}

#[test]
fn the_digest_is_that_of_the_go_program_and_does_not_depend_on_order() {
    let tags = [("team", "web"), ("env", "prod")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(digest(&tags.into()), "d04af88331b9bc0c72c58472a599c4c0");
    // Of the sorted pairs, not keys.
    let tags = [("team", "web"), ("team-id", "7")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(digest(&tags.into()), "25925aa2b9234d48e0f4d95cc200e3d9");
}

#[test]
fn flags_are_read_and_each_mistake_is_named() {
    let good = Settings::read(&values(&[("tags", "env=prod;team=a=b"), ("resources", "instance")])).unwrap();
    assert_eq!(good.tags.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["env=prod", "team=a=b"]);
    assert_eq!((good.workers, good.rate), (1, None));
    let paced = [
        ("tags", "a=b"),
        ("resources", "instance"),
        ("tagging-controller-rate-limit", "2.5"),
        ("tagging-controller-burst-limit", "4"),
        ("tagging-controller-concurrent-node-syncs", "3"),
    ];
    let paced = Settings::read(&values(&paced)).unwrap();
    assert_eq!((paced.workers, paced.rate), (3, Some((2.5, 4))));
    let wrong = [
        ("tags", "x;=y"),
        ("resources", "volume"),
        ("tagging-controller-rate-limit", "-1"),
        ("tagging-controller-burst-limit", "many"),
        ("tagging-controller-concurrent-node-syncs", "0"),
    ];
    assert_eq!(
        check(&values(&wrong)),
        [
            "--tags: \"x\" must be formatted as key=value",
            "--tags: \"=y\" must be formatted as key=value",
            "--resources=volume: the only resource that can be tagged is \"instance\"",
            "--tagging-controller-rate-limit=-1 must be a number of 0 or more",
            "--tagging-controller-burst-limit=many must be a whole number of 0 or more",
            "--tagging-controller-concurrent-node-syncs=0 must be a whole number of 1 or more",
        ]
    );
    assert_eq!(
        check(&values(&[])),
        [
            "--tags must not be empty and must be a form of key=value",
            "--resources must not be empty; say --resources=instance"
        ]
    );
}

#[test]
fn an_instance_is_named_by_the_whole_word() {
    let text = "The instance IDs 'i-0123456789abcdef0, i-02' do not exist";
    assert!(names(text, "i-02") && names(text, "i-0123456789abcdef0"));
    assert!(!names(text, "i-0123456789abcdef") && !names(text, "i-0"));
}
