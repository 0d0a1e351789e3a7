#!/usr/bin/env bash
# lint.sh [SOURCE...]: clang-format and ruff over everything, clang-tidy over the
# sources named (none: all). lint.sh --fix rewrites what can be rewritten.
# CLANG_FORMAT and CLANG_TIDY name other programs than Debian's version 14.
set -euo pipefail
cd "$(dirname "$0")/.."

format=${CLANG_FORMAT:-clang-format-14}
mapfile -t sources < <(find . -name '.?*' -prune -o -path './build*' -prune -o \
  -type f \( -name '*.h' -o -name '*.cpp' \) -print | sort)

if [[ ${1:-} == --fix ]]; then
  "$format" -i "${sources[@]}"
  .venv/bin/ruff check --quiet --fix .
  exit
fi

# All three run, so that one call tells everything.
status=0
unformatted=$("$format" --dry-run --Werror "${sources[@]}" 2>&1 |
  sed -En 's/^([^ :]+):[0-9]+:.*/\1/p' | sort -u) || true
if [[ $unformatted ]]; then
  printf 'not formatted (`make format` does it): %s\n' $unformatted
  status=1
fi
.venv/bin/ruff check --quiet . || status=1
# Afresh each time: it takes a second, and nothing is ever built in there.
LAGA_TORCH_PREFIX=${LAGA_TORCH_PREFIX:-} cmake --preset tidy --fresh >/dev/null
.venv/bin/python tools/tidy.py build-tidy "$@" || status=1
if ((status)); then echo "lint: failed"; else echo "lint: ok"; fi
exit "$status"
