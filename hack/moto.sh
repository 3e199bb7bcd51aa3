#!/usr/bin/env bash
# Obtains the components for the tests of the AWS provider: moto, an independent imitation of AWS, and the service
# models of botocore, which describe each request and answer of AWS.
#
#   hack/moto.sh
#
# Prints one line "NAME PATH" for each on stdout and everything else on stderr. Makes a Python environment once, from the
# exact versions in moto/requirements.txt, in ${XDG_CACHE_HOME:-~/.cache}/ccm/moto-<version>/, and the models as plain JSON in
# the folder models/ there. The crate tests/cloudsim looks in the same place but installs nothing.
#
# Exit status: 0 found or made; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3.
set -euo pipefail

# shellcheck source=hack/lib/python.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/python.sh"
python_environment moto moto "one to two minutes" models.py models "$@"
printf 'moto %s\n' "$cache/bin/python"
printf 'models %s\n' "$cache/models"
