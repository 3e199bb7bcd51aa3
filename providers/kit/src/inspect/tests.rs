use ccm_provider::ErrorClass;

use super::replay;

#[test]
fn facts_of_another_program_are_refused() {
    let facts = replay::facts(&("vpc", 7));
    assert_eq!(replay::read::<(String, i32)>(&facts, "AWS").unwrap(), ("vpc".to_owned(), 7));
    let error = replay::read::<i32>(&facts, "AWS").unwrap_err();
    assert!(error.to_string().starts_with("the facts about AWS in the snapshot cannot be read: "), "{error}");
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }));
}
