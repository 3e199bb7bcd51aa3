# Sourced by hack/moto.sh, hack/gce.sh and hack/azure.sh: a Python environment from exact versions, made once.
#
#   python_environment NAME PACKAGE HOW_LONG SCRIPT FOLDER ["$@"]
#
# NAME is that of the calling script; hack/NAME/requirements.txt pins PACKAGE and the rest. Makes the environment in
# ${XDG_CACHE_HOME:-~/.cache}/ccm/NAME-<version of PACKAGE>/, has hack/NAME/SCRIPT write into FOLDER there, and sets `cache` to it.
# Messages go to stderr. Exits as the calling script documents: 3, or with CI=true 1, where this machine cannot make it.
python_environment() {
	local name=$1 package=$2 how_long=$3 script=$4 folder=$5 here version cache_root started
	shift 5
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/$name
	version=$(sed -n "s/^$package==//p" "$here/requirements.txt")
	cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm
	cache=$cache_root/$name-$version

	case ${1:-} in
	'') ;;
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "$here.sh"
		exit 0
		;;
	*)
		echo "$name: unexpected argument $1 (see --help)" >&2
		exit 1
		;;
	esac

	say() { printf '%s: %s\n' "$name" "$*" >&2; }

	unavailable() {
		say "NOT AVAILABLE: $1"
		say "Install python3 (3.11 or newer, with venv and pip); it must be able to reach a package index"
		if [[ ${CI:-} == true ]]; then exit 1; fi
		exit 3
	}

	# A copy of the requirements is the last file in the folder: with it and the same versions, the folder is complete.
	in_cache() { [[ -x $cache/bin/python ]] && cmp -s "$here/requirements.txt" "$cache/requirements.txt"; }

	if ! in_cache; then
		mkdir -p "$cache_root"
		# One at a time; the second then finds the first one's result.
		if command -v flock >/dev/null; then
			exec 9>"$cache_root/.$name.lock"
			flock 9
		fi
	fi
	if in_cache; then return; fi
	command -v python3 >/dev/null || unavailable 'no python3'
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || unavailable "python3 is $(python3 --version 2>&1)"
	say "installing $package $version once; usually $how_long (log: $cache.log)"
	started=$SECONDS
	# Made in its final place, because a Python environment can't be moved.
	rm -rf "$cache"
	if ! {
		python3 -m venv "$cache" &&
			"$cache/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt" &&
			"$cache/bin/python" -m pip check --disable-pip-version-check &&
			"$cache/bin/python" "$here/$script" "$cache/$folder"
	} >"$cache.log" 2>&1 9>&-; then
		tail -n 20 "$cache.log" >&2
		rm -rf "$cache"
		unavailable 'the Python environment could not be made (the end of the log is above)'
	fi
	cp "$here/requirements.txt" "$cache/requirements.txt"
	say "installed $package $version in $((SECONDS - started)) s"
}
