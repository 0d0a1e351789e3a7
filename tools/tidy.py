"""Runs clang-tidy over our sources, each only if what it depends on has changed.

    tidy.py BUILD_FOLDER [SOURCE...]

BUILD_FOLDER holds compile_commands.json. clang-tidy 14 visits every header of
torch in every file, 10 s each, so a file that passed is remembered under a hash
of all that the answer depends on: its text and that of our headers below it, the
command, the checks, the versions of clang-tidy and torch. (Not of the system's
headers: after a change there, delete ~/.cache/laga-tidy.)
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG_TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-14")
# g++ knows warnings that clang does not, and its omp.h is not on clang's path.
EXTRA_ARGS = [
    "--extra-arg=-Wno-unknown-warning-option",
    "--extra-arg=-Wconditional-uninitialized",
    "--extra-arg=-fno-openmp",
]
CACHE = (
    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    / "laga-tidy"
)
KEEP_DAYS = 30
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def with_our_headers(source: pathlib.Path) -> list[pathlib.Path]:
    """The source and every header of ours that it includes, directly or not."""
    seen: dict[pathlib.Path, None] = {}
    todo = [source]
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen[file] = None
        for name in INCLUDE.findall(file.read_bytes()):
            for folder in (file.parent, ROOT):
                header = (folder / os.fsdecode(name)).resolve()
                if header.is_file():
                    todo.append(header)
                    break
    return sorted(seen)


def key_of(source: pathlib.Path, entry: dict, common: bytes) -> str:
    command = entry.get("command") or shlex.join(entry["arguments"])
    digest = hashlib.sha256(common)
    # Another clone of the same text gets the same answer.
    digest.update(command.replace(str(ROOT), ".").encode())
    for folder in re.findall(r"-isystem (\S+)", command):
        version = pathlib.Path(folder, "torch/headeronly/version.h")
        if version.is_file():
            digest.update(version.read_bytes())
    for folder in source.parents:
        checks = folder / ".clang-tidy"
        if ROOT in checks.parents and checks.is_file():
            digest.update(checks.read_bytes())
    for file in with_our_headers(source):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()


def check(source: pathlib.Path, build: str) -> tuple[bool, str]:
    run = subprocess.run(
        [CLANG_TIDY, "--quiet", "-p", build, *EXTRA_ARGS, str(source)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    # stderr only counts the warnings inside system headers, unless it failed.
    return run.returncode == 0, run.stdout + (run.stderr if run.returncode else "")


def forget_old() -> None:
    for file in CACHE.iterdir():
        if time.time() - file.stat().st_mtime > KEEP_DAYS * 86400:
            file.unlink(missing_ok=True)


def main() -> int:
    sys.stdout.reconfigure(line_buffering=True)  # seen as it happens, in a log too
    build, *only = sys.argv[1:]
    wanted = {pathlib.Path(name).resolve() for name in only}
    version = subprocess.run(
        [CLANG_TIDY, "--version"], stdout=subprocess.PIPE, check=True
    ).stdout
    common = version + repr(EXTRA_ARGS).encode()

    entries = json.loads((ROOT / build / "compile_commands.json").read_text())
    keys = {}
    for entry in entries:
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if (ROOT / build).resolve() in source.parents:
            continue  # written by CMake
        if not wanted or source in wanted:
            keys[source] = key_of(source, entry, common)

    CACHE.mkdir(parents=True, exist_ok=True)
    forget_old()
    todo = [source for source, key in keys.items() if not (CACHE / key).exists()]
    if todo:
        print(f"clang-tidy: {len(todo)} of {len(keys)} files are new or changed")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(check, source, build): source for source in todo}
        for run in concurrent.futures.as_completed(runs):
            source = runs[run]
            passed, output = run.result()
            if passed:
                (CACHE / keys[source]).touch()
            else:
                failed += 1
                print(f"-- {source.relative_to(ROOT)}\n{output}")
    if failed:
        print(f"clang-tidy: {failed} files have errors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
