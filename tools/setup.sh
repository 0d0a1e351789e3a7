#!/usr/bin/env bash
# setup.sh GROUP...: installs what is missing of each group and says nothing
# about what is there.
#   packages  compilers and libraries from Debian
#   torch     libtorch: the torch wheel in .venv (not with LAGA_TORCH_PREFIX)
#   test      Python packages of the tests, in .venv; among them transformers
#             and Megatron-Core, whose results the forms are compared with
#   lint      clang-format and clang-tidy from Debian, ruff in .venv
# PYTHON chooses the Python that makes .venv. Exit 2: the user has to do
# something, and the last lines say what.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build ccache mold pkg-config python3-venv
  nlohmann-json3-dev libcli11-dev libgtest-dev libfmt-dev libsimde-dev
  libxxhash-dev libopenmpi-dev openmpi-bin)
lint_packages=(clang-format-14 clang-tidy-14)

say() { echo "setup: $*"; }
stop() { # LINE...
  printf 'setup: %s\n' "$1" >&2
  shift
  if (($#)); then printf '  %s\n' "$@" >&2; fi
  exit 2
}

# quietly COMMAND...: its output is shown only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status)); then tail -n 30 "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

# Elsewhere than on Debian the tools are looked for by name; CMake names the
# libraries it misses.
need_commands() {
  local command missing=()
  for command in "$@"; do
    command -v "$command" >/dev/null || missing+=("$command")
  done
  if ((${#missing[@]})); then
    stop "this is no Debian system, so nothing is installed for you; not found: ${missing[*]}" \
      "laga needs g++ >= 12, CMake >= 3.25, Ninja, Python >= 3.10 with venv, and the headers of" \
      "nlohmann-json >= 3.11, CLI11 >= 2.1, GoogleTest, fmt and xxHash;" \
      "ccache, mold and MPI are used where they are. \`make lint\` needs clang-format 14 and clang-tidy 14."
  fi
}

# need_packages PACKAGE...: Debian packages.
need_packages() {
  local missing
  # One call for all of them: it takes 20 ms, and make does this every time.
  mapfile -t missing < <(comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
      sed -n 's/^installed //p' | sort))
  if ((${#missing[@]} == 0)); then return; fi
  if ((EUID != 0)); then
    stop "Debian packages are missing. Please run this, then try again:" \
      "sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing Debian packages: ${missing[*]}"
  # dpkg calls programs that a user's PATH need not have.
  local -x PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive
  quietly apt-get update ||
    say "apt-get update failed for some source; going on with what is known"
  quietly apt-get install -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${missing[@]}" ||
    stop "apt-get could not install: ${missing[*]}"
}

need_venv() {
  if [[ -x .venv/bin/python ]]; then
    # A first run that was stopped in the middle leaves no pip.
    [[ -x .venv/bin/pip ]] || quietly .venv/bin/python -m ensurepip ||
      stop ".venv has no pip; delete .venv and try again"
    return
  fi
  local python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "$python is missing or older than 3.10; set PYTHON to a newer one"
  say "creating .venv with $("$python" --version)"
  # --clear: what is there, if anything, belongs to a Python that is gone.
  quietly "$python" -m venv --clear .venv || stop "$python -m venv failed"
}

pip_install() {
  quietly .venv/bin/python -m pip install --quiet --no-input \
    --disable-pip-version-check "$@"
}

# The lines of requirements.txt that name a package (not) matching a pattern.
requirements() { # [-v] PATTERN
  grep -E '^[A-Za-z]' requirements.txt | grep -E "$@" || true
}

# need_python NAME "LINE...": requirement lines that .venv has to satisfy. What
# was installed last is written down beside it; reading that takes no time.
need_python() {
  need_venv
  local name=$1 lines=$2 stamp=.venv/laga-$1.txt
  if [[ -f $stamp && $(<"$stamp") == "$lines" ]]; then return; fi
  say "installing into .venv: ${lines//$'\n'/ }"
  "install_$name" "$lines" || stop "pip could not install: ${lines//$'\n'/ }"
  echo "$lines" >"$stamp"
}

install_torch() {
  # The CPU build has a version of its own; where pip's index lacks it, the
  # plain version is that of the CUDA build on Linux, which works as well.
  pip_install "$1+cpu" 2>/dev/null && return
  say "no CPU-only build of $1 found, taking the plain one: on x86-64 several GB with CUDA's libraries"
  say "(a smaller one: give pip an index that has $1+cpu, or set LAGA_TORCH_PREFIX to a libtorch)"
  pip_install "$1"
}
install_test() { xargs_lines pip_install "$1"; }
install_reference() {
  xargs_lines pip_install "$(grep -v '^megatron' <<<"$1")" &&
    pip_install --no-deps "$(grep '^megatron' <<<"$1")"
}
install_lint() { xargs_lines pip_install "$1"; }
xargs_lines() { # COMMAND LINES: each line is an argument
  local lines
  mapfile -t lines <<<"$2"
  "$1" "${lines[@]}"
}

for group in "$@"; do
  case $group in
    packages)
      if command -v dpkg-query >/dev/null; then
        need_packages "${build_packages[@]}"
      else
        need_commands g++ cmake ninja python3
      fi ;;
    torch)
      if [[ -z ${LAGA_TORCH_PREFIX:-} ]]; then
        need_python torch "$(requirements '^torch=')"
      fi ;;
    test)
      need_python test "$(requirements -v '^(torch|ruff)=')"
      # These need a torch for Python, which a user's own libtorch is not; their
      # tests are then skipped.
      if [[ -z ${LAGA_TORCH_PREFIX:-} ]]; then
        need_python reference "$(grep -E '^[A-Za-z]' tests/reference/requirements.txt)"
      fi ;;
    lint)
      if command -v dpkg-query >/dev/null; then
        need_packages "${lint_packages[@]}"
      else
        need_commands clang-format-14 clang-tidy-14
      fi
      need_python lint "$(requirements '^ruff=')" ;;
    *) stop "unknown group '$group' (packages, torch, test, lint)" ;;
  esac
done
