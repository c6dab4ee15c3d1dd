#!/usr/bin/env bash
# Logs in at $REGISTRY as $REGISTRY_USER with $REGISTRY_PASSWORD: login.sh docker, or login.sh helm.
set -euo pipefail
: "${REGISTRY:?names no registry}" "${REGISTRY_USER:?names nobody}" "${REGISTRY_PASSWORD:?is empty}"
case $1 in
  docker) docker login "${REGISTRY%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD" ;;
  helm) helm registry login "${REGISTRY%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD" ;;
  *) echo "login.sh: $1 is neither docker nor helm." >&2 && exit 2 ;;
esac
