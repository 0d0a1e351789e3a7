import json

from support import laga

FORMS = {"explicit", "explicit-compact", "absorbed", "laga"}


def test_the_whole_matrix_holds(tmp_path):
    target = tmp_path / "runs.json"
    done = laga("verify", "--json", target)
    assert done.returncode == 0, done.stderr
    runs = json.loads(target.read_text())["runs"]
    pairs = {(run["form"], run["inner"]) for run in runs}
    assert pairs >= {(form, inner) for form in FORMS for inner in ["eager", "sdpa"]}
    assert len(runs) == 192 * len(pairs)  # cases x dtypes x rank counts
    assert {run["dtype"] for run in runs} == {"fp64", "fp32", "bf16"}
    assert {run["ranks"] for run in runs} == {1, 2, 3, 4, 5, 8}
    assert len({run["case"] for run in runs}) == 16
    for run in runs:
        if run["dtype"] == "fp64":
            assert run["output_error"] <= 1e-12
            assert run["worst_gradient_error"] <= 1e-12
    assert f"{len(runs)} runs, 0 failed" in done.stdout


def test_rank_counts_and_inner_attentions_can_be_chosen():
    def runs_of(inner):
        done = laga(
            "verify", "--quick", "--ranks", "1,4", "--inner", inner, "--json", "-"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["runs"]

    runs = runs_of("sdpa")
    assert {run["ranks"] for run in runs} == {1, 4}
    assert {run["inner"] for run in runs} == {"sdpa"}
    assert len(runs) == 2 * 3 * 4 * 2  # cases, dtypes, forms, rank counts
    assert len(runs_of("eager,sdpa")) == 2 * len(runs)


def test_unknown_inner_attentions_are_refused():
    done = laga("verify", "--quick", "--inner", "eager,flash")
    assert done.returncode == 2
    assert "flash" in done.stderr and "sdpa" in done.stderr


def test_rank_counts_that_leave_nothing_are_refused():
    done = laga("verify", "--quick", "--ranks", "7")
    assert done.returncode == 2
    assert "--ranks" in done.stderr
    assert laga("verify", "--ranks", "two").returncode == 2
