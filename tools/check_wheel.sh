#!/usr/bin/env bash
# Build the wheel, install it into a new virtual environment, and run the command-line tool from another directory.
# BIN is the bin directory of an environment with pip.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
bin="${BIN:-$root/.venv/bin}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$bin/pip" wheel --quiet --no-deps --wheel-dir "$work/dist" "$root"
"$bin/python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --constraint "$root/constraints.txt" "$work"/dist/driftlaw-*.whl

cd "$work"
export DRIFTLAW_DATA="$work/data"
"$work/venv/bin/python" -c 'import driftlaw, sys; print(driftlaw.__version__, driftlaw.__file__); sys.exit("site-packages" not in driftlaw.__file__)'
"$work/venv/bin/driftlaw" list methods
"$work/venv/bin/driftlaw" run embedded --limit 50
