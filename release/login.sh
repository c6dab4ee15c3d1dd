#!/usr/bin/env bash
# Logs Docker in at $REGISTRY as $REGISTRY_USER with $REGISTRY_PASSWORD.
set -euo pipefail
: "${REGISTRY:?names no registry}" "${REGISTRY_USER:?names nobody}" "${REGISTRY_PASSWORD:?is empty}"
docker login "${REGISTRY%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD"
