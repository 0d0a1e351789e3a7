"""Other people's attention layers, each in a process of its own."""

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/reference"))  # mcore_ref


class Refused(Exception):
    """Bad input, or what must not be timed: a message and an exit code."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def read_config(model):
    """The fields of a config.json, which is found as laga finds it."""
    path = Path(model)
    if "/" not in model and not model.endswith(".json"):
        folder = os.environ.get("LAGA_PRESETS", ROOT / "configs/models")
        path = Path(folder, model + ".json")
    elif path.is_dir():
        path = path / "config.json"
    return json.loads(path.read_text())


# ---- layers: from the config, weights by Hugging Face name and sizes ----------


class TransformersLayer:
    batch_first = True
    FIELDS = (
        "hidden_size num_attention_heads q_lora_rank kv_lora_rank qk_nope_head_dim "
        "qk_rope_head_dim v_head_dim rope_theta rope_scaling rope_interleave "
        "attention_bias"
    ).split()

    def __init__(self, config, weights, batch, seq, attention):
        import torch
        import transformers
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as modeling

        self.by = f"transformers {transformers.__version__}"
        scaling = config.get("rope_scaling") or {}
        of_layer = transformers.DeepseekV3Config(
            **{name: config[name] for name in self.FIELDS if name in config},
            num_key_value_heads=config["num_attention_heads"],
            max_position_embeddings=int(
                scaling.get("factor", 1)
                * scaling.get("original_max_position_embeddings", 4096)
            ),
            attention_dropout=0.0,
        )
        of_layer._attn_implementation = attention
        with torch.device("meta"):  # the weights are at hand
            self.layer = modeling.DeepseekV3Attention(of_layer, 0).train()
        self.layer.load_state_dict(weights, strict=True, assign=True)
        self.parameters = list(self.layer.parameters())
        dtype = weights["o_proj.weight"].dtype
        # A model makes these once for all its layers.
        self.embeddings = modeling.DeepseekV3RotaryEmbedding(of_layer)(
            torch.empty(0, dtype=dtype), torch.arange(seq).repeat(batch, 1)
        )
        self.mask = None  # sdpa is causal then,
        if attention == "eager":  # eager is not
            lowest = torch.finfo(dtype).min
            self.mask = torch.full((1, 1, seq, seq), lowest, dtype=dtype).triu(1)

    def forward(self, hidden):
        return self.layer(hidden, self.embeddings, attention_mask=self.mask)[0]


class MegatronLayer:
    """As tests/reference builds it: the local spec, unfused, made to run on a CPU."""

    batch_first = False

    def __init__(self, config, weights, batch, seq):
        import megatron.core
        import torch
        from mcore_ref import build, hf_name

        self.by = f"megatron-core {megatron.core.__version__}"
        sizes = dict(
            H=config["hidden_size"],
            n=config["num_attention_heads"],
            ql=config.get("q_lora_rank"),
            kl=config["kv_lora_rank"],
            dn=config["qk_nope_head_dim"],
            dr=config["qk_rope_head_dim"],
            dv=config["v_head_dim"],
        )
        dtype = weights["o_proj.weight"].dtype
        self.layer = build(sizes, dtype, config.get("rope_scaling"))
        named = {hf_name(name): p for name, p in self.layer.named_parameters()}
        assert set(named) == set(weights), set(named) ^ set(weights)
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(weights[name])
        self.parameters = list(named.values())

    def forward(self, hidden):
        return self.layer(hidden, attention_mask=None)[0]


def transformers_eager(*arguments):
    return TransformersLayer(*arguments, attention="eager")


def transformers_sdpa(*arguments):
    return TransformersLayer(*arguments, attention="sdpa")


# By name: what makes the layer, and the bytes a score takes at the peak over
# forward and backward (measured at S = 1024 in fp32 and bf16: the larger one).
FOREIGN = {
    "transformers eager": (transformers_eager, 20),
    "transformers sdpa": (transformers_sdpa, 16),
    "megatron-core": (MegatronLayer, 17),
}


def why_not(name, config):
    """Why this layer cannot be made from this config; None where it can."""
    if name != "megatron-core":
        return None
    scaling = config.get("rope_scaling")
    missing = {
        "factor", "original_max_position_embeddings", "beta_fast", "beta_slow",
        "mscale", "mscale_all_dim",
    }.difference(scaling or {})  # fmt: skip
    if scaling and missing:
        return f"needs {', '.join(sorted(missing))} in rope_scaling"
    if config.get("rope_theta", 1e4) != 1e4:
        return "is built with rope_theta 10000 only"
    if config.get("attention_bias") or not config.get("rope_interleave", True):
        return "is built without bias and with interleaved RoPE only"
    return None


# ---- one step -----------------------------------------------------------------


def resident(field):
    """VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field}")


def forget_peak():
    """Gives freed memory back and lets VmHWM begin anew; what is resident then, or
    None where a system has no such thing."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return resident("VmRSS")
    return None


def step(layer, hidden, grad_output):
    """Output, input gradient, and seconds and bytes of a forward and backward."""
    for parameter in layer.parameters:
        parameter.grad = None
    leaf = hidden.detach().requires_grad_()
    before = forget_peak()
    begin = time.perf_counter()
    output = layer.forward(leaf)
    middle = time.perf_counter()
    output.backward(grad_output)
    end = time.perf_counter()
    return (
        output.detach(),
        leaf.grad,
        dict(
            forward=middle - begin,
            backward=end - middle,
            peak=None if before is None else resident("VmHWM") - before,
        ),
    )


def relative_errors(results, reference):
    """max |a - b| / max |b| of the output and of the input's gradient."""
    errors = []
    for name in ("output", "grad.hidden_states"):
        a, b = results[name].float(), reference[name].float()
        errors.append(float((a - b).abs().max() / b.abs().max()))
    return errors


# ---- its process --------------------------------------------------------------


def serve(pipe, name, config, folder, reference, threads):
    """Tells how far the first step's results are from `reference`, a file; then
    runs a step for every True that comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    os.dup2(2, 1)  # what is imported may print
    import warnings

    import torch
    from safetensors.torch import load_file

    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    inputs = load_file(folder / "inputs.safetensors")
    # Copies: what is timed should not lie in a mapped file.
    inputs = {key: tensor.clone() for key, tensor in inputs.items()}
    hidden, grad_output = inputs.pop("hidden_states"), inputs.pop("grad_output")
    layer = FOREIGN[name][0](config, inputs, *hidden.shape[:2])
    del inputs

    def order(tensor):
        return tensor if layer.batch_first else tensor.transpose(0, 1).contiguous()

    hidden, grad_output = order(hidden), order(grad_output)
    output, grad_hidden, _ = step(layer, hidden, grad_output)
    results = {"output": order(output), "grad.hidden_states": order(grad_hidden)}
    pipe.send((layer.by, relative_errors(results, load_file(reference))))
    del output, grad_hidden, results
    while pipe.recv():
        pipe.send(step(layer, hidden, grad_output)[2])


class Foreign:
    """A layer of FOREIGN, warmed up; `errors` are its first step's."""

    def __init__(self, name, *arguments):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=serve, args=(other, name, *arguments), daemon=True
        )
        self.process.start()
        other.close()  # so that the process's end is seen here
        self.by, self.errors = self.receive()

    def receive(self):
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            raise Refused(f"{self.name}: its process ended with {code}", 3) from None

    def run(self):
        self.pipe.send(True)
        return self.receive()

    def close(self):
        self.process.terminate()
        self.process.join()
