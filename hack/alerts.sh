#!/usr/bin/env bash
# Runs the unit tests of the alerts (tests/manifests/alerts.yaml) with promtool, which hack/prometheus.sh finds.
#
#   hack/alerts.sh
#
# Exit status: 0 good, 3 if promtool is not available on this machine, 1 anything else.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(hack/prometheus.sh)
"$folder/promtool" test rules tests/manifests/alerts.yaml
