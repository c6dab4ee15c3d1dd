#!/usr/bin/env bash
# Publishes the notes of a release with its packages: notes.sh TAG FOLDER. Needs GitHub's command line, and GH_TOKEN.
set -euo pipefail
dist=$(realpath "$2")
cd "$(dirname "$0")/.."
python3 release/notes.py "$1" | gh release create "$1" --verify-tag --title "Headrace $1" --notes-file - "$dist"/*
