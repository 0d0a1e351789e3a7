#!/usr/bin/env python3
"""One attention layer by transformers, by Megatron-Core and by laga: how long each
takes, as ratios.

All have the same weights and inputs, dtype and threads, and attend causally. What
they compute is compared first; where that differs, nothing is timed. Then they
take turns, a forward and backward each a round, so that a change of the machine's
speed hits all alike. Each runs in a process of its own and is warmed up.

Example: bench/hf_layer.py --model deepseek-v2-lite --seq 1k --only eager,sdpa
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from foreign_layers import (
    FOREIGN,
    ROOT,
    Foreign,
    Refused,
    read_config,
    relative_errors,
    why_not,
)

PROGRAM = os.environ.get("LAGA_PROGRAM", str(ROOT / "build/bin/laga"))

# Of the output and of the input's gradient, from those of our first row. bf16: an
# output is 6e-3 from fp32's (README), so two may be twice that apart; a gradient
# has more GEMMs behind it, but a missing term or a mask that is not causal is 1e-1
# and more. fp32: the others round RoPE's angles to fp32, which is S x 6e-8.
LIMITS = {"bf16": (2e-2, 1e-1), "fp32": (1e-3, 1e-3)}


def say(text):
    print(text, file=sys.stderr, flush=True)


def names(entry, name):
    """Whether an entry of --only is the name or a word of it."""
    return entry in (name, *name.split())


# ---- ours ---------------------------------------------------------------------


def laga(*arguments):
    """A run of the program; its --json."""
    command = [PROGRAM, *map(str, arguments), "--json", "-"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Refused(f"{PROGRAM}: {error.strerror}; `make build` makes it") from None
    if done.returncode != 0:
        raise Refused(done.stderr.strip(), done.returncode)
    return json.loads(done.stdout)


class Ours:
    """A row of `laga bench layer`, run by itself."""

    def __init__(self, form, inner, by, common, errors):
        self.form, self.name, self.by = form, f"{form} {inner}", by
        self.errors = errors
        self.command = [*common, "--forms", form, "--inners", inner, "--repeat", 1]

    def run(self):
        row = laga(*self.command)["rows"][0]
        seconds, memory = row["time_s"], row["memory_bytes"]
        return dict(
            forward=seconds["forward"]["median"],
            backward=seconds["backward"]["median"],
            peak=memory["peak"] + memory["weight_gradients"],
        )

    def close(self):
        pass


# ---- who takes part -----------------------------------------------------------


class Contest:
    """Everybody that runs, and what was left out."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.contenders, self.skipped = [], []
        self.common = [
            "bench", "layer", "--model", options.model, "--seq", options.seq,
            "--batch", options.batch, "--dtype", options.dtype,
        ]  # fmt: skip
        if options.threads:
            self.common += ["--threads", options.threads]

    def close(self):
        for contender in self.contenders:
            contender.close()

    def wanted(self, name):
        only = self.options.only
        return not only or any(names(entry, name) for entry in only)

    def check_only(self, known):
        for entry in self.options.only or []:
            if not any(names(entry, name) for name in known):
                raise Refused(
                    f"--only: '{entry}' is no name, nor a word of one: "
                    + ", ".join(known)
                )

    def skip(self, name, reason):
        say(f"hf_layer: skipped: {name} {reason}")
        self.skipped.append(dict(name=name, reason=reason))

    def add_ours(self):
        """All rows, after a run that writes the inputs and what each computes."""
        facts = laga("info")
        warn_of_slow_bf16(facts, self.options.dtype)
        pairs = [(form, inner) for form in facts["forms"] for inner in facts["inner"]]
        self.check_only([*FOREIGN, *map(" ".join, pairs)])
        pairs = [pair for pair in pairs if self.wanted(" ".join(pair))]
        if not pairs:
            raise Refused("--only leaves none of laga's rows, and ratios need one")
        from safetensors.torch import load_file

        say("laga: what it computes")
        self.document = laga(
            *self.common, "--repeat", 1, "--warmup", 0, "--output", self.folder,
            "--forms", ",".join(dict.fromkeys(form for form, _ in pairs)),
            "--inners", ",".join(dict.fromkeys(inner for _, inner in pairs)),
        )  # fmt: skip
        for row in self.document["skipped"]:
            self.skip(f"{row['form']} {row['inner']}", row["reason"])
        for row in self.document["rows"]:
            form, inner = row["form"], row["inner"]
            if (form, inner) not in pairs:
                continue
            file = self.folder / f"{form}-{inner}.safetensors"
            if not self.contenders:
                self.first = file
            errors = relative_errors(load_file(file), load_file(self.first))
            by = f"laga {facts['version']}"
            self.contenders.append(Ours(form, inner, by, self.common, errors))
        if not self.contenders:
            raise Refused("none of laga's rows that --only names can run")

    def add_foreign(self):
        config = read_config(self.options.model)
        weights = (self.folder / "inputs.safetensors").stat().st_size
        scores = self.document["batch"] * self.document["seq"] ** 2
        for name, (_, bytes_per_score) in FOREIGN.items():
            if not self.wanted(name):
                continue
            reason = why_not(name, config) or why_too_large(
                2 * weights + bytes_per_score * config["num_attention_heads"] * scores
            )
            if reason:
                self.skip(name, reason)
                continue
            say(f"{name}: what it computes")
            threads = self.document["threads"]
            self.contenders.append(
                Foreign(name, config, self.folder, self.first, threads)
            )

    def refuse_differences(self):
        wrong = []
        for contender in self.contenders:
            for what, error, limit in zip(
                ("output", "grad.hidden_states"),
                contender.errors,
                LIMITS[self.options.dtype],
                strict=True,
            ):
                if not error <= limit:  # a NaN is wrong too
                    wrong.append(
                        f"{contender.name}: {what} is {error:.1e} from that of "
                        f"{self.contenders[0].name} (limit {limit:.0e})"
                    )
        if wrong:
            raise Refused("nothing is timed: " + "; ".join(wrong), 1)


def warn_of_slow_bf16(facts, dtype):
    sets = facts["instruction_sets"]
    if dtype == "bf16" and "avx2" in sets and "avx512f" not in sets:
        say(
            "hf_layer: this processor has no AVX-512: libtorch's GEMMs in bf16 take "
            "5 to 30 times as long as in fp32 (--dtype fp32)"
        )


def why_too_large(needed):
    available = float("inf")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        pass
    if needed <= available:
        return None
    return f"needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} are available"


# ---- time ---------------------------------------------------------------------


def rounds(contenders, repeat):
    """By contender's name: its runs."""
    runs = {contender.name: [] for contender in contenders}
    for number in range(1, repeat + 1):
        for contender in contenders:
            run = contender.run()
            run["sum"] = run["forward"] + run["backward"]
            runs[contender.name].append(run)
            say(f"[{number}/{repeat}] {contender.name}: {run['sum']:.3f} s")
    return runs


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def check_baseline(wanted, contenders):
    known = [contender.name for contender in contenders]
    if wanted and wanted not in known:
        raise Refused(f"--baseline is one of {', '.join(known)} (got '{wanted}')")


def find_baseline(contenders, runs):
    """The fastest row of form laga, or of all of ours where that is left out."""
    ours = [c for c in contenders if isinstance(c, Ours)]
    ours = [c for c in ours if c.form == "laga"] or ours
    return min((c.name for c in ours), key=lambda name: median(runs[name], "sum"))


def make_row(contender, runs, baseline):
    peaks = [run["peak"] for run in runs if run["peak"] is not None]
    return {
        "name": contender.name,
        "by": contender.by,
        "time_s": {
            key: dict(median=median(runs, key), minimum=min(run[key] for run in runs))
            for key in ("forward", "backward", "sum")
        },
        "ratio": median(runs, "sum") / median(baseline, "sum"),
        "peak_bytes": max(peaks, default=None),
        "relative_error": {
            "output": contender.errors[0],
            "grad.hidden_states": contender.errors[1],
        },
    }


def measure(options):
    """The document of --json, schema 1."""
    with tempfile.TemporaryDirectory(prefix="laga-hf-layer-") as folder:
        contest = Contest(options, Path(folder))
        try:
            contest.add_ours()
            contest.add_foreign()
            contest.refuse_differences()
            check_baseline(options.baseline, contest.contenders)
            runs = rounds(contest.contenders, options.repeat)
        finally:
            contest.close()
    baseline = options.baseline or find_baseline(contest.contenders, runs)
    keys = ("model", "seq", "batch", "dtype", "threads")
    return dict(
        schema=1,
        **{key: contest.document[key] for key in keys},
        repeat=options.repeat,
        baseline=baseline,
        rows=[make_row(c, runs[c.name], runs[baseline]) for c in contest.contenders],
        skipped=contest.skipped,
    )


# ---- the table and the command line -------------------------------------------


def cells(row):
    peak = row["peak_bytes"]
    seconds = [
        f"{row['time_s'][key]['median']:.3f} ({row['time_s'][key]['minimum']:.3f})"
        for key in ("forward", "backward", "sum")
    ]
    errors = [f"{error:.1e}" for error in row["relative_error"].values()]
    return [
        row["by"], row["name"], *seconds, f"{row['ratio']:.2f}x",
        "-" if peak is None else f"{peak / 2**20:.0f}", *errors,
    ]  # fmt: skip


def print_table(document, stream):
    def line(text=""):
        print(text.rstrip(), file=stream)

    line(
        "{model} attention   sequence {seq}  batch {batch}  one rank, {threads} "
        "thread(s)  {dtype}  causal".format(**document)
    )
    line(
        f"seconds: median (minimum) of {document['repeat']}; ratio: of median sums, "
        f"{document['baseline']} is 1.00x"
    )
    line()
    heads = ["by", "layer", "forward, s", "backward, s", "sum, s", "ratio"]
    heads += ["peak, MiB", "output error", "gradient error"]
    lines = [heads] + [cells(row) for row in document["rows"]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for row in lines:
        columns = enumerate(zip(row, widths, strict=True))
        line("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in columns))
    line()
    line("Errors, relative, are from the first row. Peak, above weights: ours at the")
    line("allocator, plus all weight gradients (an upper bound); theirs as resident")
    line("memory of the process.")
    for row in document["skipped"]:
        line(f"Skipped: {row['name']} {row['reason']}.")


def words(text):
    return [word.strip() for word in text.split(",") if word.strip()]


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1 (got '{text}')")
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="deepseek-v3", help="preset or path of a config.json")
    add("--seq", default="1k", help="tokens of a sequence (default: 1k)")
    add("--batch", default="1", help="sequences (default: 1)")
    add("--dtype", default="bf16", choices=list(LIMITS), help="default: bf16")
    add("--threads", type=positive, help="of each (default: all cores)")
    add("--repeat", type=positive, default=3, help="rounds (default: 3)")
    add(
        "--only",
        type=words,
        metavar="NAMES",
        help=f"some of {', '.join(FOREIGN)} and of laga's rows, such as `laga eager`: "
        "names, or words of them, with commas between",
    )
    add("--baseline", metavar="NAME", help="1.00x (default: the fastest laga row)")
    add("--json", metavar="FILE", help="all figures; -: stdout, the table to stderr")
    return parser.parse_args()


def report(options, unfinished):
    document = measure(options)
    print_table(document, sys.stderr if options.json == "-" else sys.stdout)
    text = json.dumps(document, indent=2) + "\n"
    if unfinished:
        unfinished.write_text(text)
        unfinished.replace(options.json)
    elif options.json:
        sys.stdout.write(text)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of finally
    unfinished = None
    try:
        if options.json not in (None, "-"):
            unfinished = Path(f"{options.json}.{os.getpid()}.unfinished")
            unfinished.touch()  # fails now or not at all
        report(options, unfinished)
        return 0
    except ImportError as error:
        say(f"hf_layer: {error}; see tests/reference/requirements.txt")
        return 2
    except (Refused, OSError) as error:
        say(f"hf_layer: {error}")
        return error.code if isinstance(error, Refused) else 2
    except KeyboardInterrupt:
        say("\nhf_layer: interrupted")
        return 130
    finally:
        if unfinished:
            unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
