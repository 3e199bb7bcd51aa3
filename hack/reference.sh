#!/usr/bin/env bash
# Builds the Go core of the cloud-controller-manager, with the fake cloud of tests/conformance/reference: the program that
# ccm-conformance is checked against.
#
#   hack/reference.sh
#
# Prints its path on stdout and everything else on stderr. k8s.io/cloud-provider comes from the Go module proxy, in the
# version of hack/upstream/tables.tsv for 1.36, once; the first build takes some minutes. The result is in
# ${XDG_CACHE_HOME:-~/.cache}/ccm/reference-<version>/.
#
# Exit status: 0 found or built; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3.
set -euo pipefail

case ${1:-} in
'') ;;
-h | --help)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	exit 0
	;;
*)
	echo "reference: unexpected argument $1 (see --help)" >&2
	exit 1
	;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD/tests/conformance/reference/main.go
version=$(sed -n 's/^# k8s.io\/cloud-provider \(v[^:]*\):.*\t1\.36$/\1/p' hack/upstream/tables.tsv)
cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
cache=$cache_root/reference-${version#v}
program=$cache/cloud-controller-manager

say() { printf 'reference: %s\n' "$*" >&2; }

unavailable() {
	say "NOT AVAILABLE: $1"
	say 'Install Go 1.26 or newer; it must be able to reach a module proxy'
	if [[ ${CI:-} == true ]]; then exit 1; fi
	exit 3
}

# A copy of the source is the last file that a build writes.
if cmp -s "$source" "$cache/built.go"; then
	echo "$program"
	exit
fi
export GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0
mkdir -p "$cache"
cd "$cache"
rm -f built.go
cp "$source" main.go
printf 'module ccm.test/reference\n\ngo 1.26.0\n\nrequire k8s.io/cloud-provider %s\n' "$version" >go.mod
go=
# The second one is the Go that hack/k8s/build.sh fetches if there is none.
for candidate in go "$cache_root/go-venv/bin/go"; do
	if command -v "$candidate" >/dev/null && "$candidate" list -m >/dev/null 2>&1; then
		go=$candidate
		break
	fi
done
[[ -n $go ]] || unavailable 'no usable go'
say "building the Go core $version with $("$go" version); the first time this takes some minutes"
# Not every proxy has all that only tests of the modules need.
"$go" mod tidy -e >tidy.log 2>&1 || { tail -n 5 tidy.log >&2 && unavailable 'the modules could not be fetched'; }
stamp=k8s.io/component-base/version.gitVersion=v1.${version#v0.}
"$go" build -buildvcs=false -trimpath -ldflags "-s -w -X $stamp" -o "$program" main.go >&2
cp main.go built.go
echo "$program"
