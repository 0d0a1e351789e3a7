// Bytes measured where they are copied, against the prediction from the config.
#include "laga/attention/attention.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include "tests/attention/support.h"

namespace laga {
namespace {

class Transfers : public testing::TestWithParam<int> {};

TEST_P(Transfers, MeasuredEqualPredictedOneByOneOnEveryRank) {
  const int ranks = GetParam();
  MlaConfig config = small_config();
  config.num_heads = 120; // divisible by 1, 2, 3, 4, 5 and 8
  config.attention_bias = true;
  for (const int64_t q_lora : {int64_t{0}, int64_t{48}}) {
    config.q_lora_rank = q_lora;
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp64}) {
      const LayerInputs inputs = make_inputs(config, 120, 2, dtype, 0);
      for (const Form& form : kForms) {
        const LayerTask task{config, form, {120, 2, ranks, dtype}, {}};
        const LayerRun run = run_on_threads(task, inputs, {60});
        ASSERT_EQ(run.transfers.size(), static_cast<size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) {
          const auto predicted =
              predict_transfers(config, form, task.shape, {rank, {}});
          EXPECT_EQ(predicted.empty(), ranks == 1);
          for (const std::string& line :
               differences(predicted, run.transfers[rank])) {
            ADD_FAILURE() << form.name << " rank " << rank << ": " << line;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Transfers, testing::Values(1, 2, 3, 4, 5, 8));

// What moves does not depend on hidden_size or q_lora_rank: DeepSeek-V3's heads
// and latent with a narrow input send exactly what the full layer sends.
TEST(Transfers, V3ForwardAt1024TokensOverFourRanks) {
  MlaConfig config = load_config("deepseek-v3");
  config.hidden_size = 64;
  config.q_lora_rank = 32;
  const LayerInputs inputs = make_inputs(config, 1024, 1, Dtype::kBf16, 0);
  const auto forward_bytes = [&](const char* form) {
    std::vector<Transfer> transfers;
    run_ranks({4, 60, {}}, [&](const std::shared_ptr<Communicator>& comm) {
      const Context context = make_context(
          config, find_form(form), {1024, 1, 4, Dtype::kBf16}, comm);
      mla_attention(
          inputs.hidden.narrow(0, comm->rank() * 256, 256),
          as_leaves(inputs.weights),
          context);
      if (comm->rank() == 0) transfers = context.ledger->transfers;
    });
    int64_t bytes = 0;
    for (const Transfer& transfer : transfers)
      bytes += transfer.bytes_sent;
    return bytes;
  };
  EXPECT_EQ(forward_bytes("explicit"), 31457280);
  EXPECT_EQ(forward_bytes("explicit-compact"), 28409856);
  EXPECT_EQ(forward_bytes("absorbed"), 16613376);
  EXPECT_EQ(forward_bytes("laga"), 16613376);
}

TEST(Transfers, DifferencesNamesWhatDiffers) {
  const Transfer q{Phase::kForward, "q", "all_to_all", "world", 8, 0, 8};
  Transfer other = q;
  other.bytes_sent = 9;
  Transfer extra = q;
  extra.name = "kv";
  EXPECT_TRUE(differences({q, extra}, {extra, q}).empty());
  ASSERT_EQ(differences({q}, {other}).size(), 1U);
  EXPECT_NE(differences({q}, {other})[0].find("forward/q"), std::string::npos);
  EXPECT_EQ(differences({q, q}, {q}).size(), 1U);
  EXPECT_EQ(differences({}, {extra}).size(), 1U);
}

} // namespace
} // namespace laga
