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
