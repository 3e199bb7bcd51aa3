#!/usr/bin/env bash
# The rustdoc of `cargo test --doc` (RUSTDOC): writes the documentation of a library, with warnings as errors, and then
# runs its examples. `cargo doc` would check all dependencies again; here they are built already.
set -euo pipefail

documentation=()
for argument in "$@"; do
	if [[ $argument != --test ]]; then documentation+=("$argument"); fi
done
# Cargo also asks for the version.
if ((${#documentation[@]} < $#)); then
	rustdoc "${documentation[@]}" --deny=warnings --out-dir "$CARGO_TARGET_DIR/doc"
fi
exec rustdoc "$@"
