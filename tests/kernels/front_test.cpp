// The front with kernels that only take notes: who computes which head, whose
// turn it is, and what happens to the others where one fails.
#include "laga/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/core/message_of.h"

namespace laga::kernels::test {
namespace {

constexpr int64_t kHeads = 7;
constexpr int64_t kSteps = 3;
constexpr int64_t kScratchBytes = 128;

// What the kernels below noted; tests run one at a time.
struct Notes {
  std::mutex mutex;
  std::vector<int64_t> heads;                    // as they began
  std::map<int64_t, std::vector<int64_t>> turns; // heads by step
  std::vector<std::pair<int, void*>> scratch;    // by worker
  int64_t failing_head = -1;
  int64_t failing_step = -1; // -1: before the first turn
} notes;

thread_local int current_worker = 0;

void reset_notes() {
  notes.heads.clear();
  notes.turns.clear();
  notes.scratch.clear();
  notes.failing_head = notes.failing_step = -1;
}

void note_head(int64_t head, void* scratch) {
  const std::lock_guard lock(notes.mutex);
  notes.heads.push_back(head);
  notes.scratch.emplace_back(current_worker, scratch);
}

void fail_at(int64_t head, int64_t step) {
  if (head == notes.failing_head && step == notes.failing_step) {
    throw std::runtime_error(detail::concat("head ", head));
  }
}

void forward_head(const ForwardParams<float>&, int64_t head, void* scratch) {
  note_head(head, scratch);
  fail_at(head, -1);
}

void backward_head(
    const BackwardParams<float>&,
    int64_t head,
    const Kernels<float>::Turns& turns,
    void* scratch) {
  note_head(head, scratch);
  fail_at(head, -1);
  for (int64_t step = 0; step < kSteps; ++step) {
    // Later heads are ready sooner, so that without turns they would be first.
    std::this_thread::sleep_for(
        std::chrono::microseconds(50 * (kHeads - head)));
    turns.wait(turns.state, step, head);
    fail_at(head, step);
    {
      const std::lock_guard lock(notes.mutex);
      notes.turns[step].push_back(head);
    }
    turns.done(turns.state, step, head);
  }
}

const Kernels<float> kNoting{
    .isa = "noting",
    .forward_scratch_bytes =
        [](const ForwardParams<float>&) { return kScratchBytes; },
    .backward_scratch_bytes =
        [](const BackwardParams<float>&) { return kScratchBytes; },
    .forward_head = forward_head,
    .backward_steps = [](const BackwardParams<float>&) { return kSteps; },
    .backward_head = backward_head,
    .multiply_add_loop = nullptr};

// Of one number a row, all in one place where the front does not mind.
template <class Params>
void set_sizes(Params& p) {
  static float numbers[kHeads]{};
  p.heads = kHeads;
  p.q_tokens = p.k_tokens = 1;
  p.nope = p.rope = p.v_width = 1;
  p.q_nope = p.q_pe = p.k_nope = p.k_pe = p.v = {numbers, kHeads, kHeads, 1};
}

ForwardParams<float> forward_params() {
  static float out[kHeads], lse[kHeads];
  ForwardParams<float> p;
  set_sizes(p);
  p.out = {out, kHeads, kHeads, 1};
  p.lse = {lse, kHeads, kHeads, 1};
  return p;
}

// What heads share in the backward.
enum class Shared { kNothing, kRopePart, kNopePart, kValues, kLatent };

BackwardParams<float> backward_params(Shared shared) {
  static float d[kHeads], weights[2 * kHeads];
  BackwardParams<float> p;
  set_sizes(p);
  const View<float> view{d, kHeads, kHeads, 1};
  p.d_out = p.lse = p.delta = {d, kHeads, kHeads, 1};
  p.d_q_nope.store = p.d_q_pe.store = view;
  const auto share = [&](GradientView<float>& to, Shared part) {
    if (shared == part) {
      to.add = {d, kHeads, kHeads, 0};
    } else {
      to.store = view;
    }
  };
  share(p.d_k_pe, Shared::kRopePart);
  share(p.d_k_nope, Shared::kNopePart);
  share(p.d_v, Shared::kValues);
  if (shared == Shared::kLatent) {
    p.kv_lora_rank = p.kv_b_row = p.d_kv_b_row = 1;
    p.latent = p.v;
    p.kv_b = p.d_kv_b = weights;
    p.d_latent = view;
  }
  return p;
}

std::vector<int64_t> in_order() {
  std::vector<int64_t> heads(kHeads);
  for (int64_t head = 0; head < kHeads; ++head)
    heads[static_cast<size_t>(head)] = head;
  return heads;
}

// One worker, several in turn, the same the other way round, and threads.
std::vector<Workers> all_workers() {
  const auto backwards = [](const std::function<void(int)>& body) {
    for (int worker = 2; worker >= 0; --worker)
      body(worker);
  };
  return {
      {1, nullptr},
      {3, nullptr},
      {3, backwards},
      worker_threads(1),
      worker_threads(2),
      worker_threads(4),
      worker_threads(kHeads + 2)};
}

class Front : public testing::TestWithParam<size_t> {
 protected:
  Front() : workers_(all_workers().at(GetParam())) {
    reset_notes();
  }
  void forward() {
    attention_forward(kNoting, forward_params(), workers_, scratch());
  }
  void backward(Shared shared) {
    attention_backward(kNoting, backward_params(shared), workers_, scratch());
  }
  void* scratch() {
    return memory_;
  }
  const Workers workers_;

 private:
  alignas(64) std::byte memory_[(kHeads + 2) * kScratchBytes];
};

INSTANTIATE_TEST_SUITE_P(
    Workers, Front, testing::Range(size_t{0}, all_workers().size()));

TEST_P(Front, EveryHeadIsComputedOnce) {
  forward();
  std::sort(notes.heads.begin(), notes.heads.end());
  EXPECT_EQ(notes.heads, in_order());
  reset_notes();
  backward(Shared::kValues);
  std::sort(notes.heads.begin(), notes.heads.end());
  EXPECT_EQ(notes.heads, in_order());
}

TEST_P(Front, ScratchIsTheWorkersOwn) {
  const Workers telling{
      workers_.count, [this](const std::function<void(int)>& body) {
        const auto told = [&](int worker) {
          current_worker = worker;
          body(worker);
        };
        if (workers_.run) {
          workers_.run(told);
        } else {
          for (int worker = 0; worker < workers_.count; ++worker)
            told(worker);
        }
      }};
  attention_forward(kNoting, forward_params(), telling, scratch());
  for (const auto& [worker, own] : notes.scratch) {
    EXPECT_EQ(
        static_cast<std::byte*>(own) - static_cast<std::byte*>(scratch()),
        worker * kScratchBytes);
  }
}

TEST_P(Front, SharedGradientsAreAddedInTheOrderOfHeads) {
  for (const Shared shared :
       {Shared::kRopePart,
        Shared::kNopePart,
        Shared::kValues,
        Shared::kLatent}) {
    SCOPED_TRACE(static_cast<int>(shared));
    reset_notes();
    backward(shared);
    ASSERT_EQ(notes.turns.size(), static_cast<size_t>(kSteps));
    for (const auto& [step, heads] : notes.turns)
      EXPECT_EQ(heads, in_order()) << step;
  }
}

// In any order: a head that waited for head 0 would be waiting for ever.
TEST_P(Front, NobodyWaitsWhereNothingIsShared) {
  Kernels<float> impatient = kNoting;
  impatient.backward_head = [](const BackwardParams<float>&,
                               int64_t head,
                               const Kernels<float>::Turns& turns,
                               void* scratch) {
    turns.wait(turns.state, 0, head + 1);
    note_head(head, scratch);
  };
  attention_backward(
      impatient, backward_params(Shared::kNothing), workers_, scratch());
  EXPECT_EQ(notes.heads.size(), static_cast<size_t>(kHeads));
}

TEST_P(Front, ErrorOfAHeadIsThrownAndNobodyWaitsForIt) {
  for (const int64_t head : {int64_t{0}, int64_t{2}, kHeads - 1}) {
    for (int64_t step = -1; step < kSteps; ++step) {
      reset_notes();
      notes.failing_head = head;
      notes.failing_step = step;
      try {
        backward(Shared::kValues);
        ADD_FAILURE() << "head " << head << ", step " << step;
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), detail::concat("head ", head));
      }
    }
  }
}

TEST_P(Front, ErrorInTheForwardIsThrown) {
  notes.failing_head = 3;
  EXPECT_THROW(forward(), std::runtime_error);
}

TEST(WorkerThreads, RunEachWorkerAtTheSameTime) {
  constexpr int kCount = 4;
  const Workers workers = worker_threads(kCount);
  ASSERT_EQ(workers.count, kCount);
  std::barrier all_are_here(kCount);
  std::vector<int> calls(kCount);
  workers.run([&](int worker) {
    all_are_here.arrive_and_wait();
    ++calls.at(static_cast<size_t>(worker));
  });
  EXPECT_EQ(calls, std::vector<int>(kCount, 1));
}

TEST(WorkerThreads, ThrowWhatAWorkerThrewOnceAllAreDone) {
  std::vector<int> done(3);
  const auto body = [&](int worker) {
    if (worker == 1) throw std::runtime_error("worker 1");
    done.at(static_cast<size_t>(worker)) = 1;
  };
  EXPECT_THROW(worker_threads(3).run(body), std::runtime_error);
  EXPECT_EQ(done, (std::vector<int>{1, 0, 1}));
}

TEST(WorkerThreads, RefuseToBeNobody) {
  expect_contains(
      message_of([] { worker_threads(0); }),
      "[worker_threads] count >= 1 (0 vs 1)");
}

} // namespace
} // namespace laga::kernels::test
