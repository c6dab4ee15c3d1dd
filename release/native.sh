#!/usr/bin/env bash
# Builds a wheel of the native core, for this machine's system and processor, into a folder, and tries it in an empty environment:
# native.sh FOLDER. Needs Python, cargo, a package index and crates.
set -euo pipefail
dist=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
building=$(mktemp -d)
trap 'rm -rf "$building"' EXIT
python3 -m venv "$building/tools"
"$building/tools/bin/pip" install --quiet --no-deps --require-hashes -r release/native.txt
cp -r libs/native "$building"
cd "$building/native"
python3 lock.py
"$building/tools/bin/maturin" build --quiet --locked --release --compatibility pypi --out "$dist"
python3 -m venv "$building/empty"
"$building/empty/bin/pip" install --quiet --no-index --no-deps --find-links "$dist" headrace-native
"$building/empty/bin/python" -c "import headrace_native; print('headrace_native', headrace_native.VERSION)"
