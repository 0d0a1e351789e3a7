import json

from support import laga


def test_the_whole_matrix_holds(tmp_path):
    target = tmp_path / "runs.json"
    done = laga("verify", "--json", target)
    assert done.returncode == 0, done.stderr
    runs = json.loads(target.read_text())["runs"]
    assert len(runs) == 768
    assert {run["dtype"] for run in runs} == {"fp64", "fp32", "bf16"}
    assert {run["ranks"] for run in runs} == {1, 2, 3, 4, 5, 8}
    assert len({run["case"] for run in runs}) == 16
    for run in runs:
        if run["dtype"] == "fp64":
            assert run["output_error"] <= 1e-12
            assert run["worst_gradient_error"] <= 1e-12
    assert "768 runs, 0 failed" in done.stdout


def test_rank_counts_can_be_chosen():
    done = laga("verify", "--quick", "--ranks", "1,4", "--json", "-")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert {run["ranks"] for run in runs} == {1, 4}
    assert len(runs) == 2 * 3 * 4 * 2  # cases, dtypes, forms, rank counts


def test_rank_counts_that_leave_nothing_are_refused():
    done = laga("verify", "--quick", "--ranks", "7")
    assert done.returncode == 2
    assert "--ranks" in done.stderr
    assert laga("verify", "--ranks", "two").returncode == 2
