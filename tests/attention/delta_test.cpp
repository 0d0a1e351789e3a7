// delta sent along with the output's gradient: the same results, the output
// kept once, and exactly the bytes predicted.
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include "tests/attention/support.h"

namespace laga {
namespace {

struct SentDelta : testing::TestWithParam<std::string> {
  LayerRun run(const Form& form, const RunShape& shape, bool send_delta) const {
    return run_on_threads(
        {small_config(),
         form,
         shape,
         {.inner = GetParam(), .send_delta = send_delta}},
        make_inputs(small_config(), shape.seq, shape.batch, shape.dtype, 0),
        {60});
  }
};

TEST_P(SentDelta, GivesTheSameResults) {
  for (const Form& form : forms_for(GetParam())) {
    for (const int ranks : {1, 2, 4}) {
      const RunShape shape{36, 2, ranks, Dtype::kFp64};
      const LayerRun plain = run(form, shape, false);
      const LayerRun sent = run(form, shape, true);
      for (const NamedError& error :
           relative_errors(small_config(), sent.results, plain.results)) {
        EXPECT_LE(error.relative, 1e-13)
            << form.name << " P=" << ranks << " " << error.name;
      }
    }
  }
}

TEST_P(SentDelta, SendsWhatIsPredictedAndOneTransferMore) {
  for (const Form& form : forms_for(GetParam())) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp64}) {
      const RunShape shape{36, 2, 4, dtype};
      const LayerRun sent = run(form, shape, true);
      const LayerRun plain = run(form, shape, false);
      for (int rank = 0; rank < 4; ++rank) {
        const auto predicted = predict_transfers(
            small_config(), form, shape, {rank, {}}, {.send_delta = true});
        const auto at = static_cast<size_t>(rank);
        EXPECT_TRUE(differences(predicted, sent.transfers[at]).empty())
            << form.name << " rank " << rank;
        EXPECT_EQ(sent.transfers[at].size(), plain.transfers[at].size() + 1);
      }
    }
  }
}

// In head space the output where it was made; in latent space that is kept for
// kv_b's gradient anyway.
TEST_P(SentDelta, SavesTheOutputWhereItWasMade) {
  const MlaConfig c = small_config();
  for (const Form& form : forms_for(GetParam())) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp64}) {
      const RunShape shape{36, 2, 4, dtype};
      const int64_t output = shape.seq * shape.batch * (c.num_heads / 4) *
                             c.v_head_dim * size_of(dtype);
      EXPECT_EQ(
          run(form, shape, false).memory[0].saved -
              run(form, shape, true).memory[0].saved,
          form.space == ScoreSpace::kHead ? output : 0)
          << form.name << " " << name_of(dtype);
    }
  }
}

TEST(SendDelta, IsRefusedByInnersThatDoNotKeepTheOutput) {
  for (const std::string name : {"eager", "sdpa"}) {
    const LayerTask task{
        small_config(),
        find_form("laga"),
        {8, 1, 1, Dtype::kFp32},
        {.inner = name, .send_delta = true}};
    try {
      run_on_threads(
          task, make_inputs(small_config(), 8, 1, Dtype::kFp32, 0), {60});
      ADD_FAILURE() << name;
    } catch (const InvalidArgument& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(name), std::string::npos) << said;
      EXPECT_NE(said.find("stream"), std::string::npos) << said;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Inners,
    SentDelta,
    testing::Values("fused", "stream"),
    [](const auto& test) { return test_name(test.param); });

} // namespace
} // namespace laga
