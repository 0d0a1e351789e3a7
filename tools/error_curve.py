#!/usr/bin/env python3
"""Error against the number of ranks, as a Markdown table.

Runs `laga compare` on configs/checks/paper-fp32.json (hidden 512, 16 heads,
sequence 512) in fp32 (against an fp64 reference) and bf16 (against fp32).

Example: tools/error_curve.py build/bin/laga > curve.md
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).resolve().parents[1] / "configs/checks/paper-fp32.json"
FORMS = ["explicit", "explicit-compact", "absorbed", "laga"]


def compare(program, dtype, ranks):
    done = subprocess.run(
        [program, "compare", "--model", str(CONFIG), "--seq", "512"]
        + ["--ranks", str(ranks), "--dtype", dtype, "--json", "-"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {f["form"]: f["relative_error"] for f in json.loads(done.stdout)["forms"]}


def row(program, dtype, ranks):
    errors = compare(program, dtype, ranks)
    cells = [str(ranks)]
    for form in FORMS:
        output = errors[form].pop("output")
        worst = max(errors[form].values())
        cells.append(f"{output:.1e} / {worst:.1e}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the laga program")
    program = parser.parse_args().program
    for dtype in ("fp32", "bf16"):
        print(f"{dtype}: relative error of the output / of the worst gradient\n")
        print("| P | " + " | ".join(FORMS) + " |")
        print("|---:" * (len(FORMS) + 1) + "|")
        for ranks in (1, 2, 4, 8, 16):
            print(row(program, dtype, ranks), flush=True)
        print()


if __name__ == "__main__":
    main()
