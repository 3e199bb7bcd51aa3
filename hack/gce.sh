#!/usr/bin/env bash
# Obtains what the tests of the GCE provider need: Google's own descriptions of its APIs, and the official Python client, which
# is built from them.
#
#   hack/gce.sh
#
# Prints one line "NAME PATH" for each on stdout and everything else on stderr. Makes a Python environment once, from the
# exact versions in gce/requirements.txt, in ${XDG_CACHE_HOME:-~/.cache}/ccm/gce-<version>/, and the descriptions as plain JSON
# in the folder descriptions/ there. The crate tests/cloudsim looks in the same place but installs nothing.
#
# Exit status: 0 found or made; 3 not available on this machine; 1 anything else, and with CI=true also what would be 3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/gce
version=$(sed -n 's/^google-api-python-client==//p' "$here/requirements.txt")
cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
cache=$cache_root/gce-$version

case ${1:-} in
'') ;;
-h | --help)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	exit 0
	;;
*)
	echo "gce: unexpected argument $1 (see --help)" >&2
	exit 1
	;;
esac

say() { printf 'gce: %s\n' "$*" >&2; }

unavailable() {
	say "NOT AVAILABLE: $1"
	say "Install python3 (3.11 or newer, with venv and pip); it must be able to reach a package index"
	if [[ ${CI:-} == true ]]; then exit 1; fi
	exit 3
}

# A copy of the requirements is the last thing put into the folder: with it, and with the same pins, the folder is whole.
in_cache() { [[ -x $cache/bin/python ]] && cmp -s "$here/requirements.txt" "$cache/requirements.txt"; }

if ! in_cache; then
	mkdir -p "$cache_root"
	# One at a time; the second then finds the first one's result.
	if command -v flock >/dev/null; then
		exec 9>"$cache_root/.gce.lock"
		flock 9
	fi
fi
if ! in_cache; then
	command -v python3 >/dev/null || unavailable 'no python3'
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || unavailable "python3 is $(python3 --version 2>&1)"
	say "installing google-api-python-client $version once; usually under a minute (log: $cache.log)"
	started=$SECONDS
	# Made in its final place, because a Python environment can't be moved.
	rm -rf "$cache"
	if ! {
		python3 -m venv "$cache" &&
			"$cache/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt" &&
			"$cache/bin/python" -m pip check --disable-pip-version-check &&
			"$cache/bin/python" "$here/descriptions.py" "$cache/descriptions"
	} >"$cache.log" 2>&1 9>&-; then
		tail -n 20 "$cache.log" >&2
		rm -rf "$cache"
		unavailable 'the Python environment could not be made (the end of the log is above)'
	fi
	cp "$here/requirements.txt" "$cache/requirements.txt"
	say "installed google-api-python-client $version in $((SECONDS - started)) s"
fi
printf 'python %s\n' "$cache/bin/python"
printf 'descriptions %s\n' "$cache/descriptions"
