"""All forms against what other people's implementations compute."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES
from support import laga, need

HERE = Path(__file__).parent
FORMS = {"explicit", "explicit-compact", "absorbed", "laga"}
ALL = [(library, name) for library in CASES for name in CASES[library]]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a library's files, and what laga says about each by name."""
    done = {}

    def write(library):
        if library not in done:
            need("safetensors", {"hf": "transformers", "mcore": "megatron"}[library])
            folder = tmp_path_factory.mktemp(library)
            subprocess.run(
                [sys.executable, HERE / "cases.py", library, folder],
                check=True,
                timeout=300,
            )
            done[library] = folder, judge(sorted(folder.iterdir()), "1,2,4,5")
        return done[library]

    return write


def judge(files, ranks):
    """By the file's name: what laga's JSON says of it."""
    options = [word for file in files for word in ("--reference", file)]
    ran = laga("verify", *options, "--ranks", ranks, "--json", "-")
    assert ran.returncode in (0, 1), ran.stderr
    references = json.loads(ran.stdout)["references"]
    assert ran.returncode == any(failures(reference) for reference in references)
    return {Path(reference["file"]).stem: reference for reference in references}


def failures(reference):
    lines = list(reference["failures"])
    for run in reference["runs"]:
        lines += run["failures"]
    return lines


@pytest.mark.parametrize("library, name", ALL)
def test_every_form_agrees_at_every_rank_count(written, library, name):
    reference = written(library)[1][name]
    assert failures(reference) == []
    library_name = {"hf": "transformers 4.57.6", "mcore": "megatron-core 0.16.1"}
    assert reference["implementation"] == library_name[library]
    # 5 heads go into 1 and 5 parts only.
    ranks = {1, 5} if name.endswith("-odd") else {1, 2, 4}
    done = {(run["form"], run["ranks"]) for run in reference["runs"]}
    assert done == {(form, count) for form in FORMS for count in ranks}


@pytest.mark.parametrize("library, name", ALL)
def test_limits_are_as_tight_as_the_file_allows(written, library, name):
    reference = written(library)[1][name]
    limits = reference["output_limit"], reference["gradient_limit"]
    assert reference["softmax_scale_difference"] < 1e-15
    if reference["dtype"] != "fp64":
        largest = {"fp32": 1e-4, "bf16": 0.1}[reference["dtype"]]
        assert max(limits) < largest
    elif name == "mcore-yarn-v3-head":
        # Megatron makes YaRN's ramp in float32: it shows where the ramp is
        # neither 0 nor 1, between pairs 10 and 23.
        assert "pairs 11 to 22 of their cos and sin" in reference["limit_reason"]
        assert 1e-9 < reference["cos_sin_difference"] < 1e-7
        assert 1e-9 < max(limits) <= 1e-7
    else:
        assert limits == (1e-11, 1e-11)
        assert reference["cos_sin_difference"] < 1e-15


# ---- a reference that is wrong ----------------------------------------------


def changed(file, target, change):
    """A copy of a file; `change(tensors, metadata)` edits it in place."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(file, "pt") as source:
        metadata = source.metadata()
    tensors = load_file(file)
    change(tensors, metadata)
    save_file(tensors, target, metadata)
    return target


def scale_up(name):
    def change(tensors, metadata):
        tensors[name] *= 1 + 1e-6

    return change


def other_scaling(tensors, metadata):
    metadata["scaling"] = json.dumps(json.loads(metadata["scaling"]) * (1 + 1e-9))


def other_eps(tensors, metadata):
    metadata["eps"] = "1e-05"


def shift_one_position(tensors, metadata):
    tensors["position_ids"][1, 7] += 1


def shift_all_positions(tensors, metadata):
    # Attention sees differences only: nothing but cos and sin can tell.
    tensors["position_ids"] += 1


def other_mscale(tensors, metadata):
    config = json.loads(metadata["config"])
    config["rope_scaling"]["mscale"] = 0.9
    metadata["config"] = json.dumps(config)


NAMES = (
    ["output", "grad.hidden_states", "grad.q_a_layernorm.weight"]
    + [f"grad.{name}.weight" for name in ["q_a_proj", "q_b_proj", "kv_b_proj"]]
    + [f"grad.{name}.weight" for name in ["kv_a_layernorm", "o_proj"]]
    + ["grad.kv_a_proj_with_mqa.weight"]
)


def test_a_wrong_result_is_named(written, tmp_path):
    file = written("hf")[0] / "hf-yarn-1-1.safetensors"
    files = [
        changed(file, tmp_path / f"{name}.safetensors", scale_up(name))
        for name in NAMES
    ]
    for name, reference in judge(files, "2").items():
        lines = failures(reference)
        assert len(lines) >= len(FORMS)
        assert all(line.startswith(name) for line in lines), lines
        assert not reference["failures"]


@pytest.mark.parametrize(
    "change, named, results_differ",
    [
        (other_scaling, "scaling", False),
        (other_eps, "eps", False),
        (shift_one_position, "cos", True),
        (shift_all_positions, "cos", False),
        (other_mscale, "cos", True),
    ],
)
def test_a_wrong_constant_is_named(written, tmp_path, change, named, results_differ):
    file = written("hf")[0] / "hf-yarn-1-1.safetensors"
    target = changed(file, tmp_path / "wrong.safetensors", change)
    reference = judge([target], "2")["wrong"]
    begin = named + " of the file is"
    assert any(line.startswith(begin) for line in reference["failures"])
    assert all(bool(run["failures"]) == results_differ for run in reference["runs"])


def missing_gradient(tensors, metadata):
    del tensors["grad.o_proj.weight"]


def wrong_shape(tensors, metadata):
    tensors["kv_b_proj.weight"] = tensors["kv_b_proj.weight"][:-1].clone()


def mixed_dtypes(tensors, metadata):
    tensors["q_b_proj.weight"] = tensors["q_b_proj.weight"].float()


def unknown_tensor(tensors, metadata):
    tensors["o_proj.bias"] = tensors["o_proj.weight"][0].clone()


def no_config(tensors, metadata):
    del metadata["config"]


def not_json(tensors, metadata):
    metadata["config"] = "{"


def not_computable(tensors, metadata):
    metadata["config"] = metadata["config"].replace("{", '{"output_gate": true, ', 1)


@pytest.mark.parametrize(
    "change, words",
    [
        (missing_gradient, ["grad.o_proj.weight is missing"]),
        (wrong_shape, ["kv_b_proj.weight", "[512, 64]", "[511, 64]"]),
        (mixed_dtypes, ["q_b_proj.weight is Float", "Double"]),
        (unknown_tensor, ["o_proj.bias"]),
        (no_config, ['metadata "config" is missing']),
        (not_json, ['metadata "config" is not JSON']),
        (not_computable, ["output_gate"]),
    ],
)
def test_a_file_of_another_format_is_refused(written, tmp_path, change, words):
    file = written("hf")[0] / "hf-small.safetensors"
    target = changed(file, tmp_path / "other.safetensors", change)
    ran = laga("verify", "--reference", target)
    assert ran.returncode == 2
    for word in [*words, str(target)]:
        assert word in ran.stderr


def test_other_files_and_rank_counts_are_refused(written, tmp_path):
    file = written("hf")[0] / "hf-small.safetensors"
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(file.read_bytes()[:-1])
    for options, word in [
        ([tmp_path / "absent.safetensors"], "absent.safetensors: cannot be opened"),
        ([cut], "is truncated"),
        ([file, "--ranks", "3"], "--ranks leaves no run"),
        ([file, "--quick"], "--quick"),
    ]:
        ran = laga("verify", "--reference", *options)
        assert ran.returncode == 2
        assert word in ran.stderr + ran.stdout


# ---- safetensors, as Python reads it ----------------------------------------


def test_python_reads_what_we_write(tmp_path):
    need("torch", "safetensors")
    import torch
    from safetensors import safe_open

    program = Path(os.environ["LAGA_PROGRAM"]).parent.parent / "tests/attention_test"
    if not program.exists():
        pytest.skip(f"{program} was not built")
    subprocess.run(
        [program, "--gtest_filter=WeightsFile.IsWrittenForOthersToRead"],
        check=True,
        capture_output=True,
        env={**os.environ, "LAGA_TEST_FOLDER": str(tmp_path)},
    )
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        with safe_open(tmp_path / f"{name}.safetensors", "pt") as file:
            assert file.metadata() == {"written by": "laga", "quotes": '"\\é'}
            assert len(file.keys()) == 7
            for key in file.keys():
                tensor = file.get_tensor(key)
                assert tensor.dtype == dtype
                # The C++ test fills every tensor with this.
                numbers = torch.arange(tensor.numel()) % 251 - 125
                assert torch.equal(tensor.flatten(), (numbers * 0.5).to(dtype))
            assert file.get_tensor("kv_a_proj_with_mqa.weight").shape == (56, 72)
