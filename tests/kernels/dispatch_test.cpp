// Which kernels run, and what LAGA_ISA does about it.
#include "laga/kernels/attention.h"
#include "laga/kernels/cpu/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/core/message_of.h"

namespace laga::kernels::test {
namespace {

struct Level {
  std::string name;
  bool runs; // on this machine
};

const std::vector<Level>& levels() {
  static const std::vector<Level> kLevels{
      {"ref", true},
      {"portable", cpu_runs_portable()},
      {"avx512", cpu_runs_avx512()},
      {"avx512_bf16", cpu_runs_avx512_bf16()}};
  return kLevels;
}

size_t level_of(std::string_view isa) {
  const auto same = [isa](const Level& level) { return level.name == isa; };
  return static_cast<size_t>(
      std::find_if(levels().begin(), levels().end(), same) - levels().begin());
}

// LAGA_ISA for a scope; the caller's own comes back.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    const char* const before = std::getenv("LAGA_ISA");
    if (before != nullptr) before_ = before;
    set(value);
  }
  ~IsaVariable() {
    set(before_ ? before_->c_str() : nullptr);
  }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;

 private:
  static void set(const char* value) {
    if (value == nullptr) {
      unsetenv("LAGA_ISA");
    } else {
      setenv("LAGA_ISA", value, 1);
    }
  }
  std::optional<std::string> before_;
};

template <class T>
class Dispatch : public testing::Test {};
using Numbers = testing::Types<Bf16, float, double>;
TYPED_TEST_SUITE(Dispatch, Numbers);

TYPED_TEST(Dispatch, RunnableKernelsAreSlowestFirstAndBeginWithTheReference) {
  const auto runnable = runnable_kernels<TypeParam>();
  ASSERT_FALSE(runnable.empty());
  EXPECT_EQ(runnable[0]->isa, "ref");
  for (size_t i = 0; i < runnable.size(); ++i) {
    const size_t level = level_of(runnable[i]->isa);
    ASSERT_LT(level, levels().size()) << runnable[i]->isa;
    EXPECT_TRUE(levels()[level].runs) << runnable[i]->isa;
    if (i > 0) {
      EXPECT_LT(level_of(runnable[i - 1]->isa), level);
    }
  }
}

TYPED_TEST(Dispatch, UnsetOrEmptyIsTheFastest) {
  const auto* const fastest = runnable_kernels<TypeParam>().back();
  for (const char* const value : {static_cast<const char*>(nullptr), ""}) {
    const IsaVariable variable(value);
    EXPECT_EQ(&kernels<TypeParam>(), fastest);
  }
}

TYPED_TEST(Dispatch, VariableNamesTheHighestThatMayBeUsed) {
  for (const Level& level : levels()) {
    if (!level.runs) continue; // the next test
    const IsaVariable variable(level.name.c_str());
    std::string_view expected;
    for (const auto* const k : runnable_kernels<TypeParam>()) {
      if (level_of(k->isa) <= level_of(level.name)) expected = k->isa;
    }
    EXPECT_EQ(kernels<TypeParam>().isa, expected) << level.name;
  }
}

// Also where T has nothing of that name.
TYPED_TEST(Dispatch, NameThatThisMachineCannotRunIsRefused) {
  std::string runnable;
  for (const Level& level : levels()) {
    if (level.runs) runnable += (runnable.empty() ? "" : ", ") + level.name;
  }
  for (const Level& level : levels()) {
    if (level.runs) continue;
    const IsaVariable variable(level.name.c_str());
    expect_contains(
        message_of([] { kernels<TypeParam>(); }),
        "[kernels] LAGA_ISA runs on this machine (" + level.name + " vs " +
            runnable + "). ");
  }
}

TYPED_TEST(Dispatch, UnknownNameIsRefused) {
  for (const char* const name : {"avx2", "REF", "ref ", "avx512_fp16"}) {
    const IsaVariable variable(name);
    EXPECT_EQ(
        message_of([] { kernels<TypeParam>(); }),
        std::string("[kernels] LAGA_ISA is known (") + name +
            " vs ref, portable, avx512, avx512_bf16). Unset, the fastest that "
            "this machine can run is used");
  }
}

TYPED_TEST(Dispatch, VariableDoesNotHideRunnableKernels) {
  const auto all = runnable_kernels<TypeParam>();
  const IsaVariable variable("ref");
  EXPECT_EQ(runnable_kernels<TypeParam>(), all);
}

TYPED_TEST(Dispatch, MultiplyAddLoopsCountTheirOperations) {
  for (const auto* const k : runnable_kernels<TypeParam>()) {
    const double once = k->multiply_add_loop(1000);
    EXPECT_GE(once, 2000) << k->isa;
    EXPECT_EQ(k->multiply_add_loop(2000), 2 * once) << k->isa;
  }
}

} // namespace
} // namespace laga::kernels::test
