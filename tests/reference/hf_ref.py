#!/usr/bin/env python3
"""hf_ref.py OUT.safetensors [--dtype float64 --seed 0 --seq 64 --batch 2 ...]

One layer's forward and backward by transformers' DeepseekV3Attention on the CPU.
The file holds
    the weights under their Hugging Face names
    hidden_states, grad_output, output, grad.hidden_states    [B, S, H]
    grad.NAME of every weight
    position_ids    [B, S], int64
    cos, sin        [B, S, rope], half-split, as used after de-interleaving
and metadata whose values are JSON text: "config" is the model as its config.json
would say it, "impl" who computed, "scaling" the softmax scale, "eps" that of the
latent norms. float64 is float64 throughout unless --stock is given: transformers
computes norms, softmax and RoPE in float32 even then.
"""

import argparse
import contextlib
import json
import math
from unittest import mock

import torch

CONFIGS = {  # ql: q_lora_rank, kl: kv_lora_rank, dn, dr, dv: nope, rope, v widths
    "small": dict(H=256, n=8, ql=96, kl=64, dn=32, dr=16, dv=32),
    "no-q-lora": dict(H=256, n=8, ql=None, kl=64, dn=32, dr=16, dv=32),
    "odd": dict(H=200, n=5, ql=72, kl=40, dn=24, dr=8, dv=28),
    "odd-4-heads": dict(H=211, n=4, ql=75, kl=41, dn=23, dr=10, dv=27),
    "v3-head": dict(H=256, n=4, ql=96, kl=64, dn=128, dr=64, dv=128),
}
THETA = 10000.0
# The latent norms': DeepseekV3RMSNorm's default, whatever rms_norm_eps says.
EPS = 1e-6


def parse_arguments(doc, argv=None, extra=()):
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    dtypes = ["float64", "float32", "bfloat16"]
    parser.add_argument("--dtype", default="float64", choices=dtypes)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--config", default="small", choices=list(CONFIGS))
    parser.add_argument(
        "--yarn", action="store_true", help="DeepSeek-V3's rope_scaling"
    )
    parser.add_argument("--mscale", type=float, default=1.0, help="0: not set")
    parser.add_argument("--mscale-all-dim", type=float, default=1.0, help="0: not set")
    parser.add_argument("--attention-factor", type=float, help="default: not set")
    for name, options in extra:
        parser.add_argument(name, **options)
    return parser.parse_args(argv)


def rope_scaling(arguments):
    """As in DeepSeek-V3's config.json; None without YaRN."""
    if not arguments.yarn:
        return None
    scaling = dict(
        type="yarn",
        factor=40.0,
        original_max_position_embeddings=4096,
        beta_fast=32.0,
        beta_slow=1.0,
    )
    for name in ("mscale", "mscale_all_dim", "attention_factor"):
        if getattr(arguments, name):
            scaling[name] = getattr(arguments, name)
    return scaling


def make_case(c, arguments, bias=False):
    """Weights and inputs in float64, in a fixed order; the caller rounds them."""
    generator = torch.Generator().manual_seed(arguments.seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def matrix(rows, columns):
        return normal(rows, columns) * columns**-0.5

    weights = {}
    q_rows = c["n"] * (c["dn"] + c["dr"])
    if c["ql"]:
        weights["q_a_proj.weight"] = matrix(c["ql"], c["H"])
        weights["q_a_layernorm.weight"] = 1 + 0.1 * normal(c["ql"])
        weights["q_b_proj.weight"] = matrix(q_rows, c["ql"])
    else:
        weights["q_proj.weight"] = matrix(q_rows, c["H"])
    weights["kv_a_proj_with_mqa.weight"] = matrix(c["kl"] + c["dr"], c["H"])
    weights["kv_a_layernorm.weight"] = 1 + 0.1 * normal(c["kl"])
    weights["kv_b_proj.weight"] = matrix(c["n"] * (c["dn"] + c["dv"]), c["kl"])
    weights["o_proj.weight"] = matrix(c["H"], c["n"] * c["dv"])
    hidden = normal(arguments.batch, arguments.seq, c["H"])
    grad_output = normal(arguments.batch, arguments.seq, c["H"])
    if bias:  # where attention_bias puts one
        if c["ql"]:
            weights["q_a_proj.bias"] = 0.1 * normal(c["ql"])
        weights["kv_a_proj_with_mqa.bias"] = 0.1 * normal(c["kl"] + c["dr"])
        weights["o_proj.bias"] = 0.1 * normal(c["H"])
    return weights, hidden, grad_output


def inverse_frequencies(r, scaling):
    """Of each pair, float64, and the factor of cos and sin."""
    plain = THETA ** -(torch.arange(0, r, 2, dtype=torch.float64) / r)
    if not scaling:
        return plain, 1.0
    length, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def pair(turns):
        return r * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(THETA))

    low = max(math.floor(pair(scaling["beta_fast"])), 0)
    high = min(math.ceil(pair(scaling["beta_slow"])), r - 1)
    if low == high:
        high += 0.001
    ramp = (torch.arange(r // 2, dtype=torch.float64) - low) / (high - low)
    keep = 1 - ramp.clamp(0, 1)

    def mscale(m):
        return 0.1 * m * math.log(factor) + 1

    amplitude = scaling.get("attention_factor")
    if not amplitude and "mscale" in scaling and "mscale_all_dim" in scaling:
        amplitude = mscale(scaling["mscale"]) / mscale(scaling["mscale_all_dim"])
    return plain / factor * (1 - keep) + plain * keep, amplitude or mscale(1)


def write(arguments, c, impl, tensors, weights, gradients, scaling, eps):
    """`tensors` by name; weights and their gradients by Hugging Face name."""
    from safetensors.torch import save_file

    everything = {**tensors, **weights}
    everything.update({"grad." + name: grad for name, grad in gradients.items()})
    config = dict(
        model_type="deepseek_v3",
        hidden_size=c["H"],
        num_attention_heads=c["n"],
        q_lora_rank=c["ql"],
        kv_lora_rank=c["kl"],
        qk_nope_head_dim=c["dn"],
        qk_rope_head_dim=c["dr"],
        v_head_dim=c["dv"],
        rope_theta=THETA,
        rope_interleave=not getattr(arguments, "half_split", False),
        attention_bias=getattr(arguments, "bias", False),
        rope_scaling=rope_scaling(arguments),
    )
    options = {key: value for key, value in vars(arguments).items() if key != "out"}
    metadata = dict(
        config=config,
        impl=impl,
        torch=torch.__version__,
        scaling=scaling,
        eps=eps,
        options=options,
    )
    save_file(
        {name: tensor.detach().contiguous() for name, tensor in everything.items()},
        arguments.out,
        {key: json.dumps(value) for key, value in metadata.items()},
    )
    print(f"{arguments.out}: {impl}")


@contextlib.contextmanager
def float64_throughout(modeling):
    """Replaces norm and softmax, where transformers drops to float32."""

    def norm(self, x):
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean_square + self.variance_epsilon))

    def eager(module, q, k, v, mask, scaling, dropout=0.0, **_):
        weights = torch.softmax(q @ k.transpose(2, 3) * scaling + mask, -1)
        return (weights @ v).transpose(1, 2).contiguous(), weights

    with (
        mock.patch.object(modeling.DeepseekV3RMSNorm, "forward", norm),
        mock.patch.object(modeling, "eager_attention_forward", eager),
    ):
        yield


def cos_sin(arguments, rotary, x, positions, c):
    """transformers' own table, or in float64 the same in float64."""
    frequencies, amplitude = inverse_frequencies(c["dr"], rope_scaling(arguments))
    # Theirs are ours, in float32.
    torch.testing.assert_close(
        rotary.inv_freq.double(), frequencies, rtol=1e-6, atol=0.0
    )
    assert abs(rotary.attention_scaling - amplitude) < 1e-6
    if x.dtype != torch.float64 or arguments.stock:
        return rotary(x, positions)
    angles = (positions.double()[:, :, None] * frequencies).repeat(1, 1, 2)
    return angles.cos() * amplitude, angles.sin() * amplitude


def run(arguments):
    import transformers
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as modeling

    c, dtype = CONFIGS[arguments.config], getattr(torch, arguments.dtype)
    config = transformers.DeepseekV3Config(
        hidden_size=c["H"],
        num_attention_heads=c["n"],
        num_key_value_heads=c["n"],
        q_lora_rank=c["ql"],
        kv_lora_rank=c["kl"],
        qk_nope_head_dim=c["dn"],
        qk_rope_head_dim=c["dr"],
        v_head_dim=c["dv"],
        rope_theta=THETA,
        rope_interleave=not arguments.half_split,
        attention_bias=arguments.bias,
        attention_dropout=0.0,
        max_position_embeddings=163840 if arguments.yarn else 4096,
        rope_scaling=rope_scaling(arguments),
    )
    config._attn_implementation = "eager"
    weights, x, grad_output = make_case(c, arguments, arguments.bias)
    positions = torch.arange(arguments.seq).repeat(arguments.batch, 1)
    positions += arguments.pos_shift * torch.arange(arguments.batch)[:, None]
    layer = modeling.DeepseekV3Attention(config, 0).to(dtype).train()
    layer.load_state_dict(weights, strict=True)  # rounds float64 once
    x, grad_output = x.to(dtype).requires_grad_(), grad_output.to(dtype)
    # Without a mask eager attention would not be causal.
    square = (arguments.seq, arguments.seq)
    mask = torch.full(square, torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
    rotary = modeling.DeepseekV3RotaryEmbedding(config)
    cos, sin = cos_sin(arguments, rotary, x, positions, c)
    exact = dtype == torch.float64 and not arguments.stock
    with float64_throughout(modeling) if exact else contextlib.nullcontext():
        out, _ = layer(x, position_embeddings=(cos, sin), attention_mask=mask)
        out.backward(grad_output)
    write(
        arguments,
        c,
        f"transformers {transformers.__version__}",
        dict(
            hidden_states=x,
            position_ids=positions,
            grad_output=grad_output,
            cos=cos,
            sin=sin,
            output=out,
            **{"grad.hidden_states": x.grad},
        ),
        dict(layer.named_parameters()),
        {name: weight.grad for name, weight in layer.named_parameters()},
        layer.scaling,
        layer.kv_a_layernorm.variance_epsilon,
    )


def main(argv=None):
    run(
        parse_arguments(
            __doc__,
            argv,
            [
                ("--stock", dict(action="store_true")),
                (
                    "--pos-shift",
                    dict(type=int, default=0, help="sequence i starts at i times this"),
                ),
                ("--half-split", dict(action="store_true", help="not interleaved")),
                ("--bias", dict(action="store_true", help="attention_bias")),
            ],
        )
    )


if __name__ == "__main__":
    main()
