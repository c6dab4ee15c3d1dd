#!/usr/bin/env bash
# Installs what checks the workflows, beside .venv: into .tools/bin. Needs Python and Go.
set -euo pipefail
cd "$(dirname "$0")/.."
GOBIN=$PWD/.tools/bin GOFLAGS=-mod=mod go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
python3 -m venv .tools
.tools/bin/pip install --quiet --no-deps --require-hashes -r release/tools.txt
