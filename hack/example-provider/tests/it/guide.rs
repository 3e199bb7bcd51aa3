//! The guide's excerpts of this crate match the code.

#[test]
fn code_of_the_guide_is_code_of_the_example() {
    let guide = include_str!("../../../../providers/api/README.md");
    let code = concat!(
        include_str!("../../src/main.rs"),
        include_str!("../../src/lib.rs"),
        include_str!("../../src/maintenance.rs"),
        include_str!("main.rs"),
        include_str!("../../examples/mine.rs"),
    );
    let blocks: Vec<&str> =
        guide.split("\n```rust,ignore\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    assert!(blocks.len() > 3);
    for block in blocks {
        assert!(code.contains(block), "this is not in the example any more:\n{block}");
    }
}
