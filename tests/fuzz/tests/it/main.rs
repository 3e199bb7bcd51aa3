//! Each target over its corpus and over mutations of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use ccm_fuzz::TARGETS;
use proptest::prelude::*;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn every_input_that_ever_mattered_passes() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for (path, input) in inputs {
            println!("{}", path.display());
            target(&input);
        }
    }
}

#[test]
fn a_corpus_stays_small() {
    for (name, _) in TARGETS {
        let size: usize = corpus(name).iter().map(|(_, input)| input.len()).sum();
        assert!(size < 64 * 1024, "corpus/{name} holds {size} bytes; merge it: hack/fuzz.sh --help");
    }
}

/// An input of a corpus with a part of another one inserted.
fn spliced() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let inputs: Vec<(usize, Vec<u8>)> = TARGETS
        .iter()
        .enumerate()
        .flat_map(|(number, (name, _))| corpus(name).into_iter().map(move |(_, input)| (number, input)))
        .collect();
    let one = prop::sample::select(inputs.clone());
    let other = prop::sample::select(inputs);
    (one, other, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |((number, mut input), (_, piece), at, from, to)| {
            let (from, to) = (from.index(piece.len() + 1), to.index(piece.len() + 1));
            let at = at.index(input.len() + 1);
            let end = (at + 3).min(input.len());
            drop(input.splice(at..end, piece.get(from.min(to)..from.max(to)).unwrap().iter().copied()));
            (number, input)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spliced_inputs_pass((number, input) in spliced()) {
        let (_, target) = TARGETS.get(number).unwrap();
        target(&input);
    }
}
