#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures where that is due, builds, and is
# silent if nothing is to be done. TARGETs are ninja's; none: all.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
folder=build
if [[ $preset != release ]]; then folder=build-$preset; fi

# CMake keeps these in its cache for good (and refuses a cache that was made in
# another place): when one of them changes, start afresh.
state="$PWD ${LAGA_TORCH_PREFIX:-} $(cksum <CMakePresets.json)"
stamp=$folder/configured.txt
if [[ ! -f $folder/build.ninja || ! -f $stamp || $(<"$stamp") != "$state" ]]; then
  echo "configuring $folder"
  LAGA_TORCH_PREFIX=${LAGA_TORCH_PREFIX:-} \
    cmake --preset "$preset" --fresh >/dev/null
  echo "$state" >"$stamp"
fi

# Asked first, because ninja has no way to be silent about nothing alone.
if [[ $(ninja -C "$folder" -n "$@" 2>/dev/null | tail -n 1) == *"no work to do."* ]]; then
  exit
fi
echo "building $folder${*:+: $*}"
cmake --build "$folder" ${*:+--target "$@"}
