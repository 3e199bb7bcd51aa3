#!/usr/bin/env bash
# Runs the tests. On a fresh machine it needs cargo, a C compiler, make, and Go or python3; it fetches or builds
# everything else once.
#
#   hack/test.sh              the fast lane, which each change must pass; on two cores 8 minutes, the first time 35
#   hack/test.sh long         the long lane: the rest; up to an hour
#   hack/test.sh all          both
#   hack/test.sh ci           the fast lane, then the stages of the long lane that fit into the time of CI
#   hack/test.sh STAGE...     single stages, by the names below
#
# The fast lane, in this order (components are built while the stages before run; example and docs run beside the tests):
#   toolchain    the Rust version of Cargo.toml, rustfmt, clippy, a C compiler, make
#   fmt          formatting
#   deny         licenses, bans and sources of dependencies (hack/deny.sh)
#   typos        misspelt words in pages, texts and comments (hack/typos.sh)
#   clippy       lints, as errors
#   components   kube-apiserver, etcd and kubectl (hack/k8s/build.sh: KUBEBUILDER_ASSETS, the cache, or Go); helm and CRDs
#                (hack/tools/build.sh: the cache, or Go); moto and the service models of AWS (hack/moto.sh: the cache, or pip);
#                Google's and Microsoft's descriptions of their APIs and their Python clients (hack/gce.sh, hack/azure.sh: the
#                cache, or pip)
#   tests        all tests of the workspace, except those in modules named long_lane or real_openstack
#   edges        who may depend on whom; crates that must not be in the program; generated manifests and pages are current
#   conformance  ccm-conformance on the program, as on any other (tests/conformance)
#   example      the provider of an author (hack/example-provider) in a workspace of its own, with the files of the packages,
#                and with the newest version of Kubernetes in k8s-openapi
#   docs         the documentation builds without warnings, and its examples run
# The long lane, the most valuable first:
#   etcd-3.5     nodes, Services, routes and connections on an API server whose etcd cannot stream lists
#   tests-long   the tests in modules named long_lane: beside a kube-controller-manager, on moto, with seeds of the day (not in `ci`)
#   kubernetes-1.33, kubernetes-1.37
#                as etcd-3.5, on the oldest and the newest Kubernetes that are supported
#   reference    all of ccm-conformance, beside a kube-controller-manager, on the program and on the Go core (hack/reference.sh)
#   openstack    the tests in modules named real_openstack: on real OpenStack services (hack/openstack/bed.sh), whose
#                installation needs root, 4 minutes and 1 GB, once
#   each         the crates and features that people use alone, built alone; the demo as newcomers build it, and its tests
#   benches      a small run of the benchmarks, to see that they run
#   image        the content of the image, built and run with nothing else around it; needs root
#   fuzz         each fuzz target for ten seconds (hack/fuzz.sh)
#   alerts       each alert fires and stays silent when it should, in Prometheus' own test (hack/prometheus.sh: PATH, or Debian)
#   dashboard    a lost zone and throttled calls in a real Prometheus: each query of the dashboard has data, two alerts fire
#                (not in `ci`: it waits for real alerts)
#   matrix       every operation of each cloud with every outcome in every situation (not in `ci`)
# In no lane, because it needs the internet, and because a new advisory must not fail unrelated work:
#   advisories   known vulnerabilities of dependencies
#
# Every stage runs even if an earlier one failed; the exit status is 0 only if none did. A stage that can't run on this
# machine is a failure with CI=true, and elsewhere a line that says NOT RUN.
#
# Environment: CARGO_TARGET_DIR (default ${XDG_CACHE_HOME:-~/.cache}/ccm/target), KUBEBUILDER_ASSETS, CI,
# CCM_LONG_SECONDS (the time of `ci` for the long lane; default 2400).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ccm/target}

fast_lane=(toolchain fmt deny typos clippy components tests edges conformance example docs)
long_lane=(etcd-3.5 tests-long kubernetes-1.33 kubernetes-1.37 reference openstack each benches image fuzz alerts dashboard matrix)
in_no_lane=(advisories)
not_in_ci=(dashboard matrix)
# Seconds, on two cores with empty caches: `ci` starts a stage only if that much time is left.
declare -A estimate=([etcd-3.5]=240 [tests-long]=900 [kubernetes-1.33]=780 [each]=540 [image]=1200 [kubernetes-1.37]=780 [reference]=600
	[openstack]=1320 [fuzz]=900 [benches]=180
	[alerts]=60)
# CI ends a run after 90 minutes; the last stage started gets ten of them as a reserve.
ci_seconds=4800
not_run=3
reason=
group=
bed=hack/openstack/bed.sh
bed_started=
programs_built=
# Stages that run beside others: the process of each, and the folder with their output.
declare -A beside=()
outputs=$(mktemp -d)

stop() {
	local status=$? process
	trap - EXIT
	for process in "${beside[@]}"; do
		kill -TERM "$process" 2>/dev/null || true
		wait "$process" 2>/dev/null || true
	done
	if [[ -n $outputs ]]; then rm -rf "$outputs"; fi
	if [[ -n $group ]]; then
		kill -TERM -- "-$group" 2>/dev/null || true
		wait "$group" 2>/dev/null || true
	fi
	if [[ -n $bed_started ]]; then "$bed" stop; fi
	exit "$status"
}
stop_at_exit() {
	trap stop EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
}
stop_at_exit

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

# Cargo does not notice that a test in the target folder is from another checkout, and reads the files there.
of_this_checkout() {
	local last=$CARGO_TARGET_DIR/checkout
	[[ $(cat "$last" 2>/dev/null) != "$PWD" ]] || return 0
	grep -rlZ CARGO_MANIFEST_DIR --include='*.rs' ccm controllers hack providers tests | xargs -0 touch
	mkdir -p "$CARGO_TARGET_DIR"
	printf '%s\n' "$PWD" >"$last"
}

# Cargo for the whole workspace, in one resolution of features: other selections would compile the dependencies again.
workspace() { run cargo "$1" --workspace --all-features --locked "${@:2}"; }

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
	if ! command -v make >/dev/null; then
		echo 'no make; the allocator is built with it' >&2
		return 1
	fi
}

# Runs the scripts that obtain components. If one cannot, the reason names its purpose.
obtain() {
	local what=$1 status=0
	shift
	run "$@" || status=$?
	if ((status == not_run)); then
		skip "no $what on this machine; the tests that need it say NOT RUN and pass"
		return
	fi
	return "$status"
}

# Runs a stage beside the following ones, which leave cores idle, at this priority. Its result is reported at its turn.
begin() {
	set -m
	(
		renice -n "$2" "$BASHPID" >/dev/null
		beside=() outputs=
		stop_at_exit
		"stage_$1"
	) </dev/null >"$outputs/$1" 2>&1 &
	beside[$1]=$!
	set +m
}

begin_requested() { if [[ " ${stages[*]} " == *" $1 "* ]]; then begin "$@"; fi; }

# The result of a stage that runs beside others.
finish() {
	local status=0
	wait "${beside[$1]}" || status=$?
	unset "beside[$1]"
	cat "$outputs/$1"
	if ((status == not_run)); then reason=$(sed -n 's/^NOT RUN: //p' "$outputs/$1" | tail -n 1); fi
	return "$status"
}

stage_components() {
	obtain 'real API server' hack/k8s/build.sh etcd kube-apiserver kubectl || return
	obtain helm hack/tools/build.sh || return
	obtain moto hack/moto.sh || return
	obtain "description of Google's APIs" hack/gce.sh || return
	obtain "description of Azure's APIs" hack/azure.sh
}

stage_fmt() {
	local status=0
	run cargo fmt --all --check || status=1
	run cargo fmt --manifest-path hack/example-provider/Cargo.toml --check || status=1
	return "$status"
}

stage_deny() { run hack/deny.sh; }

stage_typos() { obtain typos hack/typos.sh; }

stage_advisories() { run hack/deny.sh advisories; }

stage_clippy() { workspace clippy --all-targets -- --deny=warnings; }

# The test binaries of the workspace, which are compiled already, the largest first: the folder of the package, and the file.
test_binaries() {
	local folder binary
	workspace test --no-run --message-format=json 2>/dev/null |
		sed -n '/"test":true},"features"/s/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"executable":"\([^"]*\)".*/\1\t\2/p' |
		while IFS=$'\t' read -r folder binary; do printf '%s\t%s\t%s\n' "$(wc -c <"$binary")" "$folder" "$binary"; done |
		sort -rn | cut -f 2-
}

# Runs a test binary in the folder of its package, as cargo does, and shows the output at its end. What failed is kept for
# the end of the whole output: a log that is cut keeps that.
run_binary() {
	local output status=0 started=$SECONDS
	output=$(cd "$1" && "$2" --skip long_lane --skip real_openstack 2>&1) || status=$?
	printf '\n     Running %s, %d s\n%s\n' "$2" $((SECONDS - started)) "$output"
	if ((status > 0)); then
		printf '\nFAILED: %s\n%s\n' "$2" "$(grep -E -A 6 'panicked at|^test .* FAILED$' <<<"$output" | head -n 100)" >>"$outputs/failed"
	fi
}

# Most tests wait for paced calls, processes or leases. So there are several per core, and four binaries run at once, which
# cargo can't. Failures are noted in a file, because `wait -n` of older shells misses processes that ended before.
run_binaries() {
	local folder binary running=0
	while IFS=$'\t' read -r folder binary; do
		if ((running++ >= 4)); then wait -n || true; fi
		run_binary "$folder" "$binary" &
	done <"$outputs/binaries"
	wait
	[[ ! -e $outputs/failed ]]
}

stage_tests() {
	local -x RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 3))}
	workspace test --no-run || return
	build_programs || return
	test_binaries >"$outputs/binaries"
	if [[ ! -s $outputs/binaries ]]; then
		echo 'cargo lists no test binary: its output is not what test_binaries reads' >&2
		return 1
	fi
	begin_requested example 19
	begin_requested docs 19
	run run_binaries
}

# The programs of the stages after the tests, once: there, cargo would wait for the stages that run beside others. With the
# examples, the dependencies have the features that they have in the tests.
build_programs() {
	[[ -z $programs_built ]] || return 0
	workspace build --bin xtask --bin ccm-manifests --bin ccm --bin ccm-conformance --examples || return
	programs_built=1
}

stage_edges() {
	local status=0 built=$CARGO_TARGET_DIR/debug
	build_programs || return
	run "$built/xtask" check-deps || status=1
	run "$built/xtask" check-tree || status=1
	run "$built/xtask" docs || status=1
	run "$built/xtask" pictures --check || status=1
	run env CCM_BUILT="$built" "$built/xtask" manifests --check || status=1
	run env CCM_BUILT="$built" "$built/xtask" reference --check || status=1
	return "$status"
}

conformance() {
	local status=0 built=$CARGO_TARGET_DIR/debug
	build_programs || return
	run "$built/ccm-conformance" "$@" || status=$?
	if ((status == not_run)); then skip 'no real API server on this machine' || status=$?; fi
	return "$status"
}

# What needs no kube-controller-manager, which this lane does not build.
stage_conformance() {
	conformance --program "$CARGO_TARGET_DIR/debug/ccm" --only flags,election,serving,node,lifecycle,service,route
}

stage_reference() {
	local program status=0
	obtain kube-controller-manager hack/k8s/build.sh etcd kube-apiserver kube-controller-manager || return
	obtain 'Go core' hack/reference.sh || return
	program=$(hack/reference.sh)
	conformance --program "$CARGO_TARGET_DIR/debug/ccm" || status=$?
	conformance --program "$program" --reference || status=$?
	return "$status"
}

# As authors get it, in a tree of its own: only what the packages contain.
stage_example() {
	local packed=$CARGO_TARGET_DIR/packed manifest=hack/example-provider/Cargo.toml folder file
	rm -rf "$packed"
	mkdir -p "$packed"
	cp -p Cargo.toml "$packed"
	cp -rp --parents hack/example-provider "$packed"
	cp -p Cargo.lock "$packed/hack/example-provider"
	for folder in ccm controllers controllers/runtime providers/api providers/kit tests/contract tests/apiserver; do
		cargo package --list --allow-dirty --manifest-path "$folder/Cargo.toml" >"$packed/list" || return
		while read -r file; do
			# The rest is written when a package is made.
			if [[ -e $folder/$file ]]; then cp -p --parents "$folder/$file" "$packed"; fi
		done <"$packed/list"
	done
	# Elsewhere cargo would read the settings of this repository.
	run env -C "$packed" cargo test --manifest-path "$manifest"
}

stage_docs() { RUSTDOC=$PWD/hack/lib/rustdoc.sh workspace test --doc --no-fail-fast; }

stage_tests-long() {
	obtain kube-controller-manager hack/k8s/build.sh etcd kube-apiserver kube-controller-manager || return
	obtain moto hack/moto.sh || return
	obtain "description of Google's APIs" hack/gce.sh || return
	obtain "description of Azure's APIs" hack/azure.sh || return
	# Seeds of the day look for new faults. Their findings must not block an unrelated change, so CI leaves them out.
	local filter=(long_lane --skip the_whole_matrix)
	if [[ -n $within ]]; then
		filter+=(--skip of_the_day --skip a_sample_of_the_matrix --skip in_a_browser --skip in_other_shells)
		echo 'NOT RUN in CI: the seeds of the day, samples of the matrix that take minutes, the page in a browser, and completion in zsh and fish; hack/test.sh tests-long runs them'
	fi
	workspace test --lib --bins --tests --no-fail-fast -- "${filter[@]}"
}

# Two binaries at once: each uses one core.
stage_matrix() {
	local folder binary status=0 running=()
	while IFS=$'\t' read -r folder binary; do
		[[ $folder == "$PWD"/providers/* ]] || continue
		(cd "$folder" && "$binary" the_whole_matrix) &
		running+=($!)
		if ((${#running[@]} >= 2)); then wait "${running[0]}" || status=1 && running=("${running[@]:1}"); fi
	done < <(test_binaries)
	for binary in "${running[@]}"; do wait "$binary" || status=1; done
	return "$status"
}

# The tests in the binary `it` of a package, by its folder, with the variables and filters that follow.
tests_of() {
	local folder=$PWD/$1 found
	shift
	found=$(test_binaries | sed -n "s|^$folder\t\(.*/it-[0-9a-f]*\)$|\1|p")
	if [[ -z $found ]]; then
		echo "$folder has no test binary, or does not compile" >&2
		return 1
	fi
	# In the folder of the package, as cargo does.
	run bash -c 'cd "$1" && shift && exec env "$@"' - "$folder" "${@/#IT/$found}"
}

# Nodes, Services, routes and connections on another version of the API server or of its store.
other_server() {
	local component=$1 variable=$2 status=0
	obtain "$component of $variable" env "$variable" hack/k8s/build.sh etcd kube-apiserver || return
	tests_of tests/suite "$variable" IT real_apiserver --skip aws --skip azure --skip gce --skip openstack --skip long_lane || status=1
	tests_of ccm "$variable" IT start::real_apiserver wire::real_apiserver serving_cluster::real_apiserver || status=1
	return "$status"
}

stage_etcd-3.5() { other_server etcd CCM_TEST_ETCD=3.5; }

stage_kubernetes-1.33() { other_server kube-apiserver CCM_TEST_KUBERNETES=1.33; }

stage_kubernetes-1.37() { other_server kube-apiserver CCM_TEST_KUBERNETES=1.37; }

# Does not stop a bed that was already running.
stage_openstack() {
	local status=0
	run "$bed" install || status=$?
	if ((status == not_run)); then
		skip 'no OpenStack services on this machine, for the reason above'
		return
	fi
	((status == 0)) || return "$status"
	if ! "$bed" status >/dev/null; then bed_started=1; fi
	run "$bed" start && workspace test --lib --bins --tests --no-fail-fast -- real_openstack || status=1
	if [[ -n $bed_started ]]; then run "$bed" stop || status=1; fi
	bed_started=
	return "$status"
}

stage_each() {
	local status=0
	run cargo run --quiet --locked --package xtask -- check-each || status=1
	run cargo test --profile demo --locked --package ccm-demo || status=1
	# `docs` has the libraries, and these programs their own links.
	run env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps --package ccm-demo --package xtask || status=1
	return "$status"
}

stage_image() {
	local folder status=0
	folder=$(mktemp -d)
	chmod 0755 "$folder"
	run hack/image.sh build fake "$folder" && run hack/image.sh check "$folder" || status=$?
	rm -rf "$folder"
	if ((status == not_run)); then
		skip 'only root may change the root of a process'
		return
	fi
	return "$status"
}

stage_fuzz() { run hack/fuzz.sh 10; }

stage_alerts() { obtain promtool hack/alerts.sh; }

stage_dashboard() {
	local built=$CARGO_TARGET_DIR/debug
	obtain 'real API server' hack/k8s/build.sh etcd kube-apiserver kubectl || return
	obtain Prometheus hack/prometheus.sh || return
	# With the examples, the dependencies have the features that they have in the tests.
	workspace build --bin xtask --bin ccm --bin ccm-bed --examples || return
	run env CCM_BUILT="$built" "$built/xtask" dashboard
}

stage_benches() {
	local out status=0
	out=$(mktemp -d)
	workspace build --examples --bin ccm-benches &&
		run "$CARGO_TARGET_DIR/debug/ccm-benches" startup --nodes 50 --out "$out" || status=1
	rm -rf "$out"
	return "$status"
}

all_stages=("${fast_lane[@]}" "${long_lane[@]}" "${in_no_lane[@]}")
stages=()
within=
for argument in "$@"; do
	case $argument in
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	fast) stages+=("${fast_lane[@]}") ;;
	long) stages+=(toolchain "${long_lane[@]}") ;;
	all) stages+=("${fast_lane[@]}" "${long_lane[@]}") ;;
	ci)
		stages+=("${fast_lane[@]}" "${long_lane[@]}")
		within=${CCM_LONG_SECONDS:-2400}
		;;
	*)
		if [[ " ${all_stages[*]} " != *" $argument "* ]]; then
			echo "unknown lane or stage: $argument (see hack/test.sh --help)" >&2
			exit 2
		fi
		stages+=("$argument")
		;;
	esac
done
if ((${#stages[@]} == 0)); then stages=("${fast_lane[@]}"); fi

table=()
not_started=()
passed=0
failed=0
skipped=0
ends=
# Whether `ci` leaves a stage out, or has no time for it. The long lane begins with the first such question.
no_time_for() {
	[[ -n $within ]] || return 1
	if [[ " ${not_in_ci[*]} " == *" $1 "* ]]; then return 0; fi
	[[ -n ${estimate[$1]:-} ]] || return 1
	if [[ -z $ends ]]; then
		ends=$((SECONDS + within < ci_seconds ? SECONDS + within : ci_seconds))
		if ((failed > 0)); then ends=$SECONDS; fi
	fi
	((SECONDS + ${estimate[$1]} > ends))
}

of_this_checkout
for stage in "${all_stages[@]}"; do
	[[ " ${stages[*]} " == *" $stage "* ]] || continue
	if no_time_for "$stage"; then
		not_started+=("$stage")
		continue
	fi
	printf '\n=== %s\n' "$stage"
	started=$SECONDS
	status=0
	reason=
	if [[ -n ${beside[$stage]:-} ]]; then finish "$stage" || status=$?; else "stage_$stage" || status=$?; fi
	if ((status == not_run)) && [[ ${CI:-} == true ]]; then status=1; fi
	case $status in
	0) result=passed passed=$((passed + 1)) ;;
	"$not_run") result='NOT RUN' skipped=$((skipped + 1)) ;;
	*) result=FAILED failed=$((failed + 1)) ;;
	esac
	table+=("$(printf '%-16s %-8s %5d s%s' "$stage" "$result" "$((SECONDS - started))" "${reason:+  $reason}")")
	if [[ $stage == toolchain && $result == FAILED ]]; then break; fi
	if [[ $stage == toolchain ]]; then begin_requested components 0; fi
done

if [[ -e $outputs/failed ]]; then cat "$outputs/failed"; fi
printf '\n'
printf '%s\n' "${table[@]}"
printf '%-25s %5d s\n' total "$SECONDS"
if ((${#not_started[@]} > 0)); then
	why="they are not in CI, or no time was left for them"
	if ((failed > 0)); then why="$why, or something failed before"; fi
	printf '\n!!! NOT STARTED: %s\n!!! %s; hack/test.sh %s runs them\n' "${not_started[*]}" "$why" "${not_started[*]}"
	skipped=$((skipped + ${#not_started[@]}))
fi
printf '\nstages: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0))
