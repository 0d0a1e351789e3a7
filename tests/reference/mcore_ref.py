#!/usr/bin/env python3
"""mcore_ref.py OUT.safetensors [hf_ref.py's common options]

The same file as hf_ref.py's, by Megatron-Core's MLASelfAttention with its local
spec on the CPU (gloo, world of one). Weights come under their Hugging Face names;
Megatron's own layouts are the same (k_pe last, per head nope before v).
"""

import contextlib
import socket
import warnings

import torch
from hf_ref import (
    CONFIGS,
    EPS,
    THETA,
    inverse_frequencies,
    make_case,
    parse_arguments,
    rope_scaling,
    write,
)

HF_NAMES = {
    "linear_q_proj": "q_proj",
    "linear_q_down_proj": "q_a_proj",
    "q_layernorm": "q_a_layernorm",
    "linear_q_up_proj": "q_b_proj",
    "linear_kv_down_proj": "kv_a_proj_with_mqa",
    "kv_layernorm": "kv_a_layernorm",
    "linear_kv_up_proj": "kv_b_proj",
    "linear_proj": "o_proj",
}


def hf_name(name):
    module, kind = name.split(".")
    return HF_NAMES[module] + "." + kind


def patch_for_cpu():
    """Megatron takes a GPU and Transformer Engine for granted in five places."""
    # "cpu" is a valid device= for the RoPE tables and the score buffer.
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core.fusions import fused_softmax
    from megatron.core.transformer import dot_product_attention
    from megatron.core.transformer import multi_latent_attention as mla

    # Without Transformer Engine its module still imports, as mocks.
    mla.HAVE_TE = False

    # No random numbers are needed: the dropout is 0.
    class NoFork:
        def fork(self, *_):
            return contextlib.nullcontext()

    tracker = dot_product_attention.tensor_parallel
    tracker.get_cuda_rng_tracker = lambda *_, **__: NoFork()

    def causal_mask(size):  # theirs is made on "cuda"
        return torch.ones(size, size, dtype=torch.bool).triu(1)

    fused_softmax.get_default_causal_mask = causal_mask

    # Theirs does not know the two keywords that MLA passes; its output is
    # kv_channels wide.
    class CoreAttention(dot_product_attention.DotProductAttention):
        def __init__(self, *args, k_channels=None, v_channels=None, **options):
            super().__init__(*args, **options)

    return CoreAttention


def start_group():
    import megatron.core.parallel_state as parallel_state

    if torch.distributed.is_initialized():
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=1, context_parallel_size=1
    )


def make_config(c, dtype, scaling):
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    if scaling:
        rope = dict(rope_type="yarn", rotary_scaling_factor=scaling["factor"])
        # Its defaults are not Hugging Face's, so all have to be there.
        for name in (
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "original_max_position_embeddings",
        ):
            rope[name] = scaling[name]
    else:
        rope = dict(rope_type="rope", rotary_scaling_factor=1.0, mscale_all_dim=0.0)
    return MLATransformerConfig(
        num_layers=1,
        hidden_size=c["H"],
        num_attention_heads=c["n"],
        q_lora_rank=c["ql"],
        kv_lora_rank=c["kl"],
        qk_head_dim=c["dn"],
        qk_pos_emb_head_dim=c["dr"],
        v_head_dim=c["dv"],
        kv_channels=c["dv"],
        rotary_base=THETA,
        layernorm_epsilon=EPS,  # their default is 1e-5
        normalization="RMSNorm",
        qk_layernorm=True,
        add_bias_linear=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_cpu_initialization=True,
        perform_initialization=False,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        apply_rope_fusion=False,
        attention_softmax_in_fp32=True,
        **rope,
    )


def build(c, dtype, scaling):
    core_attention = patch_for_cpu()
    start_group()
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.spec_utils import build_module

    block = get_gpt_layer_local_spec(
        qk_layernorm=True, multi_latent_attention=True, normalization="RMSNorm"
    )
    spec = block.submodules.self_attention
    assert spec.params["attn_mask_type"] == AttnMaskType.causal
    spec.submodules.core_attention = core_attention
    if not c["ql"]:
        spec.submodules.q_layernorm = IdentityOp
    config = make_config(c, dtype, scaling)
    layer = build_module(spec, config=config, layer_number=1).to(dtype).train()
    if dtype == torch.float64:
        # inv_freq is a float32 attribute that .to() does not reach. (YaRN's ramp
        # stays in float32: it is made anew in every call.)
        rotary, plain = layer.rotary_pos_emb, inverse_frequencies(c["dr"], None)[0]
        rotary.inv_freq = rotary.inv_freq_extra = plain
        if scaling:
            rotary.inv_freq_inter = plain / scaling["factor"]
        type(rotary).forward.cache_clear()
    return layer


def cos_sin(layer, arguments, dtype):
    angles = layer.rotary_pos_emb(arguments.seq)
    angles, amplitude = angles if arguments.yarn else (angles, 1.0)
    return (
        (table * amplitude).to(dtype)[None, :, 0, 0].expand(arguments.batch, -1, -1)
        for table in (angles.cos(), angles.sin())
    )


def main(argv=None):
    warnings.filterwarnings("ignore")
    arguments = parse_arguments(__doc__, argv)
    import megatron.core

    c, dtype = CONFIGS[arguments.config], getattr(torch, arguments.dtype)
    weights, x, grad_output = make_case(c, arguments)
    layer = build(c, dtype, rope_scaling(arguments))
    parameters = {hf_name(name): p for name, p in layer.named_parameters()}
    assert set(parameters) == set(weights), set(parameters) ^ set(weights)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    x, grad_output = x.to(dtype), grad_output.to(dtype)
    # They are sequence first.
    leaf = x.transpose(0, 1).contiguous().requires_grad_()
    out, bias = layer(leaf, attention_mask=None)
    assert bias is None
    out.backward(grad_output.transpose(0, 1).contiguous())
    cos, sin = cos_sin(layer, arguments, dtype)
    write(
        arguments,
        c,
        f"megatron-core {megatron.core.__version__}",
        dict(
            hidden_states=x,
            position_ids=torch.arange(arguments.seq).repeat(arguments.batch, 1),
            grad_output=grad_output,
            cos=cos,
            sin=sin,
            output=out.transpose(0, 1),
            **{"grad.hidden_states": leaf.grad.transpose(0, 1)},
        ),
        parameters,
        {name: parameter.grad for name, parameter in parameters.items()},
        layer.softmax_scale,
        layer.kv_layernorm.eps,
    )


if __name__ == "__main__":
    main()
