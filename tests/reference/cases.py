"""cases.py hf|mcore FOLDER: writes all files of one library, in one process,
because importing it takes longer than everything else."""

import shlex
import sys
from pathlib import Path

# 36 tokens go into 1, 2 and 4 parts, 40 into 5 as well.
CASES = {
    "hf": {
        "hf-small": "--batch 3 --seq 36",
        "hf-no-q-lora": "--config no-q-lora --seq 36",
        "hf-odd": "--config odd --batch 3 --seq 40",
        "hf-odd-4-heads": "--config odd-4-heads --batch 3 --seq 36",
        "hf-yarn-1-1": "--yarn --seq 36",
        "hf-yarn-1-0.707": "--yarn --mscale-all-dim 0.707 --seq 36",
        "hf-yarn-none": "--yarn --mscale 0 --mscale-all-dim 0 --seq 36",
        "hf-yarn-factor": "--yarn --attention-factor 1.3 --seq 36",
        "hf-half-split": "--half-split --seq 36",
        "hf-bias": "--bias --batch 3 --seq 36",
        "hf-shifted": "--yarn --config v3-head --batch 3 --pos-shift 7 --seq 36",
        "hf-fp32": "--yarn --dtype float32 --pos-shift 1000 --seq 36",
        "hf-bf16": "--yarn --dtype bfloat16 --seq 36",
    },
    "mcore": {
        "mcore-small": "--batch 3 --seq 36",
        "mcore-no-q-lora": "--config no-q-lora --seq 36",
        "mcore-odd": "--config odd --seq 40",
        "mcore-odd-4-heads": "--config odd-4-heads --seq 36",
        "mcore-yarn-1-1": "--yarn --batch 3 --seq 36",
        "mcore-yarn-1-0.707": "--yarn --mscale-all-dim 0.707 --seq 36",
        # YaRN's ramp in thirteenths: float32 in Megatron's code.
        "mcore-yarn-v3-head": "--yarn --config v3-head --seq 36",
        "mcore-fp32": "--yarn --dtype float32 --seq 36",
        "mcore-bf16": "--yarn --dtype bfloat16 --seq 36",
    },
}


def main():
    library, folder = sys.argv[1:]
    if library == "hf":
        from hf_ref import main as write
    else:
        from mcore_ref import main as write
    for name, options in CASES[library].items():
        write([str(Path(folder, name + ".safetensors")), *shlex.split(options)])


if __name__ == "__main__":
    main()
