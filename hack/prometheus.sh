#!/usr/bin/env bash
# Prints the folder that has prometheus and promtool.
#
#   hack/prometheus.sh
#
# That is the one on PATH, or ${XDG_CACHE_HOME:-~/.cache}/ccm/prometheus, into which they are taken out of Debian's package, once.
#
# Exit status: 0 good, 3 if they are not available on this machine, 1 anything else.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/prometheus
programs=(prometheus promtool)

obtain() {
	local folder program
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return
	folder=$(mktemp -d)
	mkdir -p "$cache"
	# As root, apt-get downloads as another user.
	chmod 0755 "$folder"
	(cd "$folder" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; }) >&2 &&
		dpkg-deb -x "$folder"/prometheus_*.deb "$folder/content" &&
		for program in "${programs[@]}"; do install -m 0755 "$folder/content/usr/bin/$program" "$cache/$program"; done || true
	rm -rf "$folder"
}

# Whether a folder has both.
has() { [[ -x $1/prometheus && -x $1/promtool ]]; }

folder=$(dirname "$(command -v promtool || true)")
if ! has "$folder"; then
	folder=$cache
	has "$folder" || obtain
fi
if ! has "$folder"; then
	echo 'NOT RUN: no prometheus and promtool on PATH, and Debian'"'"'s package of Prometheus cannot be downloaded' >&2
	exit 3
fi
printf '%s\n' "$folder"
