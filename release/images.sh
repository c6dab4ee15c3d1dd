#!/usr/bin/env bash
# Publishes the images: each machine pushes those of its own kind, then one of them joins both kinds under one name.
#
#     release/images.sh push            on an amd64 and on an arm64 machine
#     release/images.sh join NAME       afterwards, on any: gives `courier`, `lake` … of all kinds their common name
#     release/images.sh digest NAME     prints `name=` and `digest=` of an image, for its attestation
#
# REGISTRY (HOST/PATH) says where to; Docker must have logged in there. BuildKit adds a bill of materials and the provenance to each
# image. A tag that was pushed does not move: `join` fails if the name is taken.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' libs/common/headrace_common/__init__.py)
name=${REGISTRY:?}/headrace-${2:-}
case $1 in
  push)
    kind=amd64
    [ "$(uname -m)" = x86_64 ] || kind=arm64
    docker buildx create --use # the default builder writes no attestations
    HEADRACE_REGISTRY=$REGISTRY/ HEADRACE_TAG=$version-$kind docker buildx bake --file docker-compose.yml \
      --allow fs.read=/dev/null --push --sbom=true --provenance=mode=max \
      --set "*.args.VERSION=$version" --set "*.args.REVISION=$(git rev-parse HEAD)" \
      $(sed -n 's/.*image: .*headrace-\([a-z]*\):.*/\1/p' docker-compose.yml | sort -u | sed 's/tools/live/')
    ;;
  join)
    if docker buildx imagetools inspect "$name:$version" >/dev/null 2>&1; then
      echo "$name:$version exists: a tag that was pushed does not move." >&2
      exit 1
    fi
    docker buildx imagetools create -t "$name:$version" "$name:$version-amd64" "$name:$version-arm64"
    ;;
  digest)
    echo "name=$name"
    echo "digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$name:$version")"
    ;;
  *)
    echo "images.sh: push, join NAME or digest NAME, not $1" >&2
    exit 2
    ;;
esac
