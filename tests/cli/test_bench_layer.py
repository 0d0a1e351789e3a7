"""laga bench layer: rows, figures, files, and what it refuses."""

import json
import signal
import subprocess

import pytest
from support import PROGRAM, laga, need, small_model, wait_for_line

SIZES = ["--seq", "64", "--batch", "2", "--dtype", "fp32"]


def bench(*arguments):
    done = laga("bench", "layer", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def names(document):
    return [f"{row['form']} {row['inner']}" for row in document["rows"]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    model = small_model(tmp_path_factory.mktemp("model"))
    return bench("--model", model, *SIZES, "--repeat", "2", "--threads", "1")


def test_json_says_what_was_run(ran):
    document, _ = ran
    given = {k: v for k, v in document.items() if k not in ("rows", "model")}
    assert given == {
        "schema": 1,
        "seq": 64,
        "batch": 2,
        "dtype": "fp32",
        "threads": 1,
        "seed": 0,
        "repeat": 2,
        "warmup": 1,
        "baseline": "explicit eager",
        "skipped": [],
    }


def test_every_form_has_a_row_for_each_inner_attention_that_it_can_use(ran):
    facts = json.loads(laga("info", "--json", "-").stdout)
    rows = names(ran[0])
    every = [f"{form} {inner}" for form in facts["forms"] for inner in facts["inner"]]
    assert rows == [name for name in every if name in rows]  # in their order
    for form in facts["forms"]:
        assert f"{form} eager" in rows
    for inner in facts["inner"]:
        assert any(name.endswith(" " + inner) for name in rows)


def test_rows_take_turns_and_the_first_round_does_not_count(ran):
    document, text = ran
    lines = [line for line in text.splitlines() if line.startswith("[")]
    steps = [line.split(" s  ", 1)[1] for line in lines]
    rows = names(document)
    rounds = ["warm-up: ", "run 1 of 2: ", "run 2 of 2: "]
    assert steps == ["weights and inputs (seed 0)"] + [
        step + row for step in rounds for row in rows
    ]


def test_times_are_medians_and_minima_and_ratios_refer_to_the_baseline(ran):
    rows = ran[0]["rows"]
    for row in rows:
        assert set(row["time_s"]) == {"forward", "backward", "sum"}
        for seconds in row["time_s"].values():
            assert 0 < seconds["minimum"] <= seconds["median"]
        least = sum(row["time_s"][key]["minimum"] for key in ("forward", "backward"))
        assert row["time_s"]["sum"]["minimum"] >= least * (1 - 1e-9)
        ratio = row["time_s"]["sum"]["median"] / rows[0]["time_s"]["sum"]["median"]
        assert row["ratio"] == pytest.approx(ratio)
    assert rows[0]["ratio"] == 1


def test_memory_is_what_compare_says_of_one_rank(ran, tmp_path):
    done = laga(
        "compare", "--model", small_model(tmp_path), *SIZES, "--ranks", "1",
        "--inner", "eager", "--no-reference", "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    memory = {f["form"]: f["memory_bytes"] for f in json.loads(done.stdout)["forms"]}
    of_eager = [row for row in ran[0]["rows"] if row["inner"] == "eager"]
    assert len(of_eager) == len(memory)
    for row in of_eager:
        compared = memory[row["form"]]
        for name, measured in row["memory_bytes"].items():
            assert measured == compared[name], name
        assert compared["predicted_saved"] == compared["saved"]
        assert compared["predicted_peak"] == compared["peak"]


def test_the_table_has_units_and_makes_way_for_the_json(ran):
    text = ran[1]
    for word in ["forward, s", "backward, s", "sum, s", "memory, MiB", "1.00x"]:
        assert word in text


def test_forms_and_inner_attentions_can_be_chosen(tmp_path):
    document, _ = bench(
        "--model", small_model(tmp_path), *SIZES, "--repeat", "1", "--warmup", "0",
        "--forms", "laga,absorbed", "--inners", "eager",
    )  # fmt: skip
    assert names(document) == ["laga eager", "absorbed eager"]
    assert document["baseline"] == "laga eager"


def test_a_choice_that_leaves_no_row_is_refused(tmp_path):
    facts = json.loads(laga("info", "--json", "-").stdout)
    model = small_model(tmp_path)
    rows = names(bench("--model", model, *SIZES, "--repeat", "1")[0])
    for form in facts["forms"]:
        for inner in facts["inner"]:
            if f"{form} {inner}" in rows:
                continue
            done = laga(
                "bench", "layer", "--model", model, "--forms", form,
                "--inners", inner,
            )  # fmt: skip
            assert done.returncode == 2
            assert "none of --forms can use any of --inners" in done.stderr


def test_output_holds_inputs_and_results_of_each_row(tmp_path):
    need("numpy", "safetensors")
    from safetensors.numpy import load_file

    folder = tmp_path / "results"
    folder.mkdir()
    document, _ = bench(
        "--model", small_model(tmp_path), *SIZES, "--repeat", "1", "--warmup", "0",
        "--output", folder,
    )  # fmt: skip
    rows = [name.replace(" ", "-") for name in names(document)]
    files = {path.stem: load_file(path) for path in folder.iterdir()}
    assert set(files) == {"inputs", *rows}
    assert all(path.suffix == ".safetensors" for path in folder.iterdir())
    inputs = files["inputs"]
    assert inputs["hidden_states"].shape == inputs["grad_output"].shape == (2, 64, 64)
    assert inputs["kv_b_proj.weight"].shape == (8 * 28, 32)
    assert len(inputs) == 2 + 7
    for row in rows:
        assert set(files[row]) == {"output", "grad.hidden_states"}
        for name, tensor in files[row].items():
            assert tensor.shape == (2, 64, 64)
            first = files[rows[0]][name]
            assert abs(tensor - first).max() < 1e-5 * abs(first).max(), (row, name)


def test_what_does_not_fit_into_memory_is_skipped(tmp_path):
    done = laga(
        "bench", "layer", "--model", small_model(tmp_path), "--seq", "1m",
        "--inners", "eager",
    )  # fmt: skip
    assert done.returncode == 2
    assert "skipped: laga eager needs about" in done.stderr
    assert "--seq" in done.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--seq", "-4"], ["--seq", "'-4'"]),
        (["--batch", "0"], ["--batch", "'0'"]),
        (["--dtype", "fp16"], ["fp16", "bf16, fp32, fp64"]),
        (["--forms", "laga,ring"], ["ring", "explicit-compact"]),
        (["--inners", "flash"], ["flash", "eager"]),
        (["--threads", "0"], ["--threads", "0 not in range"]),
        (["--repeat", "0"], ["--repeat", "0 not in range"]),
        (["--warmup", "-1"], ["--warmup"]),
        (["--json", "/nowhere/at/all.json"], ["/nowhere/at/all.json"]),
        (["--output", "/nowhere/at/all"], ["--output", "/nowhere/at/all"]),
        (["--model", "glm-5"], ["glm-5", "index"]),
        (["--ranks", "2"], ["--ranks"]),
    ],
)
def test_bad_input_is_refused_before_any_work(tmp_path, arguments, words):
    if "--model" not in arguments:
        arguments = ["--model", small_model(tmp_path), *arguments]
    if "--seq" not in arguments:
        arguments = ["--seq", "64", *arguments]
    done = laga("bench", "layer", *arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr + done.stdout
    assert "[1/" not in done.stderr


def test_interrupted_leaves_nothing_half_written(tmp_path):
    model = small_model(tmp_path)
    folder = tmp_path / "results"
    folder.mkdir()
    target = tmp_path / "out.json"
    with subprocess.Popen(
        [PROGRAM, "bench", "layer", "--model", model, *SIZES, "--repeat", "1000"]
        + ["--json", target, "--output", folder],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_line(process, "run 2")
        assert list(tmp_path.glob("out.json*"))  # begun under another name
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "interrupted" in process.stderr.read()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "results"]
    assert [p.name for p in folder.iterdir()] == ["inputs.safetensors"]  # whole


def test_help_has_an_example():
    done = laga("bench", "layer", "--help")
    assert done.returncode == 0
    assert "Example: laga bench layer" in done.stdout
