import json
import signal
import subprocess
import time

import pytest
from support import PROGRAM, laga, small_model, wait_for_line

FORMS = ["explicit", "explicit-compact", "absorbed", "laga"]
PHASES = ["forward", "backward", "weight_gradients"]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    model = small_model(tmp_path_factory.mktemp("model"))
    done = laga(
        "compare", "--model", model, "--seq", "64", "--batch", "2", "--ranks", "4",
        "--dtype", "fp64", "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "explicit-compact" in done.stderr  # the table made way for the JSON
    return json.loads(done.stdout)


def test_json_says_what_was_run(document):
    assert [form["form"] for form in document["forms"]] == FORMS
    assert document["model"].startswith("model")
    assert {k: v for k, v in document.items() if k not in ("forms", "model")} == {
        "schema": 1,
        "seq": 64,
        "batch": 2,
        "ranks": 4,
        "dtype": "fp64",
        "inner": "default",
        "send_delta": False,
        "comm": "threads",
        "nodes": 1,
        "seed": 0,
        "weights": None,
        "repeat": 1,
        "causal": True,
    }


def test_json_bytes_are_whole_and_equal_the_prediction(document):
    for form in document["forms"]:
        for phase in PHASES:
            figures = form[phase]
            transfers = figures["transfers"]
            assert transfers
            assert figures["bytes_sent"] == figures["bytes_predicted"] > 0
            assert figures["bytes_sent"] == sum(t["bytes_sent"] for t in transfers)
            assert 0 < figures["payload_bytes"] <= figures["bytes_sent"]
            for transfer in transfers:
                assert isinstance(transfer["bytes_sent"], int)
                assert transfer["bytes_sent"] == transfer["bytes_predicted"]


def test_json_errors_name_every_tensor(document):
    expected = {"output", "grad.hidden_states"}
    for name in [
        "q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa",
        "kv_a_layernorm", "kv_b_proj", "o_proj",
    ]:  # fmt: skip
        expected.add(f"grad.{name}.weight")
    for rows in ["latent", "k_pe"]:
        expected.add(f"grad.kv_a_proj_with_mqa.weight[{rows}]")
    for form in document["forms"]:
        assert set(form["relative_error"]) == expected
        assert all(0 <= e <= 1e-12 for e in form["relative_error"].values())


def test_json_memory_and_time(document):
    for form in document["forms"]:
        memory = form["memory_bytes"]
        assert 0 < memory["saved"] < memory["peak"]
        assert memory["weights"] == memory["weight_gradients"] > 0
        seconds = form["time_s"]
        assert seconds["forward"] > 0 and seconds["backward"] > 0
        rate = 64 * 2 / (seconds["forward"] + seconds["backward"])
        assert form["tokens_per_s"] == pytest.approx(rate)
        assert len(form["digest"]["output"]) == 32


def test_digests_repeat_and_depend_on_the_seed(tmp_path):
    model = small_model(tmp_path)

    def digests(*more):
        done = laga(
            "compare", "--model", model, "--seq", "32", "--ranks", "2",
            "--forms", "laga", "--json", "-", *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["forms"][0]["digest"]

    assert digests() == digests("--repeat", "3")
    assert digests() != digests("--seed", "1")


def test_a_file_appears_whole_and_alone(tmp_path):
    model = small_model(tmp_path)
    target = tmp_path / "out.json"
    done = laga("compare", "--model", model, "--seq", 32, "--json", target)
    assert done.returncode == 0, done.stderr
    assert json.loads(target.read_text())["ranks"] == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "out.json"]
    assert done.stdout.splitlines()[0].startswith(tmp_path.name)


def test_without_a_reference_errors_are_null(tmp_path):
    done = laga(
        "compare", "--model", small_model(tmp_path), "--seq", "32",
        "--no-reference", "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["forms"][0]["relative_error"] is None


def forms_of(*arguments):
    done = laga("compare", "--json", "-", *arguments)
    assert done.returncode == 0, done.stderr
    return {form["form"]: form for form in json.loads(done.stdout)["forms"]}


@pytest.mark.parametrize("rank", [0, 3])
def test_a_ghost_needs_and_sends_what_that_rank_does(tmp_path, rank):
    arguments = ["--model", small_model(tmp_path), "--seq", "256", "--batch", "2"]
    real = forms_of(*arguments)
    ghost = forms_of(*arguments, "--comm", "ghost", "--ghost-rank", rank)
    for name in FORMS:
        # memory is equal on all ranks, which compare itself checks
        assert ghost[name]["memory_bytes"] == real[name]["memory_bytes"]
        for phase in ["forward", "backward"]:
            assert ghost[name][phase] == real[name][phase]
        assert ghost[name]["relative_error"] is None
        assert ghost[name]["digest"] is None


def test_pretended_nodes_count_bytes_across_them(tmp_path):
    arguments = ["--model", small_model(tmp_path), "--seq", "64", "--dtype", "fp32"]
    one, two = forms_of(*arguments), forms_of(*arguments, "--nodes", "2")
    for name in FORMS:
        assert one[name]["forward"]["bytes_sent_across_nodes"] == 0
        forward = two[name]["forward"]
        assert forward["bytes_sent"] == one[name]["forward"]["bytes_sent"]
        # of three peers, two sit on the other node
        assert forward["bytes_sent_across_nodes"] * 3 == forward["bytes_sent"] * 2
        assert two[name]["digest"]["output"] == one[name]["digest"]["output"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--ranks", "3"], ["num_heads % ranks", "1, 2, 4, 8"]),
        (["--seq", "63"], ["seq % ranks", "Ranks that work"]),
        (["--ranks", "0"], ["--ranks", "0 not in range"]),
        (["--seq", "-4"], ["--seq", "'-4'"]),
        (["--seq", "1e3"], ["--seq", "1e3"]),
        (["--seq", "99999999999999999999"], ["--seq"]),
        (["--dtype", "fp16"], ["fp16", "bf16, fp32, fp64"]),
        (["--forms", "laga,ring"], ["ring", "explicit-compact"]),
        (["--inner", "flash"], ["flash", "eager"]),
        (["--seq", "1m"], ["GB", "--no-reference"]),
        (["--json", "/nowhere/at/all.json"], ["/nowhere/at/all.json"]),
        (["--deadline", "0"], ["--deadline"]),
        (["--comm", "pigeons"], ["--comm", "pigeons"]),
        (["--comm", "ghost", "--ghost-rank", "4"], ["--ghost-rank", "4 ranks"]),
        (["--nodes", "3"], ["--nodes", "4 ranks, 3 nodes"]),
        (["--colour"], ["--colour"]),
    ],
)
def test_bad_input_is_one_line_that_says_what_would_work(tmp_path, arguments, words):
    model = small_model(tmp_path)
    if "--seq" not in arguments:
        arguments = ["--seq", "64", *arguments]
    done = laga("compare", "--model", model, *arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr + done.stdout
    assert "[2/" not in done.stderr  # refused before any work


def test_a_model_that_cannot_be_computed_is_refused_by_name():
    for model, word in [
        ("glm-5", "index"),
        ("kimi-k3", "gate"),
        ("longcat-flash", "mla_scale"),
        ("no-such-model", "deepseek-v3"),
        ("/no/such/config.json", "/no/such/config.json"),
    ]:
        done = laga("compare", "--model", model)
        assert done.returncode == 2, model
        assert word in done.stderr, done.stderr


def test_a_missed_deadline_is_the_systems_fault(tmp_path):
    model = small_model(tmp_path, hidden_size=1024)
    done = laga(
        "compare", "--model", model, "--seq", "2k", "--no-reference",
        "--deadline", "1e-6",
    )  # fmt: skip
    assert done.returncode == 3
    assert "rank" in done.stderr and "whose last call was" in done.stderr


def test_interrupted_leaves_nothing_behind(tmp_path):
    model = small_model(tmp_path)
    target = tmp_path / "out.json"
    with subprocess.Popen(
        [PROGRAM, "compare", "--model", model, "--seq", "1k", "--repeat", "1000"]
        + ["--json", target],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_line(process, "explicit")
        assert list(tmp_path.glob("out.json*"))  # begun under another name
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "interrupted" in process.stderr.read()
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_help_has_an_example():
    assert "compare" in laga("--help").stdout
    for command in ["compare", "verify"]:
        done = laga(command, "--help")
        assert done.returncode == 0
        assert "Example: laga " + command in done.stdout
    assert laga().returncode == 2
    assert laga("dance").returncode == 2


def test_weights_come_from_a_safetensors_file(tmp_path):
    numpy = pytest.importorskip("numpy")
    files = pytest.importorskip("safetensors.numpy")
    shapes = {
        "q_a_proj": (24, 64), "q_a_layernorm": (24,), "q_b_proj": (8 * 24, 24),
        "kv_a_proj_with_mqa": (40, 64), "kv_a_layernorm": (32,),
        "kv_b_proj": (8 * 28, 32), "o_proj": (64, 8 * 12),
    }  # fmt: skip
    draw = numpy.random.default_rng(0).standard_normal
    tensors = {
        f"model.layers.3.self_attn.{name}.weight": draw(shape) * 0.2
        for name, shape in shapes.items()
    }
    target = tmp_path / "model.safetensors"
    files.save_file(tensors, target)
    arguments = ["--model", small_model(tmp_path), "--seq", "32", "--dtype", "fp64"]
    drawn = forms_of(*arguments)["laga"]
    loaded = forms_of(*arguments, "--weights", target, "--layer", "3")["laga"]
    assert loaded["digest"] != drawn["digest"]
    assert max(loaded["relative_error"].values()) <= 1e-12

    name = "model.layers.3.self_attn.kv_b_proj.weight"
    tensors[name] = tensors[name][1:]
    files.save_file(tensors, target)
    done = laga("compare", *arguments, "--weights", target)
    assert done.returncode == 2
    assert "kv_b_proj.weight" in done.stderr
