#!/usr/bin/env bash
# Runs the unit tests of the alerts (tests/manifests/alerts.yaml) with promtool.
#
#   hack/alerts.sh
#
# Takes promtool out of Debian's package of Prometheus, once, into ${XDG_CACHE_HOME:-~/.cache}/ccm/promtool/, unless PATH
# has one.
#
# Exit status: 0 good, 3 if promtool is not available on this machine, 1 anything else.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/promtool

obtain() {
	local folder
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return
	folder=$(mktemp -d)
	mkdir -p "$cache"
	# As root, apt-get downloads as another user.
	chmod 0755 "$folder"
	(cd "$folder" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; }) >&2 &&
		dpkg-deb -x "$folder"/prometheus_*.deb "$folder/content" &&
		install -m 0755 "$folder/content/usr/bin/promtool" "$cache/promtool" || true
	rm -rf "$folder"
}

promtool=$(command -v promtool || true)
if [[ -z $promtool ]]; then
	[[ -x $cache/promtool ]] || obtain
	promtool=$cache/promtool
fi
if [[ ! -x $promtool ]]; then
	echo 'NOT RUN: no promtool on PATH, and Debian'"'"'s package of Prometheus cannot be downloaded' >&2
	exit 3
fi
"$promtool" test rules tests/manifests/alerts.yaml
