//! The excerpts of the author's guide match the code of the example.

#[test]
fn code_of_the_guide_is_code_of_the_example() {
    let guide = include_str!("../../../../providers/api/README.md");
    let code = concat!(
        include_str!("../../../../hack/example-provider/src/main.rs"),
        include_str!("../../../../hack/example-provider/src/lib.rs"),
        include_str!("../../../../hack/example-provider/src/maintenance.rs"),
        include_str!("../../../../hack/example-provider/tests/it/main.rs"),
        include_str!("../../../../hack/example-provider/examples/mine.rs"),
    );
    let blocks: Vec<&str> =
        guide.split("\n```rust,ignore\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    assert!(blocks.len() > 3);
    for block in blocks {
        assert!(code.contains(block), "this is not in the example any more:\n{block}");
    }
}
