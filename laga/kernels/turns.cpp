#include "laga/kernels/turns.h"

#include <thread>

namespace laga::kernels {

Turns::Turns(int64_t steps) : next_head_(static_cast<size_t>(steps)) {}

void Turns::wait(int64_t step, int64_t head) const {
  const std::atomic<int64_t>& next = next_head_[static_cast<size_t>(step)];
  while (next.load(std::memory_order_acquire) != head) {
    if (abandoned()) throw Abandoned{};
    std::this_thread::yield();
  }
}

void Turns::done(int64_t step, int64_t head) {
  next_head_[static_cast<size_t>(step)].store(
      head + 1, std::memory_order_release);
}

void Turns::abandon() {
  abandoned_.store(true, std::memory_order_relaxed);
}

bool Turns::abandoned() const {
  return abandoned_.load(std::memory_order_relaxed);
}

} // namespace laga::kernels
