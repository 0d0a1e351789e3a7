// What the front refuses, and that it names both values.
#include "laga/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tests/core/message_of.h"

namespace laga::kernels::test {
namespace {

constexpr int64_t kTokens = 3, kBatch = 2, kHeads = 2, kWidth = 4;
constexpr int64_t kUnwritten = -77;

// A call that is fine, over one memory for all inputs and one for each output.
struct Call {
  Call() {
    std::fill(memory.begin(), memory.end(), 1.0f);
    std::fill(written.begin(), written.end(), kUnwritten);
    set_inputs(forward);
    set_inputs(backward);
    forward.out = output(0);
    forward.lse = output(1);
    backward.d_out = input();
    backward.lse = backward.delta = input();
    backward.d_q_nope.store = output(0);
    backward.d_q_pe.store = output(1);
    backward.d_k_nope.store = output(2);
    backward.d_v.store = output(3);
    backward.d_k_pe.add = output(4);
  }

  void set_inputs(AttentionInputs<float>& in) const {
    in.batch = kBatch;
    in.heads = kHeads;
    in.q_tokens = in.k_tokens = kTokens;
    in.nope = in.rope = in.v_width = kWidth;
    in.mask = mask;
    in.q_nope = in.q_pe = in.k_nope = in.k_pe = in.v = input();
  }
  View<const float> input() const {
    return {memory.data(), kRow * kBatch, kRow, kWidth};
  }
  View<float> output(int64_t n) {
    return {written.data() + n * kSize, kRow * kBatch, kRow, kWidth};
  }
  void use_latent(AttentionInputs<float>& in) const {
    in.kv_lora_rank = kWidth;
    in.latent = input();
    in.kv_b = memory.data();
    in.kv_b_row = kWidth;
  }
  void use_latent() {
    use_latent(forward);
    use_latent(backward);
    backward.d_latent = output(5);
    backward.d_kv_b = output(6).data;
    backward.d_kv_b_row = kWidth;
  }

  std::string forward_message(const Workers& workers = {}) {
    return message_of(
        [&] { attention_forward(kernels, forward, workers, nullptr); });
  }
  std::string backward_message() {
    return message_of(
        [&] { attention_backward(kernels, backward, Workers{}, nullptr); });
  }
  bool nothing_written() const {
    return std::all_of(written.begin(), written.end(), [](float x) {
      return x == kUnwritten;
    });
  }

  static constexpr int64_t kRow = kHeads * kWidth;
  static constexpr int64_t kSize =
      256; // of the largest tensor, kv_b's gradient
  const Kernels<float>& kernels = *runnable_kernels<float>().front();
  std::array<float, kSize> memory;
  std::array<float, 8 * kSize> written;
  std::vector<MaskSlice> mask{causal_mask(kTokens, kTokens)};
  ForwardParams<float> forward;
  BackwardParams<float> backward;
};

TEST(Errors, ValidCallIsNotRefused) {
  Call call;
  attention_forward(call.kernels, call.forward, Workers{}, nullptr);
  attention_backward(call.kernels, call.backward, Workers{}, nullptr);
  call.use_latent();
  attention_forward(call.kernels, call.forward, Workers{}, nullptr);
  attention_backward(call.kernels, call.backward, Workers{}, nullptr);
}

// Refused by the forward and by the backward, in the name of each.
void expect_refused(
    const std::function<void(AttentionInputs<float>&)>& spoil,
    const std::string& condition,
    bool latent = false) {
  Call call;
  if (latent) call.use_latent();
  spoil(call.forward);
  spoil(call.backward);
  expect_contains(call.forward_message(), "[attention_forward] " + condition);
  expect_contains(call.backward_message(), "[attention_backward] " + condition);
  EXPECT_TRUE(call.nothing_written()) << condition;
}

using In = AttentionInputs<float>;

TEST(Errors, SizesThatCannotBeAreNamed) {
  expect_refused([](In& in) { in.batch = 0; }, "batch >= 1 (0 vs 1)");
  expect_refused([](In& in) { in.heads = 0; }, "heads >= 1 (0 vs 1)");
  expect_refused([](In& in) { in.q_tokens = -1; }, "q_tokens >= 0 (-1 vs 0)");
  expect_refused([](In& in) { in.k_tokens = -2; }, "k_tokens >= 0 (-2 vs 0)");
  expect_refused([](In& in) { in.nope = 0; }, "nope >= 1 (0 vs 1)");
  expect_refused([](In& in) { in.rope = -1; }, "rope >= 0 (-1 vs 0)");
  expect_refused([](In& in) { in.v_width = 0; }, "v_width >= 1 (0 vs 1)");
  expect_refused(
      [](In& in) { in.kv_lora_rank = -1; }, "kv_lora_rank >= 0 (-1 vs 0)");
}

TEST(Errors, MessageEndsWithAllSizes) {
  Call call;
  call.forward.rope = -1;
  EXPECT_EQ(
      call.forward_message(),
      "[attention_forward] rope >= 0 (-1 vs 0). b 2, h 2, s_q 3, s_kv 3, nope "
      "4, rope -1, v_width 4, kv_lora_rank 0");
}

TEST(Errors, ScaleIsPositiveAndFinite) {
  expect_refused([](In& in) { in.scale = 0; }, "scale > 0 and finite (0 vs 0)");
  expect_refused(
      [](In& in) { in.scale = -0.5; }, "scale > 0 and finite (-0.5 vs 0)");
  expect_refused(
      [](In& in) { in.scale = INFINITY; }, "scale > 0 and finite (inf vs 0)");
  expect_refused(
      [](In& in) { in.scale = NAN; }, "scale > 0 and finite (nan vs 0)");
}

void expect_mask_refused(
    const std::vector<MaskSlice>& mask, const std::string& condition) {
  expect_refused([&](In& in) { in.mask = mask; }, condition);
}

TEST(Errors, MaskSlicesLieInsideTheSequences) {
  expect_mask_refused(
      {{-1, 3, 0, 3}},
      "mask[0] queries inside the sequence ([-1, 3) vs [0, 3))");
  expect_mask_refused(
      {{0, 1, 0, 3}, {1, 4, 0, 3}},
      "mask[1] queries inside the sequence ([1, 4) vs [0, 3))");
  expect_mask_refused(
      {{2, 1, 0, 3}}, "mask[0] queries inside the sequence ([2, 1) vs [0, 3))");
  expect_mask_refused(
      {{0, 3, 0, 4}}, "mask[0] keys inside the sequence ([0, 4) vs [0, 3))");
  expect_mask_refused(
      {{0, 3, 2, 1}}, "mask[0] keys inside the sequence ([2, 1) vs [0, 3))");
  expect_mask_refused(
      {{0, 3, 0, 3, -3 * MaskSlice::kFull}},
      detail::concat(
          "mask[0] causal_offset within 2 kFull (",
          -3 * MaskSlice::kFull,
          " vs ",
          2 * MaskSlice::kFull,
          ")"));
}

TEST(Errors, MaskSlicesHaveNoCommonPair) {
  expect_mask_refused(
      {{0, 3, 0, 3}, {0, 3, 0, 3}},
      "mask[0] and mask[1] have no common pair (query 2 sees key 0 in both)");
  // One pair in common, (2, 1): what one sees of it, the other sees as well.
  expect_mask_refused(
      {{0, 3, 0, 2, -1}, {0, 1, 2, 3}, {2, 3, 1, 3, -1}},
      "mask[0] and mask[2] have no common pair (query 2 sees key 1 in both)");
}

// Rectangles that overlap where one of the two sees nothing.
TEST(Errors, OverlapThatIsNotSeenTwiceIsNoCommonPair) {
  Call call;
  const std::vector<MaskSlice> mask{
      {0, 3, 0, 2, -1}, {0, 3, 2, 3, 0}, {0, 1, 0, 2, 0}, {2, 2, 0, 3}};
  call.forward.mask = mask;
  EXPECT_NO_THROW(
      attention_forward(call.kernels, call.forward, Workers{}, nullptr));
}

// Brute force over all pairs agrees for every two slices of a small sequence.
TEST(Errors, CommonPairIsFoundExactlyWhereThereIsOne) {
  const auto sees = [](const MaskSlice& s, int64_t i, int64_t j) {
    return s.q_begin <= i && i < s.q_end && s.k_begin <= j && j < s.k_end &&
           j <= i + s.causal_offset;
  };
  std::vector<MaskSlice> slices;
  for (const auto& [q_begin, q_end] : {std::pair{0, 2}, {1, 3}, {2, 3}}) {
    for (const auto& [k_begin, k_end] : {std::pair{0, 1}, {0, 3}, {1, 3}}) {
      for (const int64_t offset :
           {int64_t{-2},
            int64_t{-1},
            int64_t{0},
            int64_t{1},
            MaskSlice::kFull}) {
        slices.push_back({q_begin, q_end, k_begin, k_end, offset});
      }
    }
  }
  Call call;
  for (const MaskSlice& a : slices) {
    for (const MaskSlice& b : slices) {
      bool common = false;
      for (int64_t pair = 0; pair < kTokens * kTokens; ++pair) {
        const int64_t i = pair / kTokens, j = pair % kTokens;
        common = common || (sees(a, i, j) && sees(b, i, j));
      }
      const std::vector<MaskSlice> mask{a, b};
      call.forward.mask = mask;
      bool refused = false;
      try {
        attention_forward(call.kernels, call.forward, Workers{}, nullptr);
      } catch (const InvalidArgument&) {
        refused = true;
      }
      EXPECT_EQ(refused, common);
    }
  }
}

TEST(Errors, InputsThatAreMissingAreNamed) {
  expect_refused([](In& in) { in.q_nope.data = nullptr; }, "q_nope is given");
  expect_refused(
      [](In& in) { in.q_pe.data = nullptr; }, "q_pe is given (null)");
  expect_refused(
      [](In& in) { in.k_pe.data = nullptr; }, "k_pe is given (null)");
  expect_refused([](In& in) { in.k_nope.data = nullptr; }, "k_nope is given");
  expect_refused([](In& in) { in.v.data = nullptr; }, "v is given (null)");
  expect_refused(
      [](In& in) { in.latent.data = nullptr; }, "latent is given (null)", true);
  expect_refused([](In& in) { in.kv_b = nullptr; }, "kv_b is given", true);
  expect_refused(
      [](In& in) { in.kv_b_row = 3; }, "kv_b_row >= 4 (3 vs 4)", true);
}

void expect_backward_refused(
    const std::function<void(Call&)>& spoil, const std::string& condition) {
  Call call;
  spoil(call);
  expect_contains(call.backward_message(), "[attention_backward] " + condition);
  EXPECT_TRUE(call.nothing_written()) << condition;
}

void expect_forward_refused(
    const std::function<void(Call&)>& spoil, const std::string& condition) {
  Call call;
  spoil(call);
  expect_contains(call.forward_message(), "[attention_forward] " + condition);
  EXPECT_TRUE(call.nothing_written()) << condition;
}

TEST(Errors, OutputsThatAreMissingAreNamed) {
  expect_forward_refused(
      [](Call& c) { c.forward.out = {}; }, "out is given (null)");
  expect_forward_refused(
      [](Call& c) { c.forward.lse = {}; }, "lse is given (null)");
  expect_backward_refused(
      [](Call& c) { c.backward.d_out = {}; }, "d_out is given (null)");
  expect_backward_refused(
      [](Call& c) { c.backward.lse = {}; }, "lse is given (null)");
  expect_backward_refused(
      [](Call& c) { c.backward.delta = {}; }, "delta is given (null)");
  const auto with_latent = [](const std::function<void(Call&)>& spoil) {
    return [spoil](Call& c) {
      c.use_latent();
      spoil(c);
    };
  };
  expect_backward_refused(
      with_latent([](Call& c) { c.backward.d_latent = {}; }),
      "d_latent is given (null)");
  expect_backward_refused(
      with_latent([](Call& c) { c.backward.d_kv_b = nullptr; }),
      "d_kv_b is given (null)");
  expect_backward_refused(
      with_latent([](Call& c) { c.backward.d_kv_b_row = 1; }),
      "d_kv_b_row >= 4 (1 vs 4)");
}

using Gradient = GradientView<float> BackwardParams<float>::*;

void expect_one_way(const std::string& name, Gradient gradient) {
  expect_backward_refused(
      [&](Call& c) { c.backward.*gradient = {}; },
      name + " is either stored or added (neither given)");
  expect_backward_refused(
      [&](Call& c) {
        GradientView<float>& to = c.backward.*gradient;
        to.store = to.add = c.output(7);
      },
      name + " is either stored or added (both given)");
}

TEST(Errors, GradientIsEitherStoredOrAdded) {
  expect_one_way("d_q_nope", &BackwardParams<float>::d_q_nope);
  expect_one_way("d_q_pe", &BackwardParams<float>::d_q_pe);
  expect_one_way("d_k_pe", &BackwardParams<float>::d_k_pe);
  expect_one_way("d_k_nope", &BackwardParams<float>::d_k_nope);
  expect_one_way("d_v", &BackwardParams<float>::d_v);
  expect_backward_refused(
      [](Call& c) {
        c.backward.rope = 0; // nothing to give
        c.backward.d_q_pe.add = c.output(7);
      },
      "d_q_pe is either stored or added (both given)");
}

TEST(Errors, RowsOfAnOutputThatOverlapAreNamed) {
  expect_forward_refused(
      [](Call& c) { c.forward.out.head = 3; },
      "out: rows apart (head stride 3 vs 4)");
  expect_forward_refused(
      [](Call& c) { c.forward.lse.head = 0; },
      "lse: rows apart (head stride 0 vs 1)");
  expect_forward_refused(
      [](Call& c) { c.forward.out.batch = 7; },
      "out: rows apart (batch stride 7 vs 8)");
  expect_forward_refused(
      [](Call& c) {
        c.forward.running = c.output(2);
        c.forward.running.token = -15;
      },
      "running: rows apart (token stride 15 vs 16)");
  // Queries are per head, keys that heads share are added.
  expect_backward_refused(
      [](Call& c) { c.backward.d_q_nope.store.head = 0; },
      "d_q_nope: rows apart (head stride 0 vs 4)");
  expect_backward_refused(
      [](Call& c) {
        std::swap(c.backward.d_q_pe.store, c.backward.d_q_pe.add);
        c.backward.d_q_pe.add.head = 0;
      },
      "d_q_pe: rows apart (head stride 0 vs 4)");
  expect_backward_refused(
      [](Call& c) { c.backward.d_v.store.head = 0; },
      "d_v: rows apart (head stride 0 vs 4)");
  expect_backward_refused(
      [](Call& c) {
        c.backward.d_k_pe.add.head = 0;
        c.backward.d_k_pe.add.batch = 2;
      },
      "d_k_pe: rows apart (batch stride 2 vs 4)");
  expect_backward_refused(
      [](Call& c) {
        c.use_latent();
        c.backward.d_latent.batch = 0;
      },
      "d_latent: rows apart (batch stride 0 vs 4)");
}

TEST(Errors, ScratchAndWorkersThatCannotBeAreNamed) {
  Call call;
  expect_contains(
      call.forward_message(Workers{0, nullptr}),
      "[attention_forward] workers.count >= 1 (0 vs 1)");
  Kernels<float> hungry = call.kernels;
  hungry.forward_scratch_bytes = [](const ForwardParams<float>&) {
    return int64_t{64};
  };
  hungry.backward_scratch_bytes = [](const BackwardParams<float>&) {
    return int64_t{64};
  };
  alignas(64) std::array<std::byte, 128> scratch;
  const auto forward = [&](void* memory) {
    return message_of(
        [&] { attention_forward(hungry, call.forward, Workers{}, memory); });
  };
  const auto backward = [&](void* memory) {
    return message_of(
        [&] { attention_backward(hungry, call.backward, Workers{}, memory); });
  };
  expect_contains(forward(nullptr), "[attention_forward] scratch is given");
  expect_contains(backward(nullptr), "[attention_backward] scratch is given");
  expect_contains(forward(scratch.data() + 8), "] scratch aligned (8 vs 64)");
  expect_contains(
      backward(scratch.data() + 32), "] scratch aligned (32 vs 64)");
  EXPECT_TRUE(call.nothing_written());
}

// Tensors of no numbers may have no memory.
TEST(Errors, EmptyTensorsMayBeNull) {
  Call call;
  call.forward.rope = call.backward.rope = 0;
  call.forward.q_pe = call.forward.k_pe = {};
  call.backward.q_pe = call.backward.k_pe = {};
  call.backward.d_q_pe = call.backward.d_k_pe = {};
  attention_forward(call.kernels, call.forward, Workers{}, nullptr);
  attention_backward(call.kernels, call.backward, Workers{}, nullptr);

  const std::vector<MaskSlice> mask{full_mask(kTokens, 0)};
  call.forward.mask = call.backward.mask = mask;
  call.forward.k_tokens = call.backward.k_tokens = 0;
  call.forward.k_nope = call.forward.v = {};
  call.backward.k_nope = call.backward.v = {};
  call.backward.d_k_nope = call.backward.d_v = {};
  attention_forward(call.kernels, call.forward, Workers{}, nullptr);
  attention_backward(call.kernels, call.backward, Workers{}, nullptr);
}

TEST(Errors, ErrorsAreTheCallersMistake) {
  Call call;
  call.forward.heads = 0;
  EXPECT_THROW(
      attention_forward(call.kernels, call.forward, Workers{}, nullptr),
      InvalidArgument);
}

} // namespace
} // namespace laga::kernels::test
