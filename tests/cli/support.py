"""Running the program under test."""

import importlib.util
import json
import os
import subprocess

import pytest

PROGRAM = os.environ["LAGA_PROGRAM"]

SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "model_type": "deepseek_v3",
}


def laga(*arguments, **options):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def small_model(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**SMALL, **changes}))
    return path


def wait_for_line(process, words):
    """Reads the stderr of a running process up to a line that has `words`."""
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    pytest.fail(f"ended without {words!r}, having said: {''.join(said)}")


def need(*modules):
    """Skips where a module of other people is missing, except in CI."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    reason = f"not installed: {missing}; see tests/reference/requirements.txt"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
