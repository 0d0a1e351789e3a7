"""Mistakes to be planted one at a time: each is an edit of one source file.

`old` must occur exactly once; if the code moves on, the test says so, and the
edit is to be adapted, not dropped. Most are bugs that users of other projects
met; each must make `laga verify --quick` fail and name a tensor.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str


FAULTS = [
    Fault(
        "k_pe gradient not summed over ranks: only the own slice survives",
        "laga/attention/attention.cpp",
        "  keys.k_pe = parts[1].unsqueeze(2);\n",
        """  const int64_t s = ctx.shape.local_seq(), own = ctx.comm->rank() * s;
  at::Tensor only_own = parts[1].detach().clone();
  only_own.narrow(0, own, s).copy_(parts[1].narrow(0, own, s));
  keys.k_pe = only_own.unsqueeze(2);
""",
    ),
    Fault(
        "k_pe gradient not summed over heads: the last one survives",
        "laga/attention/inner/key_value_gradients.cpp",
        "    sum->add(value);\n",
        "    sum.emplace(value.sizes(), value.options());\n    sum->add(value);\n",
    ),
    Fault(
        "k_pe gradient of Explicit's copies: heads of rank 0 only",
        "laga/attention/projections.cpp",
        "    for (int64_t p = 0; p < copies.size(0); ++p) {\n",
        "    for (int64_t p = 0; p < 1; ++p) {\n",
    ),
    Fault(
        "reduce-scatter replaced by a slice",
        "laga/attention/exchange.cpp",
        "        mutable_bytes_of(scratch_));\n",
        """        mutable_bytes_of(scratch_),
        [rank = comm_->rank()](
            Dtype dtype,
            std::span<const std::byte* const> parts,
            std::span<const int>,
            std::byte* out,
            int64_t count) {
          std::copy_n(parts[rank], count * size_of(dtype), out);
        });
""",
    ),
    Fault(
        "RoPE from local positions",
        "laga/attention/context.cpp",
        "positions.narrow(0, rank * shape.local_seq(), shape.local_seq())",
        "positions.narrow(0, 0 * rank, shape.local_seq())",
    ),
    Fault(
        "q and kv heads of the next rank",
        "laga/attention/projections.cpp",
        "weight.narrow(0, p * rows, rows)",
        "weight.narrow(0, (p + 1) % heads.ranks * rows, rows)",
    ),
    Fault(
        "kv_b rows of the next rank",
        "laga/attention/attention.cpp",
        "ctx.comm->rank() * count, count)",
        "(ctx.comm->rank() + 1) % ctx.shape.ranks * count, count)",
    ),
    Fault(
        "rms_norm_eps in the latent norm",
        "laga/attention/attention.cpp",
        "{ctx.config.latent_norm_eps, ctx.config.rope, ctx.rotation}",
        "{1e-5, ctx.config.rope, ctx.rotation}",
    ),
    Fault(
        "softmax scale from mscale instead of mscale_all_dim",
        "laga/core/rope.cpp",
        "config.yarn->mscale_all_dim.value_or(0));",
        "config.yarn->mscale.value_or(0));",
    ),
    Fault(
        "softmax scale omitted",
        "laga/attention/context.cpp",
        "context.softmax_scale = softmax_scale(config);",
        "context.softmax_scale = 1;",
    ),
    Fault(
        "YaRN's cos and sin take the factor instead of the ratio",
        "laga/attention/rotation.cpp",
        "rope_amplitude(config)",
        "(config.yarn ? 0.1 * std::log(config.yarn->factor) + 1 : 1.0)",
    ),
    Fault(
        "v rows of kv_b first",
        "laga/attention/inner/nodes.cpp",
        "return {q_parts[0], q_parts[1], kv_parts[0], k_pe, kv_parts[1]};",
        """const auto swapped =
        kv.split_with_sizes({kv.size(-1) - nope, nope}, -1);
    return {q_parts[0], q_parts[1], swapped[1], k_pe, swapped[0]};""",
    ),
    Fault(
        "batch and sequence swapped",
        "laga/attention/attention.cpp",
        "  const at::Tensor x = linear(rows(hidden), w.kv_a_proj, w.kv_a_proj_bias);\n",
        "  const at::Tensor x = linear(\n"
        "      rows(hidden.transpose(0, 1)), w.kv_a_proj, w.kv_a_proj_bias);\n",
    ),
    Fault(
        "a weight gradient summed twice",
        "laga/attention/weight_gradients.cpp",
        "      sum(name, leaf.grad(), scratch, context);\n",
        "      sum(name, leaf.grad(), scratch, context);\n"
        '      if (name == "o_proj.weight") {\n'
        "        sum(name, leaf.grad(), scratch, context);\n"
        "      }\n",
    ),
    Fault(
        "kv_b's gradient rows not gathered",
        "laga/attention/weight_gradients.cpp",
        "      gather_rows(name, leaf.grad(), context);\n",
        "      if (false) gather_rows(name, leaf.grad(), context);\n",
    ),
    Fault(
        "gradient of q rotated forwards again",
        "laga/attention/projections.cpp",
        "          /*transposed=*/true);\n",
        "          /*transposed=*/false);\n",
    ),
    Fault(
        "a token sees its successor",
        "laga/attention/inner/eager.cpp",
        "triu_(1)",
        "triu_(2)",
    ),
    Fault(
        "sdpa's backward without the mask",
        "laga/attention/inner/aten_op.cpp",
        "      lse,\n      /*dropout_p=*/0,\n      options.causal,\n",
        "      lse,\n      /*dropout_p=*/0,\n      false,\n",
    ),
    Fault(
        "fused's sums over heads never rounded into the gradients",
        "laga/attention/inner/fused.cpp",
        "      sum.finish();\n",
        "      static_cast<void>(sum);\n",
    ),
    Fault(
        "stream's k_pe gradient lands in the latent's columns",
        "laga/attention/inner/stream.cpp",
        "sum.narrow(-1, params.kv_lora_rank, params.rope), params.heads);\n"
        "    params.d_kv_b",
        "sum.narrow(-1, 0, params.rope), params.heads);\n    params.d_kv_b",
    ),
    Fault(
        "delta of our kernels' backward without d_out",
        "laga/attention/inner/kernel_call.cpp",
        "row_dots_out(delta, saved[0], d_out);",
        "row_dots_out(delta, saved[0], saved[0]);",
    ),
    Fault(
        "returned heads unpacked in another order",
        "laga/attention/projections.cpp",
        "x.permute({1, 2, 0, 3, 4})",
        "x.permute({1, 2, 3, 0, 4})",
    ),
    Fault(
        "bias gradient of one token only",
        "laga/attention/projections.cpp",
        "return at::sum(d_y, 0);",
        "return d_y[0].clone();",
    ),
    Fault(
        "norm's weight gradient of the first sequence only",
        "laga/attention/norm_rotate.cpp",
        "(d_y * normed).sum(at::IntArrayRef{0, 1})",
        "(d_y * normed).select(1, 0).sum(at::IntArrayRef{0})",
    ),
]
