// Every inner attention in every form that can use it: how close, which bits,
// what stays behind, what is refused.
#include "laga/attention/inner/inner.h"

#include "laga/attention/attention.h"
#include "laga/attention/memory.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"
#include "laga/measure/verification.h"

#include <ATen/ops/empty.h>

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/attention/support.h"

namespace laga {
namespace {

// Errors within twice what the plain one-rank computation makes in the same
// dtype (1e-12 in fp64), for output and gradients. Lengths that end inside the
// blocks of all that is fused: 32, 64, 256 queries, 512 keys.
void expect_close(
    const std::string& inner, int64_t seq, bool causal, bool v_is_widest) {
  const int64_t batch = seq < 500 ? 2 : 1;
  VerifyCase a_case{"small", small_config(), seq, batch, {1, 4}, causal};
  if (v_is_widest) a_case.config.v_head_dim = 52;
  const Runner run = [](const LayerTask& task, const LayerInputs& inputs) {
    return run_on_threads(task, inputs, {60});
  };
  size_t runs = 0;
  for (const Dtype dtype : {Dtype::kFp64, Dtype::kFp32, Dtype::kBf16}) {
    verify(a_case, dtype, {{}, {inner}}, run, [&](const Verdict& verdict) {
      ++runs;
      EXPECT_EQ(verdict.inner, inner);
      for (const std::string& failure : verdict.failures) {
        ADD_FAILURE() << verdict.form << " " << name_of(dtype)
                      << " P=" << verdict.ranks << " S=" << seq << ": "
                      << failure;
      }
    });
  }
  EXPECT_EQ(runs, 3 * 2 * forms_for(inner).size());
}

class Inner : public testing::TestWithParam<std::string> {};

TEST_P(Inner, IsCloseToTheReferenceWhereBlocksEndInTheMiddle) {
  for (const int64_t seq : {4, 36, 200, 772}) {
    expect_close(GetParam(), seq, /*causal=*/true, /*v_is_widest=*/false);
  }
}

TEST_P(Inner, IsCloseToTheReferenceWithoutAMask) {
  expect_close(GetParam(), 200, /*causal=*/false, /*v_is_widest=*/false);
}

TEST_P(Inner, IsCloseToTheReferenceWhereValuesAreWiderThanKeys) {
  expect_close(GetParam(), 36, /*causal=*/true, /*v_is_widest=*/true);
}

// What the backward keeps must not keep the node that keeps it.
TEST_P(Inner, NothingIsLeftWhenTheOutputGoes) {
  const MlaConfig config = small_config();
  const LayerInputs inputs = make_inputs(config, 32, 2, Dtype::kBf16, 0);
  for (const Form& form : forms_for(GetParam())) {
    for (const bool backward : {false, true}) {
      run_ranks({1, 60, {}}, [&](const std::shared_ptr<Communicator>& comm) {
        const Context context = make_context(
            config,
            form,
            {32, 2, 1, Dtype::kBf16},
            comm,
            {.inner = GetParam()});
        const Weights leaves = as_leaves(inputs.weights);
        MemoryAccount& account = MemoryAccount::open();
        const ChargeTo charge(&account);
        {
          const at::Tensor hidden = inputs.hidden.detach().requires_grad_(true);
          const at::Tensor output = mla_attention(hidden, leaves, context);
          if (backward) output.sum().backward();
        }
        EXPECT_GT(account.peak(MemoryUse::kActivations), 0);
        EXPECT_EQ(account.current(MemoryUse::kActivations), 0) << form.name;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Inner, testing::ValuesIn(inner_names()), [](const auto& test) {
      return test_name(test.param);
    });

TEST(InnerTable, FindsEveryNameAndListsAllForAnUnknownOne) {
  for (const std::string& name : inner_names()) {
    EXPECT_EQ(find_inner(name).name, name);
    EXPECT_FALSE(forms_for(name).empty()) << name;
  }
  try {
    find_inner("telepathic");
    ADD_FAILURE() << "found";
  } catch (const InvalidArgument& error) {
    for (const std::string& name : inner_names()) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

TEST(InnerTable, EveryFormHasOneAndRefusesWhatItCannotUse) {
  for (const Form& form : kForms) {
    const std::vector<std::string> usable = inners_for(form);
    EXPECT_FALSE(usable.empty()) << form.name;
    for (const std::string& name : inner_names()) {
      const bool fits =
          std::find(usable.begin(), usable.end(), name) != usable.end();
      if (fits) {
        EXPECT_EQ(find_inner(name, form).name, name);
      } else {
        EXPECT_THROW(find_inner(name, form), InvalidArgument) << name;
      }
    }
  }
}

// Before anything is sent, and saying what would do.
TEST(MlaAttention, RefusesAnInnerAttentionThatTheDeviceDoesNotHave) {
  const Weights weights = make_weights(small_config(), Dtype::kFp32, 0);
  run_ranks({2, 10, {}}, [&](const std::shared_ptr<Communicator>& comm) {
    const Context context = make_context(
        small_config(),
        find_form("laga"),
        {8, 1, 2, Dtype::kFp32},
        comm,
        {.inner = "fused"});
    const at::Tensor elsewhere = at::empty({4, 1, 72}, at::kMeta);
    try {
      mla_attention(elsewhere, weights, context);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      for (const char* word : {"fused", "CPU", "meta", "sdpa", "eager"}) {
        EXPECT_NE(message.find(word), std::string::npos) << message;
      }
    }
    EXPECT_TRUE(context.ledger->transfers.empty());
  });
}

} // namespace
} // namespace laga
