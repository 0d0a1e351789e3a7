// Judging: errors, digests; and refusing: what is found before anything moves.
#include "laga/measure/errors.h"

#include "laga/attention/attention.h"
#include "laga/attention/weight_gradients.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/attention/support.h"

namespace laga {
namespace {

TEST(RelativeError, IsTheLargestDifferenceOverTheLargestValue) {
  const at::Tensor b = at::tensor({1.0, -4.0, 2.0});
  EXPECT_EQ(relative_error(at::tensor({1.0, -4.0, 3.0}), b), 0.25);
  EXPECT_EQ(relative_error(b, b), 0);
  EXPECT_EQ(absolute_error(at::tensor({1.0, -4.0, 3.0}), b), 1);
  EXPECT_EQ(relative_error(at::zeros({3}), at::zeros({3})), 0);
  EXPECT_TRUE(std::isinf(relative_error(b, at::zeros({3}))));
  EXPECT_THROW(relative_error(b, at::zeros({2})), InvalidArgument);
}

TEST(RelativeError, WhatIsNotFiniteIsInfinitelyWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor good = at::tensor({1.0, 2.0});
  EXPECT_TRUE(std::isinf(relative_error(at::tensor({1.0, nan}), good)));
  EXPECT_TRUE(std::isinf(relative_error(good, at::tensor({nan, 2.0}))));
}

TEST(RelativeErrors, JudgeLatentAndKpeRowsOfKvAApart) {
  MlaConfig config = small_config();
  const std::string name = "grad.kv_a_proj_with_mqa.weight";
  at::Tensor exact = at::zeros({56, 2});
  exact.narrow(0, 0, 40).fill_(1000);
  exact.narrow(0, 40, 16).fill_(1);
  const at::Tensor wrong = exact.clone();
  wrong.narrow(0, 40, 16).fill_(2);
  const auto errors = relative_errors(config, {{name, wrong}}, {{name, exact}});
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_EQ(errors[0].relative, 0.001);
  EXPECT_EQ(errors[1].name, name + "[k_pe]");
  EXPECT_EQ(errors[1].relative, 1);
  EXPECT_EQ(errors[2].name, name + "[latent]");
  EXPECT_EQ(errors[2].relative, 0);
  EXPECT_EQ(worst_gradient(errors).name, name + "[k_pe]");
  EXPECT_THROW(relative_errors(config, {}, {{name, exact}}), InvalidArgument);
}

TEST(Digest, ChangesWithOneBit) {
  const at::Tensor a = at::zeros({100});
  const at::Tensor b = a.clone();
  EXPECT_EQ(digest({{"x", a}}), digest({{"x", b}}));
  b[57] = -0.0;
  EXPECT_NE(digest({{"x", a}}), digest({{"x", b}}));
  EXPECT_EQ(digest({{"x", a}}).size(), 32U);
}

TEST(Weights, DependOnSeedAndNameOnly) {
  const Weights one = make_weights(small_config(), Dtype::kBf16, 5);
  MlaConfig wider = small_config();
  wider.num_heads = 16; // another kv_b, the same kv_a
  const Weights two = make_weights(wider, Dtype::kBf16, 5);
  EXPECT_TRUE(one.kv_a_proj.equal(two.kv_a_proj));
  const Weights other = make_weights(small_config(), Dtype::kBf16, 6);
  EXPECT_FALSE(one.kv_a_proj.equal(other.kv_a_proj));
}

TEST(Weights, RefuseMissingUnknownAndMisshapen) {
  const MlaConfig config = small_config();
  std::vector<NamedTensor> tensors =
      named(make_weights(config, Dtype::kFp32, 0));
  const auto message = [&](const std::vector<NamedTensor>& given) {
    try {
      weights_from(config, given);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(tensors), "");
  auto missing = tensors;
  missing.pop_back();
  EXPECT_NE(message(missing).find("o_proj.weight"), std::string::npos);
  auto unknown = tensors;
  unknown.push_back({"q_proj.weight", at::zeros({2, 2})});
  EXPECT_NE(message(unknown).find("q_proj.weight"), std::string::npos);
  auto misshapen = tensors;
  misshapen[0].tensor = at::zeros({2, 2});
  EXPECT_NE(message(misshapen).find(tensors[0].name), std::string::npos);
  auto mixed = tensors;
  mixed[1].tensor = mixed[1].tensor.to(at::kDouble);
  EXPECT_NE(message(mixed).find(tensors[1].name), std::string::npos);
}

// Runs one rank's call and expects it to be refused with nothing sent.
void expect_refused(
    const at::Tensor& hidden, const Weights& weights, const std::string& word) {
  run_ranks({2, 10, {}}, [&](const std::shared_ptr<Communicator>& comm) {
    const Context context = make_context(
        small_config(), find_form("laga"), {8, 1, 2, Dtype::kFp32}, comm);
    try {
      mla_attention(hidden, weights, context);
      ADD_FAILURE() << "accepted where '" << word << "' is wrong";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << error.what();
    }
    EXPECT_TRUE(context.ledger->transfers.empty());
  });
}

TEST(MlaAttention, RefusesWrongShapesAndTypesBeforeAnythingIsSent) {
  const Weights weights = make_weights(small_config(), Dtype::kFp32, 0);
  expect_refused(at::zeros({8, 1, 72}), weights, "hidden"); // not the shard
  expect_refused(at::zeros({1, 4, 72}), weights, "hidden"); // b, s swapped
  expect_refused(at::zeros({4, 1, 72}, at::kDouble), weights, "hidden's dtype");
  expect_refused(
      at::zeros({72, 1, 4}).permute({2, 1, 0}), weights, "is_contiguous");
  Weights broken = weights;
  broken.kv_b_proj = broken.kv_b_proj.t();
  expect_refused(at::zeros({4, 1, 72}), broken, "kv_b_proj.weight");
}

TEST(MakeContext, RefusesWhatItCannotHonour) {
  run_ranks({2, 10, {}}, [&](const std::shared_ptr<Communicator>& comm) {
    const auto make = [&](const MlaConfig& config,
                          const RunShape& shape,
                          const ContextOptions& options = {}) {
      return make_context(config, find_form("laga"), shape, comm, options);
    };
    MlaConfig config = small_config();
    EXPECT_THROW(make(config, {8, 1, 4, Dtype::kFp32}), InvalidArgument);
    EXPECT_THROW(make(config, {7, 1, 2, Dtype::kFp32}), InvalidArgument);
    EXPECT_THROW(
        make(config, {8, 1, 2, Dtype::kFp32}, {.inner = "telepathic"}),
        InvalidArgument);
    EXPECT_THROW(
        make(config, {8, 1, 2, Dtype::kFp32}, {.positions = at::zeros({4})}),
        InvalidArgument);
    config.unsupported = {"index_topk: sparse attention"};
    EXPECT_THROW(make(config, {8, 1, 2, Dtype::kFp32}), InvalidArgument);
  });
}

TEST(SumWeightGradients, NeedsABackwardFirst) {
  run_ranks({2, 10, {}}, [&](const std::shared_ptr<Communicator>& comm) {
    const Context context = make_context(
        small_config(), find_form("laga"), {8, 1, 2, Dtype::kFp32}, comm);
    const Weights leaves =
        as_leaves(make_weights(small_config(), Dtype::kFp32, 0));
    EXPECT_THROW(sum_weight_gradients(leaves, context), InvalidArgument);
  });
}

// One rank's backward throws; every other rank must raise too, and say why.
TEST(MlaAttention, ARankThatThrowsInItsBackwardStopsTheOthers) {
  const LayerInputs inputs =
      make_inputs(small_config(), 32, 1, Dtype::kFp32, 0);
  std::atomic<int> told{0};
  const auto body = [&](const std::shared_ptr<Communicator>& comm) {
    const Context context = make_context(
        small_config(), find_form("laga"), {32, 1, 4, Dtype::kFp32}, comm);
    // The others may still be in the last wait of their forward by then.
    try {
      const at::Tensor output = mla_attention(
          inputs.hidden.narrow(0, comm->rank() * 8, 8),
          as_leaves(inputs.weights),
          context);
      if (comm->rank() == 2) {
        output.register_hook([](const at::Tensor&) -> at::Tensor {
          throw std::runtime_error("disk on fire");
        });
      }
      output.sum().backward();
    } catch (const CommError& error) {
      const std::string message = error.what();
      const bool says_who_and_why =
          message.find("rank 2") != std::string::npos &&
          message.find("disk on fire") != std::string::npos;
      told += says_who_and_why ? 1 : 0;
      throw;
    }
  };
  EXPECT_THROW(run_ranks({4, 10, {}}, body), std::runtime_error);
  EXPECT_EQ(told, 3);
}

} // namespace
} // namespace laga
