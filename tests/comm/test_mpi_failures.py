"""Ranks under mpirun that die, stop, hang, throw or lose their link: every
other rank says who and what, soon; mpirun ends with the exit code that was
chosen; and no process is left."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    Path(os.environ.get("LAGA_PROGRAM", ROOT / "build/bin/laga")).parents[1] / "tests"
)
FAILURES = TESTS / "comm_mpi_failures"
CONFORMANCE = TESTS / "comm_mpi_test"
DEADLINE_S = 2.0  # of the ranks' waits
# The ranks' last second, mpirun's start and end, and a busy machine.
GRACE_S = 8.0
LONGEST_S = 60.0  # of anything here; then the test fails

pytestmark = pytest.mark.skipif(
    not FAILURES.exists(), reason=f"built without MPI: no {FAILURES}"
)


class Job:
    """A launcher and its ranks; their lines, each with the time it came."""

    def __init__(self, command, program, *arguments):
        self.mark = f"mark-{uuid.uuid4().hex}"
        self.lines = []
        self.process = subprocess.Popen(
            [*map(str, command), *map(str, arguments), self.mark],
            env={**os.environ, "LAGA_PROGRAM": str(program)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def matches(self, pattern):
        """(time, match) of every line that matches."""
        found = ((when, re.search(pattern, line)) for when, line in list(self.lines))
        return [(when, match) for when, match in found if match]

    def wait_until_at_work(self, ranks):
        end = time.monotonic() + LONGEST_S
        while len(self.matches(r"^rank \d+ is at work$")) < ranks:
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, self.text()
            time.sleep(0.01)

    def pid_of(self, rank):
        return int(self.matches(rf"^rank {rank} has pid (\d+)$")[0][1][1])

    def wait(self):
        """The exit code."""
        code = self.process.wait(timeout=LONGEST_S)
        self.reader.join(timeout=LONGEST_S)
        return code

    def processes(self):
        """What is left of this job, whatever state it is in."""
        left = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if self.mark.encode() in entry.read_bytes():
                    left.append(entry.parent.name)
            except OSError:
                pass  # ended meanwhile
        return left

    def end(self):
        for pid in {*self.processes(), str(self.process.pid)}:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


@pytest.fixture
def start():
    jobs = []

    def start(*arguments, **options):
        jobs.append(Job(*arguments, **options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


@pytest.fixture
def start_ranks(start):
    def start_ranks(ranks, scenario, deadline_s=DEADLINE_S):
        launcher = [ROOT / "tools/laga-mpi", ranks]
        return start(launcher, FAILURES, scenario, deadline_s)

    if shutil.which("mpirun") is None:
        pytest.fail("built with MPI, but there is no mpirun")
    return start_ranks


def report(name, job, since, code, ranks=()):
    """For the table in docs/communicators.md (pytest -s shows it)."""
    lines = [line for rank in ranks for line in job.matches(rf"^rank {rank}: \[")]
    last = f"{max(when for when, _ in lines) - since:.1f}" if lines else "-"
    ended = time.monotonic() - since
    print(
        f"\n{name}: last rank raised after {last} s, job ended after {ended:.1f} s, "
        f"exit code {code}, processes left: {len(job.processes())}"
    )


def check_end(name, job, since, *, code, raised, expected, within, grace_s=GRACE_S):
    actual = job.wait()
    report(name, job, since, actual, raised)
    assert actual == code, job.text()
    assert job.processes() == []
    for rank in raised:
        found = job.matches(rf"^rank {rank}: .*({expected})")
        assert found, f"rank {rank} did not say '{expected}':\n{job.text()}"
        assert found[0][0] - since < within, f"rank {rank} took {found[0][0] - since} s"
    assert time.monotonic() - since < within + grace_s


def test_a_run_without_failures_ends_with_0(start_ranks):
    job = start_ranks(4, "clean")
    assert job.wait() == 0, job.text()
    assert job.processes() == []


def test_a_stopped_rank_is_named_after_the_deadline(start_ranks):
    job = start_ranks(4, "loop")
    job.wait_until_at_work(4)
    since = time.monotonic()
    os.kill(job.pid_of(1), signal.SIGSTOP)
    check_end(
        "stopped (SIGSTOP)",
        job,
        since,
        code=3,
        raised=[0, 2, 3],
        expected=rf"waited {DEADLINE_S:g} s in forward/\w+ \w+ \(#\d+\) of world for "
        ".*rank 1, wh",
        within=DEADLINE_S + 3,
    )


def test_a_killed_rank_ends_the_run(start_ranks):
    job = start_ranks(4, "loop")
    job.wait_until_at_work(4)
    since = time.monotonic()
    os.kill(job.pid_of(1), signal.SIGKILL)
    code = job.wait()
    report("killed (SIGKILL)", job, since, code)
    assert code == 128 + signal.SIGKILL, job.text()
    assert job.processes() == []
    assert time.monotonic() - since < GRACE_S


def test_a_throwing_rank_gives_the_others_its_reason(start_ranks):
    job = start_ranks(4, "throw", deadline_s=LONGEST_S)
    since = time.monotonic()
    check_end(
        "throws",
        job,
        since,
        code=4,
        raised=[0, 2, 3],
        expected="rank 1 failed: loss is NaN",
        within=GRACE_S,
    )
    assert job.matches("^rank 1 failed: loss is NaN")


def test_a_rank_that_throws_with_a_transfer_under_way_aborts_the_others(start_ranks):
    job = start_ranks(4, "throw-midway", deadline_s=LONGEST_S)
    since = time.monotonic()
    check_end(
        "throws with a transfer under way",
        job,
        since,
        code=4,
        raised=[0, 2, 3],
        expected=r"rank 1 in forward/q all_to_all \(#14\) of world was given up "
        "while an exception unwound",
        within=GRACE_S,
    )
    assert job.matches("^rank 1 failed: out of memory")


def test_a_hanging_rank_is_named_after_the_deadline(start_ranks):
    job = start_ranks(4, "hang")
    since = time.monotonic()
    check_end(
        "hangs",
        job,
        since,
        code=3,
        raised=[0, 2, 3],
        expected=rf"waited {DEADLINE_S:g} s in forward/latent all_gather \(#13\) of "
        r"world for rank 1, whose last call was forward/step barrier \(#12\) of world",
        within=DEADLINE_S + GRACE_S,
    )


def test_a_rank_that_leaves_early_is_named_at_once(start_ranks):
    job = start_ranks(4, "leave", deadline_s=LONGEST_S)
    since = time.monotonic()
    check_end(
        "leaves early",
        job,
        since,
        code=3,
        raised=[0, 1, 2, 3],
        expected=r"rank 0 calls forward/latent all_gather \(#13\), rank 1 calls "
        r"forward/mpi_finalize barrier \(#13\) of world",
        within=GRACE_S,
    )


# Two pretend hosts.


@pytest.fixture
def start_on_two_hosts(start):
    needed = ["ip", "tc", "unshare", "mount", "hostname", "mpirun"]
    missing = [name for name in needed if shutil.which(name) is None]
    reason = None
    if os.geteuid() != 0:
        reason = "pretend hosts need root"
    elif missing:
        reason = f"pretend hosts need {', '.join(missing)}"
    elif subprocess.run(["ip", "netns", "list"], capture_output=True).returncode != 0:
        reason = "pretend hosts need network namespaces"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        print(reason)
        pytest.skip(reason)

    def start_on_two_hosts(program, *arguments):
        script = [ROOT / "tools/two-hosts", "--rate", "none", "--", program]
        return start(script, program, *arguments)

    return start_on_two_hosts


# mpirun itself ends only when its own connection to the other host has timed
# out, and what the ranks there say cannot be heard here.
def test_a_cut_link_raises_after_the_deadline(start_on_two_hosts):
    job = start_on_two_hosts(FAILURES, "loop", DEADLINE_S)
    job.wait_until_at_work(4)
    since = time.monotonic()
    # The namespaces are named after the script's process.
    host = f"th{job.process.pid}-h1"
    subprocess.run(["ip", "-n", host, "link", "set", "eth0", "down"], check=True)
    check_end(
        "link cut",
        job,
        since,
        code=3,
        raised=[0, 1],
        expected=rf"waited {DEADLINE_S:g} s in forward/\w+ \w+ \(#\d+\) of world for "
        ".*rank [23], wh",
        within=DEADLINE_S + 3,
        grace_s=30,
    )


def test_the_common_tests_pass_on_two_hosts_of_two_ranks(start_on_two_hosts):
    job = start_on_two_hosts(CONFORMANCE, "--gtest_brief=1")
    assert job.wait() == 0, job.text()
    assert job.matches(r"2 host\(s\)"), job.text()
    assert job.processes() == []
