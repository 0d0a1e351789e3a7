import json

from support import laga


def test_info_says_what_this_build_has():
    done = laga("info", "--json", "-")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["torch"].startswith("2.")
    assert facts["cores"] >= 1
    assert {"threads", "ghost"} <= set(facts["comm"])
    assert facts["forms"] == ["explicit", "explicit-compact", "absorbed", "laga"]
    assert "deepseek-v3" in facts["models"]
    for name in facts:
        assert name == "schema" or name in done.stderr  # the list, beside the JSON


def test_bench_comm_measures_each_collective_beside_memcpy():
    done = laga(
        "bench", "comm", "--ranks", "3", "--sizes", "1k,64k", "--repeat", "3",
        "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ranks"] == 3 and document["comm"] == "threads"
    assert [row["bytes"] for row in document["sizes"]] == [1023, 65535]  # thirds
    for row in document["sizes"]:
        for name in ["memcpy", "all_to_all", "all_gather", "barrier"]:
            assert row[f"{name}_s"] > 0


def test_bench_comm_refuses_what_cannot_be_measured():
    assert laga("bench", "comm", "--comm", "ghost").returncode == 2
    done = laga("bench", "comm", "--ranks", "4", "--sizes", "2")
    assert done.returncode == 2
    assert "--sizes" in done.stderr


def test_help_has_an_example():
    for command in [["info"], ["bench", "comm"]]:
        done = laga(*command, "--help")
        assert done.returncode == 0
        assert "Example: laga " + " ".join(command) in done.stdout


def test_bench_attention_measures_ours_against_aten_in_turns():
    done = laga(
        *["bench", "attention", "--seq", "64", "--heads", "2", "--threads", "1"],
        *["--dtype", "fp32", "--repeat", "2", "--json", "-"],
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = {row["name"]: row for row in document["rows"]}
    assert list(rows) == ["fused", "sdpa", "ATen flash", "ATen math"]
    assert rows["fused"]["sum_ratio"] == 1
    pairs = 2 * 64 * 65 / 2
    for row in rows.values():
        assert len(row["forward_s"]) == len(row["backward_s"]) == 2
        seconds = sum(row["forward_s"]) / 2  # the median of two
        work = 2 * (192 + 128) * pairs
        assert abs(row["forward_flops_per_s"] * seconds / work - 1) < 1e-9
    assert document["peak_flops_per_s"] > 0


def test_bench_attention_of_the_latent_part():
    done = laga(
        *["bench", "attention", "--latent", "--seq", "32", "--heads", "2"],
        *["--repeat", "1", "--json", "-"],
    )
    assert done.returncode == 0, done.stderr
    names = [row["name"] for row in json.loads(done.stdout)["rows"]]
    assert names == ["expand + fused", "stream"]


def test_bench_attention_refuses_what_it_cannot_measure():
    for arguments, word in [
        (["--seq", "0"], "--seq"),
        (["--dtype", "fp8"], "fp8"),
        (["--model", "gpt-2"], "gpt-2"),
        (["--heads", "0"], "--heads"),
    ]:
        done = laga("bench", "attention", *arguments)
        assert done.returncode == 2, done.stderr
        assert word in done.stderr
