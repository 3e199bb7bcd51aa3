#!/usr/bin/env bash
# Fuzzes the parsers of input from users, the API server and the network (tests/fuzz), with libFuzzer. Needs a C++
# compiler; a stable Rust toolchain suffices.
#
#   hack/fuzz.sh [SECONDS [TARGET...]]    each target, one after the other; 60 s each if not said otherwise
#   hack/fuzz.sh list                     the targets
#   hack/fuzz.sh merge [TARGET...]        adds found inputs with new coverage to tests/fuzz/corpus
#
# What a run finds grows in ${XDG_CACHE_HOME:-~/.cache}/ccm/fuzz/TARGET. An input that fails is printed and kept as
# ${XDG_CACHE_HOME:-~/.cache}/ccm/fuzz/failed/TARGET-*: fix the code, and put the input into tests/fuzz/corpus/TARGET
# under a descriptive name; the tests of the workspace then run it too.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# With a target of its own, build scripts and the macros of the compiler are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')

mapfile -t all < <(sed -n 's/^    ("\([a-z_]*\)", .*/\1/p' tests/fuzz/src/lib.rs)
((${#all[@]} > 0)) || {
	echo 'no target found in tests/fuzz/src/lib.rs' >&2
	exit 1
}

build() {
	# What cargo-fuzz passes, without its need for a nightly toolchain. Cargo splits them at single spaces, at nothing else.
	local flags=(--cfg fuzzing -Cpasses=sancov-module)
	local pass
	for pass in level=4 inline-8bit-counters pc-table trace-compares; do
		flags+=("-Cllvm-args=-sanitizer-coverage-$pass")
	done
	cat Cargo.lock tests/fuzz/libfuzzer/libfuzzer.lock >tests/fuzz/libfuzzer/Cargo.lock
	RUSTFLAGS="${flags[*]} -Ccodegen-units=16" \
		cargo build --release --manifest-path tests/fuzz/libfuzzer/Cargo.toml --target "$host"
	program=$CARGO_TARGET_DIR/$host/release/ccm-libfuzzer
}

check() {
	local target
	for target in "$@"; do
		if [[ " ${all[*]} " != *" $target "* ]]; then
			echo "unknown target $target; there are: ${all[*]}" >&2
			exit 2
		fi
	done
}

case ${1:-} in
-h | --help)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	;;
list)
	printf '%s\n' "${all[@]}"
	;;
merge)
	shift
	check "$@"
	build
	for target in "${@:-${all[@]}}"; do
		mkdir -p "$cache/fuzz/$target"
		CCM_FUZZ_TARGET=$target "$program" -merge=1 -max_len=4096 "tests/fuzz/corpus/$target" "$cache/fuzz/$target"
	done
	;;
*)
	seconds=${1:-60}
	if [[ ! $seconds =~ ^[0-9]+$ ]]; then
		echo "$seconds is not a number of seconds; see hack/fuzz.sh --help" >&2
		exit 2
	fi
	shift $(($# > 0))
	check "$@"
	build
	mkdir -p "$cache/fuzz/failed"
	failed=()
	for target in "${@:-${all[@]}}"; do
		printf '\n=== %s, %s s\n' "$target" "$seconds"
		mkdir -p "$cache/fuzz/$target"
		CCM_FUZZ_TARGET=$target "$program" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
			-print_final_stats=1 -verbosity=0 -artifact_prefix="$cache/fuzz/failed/$target-" \
			"$cache/fuzz/$target" "tests/fuzz/corpus/$target" || failed+=("$target")
	done
	if ((${#failed[@]} > 0)); then
		echo "failed: ${failed[*]}; the inputs are in $cache/fuzz/failed" >&2
		exit 1
	fi
	;;
esac
