#include "laga/plan/memory.h"

#include "laga/core/check.h"
#include "laga/plan/memory_inner.h"

#include <algorithm>
#include <utility>

namespace laga {

namespace {

using Handle = TapeRecorder::Handle;

// What arrives for a sum waits in a buffer of at most this size
// (attention/buffers.h).
constexpr int64_t kReduceScratchBytes = int64_t{32} << 20;

// Handles are named as the tensors of attention/attention.cpp; members are what
// autograd nodes hold between forward and backward.
class Rehearsal {
 public:
  Rehearsal(
      const MlaConfig& config,
      const Form& form,
      const InnerRehearsal& inner,
      const RunShape& shape,
      const MemoryOptions& options)
      : config_(config),
        form_(form),
        inner_(inner),
        shape_(shape),
        options_(options) {}

  MemoryTape run() {
    forward();
    tape_.end_forward();
    backward();
    return tape_.take();
  }

 private:
  // --- forward

  void forward() {
    Handle compressed = compress_keys();
    Handle kv_sent, k_pe_sent;
    if (latent_path()) {
      latent_ = gathered("latent", compressed, latent_dim());
      compressed.reset();
    } else {
      kv_sent = local_heads("kv", kv_dim());
      kv_ = arriving("kv", kv_sent, kv_dim());
      normed_keys_ = std::move(compressed);
      if (form_.key == KeyPath::kHeads) {
        k_pe_sent = local_heads("k_pe of every head", r());
        k_pe_ = arriving("k_pe", k_pe_sent, r());
      } else {
        k_pe_ = gathered("k_pe", normed_keys_, r());
      }
    }
    exchange_queries();
    kv_sent.reset();
    k_pe_sent.reset();
    Handle out = attend();
    Handle returned = arriving("out", out, v());
    Handle lse_stand_in;
    if (options_.send_delta && ranks() > 1) {
      lse_stand_in = make("lse's place", {{"1", 1}}, accumulator());
    }
    out.reset();
    heads_ = ranks() == 1
                 ? returned
                 : make("out, heads side by side", {s(), b(), n(), v()});
    output_ = make("output", {s(), b(), d()});
  }

  Handle compress_keys() {
    kv_a_ = make("latent before its norm", {s(), b(), latent_dim()});
    return norm("latent", c(), latent_dim(), kv_a_rms_);
  }

  // RMSNorm over `width` columns of `whole`, the rest rotated; keeps 1 / rms.
  Handle norm(
      const std::string& name,
      const Dim& width,
      const Dim& whole,
      Handle& rms) {
    Handle wide;
    if (rounded())
      wide = make(name + " in fp32", {s(), b(), width}, accumulator());
    {
      const Handle square =
          make(name + " squared", {s(), b(), width}, accumulator());
      rms = make("1/rms of " + name, {s(), b()}, accumulator());
    }
    Handle result = make(name, {s(), b(), whole});
    {
      const Handle scaled =
          make(name + " / rms", {s(), b(), width}, accumulator());
      make(name + " / rms * weight", {s(), b(), width}, accumulator());
    }
    if (whole.size > width.size) turned({s(), b(), r()});
    return result;
  }

  void exchange_queries() {
    Handle compressed;
    if (config_.q_lora_rank > 0) {
      q_a_ = make("q_latent before its norm", {s(), b(), q_lora()});
      q_normed_ = norm("q_latent", q_lora(), q_lora(), q_a_rms_);
    }
    const Handle q = local_heads("q", qk());
    turned({s(), b(), h(), r()});
    q_ = arriving("q", q, qk());
  }

  Handle attend() {
    Handle out;
    InnerProblem on = problem();
    if (form_.space == ScoreSpace::kLatent) {
      q_latent_ = make("q absorbed", {seq(), b(), h(), c()});
      out_latent_ = attention(on);
      return make("out", {seq(), b(), h(), v()});
    }
    if (latent_path() && !inner_.streams)
      kv_ = make("kv", {seq(), b(), h(), kv_dim()});
    return attention(on);
  }

  Handle attention(const InnerProblem& on) {
    Handle out = make(
        form_.space == ScoreSpace::kLatent ? "out in latent space" : "out",
        {seq(), b(), h(), on.v_width});
    kept_ = inner_.forward(tape_, on);
    if (inner_.keeps_out && !options_.send_delta) kept_.push_back(out);
    return out;
  }

  // --- backward: autograd's nodes, the last one made first

  void backward() {
    Handle d_out = return_gradient();
    AttentionGradients gradients = attention_backward(std::move(d_out));
    Handle latent_sent, d_latent, d_kv_arrived, d_k_pe_arrived;
    if (latent_path()) {
      latent_sent = whole_latent_gradient(gradients);
      d_latent = reduced("d_latent", latent_sent, latent_dim());
    } else {
      d_k_pe_arrived = form_.key == KeyPath::kHeads
                           ? arriving("d_k_pe", gradients.k_pe, r())
                           : reduced("d_k_pe", gradients.k_pe, r());
      d_kv_arrived = arriving("d_kv", gradients.kv, kv_dim());
    }
    query_gradient(std::move(gradients.q));
    reduce_scratch_.clear();
    latent_sent.reset();
    if (!latent_path()) {
      d_latent = local_key_gradient(
          std::move(gradients.kv),
          std::move(d_kv_arrived),
          std::move(gradients.k_pe),
          std::move(d_k_pe_arrived));
    }
    d_latent = norm_backward(
        "d_latent", c(), latent_dim(), kv_a_, kv_a_rms_, std::move(d_latent));
    make("d_hidden by keys", {s(), b(), d()});
  }

  // Through o_proj and back to the ranks that made the heads.
  Handle return_gradient() {
    Handle sent = make("d_out sent", {s(), b(), n(), v()});
    Handle d_lse;
    if (options_.send_delta) {
      d_lse = make("d_lse sent", {s(), b(), n()}, accumulator());
    }
    heads_.reset();
    if (options_.send_delta && ranks() > 1) {
      d_lse = make("d_lse", {seq(), b(), h()}, accumulator());
    }
    d_lse_ = std::move(d_lse);
    return arriving("d_out", sent, v());
  }

  struct AttentionGradients {
    Handle q, kv, k_pe, latent;
  };

  AttentionGradients attention_backward(Handle d_out) {
    AttentionGradients d;
    const InnerProblem on = problem();
    if (form_.space == ScoreSpace::kLatent) {
      d_out = make("d_out in latent space", {seq(), b(), h(), c()});
      out_latent_.reset();
    }
    Handle d_q_latent, d_q_pe;
    inner_.backward(tape_, on, [&] {
      if (form_.space == ScoreSpace::kLatent) {
        d_q_latent = make("d_q absorbed", {seq(), b(), h(), c()});
        d_q_pe = make("d_q_pe", {seq(), b(), h(), r()});
        d.latent = make("d_latent", {seq(), b(), latent_dim()});
        return;
      }
      d.q = make("d_q", {seq(), b(), h(), qk()});
      if (inner_.streams) {
        d.latent = make("d_latent", {seq(), b(), latent_dim()});
        return;
      }
      d.kv = make("d_kv", {seq(), b(), h(), kv_dim()});
      d.k_pe = on.k_pe_shared ? make("d_k_pe", {seq(), b(), r()})
                              : make("d_k_pe", {seq(), b(), h(), r()});
    });
    d_out.reset();
    d_lse_.reset();
    kept_.clear();
    kv_.reset();
    k_pe_.reset();
    if (inner_.streams) latent_.reset();
    if (form_.space == ScoreSpace::kLatent) {
      latent_.reset();
      const Handle d_q_nope = make("d_q_nope", {seq(), b(), h(), nope()});
      q_latent_.reset();
      d_q_latent.reset();
      q_.reset();
      d.q = make("d_q", {seq(), b(), h(), qk()});
    }
    q_.reset();
    return d;
  }

  // Of the gathered latent, from those of K, V and k_pe where they were made
  // from it here.
  Handle whole_latent_gradient(AttentionGradients& d) {
    if (d.latent.lives()) return std::move(d.latent);
    const Handle d_c = make("d_latent by kv", {seq(), b(), c()});
    d.kv.reset();
    latent_.reset();
    Handle whole = make("d_latent", {seq(), b(), latent_dim()});
    d.k_pe.reset();
    return whole;
  }

  void query_gradient(Handle sent) {
    Handle d_q = arriving("d_q", sent, qk());
    sent.reset();
    // Unpacked, or copied because it is rotated in place.
    if (ranks() > 1 || rotates())
      d_q = make("d_q, heads side by side", {s(), b(), n(), qk()});
    turned({s(), b(), n(), r()});
    if (config_.q_lora_rank == 0) {
      d_hidden_ = make("d_hidden by queries", {s(), b(), d()});
      return;
    }
    Handle d_normed = make("d_q_latent", {s(), b(), q_lora()});
    d_q.reset();
    q_normed_.reset();
    Handle d_x = norm_backward(
        "d_q_latent", q_lora(), q_lora(), q_a_, q_a_rms_, std::move(d_normed));
    d_hidden_ = make("d_hidden by queries", {s(), b(), d()});
  }

  // d_kv and d_k_pe of the local tokens, back into the latent's columns.
  Handle local_key_gradient(
      Handle kv_sent, Handle d_kv, Handle k_pe_sent, Handle d_k_pe) {
    k_pe_sent.reset();
    if (form_.key == KeyPath::kHeads) {
      Handle sum = make("d_k_pe sum of heads", {s(), b(), r()}, accumulator());
      if (rounded()) {
        make("d_k_pe of one head, widened", {s(), b(), r()}, accumulator());
        d_k_pe = make("d_k_pe, summed", {s(), b(), r()});
      } else {
        d_k_pe = std::move(sum);
      }
    }
    kv_sent.reset();
    if (ranks() > 1)
      d_kv = make("d_kv, heads side by side", {s(), b(), n(), kv_dim()});
    const Handle d_c = make("d_latent by kv", {s(), b(), c()});
    d_kv.reset();
    normed_keys_.reset();
    return make("d_latent", {s(), b(), latent_dim()});
  }

  Handle norm_backward(
      const std::string& name,
      const Dim& width,
      const Dim& whole,
      Handle& x,
      Handle& rms,
      Handle d_y) {
    const auto wide = [&](const std::string& what) {
      return make(name + what, {s(), b(), width}, accumulator());
    };
    {
      Handle x_wide;
      if (rounded()) x_wide = wide(": input in fp32");
      const Handle normed = wide(": normed");
      x_wide.reset();
      Handle d_y_wide;
      if (rounded()) d_y_wide = wide(" in fp32");
      const Handle g = wide(" * weight");
      const Handle projection =
          make(name + ": projection", {s(), b()}, accumulator());
      Handle d_x = make(name + " before the norm", {s(), b(), whole});
      {
        const Handle first = wide(": along the input");
        const Handle second = wide(": across the input");
        wide(": across the input / rms");
      }
      if (whole.size > width.size) turned({s(), b(), r()});
      d_y = std::move(d_x);
    }
    x.reset();
    rms.reset();
    return d_y;
  }

  // --- moves; one rank moves nothing

  // What a projection writes for all ranks: [P, s, b, n / P, w].
  Handle local_heads(const std::string& name, const Dim& width) {
    return make(
        ranks() > 1 ? name + " sent" : name, {group(), s(), b(), h(), width});
  }

  Handle arriving(const std::string& name, const Handle& sent, const Dim& w) {
    return ranks() == 1 ? sent : make(name, {group(), s(), b(), h(), w});
  }

  Handle gathered(const std::string& name, const Handle& shard, const Dim& w) {
    return ranks() == 1 ? shard : make(name + ", gathered", {seq(), b(), w});
  }

  Handle reduced(const std::string& name, const Handle& whole, const Dim& w) {
    if (ranks() == 1) return whole;
    Handle shard = make(name + ", reduced", {s(), b(), w});
    const int64_t arriving =
        (ranks() - 1) * s().size * b().size * w.size * number();
    reduce_scratch_.push_back(tape_.make(
        name + ": arriving",
        {{"bytes", std::min(arriving, kReduceScratchBytes)}},
        1));
    return shard;
  }

  // --- sizes

  Handle make(std::string name, std::vector<Dim> shape) {
    return make(std::move(name), std::move(shape), number());
  }
  Handle make(std::string name, std::vector<Dim> shape, int64_t number_bytes) {
    return tape_.make(std::move(name), std::move(shape), number_bytes);
  }
  // What a rotation needs beside its columns.
  void turned(std::vector<Dim> shape) {
    if (rotates()) make("rotated columns", std::move(shape), accumulator());
  }

  InnerProblem problem() const {
    InnerProblem on;
    on.seq = seq();
    on.batch = b();
    on.heads = h();
    on.latent_space = form_.space == ScoreSpace::kLatent;
    on.width = on.latent_space ? c() : nope();
    on.rope = r();
    on.v_width = on.latent_space ? c() : v();
    on.kv_lora_rank = c();
    on.k_pe_shared = form_.key != KeyPath::kHeads;
    on.dtype = shape_.dtype;
    on.options = options_;
    return on;
  }

  bool latent_path() const {
    return form_.key == KeyPath::kLatent;
  }
  bool rotates() const {
    return config_.rope != RopeLayout::kNone;
  }
  bool rounded() const { // numbers are less exact than accumulators
    return shape_.dtype == Dtype::kBf16;
  }
  int64_t ranks() const {
    return shape_.ranks;
  }
  int64_t number() const {
    return size_of(shape_.dtype);
  }
  int64_t accumulator() const {
    return shape_.dtype == Dtype::kFp64 ? 8 : 4;
  }

  Dim seq() const {
    return {"S", shape_.seq};
  }
  Dim s() const {
    return {"S/P", shape_.local_seq()};
  }
  Dim b() const {
    return {"b", shape_.batch};
  }
  Dim group() const {
    return {"P", shape_.ranks};
  }
  Dim n() const {
    return {"n", config_.num_heads};
  }
  Dim h() const {
    return {"n/P", config_.num_heads / shape_.ranks};
  }
  Dim d() const {
    return {"d", config_.hidden_size};
  }
  Dim c() const {
    return {"c", config_.kv_lora_rank};
  }
  Dim r() const {
    return {"r", config_.qk_rope_head_dim};
  }
  Dim v() const {
    return {"v", config_.v_head_dim};
  }
  Dim nope() const {
    return {"nope", config_.qk_nope_head_dim};
  }
  Dim q_lora() const {
    return {"q_lora", config_.q_lora_rank};
  }
  Dim qk() const {
    return {"nope+r", config_.qk_head_dim()};
  }
  Dim kv_dim() const {
    return {"nope+v", config_.qk_nope_head_dim + config_.v_head_dim};
  }
  Dim latent_dim() const {
    return {"c+r", config_.kv_lora_rank + config_.qk_rope_head_dim};
  }

  const MlaConfig& config_;
  const Form& form_;
  const InnerRehearsal& inner_;
  const RunShape& shape_;
  const MemoryOptions& options_;
  TapeRecorder tape_;

  Handle kv_a_, kv_a_rms_, normed_keys_;
  Handle q_a_, q_a_rms_, q_normed_;
  Handle q_, kv_, k_pe_, latent_;
  Handle q_latent_, out_latent_;
  std::vector<Handle> kept_; // by the inner attention
  Handle heads_, output_;
  Handle d_lse_, d_hidden_;
  std::vector<Handle> reduce_scratch_;
};

} // namespace

MemoryTape predict_memory(
    const MlaConfig& config,
    const Form& form,
    std::string_view inner,
    const RunShape& shape,
    const MemoryOptions& options) {
  check_shape(config, form, shape);
  const InnerRehearsal& rehearsal = find_inner_rehearsal(inner);
  LAGA_CHECK(
      !rehearsal.streams ||
          (form.key == KeyPath::kLatent && form.space == ScoreSpace::kHead),
      "inner attention '",
      inner,
      "' is for forms that expand a gathered latent, and ",
      form.name,
      " does not");
  return Rehearsal(config, form, rehearsal, shape, options).run();
}

} // namespace laga
