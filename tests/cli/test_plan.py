"""laga plan: the table, one row's memory, sweeps, and what is refused."""

import csv
import io
import json

import pytest
from support import laga


def test_recommends_first_and_says_why():
    done = laga("plan", "--ranks", "32")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "attention" in line]
    assert "<-- take" in rows[0]
    assert done.stdout.count("<-- take") == 1
    assert "\nTake laga" in done.stdout
    assert "(planned only)" in done.stdout


def test_json_has_what_the_table_shows():
    done = laga("plan", "--seq", "4k", "--ranks", "8", "--json", "-")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    rows = {(row["form"], row["inner"]): row for row in plan["rows"]}
    assert rows["explicit", "fused"]["forward"]["bytes_sent"] == 73400320
    assert rows["laga", "stream"]["forward"]["bytes_sent"] == 40828928
    assert rows["laga", "stream"]["memory_bytes"]["saved"] == 74780672
    assert not rows["kv ring", ""]["runs"]
    for row in rows.values():
        time = row["time_s"]
        assert 0 <= time["exposed"] <= time["communication"]


def test_breakdown_adds_up():
    done = laga("plan", "--breakdown", "laga stream", "--ranks", "8", "--seq", "4k")
    assert done.returncode == 0, done.stderr
    saved = done.stdout.split("saved until the backward")[1].split("at the peak")[0]
    sizes = [float(line.split()[-1]) for line in saved.splitlines()[2:] if line]
    *tensors, total = sizes
    assert sum(tensors) == pytest.approx(total, abs=0.01)
    assert total == pytest.approx(74780672 / 2**20, abs=0.001)
    assert "latent, gathered" in saved


def test_sweep_is_csv():
    done = laga("plan", "--sweep", "seq=4k..16k,ranks=8..32")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {(row["seq"], row["ranks"]) for row in rows} == {
        (str(seq), str(ranks)) for seq in (4096, 8192, 16384) for ranks in (8, 16, 32)
    }
    for seq in ("4096", "8192", "16384"):
        for ranks in ("8", "16", "32"):
            taken = [
                row["recommended"]
                for row in rows
                if (row["seq"], row["ranks"]) == (seq, ranks)
            ]
            assert taken.count("1") == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "gpt-2"], ["gpt-2", "deepseek-v3"]),
        (["--system", "h900"], ["h900", "h100-ib"]),
        (["--ranks", "0"], ["--ranks"]),
        (["--ranks", "99999999999999999999"], ["--ranks"]),
        (["--seq", "1000", "--ranks", "64"], ["1000 % 64"]),
        (["--seq", "99999999999999999999"], ["--seq"]),
        (["--tp", "3"], ["tp 3", "128"]),
        (["--dtype", "fp8"], ["fp8"]),
        (["--memory-limit", "-5g"], ["--memory-limit", "-5g"]),
        (["--other-bytes", "many"], ["--other-bytes", "many"]),
        (["--sweep", "heads=1..2"], ["--sweep", "heads"]),
        (["--breakdown", "best"], ["best", "laga stream"]),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments, words):
    done = laga("plan", *arguments)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    "text, word",
    [
        ("{", "not valid JSON"),
        ("[]", "must be an object"),
        ('{"ranks_per_node": -1}', "ranks_per_node"),
    ],
)
def test_a_bad_system_file_is_named(tmp_path, text, word):
    path = tmp_path / "mine.json"
    path.write_text(text)
    done = laga("plan", "--system", str(path))
    assert done.returncode == 2
    assert "mine.json" in done.stderr and word in done.stderr


def test_compare_prints_the_tape_without_a_byte_left_over():
    done = laga(
        *["compare", "--model", "deepseek-v2-lite", "--seq", "64", "--ranks", "2"],
        *["--comm", "ghost", "--dtype", "fp32", "--tape"],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved until the backward, unexplained 0 B") == 4
    assert done.stdout.count("at the peak, unexplained 0 B") == 4
