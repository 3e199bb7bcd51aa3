#!/usr/bin/env bash
# Runs the tests. On a fresh machine it needs cargo and a C compiler; what else it needs it fetches or builds once.
#
#   hack/test.sh              everything
#   hack/test.sh fast         format, lints, layers, and the tests without a real API server
#   hack/test.sh apiserver    only the tests that need a real API server
#   hack/test.sh STAGE...     single stages, by the names below
#
# Stages, in this order:
#   toolchain    the Rust version of Cargo.toml, rustfmt, clippy, a C compiler
#   components   the Kubernetes programs (hack/k8s/build.sh: KUBEBUILDER_ASSETS, the cache, or Go); helm and CRDs
#                (hack/tools/build.sh: the cache, or Go); moto and the service models of AWS (hack/moto.sh: the cache, or pip)
#   fmt          formatting
#   clippy       lints, as errors
#   edges        who may depend on whom; crates that must not be in the program; generated manifests and pages are current
#   tests        all tests of the workspace
#   example      the provider of an author outside of this tree (hack/example-provider), in a workspace of its own
#   each         every crate alone; every feature alone, none, all
#   image        what the Dockerfile puts into the image, built and run with nothing else around it; needs root
#   docs         the documentation builds without warnings
#   deny         licences, bans and sources of dependencies, where cargo-deny is installed
#
# Every stage runs even if an earlier one failed; the exit status is 0 only if none did. A component that can't be had
# is a failure with CI=true, and elsewhere a line that says NOT RUN.
#
# Environment: CARGO_TARGET_DIR (default ${XDG_CACHE_HOME:-~/.cache}/ccm/target), KUBEBUILDER_ASSETS, CI.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ccm/target}
if [[ ${CI:-} == true ]]; then
	# Built once and thrown away: nothing gains from incremental state or debug information.
	export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
fi

all_stages=(toolchain components fmt clippy edges tests example each image docs deny)
not_run=3
reason=
group=

stop() {
	local status=$?
	trap - EXIT
	if [[ -n $group ]]; then
		kill -TERM -- "-$group" 2>/dev/null || true
		wait "$group" 2>/dev/null || true
	fi
	exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command in a process group of its own, so that stopping this script also stops what cargo started. `wait`, unlike
# a command in the foreground, lets a signal through at once.
run() {
	printf '+ %s\n' "$*"
	set -m
	"$@" </dev/null &
	group=$!
	set +m
	local status=0
	wait "$group" || status=$?
	group=
	return "$status"
}

# For a stage that can't run on this machine: the reason goes into the table.
skip() {
	reason=$1
	printf 'NOT RUN: %s\n' "$1" >&2
	return "$not_run"
}

stage_toolchain() {
	local wanted have tool
	wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
	if ! have=$(rustc --version 2>&1); then
		echo "no Rust toolchain; this workspace needs Rust $wanted, with cargo, rustfmt and clippy: $have" >&2
		return 1
	fi
	echo "$have"
	have=${have#rustc }
	have=${have%% *}
	if [[ $(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1) != "$wanted" ]]; then
		echo "this workspace needs Rust $wanted or newer, and this is $have" >&2
		return 1
	fi
	for tool in fmt clippy; do
		if ! cargo "$tool" --version; then
			echo "cargo $tool is missing; with rustup: rustup component add rustfmt clippy" >&2
			return 1
		fi
	done
	if [[ -z ${CC:-} ]] && ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
		echo 'no C compiler; the TLS library contains C' >&2
		return 1
	fi
}

stage_components() {
	local status=0
	run hack/k8s/build.sh || status=$?
	if ((status == not_run)); then
		skip 'no real API server or controller manager on this machine; the tests that need them say NOT RUN and pass'
		return
	fi
	((status == 0)) || return "$status"
	run hack/tools/build.sh || status=$?
	if ((status == not_run)); then
		skip 'no helm on this machine; the tests that need it say NOT RUN and pass'
		return
	fi
	((status == 0)) || return "$status"
	run hack/moto.sh || status=$?
	if ((status == not_run)); then
		skip 'no moto on this machine; the tests that need it say NOT RUN and pass'
		return
	fi
	return "$status"
}

stage_fmt() { run cargo fmt --all --check; }

stage_clippy() {
	run cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
}

stage_edges() {
	local status=0
	run cargo run --quiet --locked --package xtask -- check-deps || status=1
	run cargo run --quiet --locked --package xtask -- check-tree || status=1
	run cargo run --quiet --locked --package xtask -- manifests --check || status=1
	run cargo run --quiet --locked --package xtask -- reference --check || status=1
	return "$status"
}

# Tests on a real API server live in test binaries named `it`, in modules named `real_apiserver`.
stage_tests() {
	case $suite in
	fast) run cargo test --workspace --all-features --locked --no-fail-fast -- --skip real_apiserver ;;
	apiserver) run cargo test --workspace --all-features --locked --no-fail-fast --test it -- real_apiserver ;;
	*) run cargo test --workspace --all-features --locked --no-fail-fast ;;
	esac
}

stage_example() {
	local status=0 manifest=hack/example-provider/Cargo.toml
	run cargo fmt --manifest-path "$manifest" --check || status=1
	run cargo test --manifest-path "$manifest" --locked ||
		{ echo "if only its Cargo.lock is old: cargo update --workspace --manifest-path $manifest" >&2 && status=1; }
	return "$status"
}

stage_each() { run cargo run --quiet --locked --package xtask -- check-each; }

stage_image() {
	local status=0
	run hack/image.sh check || status=$?
	if ((status == not_run)); then
		skip 'only root may change the root of a process'
		return
	fi
	return "$status"
}

stage_docs() { run env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --all-features --no-deps --locked; }

stage_deny() {
	if ! cargo deny --version >/dev/null 2>&1; then
		skip 'cargo-deny is not installed'
		return
	fi
	# Not advisories: a new one must not fail unrelated work.
	run cargo deny --all-features --locked check bans licenses sources || return 1
}

suite=all
stages=()
for argument in "$@"; do
	case $argument in
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	all) stages=("${all_stages[@]}") ;;
	fast) suite=fast stages+=(toolchain fmt clippy edges tests) ;;
	apiserver) suite=apiserver stages+=(toolchain components tests) ;;
	*)
		if [[ " ${all_stages[*]} " != *" $argument "* ]]; then
			echo "unknown suite or stage: $argument (see hack/test.sh --help)" >&2
			exit 2
		fi
		stages+=("$argument")
		;;
	esac
done
if ((${#stages[@]} == 0)); then stages=("${all_stages[@]}"); fi
# Both suites together are all tests.
if [[ " $* " == *" fast "* && " $* " == *" apiserver "* || " $* " == *" all "* ]]; then suite=all; fi

table=()
passed=0
failed=0
skipped=0
for stage in "${all_stages[@]}"; do
	[[ " ${stages[*]} " == *" $stage "* ]] || continue
	printf '\n=== %s\n' "$stage"
	started=$SECONDS
	status=0
	reason=
	"stage_$stage" || status=$?
	case $status in
	0) result=passed passed=$((passed + 1)) ;;
	"$not_run") result='NOT RUN' skipped=$((skipped + 1)) ;;
	*) result=FAILED failed=$((failed + 1)) ;;
	esac
	table+=("$(printf '%-12s %-8s %5d s%s' "$stage" "$result" "$((SECONDS - started))" "${reason:+  $reason}")")
	if [[ $stage == toolchain && $result == FAILED ]]; then break; fi
done

printf '\n'
printf '%s\n' "${table[@]}"
printf '\nstages: %d passed, %d failed, %d not run; %d s\n' "$passed" "$failed" "$skipped" "$SECONDS"
((failed == 0))
