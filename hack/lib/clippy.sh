#!/usr/bin/env bash
# The compiler of the workspace's own crates (RUSTC_WORKSPACE_WRAPPER): clippy, which also writes the result of the
# compilation. So the lints cost no second pass over the dependencies. Warnings are errors.
set -euo pipefail

exec clippy-driver "$@" --deny=warnings
