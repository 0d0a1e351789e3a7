"""The program on real ranks: the same figures and the same bits as on threads."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support import PROGRAM, laga, small_model, wait_for_line

TOOLS = Path(__file__).resolve().parents[2] / "tools"
CI = os.environ.get("CI") == "true"

pytestmark = pytest.mark.skipif(
    not CI and shutil.which("mpirun") is None, reason="no mpirun here"
)


def on_mpi(ranks, *arguments, **options):
    return subprocess.run(
        [TOOLS / "laga-mpi", str(ranks), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def figures(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def same_but_for_time(a, b):
    for x, y in zip(a["forms"], b["forms"], strict=True):
        for key in ["form", "digest", "memory_bytes", "relative_error"]:
            assert x[key] == y[key], (x["form"], key)
        for phase in ["forward", "backward", "weight_gradients"]:
            assert x[phase] == y[phase], (x["form"], phase)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp64"])
def test_mpi_gives_the_bits_bytes_and_memory_of_threads(tmp_path, ranks, dtype):
    model = small_model(tmp_path, num_attention_heads=12)
    arguments = ["compare", "--model", model, "--seq", "48", "--batch", "2"]
    arguments += ["--dtype", dtype, "--json", "-"]
    # as many threads a rank as the shared cores give a process
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    mpi = figures(on_mpi(ranks, *arguments, env=one))
    threads = figures(laga(*arguments, "--ranks", ranks, env=one))
    assert mpi["comm"] == "mpi" and mpi["ranks"] == ranks
    same_but_for_time(mpi, threads)


def test_pretended_nodes_are_the_same_on_mpi_and_threads(tmp_path):
    arguments = ["compare", "--model", small_model(tmp_path), "--seq", "32"]
    arguments += ["--nodes", "2", "--json", "-"]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    same_but_for_time(
        figures(on_mpi(4, *arguments, env=one)), figures(laga(*arguments, env=one))
    )


def test_only_rank_0_reports(tmp_path):
    target = tmp_path / "out.json"
    done = on_mpi(
        3, "compare", "--model", small_model(tmp_path, num_attention_heads=6),
        "--seq", "48", "--json", target,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("relative error") == 1
    assert done.stderr.count("[1/") == 1
    assert json.loads(target.read_text())["ranks"] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "out.json"]


def test_verify_runs_fewer_ranks_on_part_of_the_group():
    quick = ["verify", "--quick", "--inner", "eager", "--json", "-"]
    runs = figures(on_mpi(4, *quick))["runs"]
    assert {run["ranks"] for run in runs} == {1, 2, 4}
    assert len(runs) == 72 and not any(run["failures"] for run in runs)
    runs = figures(on_mpi(2, *quick))["runs"]
    assert {run["ranks"] for run in runs} == {1, 2}


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["compare", "--ranks", "3"], "--ranks is what the launcher started"),
        (["compare", "--comm", "threads"], "under an MPI launcher"),
        (["compare", "--seq", "63"], "Ranks that work"),
        (["compare", "--model", "no-such-model"], "no-such-model"),
    ],
)
def test_bad_input_exits_2_and_is_said_once(arguments, word):
    done = on_mpi(2, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count(word) == 1, done.stderr


def processes_of(model):
    listed = subprocess.run(
        ["pgrep", "-f", f"^{PROGRAM} .*{model}"], capture_output=True, text=True
    )
    return [int(pid) for pid in listed.stdout.split()]


def test_a_stopped_rank_ends_the_job_with_3_and_leaves_nothing(tmp_path):
    model = small_model(tmp_path, num_attention_heads=3)
    with subprocess.Popen(
        [TOOLS / "laga-mpi", "3", "compare", "--model", model, "--seq", "768"]
        + ["--forms", "laga", "--repeat", "1000", "--deadline", "3"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        wait_for_line(job, "laga (stream): forward")
        stopped = processes_of(model)[1]
        environment = Path(f"/proc/{stopped}/environ").read_text().split("\0")
        [rank] = [e[-1] for e in environment if e.startswith("OMPI_COMM_WORLD_RANK=")]
        os.kill(stopped, signal.SIGSTOP)
        said = job.stderr.read()
        assert job.wait(30) == 3, said
    # The launcher wakes the stopped one to end it, so it may have its say, too.
    raised = set(re.findall(r"laga: rank (\d): .* waited 3 s in ", said))
    assert raised >= {"0", "1", "2"} - {rank}, said
    # It is named, and what of it is missing: the call, or bytes of the call.
    missing = "whose last call was|which posted it but"
    assert re.search(f" for rank {rank}, ({missing}) ", said), said
    assert processes_of(model) == []


def test_mpi_needs_its_launcher():
    done = laga("compare", "--comm", "mpi")
    assert done.returncode == 2
    assert "laga-mpi" in done.stderr


@pytest.fixture
def on_two_hosts():
    missing = [p for p in ["ip", "tc", "unshare", "mpirun"] if shutil.which(p) is None]
    reason = f"pretend hosts need {', '.join(missing)}" if missing else None
    if os.geteuid() != 0:
        reason = "pretend hosts need root"
    if reason and CI:
        pytest.fail(reason)
    if reason:
        print(reason)
        pytest.skip(reason)

    def run(rate, *command):
        return subprocess.run(
            [TOOLS / "two-hosts", "--rate", rate, "--", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    return run


def test_two_hosts_are_two_nodes_with_the_bits_of_two_pretended_ones(
    on_two_hosts, tmp_path
):
    arguments = ["compare", "--model", small_model(tmp_path), "--seq", "64"]
    arguments += ["--json", "-"]
    hosts = figures(on_two_hosts("1gbit", PROGRAM, *arguments))
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    threads = figures(laga(*arguments, "--nodes", "2", env=one))
    assert hosts["nodes"] == 2 and hosts["comm"] == "mpi"
    same_but_for_time(hosts, threads)


# Runs one form and prints, per host, what its link had sent before and after.
COUNTING = """
import os, subprocess, sys
sent = lambda: int(open('/sys/class/net/eth0/statistics/tx_bytes').read())
first = os.environ['OMPI_COMM_WORLD_LOCAL_RANK'] == '0'
before = sent()
done = subprocess.run(sys.argv[1:])
if first:
    print('HOST', os.environ['OMPI_COMM_WORLD_RANK'], sent() - before, flush=True)
sys.exit(done.returncode)
"""


def test_the_links_counters_agree_with_the_predicted_bytes_across_nodes(
    on_two_hosts, tmp_path
):
    """Within 5 %, TCP's and Ethernet's headers (2 to 4 %) included."""
    model = small_model(tmp_path, hidden_size=32, q_lora_rank=None)
    target = tmp_path / "out.json"
    done = on_two_hosts(
        "1gbit", "python3", "-c", COUNTING, PROGRAM, "compare", "--model", model,
        "--seq", "4096", "--batch", "4", "--dtype", "fp64", "--forms", "explicit",
        "--no-reference", "--json", target,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    form = json.loads(target.read_text())["forms"][0]
    # rank 0's; the four ranks send alike, two of them on each host
    predicted = 2 * sum(
        form[phase]["bytes_sent_across_nodes"]
        for phase in ["forward", "backward", "weight_gradients"]
    )
    # the output and input gradient of host 1's ranks, collected at rank 0
    results = 2 * 2 * 1024 * 4 * 32 * 8
    counters = [
        int(line.split()[2]) for line in done.stdout.splitlines() if "HOST" in line
    ]
    assert len(counters) == 2
    print(f"counted {sorted(counters)}, predicted {predicted} (+ {results})")
    assert min(counters) == pytest.approx(predicted, rel=0.05)
    assert max(counters) == pytest.approx(predicted + results, rel=0.05)
