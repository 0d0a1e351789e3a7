// Exact peak memory of a rank, read at the allocator: every block that libtorch
// allocates on the CPU is charged to the account of the thread that asked.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace laga {

enum class MemoryUse {
  kActivations, // everything but what follows, communication buffers included
  kWeightGradients,
};

/// One rank's books, in bytes as requested of the allocator. Blocks freed by
/// another thread are credited to the account that was charged.
class MemoryAccount {
 public:
  /// A new account, empty. It lives as long as the process, because blocks
  /// charged to it (results, say) may outlive their run.
  static MemoryAccount& open();

  int64_t current(MemoryUse use) const {
    return book(use).current;
  }
  int64_t peak(MemoryUse use) const {
    return book(use).peak;
  }
  void charge(MemoryUse use, int64_t bytes);
  void credit(MemoryUse use, int64_t bytes);

 private:
  struct Book {
    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
  };
  const Book& book(MemoryUse use) const {
    return books_[static_cast<size_t>(use)];
  }
  std::array<Book, 2> books_;
};

/// Makes libtorch allocate CPU memory through the books. Call it first thing in
/// main: tensors made before are not seen.
void install_counting_allocator();

/// While it lives, this thread's allocations are charged to `account`; nullptr
/// charges nobody (shared weights, references).
class ChargeTo {
 public:
  explicit ChargeTo(MemoryAccount* account);
  ~ChargeTo();
  ChargeTo(const ChargeTo&) = delete;
  ChargeTo& operator=(const ChargeTo&) = delete;

 private:
  MemoryAccount* previous_;
};

/// While it lives, this thread's allocations count as weight gradients.
class ChargeWeightGradients {
 public:
  ChargeWeightGradients();
  ~ChargeWeightGradients();
  ChargeWeightGradients(const ChargeWeightGradients&) = delete;
  ChargeWeightGradients& operator=(const ChargeWeightGradients&) = delete;

 private:
  MemoryUse previous_;
};

} // namespace laga
