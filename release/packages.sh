#!/usr/bin/env bash
# Builds the packages of all parts into a folder and tries them there: packages.sh FOLDER. Needs Python and a package index.
set -euo pipefail
dist=$1
cd "$(dirname "$0")/.."
building=$(mktemp -d)
trap 'rm -rf "$building"' EXIT
python3 -m venv "$building"
python3 release/pins.py --of build | "$building/bin/pip" install --quiet --no-deps --require-hashes -r /dev/stdin
"$building/bin/python" release/packages.py "$dist"
python3 release/try_packages.py "$dist"
