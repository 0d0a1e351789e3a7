"""bench/hf_layer.py at sizes where time says nothing: who runs, on what, and that
nobody is timed who computes something else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import PROGRAM, need, small_model

SCRIPT = Path(__file__).resolve().parents[2] / "bench/hf_layer.py"
YARN = {
    "type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@pytest.fixture(autouse=True)
def others():
    need("torch", "safetensors", "transformers", "megatron")


def hf_layer(model, *arguments, **environment):
    return subprocess.run(
        [sys.executable, SCRIPT, "--model", model, "--seq", "32", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def rows_of(done, target):
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text())
    return document, {row["name"]: row for row in document["rows"]}


def test_all_compute_the_same_and_take_turns(tmp_path):
    model = small_model(tmp_path, rope_scaling=YARN)
    target = tmp_path / "out.json"
    done = hf_layer(
        model, "--batch", "2", "--dtype", "fp32", "--repeat", "2", "--threads", "1",
        "--only", "transformers,megatron-core,explicit eager,laga eager",
        "--json", target,
    )  # fmt: skip
    document, rows = rows_of(done, target)
    theirs = ["transformers eager", "transformers sdpa", "megatron-core"]
    everybody = ["explicit eager", "laga eager", *theirs]
    assert list(rows) == everybody
    assert document["baseline"] == "laga eager"
    assert document["seq"] == 32 and document["batch"] == 2
    assert document["dtype"] == "fp32" and document["threads"] == 1
    assert document["skipped"] == []
    base = rows["laga eager"]["time_s"]["sum"]["median"]
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["time_s"]["sum"]["median"] / base)
        assert all(0 <= error <= 1e-5 for error in row["relative_error"].values())
        assert row["by"].split()[0] in ("laga", "transformers", "megatron-core")
        assert row["by"] in done.stdout
    turns = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert [line.split("] ")[1].split(":")[0] for line in turns] == 2 * everybody


def test_bf16_is_the_default(tmp_path):
    target = tmp_path / "out.json"
    done = hf_layer(
        small_model(tmp_path), "--only", "laga eager,transformers eager",
        "--repeat", "1", "--json", target,
    )  # fmt: skip
    document, rows = rows_of(done, target)
    assert document["dtype"] == "bf16"
    errors = rows["transformers eager"]["relative_error"]
    assert 1e-4 < errors["output"] < 2e-2  # rounded, and to the same accuracy


# The program, but for one row whose output is a tenth too large.
WRONG = """#!{python}
import pathlib, subprocess, sys
done = subprocess.run(["{program}", *sys.argv[1:]])
if "--output" in sys.argv:
    from safetensors.torch import load_file, save_file
    folder = sys.argv[sys.argv.index("--output") + 1]
    file = pathlib.Path(folder, "laga-eager.safetensors")
    tensors = load_file(file)
    tensors["output"] = tensors["output"] * 1.1
    save_file(tensors, file)
sys.exit(done.returncode)
"""


def test_nothing_is_timed_where_an_output_differs(tmp_path):
    program = tmp_path / "laga"
    program.write_text(WRONG.format(python=sys.executable, program=PROGRAM))
    program.chmod(0o755)
    done = hf_layer(
        small_model(tmp_path), "--dtype", "fp32", "--only",
        "explicit eager,laga eager", "--json", tmp_path / "out.json",
        LAGA_PROGRAM=str(program),
    )  # fmt: skip
    assert done.returncode == 1
    assert "nothing is timed: laga eager: output is 1.0e-01 from" in done.stderr
    assert "[1/" not in done.stderr and done.stdout == ""
    assert not list(tmp_path.glob("out.json*"))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--only", "transformer"], ["'transformer'", "transformers eager"]),
        (["--only", "transformers"], ["--only", "laga"]),
        (["--seq", "3x"], ["--seq", "3x"]),
        (["--repeat", "0"], ["--repeat", "'0'"]),
        (["--json", "/nowhere/at/all.json"], ["/nowhere/at/all.json"]),
        (["--only", "laga eager", "--baseline", "x"], ["--baseline", "laga eager"]),
    ],
)
def test_bad_input_is_refused(tmp_path, arguments, words):
    done = hf_layer(small_model(tmp_path), *arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert "[1/" not in done.stderr and "Traceback" not in done.stderr


def test_help_has_an_example(tmp_path):
    done = hf_layer("deepseek-v3", "--help")
    assert done.returncode == 0
    assert "Example: bench/hf_layer.py" in done.stdout
