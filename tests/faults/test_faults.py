"""Plants each fault in a copy of its source file, builds the program with it
and demands that `laga verify --quick` fails and names a tensor."""

import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["LAGA_PROGRAM"])
BUILD = PROGRAM.parents[1]


def commands():
    """The build's own commands that make the program."""
    listed = subprocess.run(
        ["ninja", "-t", "commands", str(PROGRAM.relative_to(BUILD))],
        cwd=BUILD,
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.splitlines()


def planted_source(fault, folder):
    source = ROOT / fault.file
    text = source.read_text()
    assert text.count(fault.old) == 1, (
        f"'{fault.name}' edits a text that occurs {text.count(fault.old)} "
        f"times in {fault.file}: adapt the edit"
    )
    copy = folder / source.name
    copy.write_text(text.replace(fault.old, fault.new))
    return source, copy


def compile_command(lines, source, copy, object_file):
    [line] = [c for c in lines if c.endswith(f" -c {source}")]
    line = line.removesuffix(str(source)) + shlex.quote(str(copy))
    line = re.sub(r" -MD -MT \S+ -MF \S+", "", line)
    return re.sub(r" -o \S+", f" -o {shlex.quote(str(object_file))}", line)


def link_command(lines, object_file, program):
    """The faulty object stands before the libraries, so that the one of the
    same symbols inside a library is never looked at."""
    relative = str(PROGRAM.relative_to(BUILD))
    [line] = [c for c in lines if f" -o {relative} " in c]
    return line.replace(
        f" -o {relative} ",
        f" {shlex.quote(str(object_file))} -o {shlex.quote(str(program))} ",
    )


def shell(command):
    done = subprocess.run(
        ["bash", "-c", command], cwd=BUILD, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def verify(program):
    return subprocess.run(
        [program, "verify", "--quick", "--deadline", "60"],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What verify says of each fault; two are built and run at a time."""
    lines = commands()

    def outcome(fault):
        folder = tmp_path_factory.mktemp("fault")
        source, copy = planted_source(fault, folder)
        object_file, program = folder / "fault.o", folder / "laga"
        shell(compile_command(lines, source, copy, object_file))
        shell(link_command(lines, object_file, program))
        return verify(program)

    with ThreadPoolExecutor(2) as pool:
        futures = {f.name: pool.submit(outcome, f) for f in FAULTS}
    return futures


def test_without_a_fault_verify_passes():
    done = verify(PROGRAM)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_verify_finds(fault, outcomes):
    done = outcomes[fault.name].result()
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    named = re.findall(r"P=\d: (output|grad\.[^:]+): ", done.stderr)
    assert named, done.stderr
