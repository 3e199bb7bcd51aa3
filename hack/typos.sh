#!/usr/bin/env bash
# Looks for misspelt words in pages, texts and comments, with typos and _typos.toml.
#
#   hack/typos.sh
#
# Uses the typos on PATH. Otherwise it obtains one, once, into ${XDG_CACHE_HOME:-~/.cache}/ccm/: a prebuilt wheel with a pinned
# hash through pip.
#
# Exit status: 0 good, 3 if typos is not available on this machine, 1 anything else.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=1.52.0
# For x86_64 with glibc.
hash=418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/typos-$version

typos=$(command -v typos || true)
if [[ -z $typos ]]; then
	typos=$cache/bin/typos
	[[ -x $typos ]] ||
		python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
			--target "$cache" -r /dev/stdin <<<"typos==$version --hash=sha256:$hash" >&2 || true
fi
if [[ ! -x $typos ]]; then
	echo 'NOT RUN: no typos on PATH, and pip cannot install it' >&2
	exit 3
fi
status=0
"$typos" --format brief || status=1
exit "$status"
