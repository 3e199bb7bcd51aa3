#!/usr/bin/env bash
# Obtains the components for the tests of the Azure provider: the official Python clients, and Microsoft's own description of
# its APIs, which is read from them.
#
#   hack/azure.sh
#
# Prints one line "NAME PATH" for each on stdout and everything else on stderr. Makes a Python environment once, from the
# exact versions in azure/requirements.txt, in ${XDG_CACHE_HOME:-~/.cache}/ccm/azure-<version>/, and the description as plain
# JSON in the folder descriptions/ there. The crate tests/cloudsim looks in the same place but installs nothing.
#
# Exit status: 0 found or made; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3.
set -euo pipefail

# shellcheck source=hack/lib/python.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/python.sh"
python_environment azure azure-mgmt-network "under two minutes" descriptions.py descriptions "$@"
printf 'python %s\n' "$cache/bin/python"
printf 'descriptions %s\n' "$cache/descriptions"
