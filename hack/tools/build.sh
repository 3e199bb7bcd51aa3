#!/usr/bin/env bash
# Obtains the tools for the tests of the manifests: helm, and the CRDs of the Prometheus operator. (Kustomize comes with
# the kubectl of hack/k8s/build.sh.)
#
#   hack/tools/build.sh
#
# Prints one line "NAME PATH" for each on stdout and everything else on stderr. Builds helm with Go from the module in
# the folder helm/, and takes the CRDs out of the module that crds/ names, once, into ${XDG_CACHE_HOME:-~/.cache}/ccm/.
# A helm on PATH is not used, since its output depends on its version. The crate tests/manifests looks in the same
# places but never builds.
#
# Exit status: 0 found or built; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
crds_module=github.com/prometheus-operator/prometheus-operator
crds='monitoring.coreos.com_prometheusrules.yaml monitoring.coreos.com_servicemonitors.yaml'
cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm

# The version of a module that a go.mod requires.
version_in() { awk -v module="$1" '$1 == module { print $2; exit } $1 == "require" && $2 == module { print $3; exit }' "$here/$2/go.mod"; }
version=$(version_in helm.sh/helm/v4 helm)
crds_version=$(version_in $crds_module crds)
cache=$cache_root/helm-${version#v}
crds_cache=$cache_root/prometheus-operator-crds-${crds_version#v}

case ${1:-} in
'') ;;
-h | --help)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	exit 0
	;;
*)
	echo "tools: unexpected argument $1 (see --help)" >&2
	exit 1
	;;
esac

say() { printf 'tools: %s\n' "$*" >&2; }

unavailable() {
	say "NOT AVAILABLE: $1"
	say "Install Go 1.26 or newer, or put helm $version into $cache"
	if [[ ${CI:-} == true ]]; then exit 1; fi
	exit 3
}

# Sets `go`.
find_go() {
	local candidate
	# The second one is the Go that hack/k8s/build.sh fetches if there is none.
	for candidate in go "$cache_root/go-venv/bin/go"; do
		if command -v "$candidate" >/dev/null && (cd "$here/helm" && "$candidate" version >/dev/null 2>&1); then
			go=$candidate
			return
		fi
	done
	unavailable 'no usable go'
}

in_cache() { [[ -x $cache/helm && $("$cache/helm" version --template '{{.Version}}' 2>/dev/null) == "$version" ]]; }

if ! in_cache; then
	mkdir -p "$cache"
	# One builder at a time; the second then finds the first one's result.
	if command -v flock >/dev/null; then
		exec 9>"$cache/.lock"
		flock 9
	fi
fi
if ! in_cache; then
	find_go
	say "building helm $version with $("$go" env GOVERSION), once; usually 2 to 4 minutes on two cores (log: $cache/helm.log)"
	temp=$cache/.building.helm.$$
	trap 'rm -f "$temp"' EXIT
	started=$SECONDS
	if ! (
		cd "$here/helm"
		GOFLAGS='' GOGC=400 CGO_ENABLED=0 exec "$go" build -buildvcs=false -trimpath -gcflags all=-dwarf=false \
			-ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$version" -o "$temp" helm.sh/helm/v4/cmd/helm
	) >"$cache/helm.log" 2>&1 9>&-; then
		tail -n 20 "$cache/helm.log" >&2
		unavailable 'go could not build helm (the end of the log is above)'
	fi
	chmod 0755 "$temp"
	mv -f "$temp" "$cache/helm"
	in_cache || { say "$cache/helm does not state version $version"; exit 1; }
	say "built helm in $((SECONDS - started)) s"
fi
printf 'helm %s\n' "$cache/helm"

if [[ ! -d $crds_cache ]]; then
	find_go
	# The go.sum beside the go.mod makes the build reproducible.
	module=$(cd "$here/crds" && GOFLAGS='' "$go" mod download -json "$crds_module" | awk -F'"' '$2 == "Dir" { print $4 }') || true
	[[ -d $module ]] || unavailable "go could not download $crds_module $crds_version"
	temp=$(mktemp -d "$cache_root/.crds.XXXXXX")
	for name in $crds; do
		cp "$module/example/prometheus-operator-crd/$name" "$temp/"
	done
	chmod -R u+w,a+rX "$temp"
	mv -T "$temp" "$crds_cache" 2>/dev/null || rm -rf "$temp"
fi
printf 'crds %s\n' "$crds_cache"
