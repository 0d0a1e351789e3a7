#include "laga/attention/memory.h"

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>

namespace laga {

namespace {

thread_local MemoryAccount* charged_account = nullptr;
thread_local MemoryUse charged_use = MemoryUse::kActivations;

// Sits in front of each block; one cache line keeps torch's 64-byte alignment.
struct alignas(64) Header {
  MemoryAccount* account;
  MemoryUse use;
  int64_t bytes;
};
static_assert(sizeof(Header) == 64);

void release(void* data) {
  if (data == nullptr) return;
  Header* header = static_cast<Header*>(data) - 1;
  if (header->account != nullptr) {
    header->account->credit(header->use, header->bytes);
  }
  std::free(header);
}

// DataPtr's context is the data itself and raw_deleter() is not null, or
// oneDNN's raw_allocate aborts.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    void* block = nullptr;
    if (posix_memalign(&block, alignof(Header), bytes + sizeof(Header)) != 0) {
      throw std::bad_alloc();
    }
    auto* header = new (block)
        Header{charged_account, charged_use, static_cast<int64_t>(bytes)};
    if (header->account != nullptr) {
      header->account->charge(header->use, header->bytes);
    }
    void* data = header + 1;
    return {data, data, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

} // namespace

MemoryAccount& MemoryAccount::open() {
  static std::mutex mutex;
  static std::deque<MemoryAccount> accounts;
  const std::lock_guard lock(mutex);
  return accounts.emplace_back();
}

void MemoryAccount::charge(MemoryUse use, int64_t bytes) {
  Book& book = books_[static_cast<size_t>(use)];
  const int64_t now = book.current += bytes;
  int64_t peak = book.peak;
  while (now > peak && !book.peak.compare_exchange_weak(peak, now)) {
  }
}

void MemoryAccount::credit(MemoryUse use, int64_t bytes) {
  books_[static_cast<size_t>(use)].current -= bytes;
}

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

ChargeTo::ChargeTo(MemoryAccount* account) : previous_(charged_account) {
  charged_account = account;
}
ChargeTo::~ChargeTo() {
  charged_account = previous_;
}

ChargeWeightGradients::ChargeWeightGradients() : previous_(charged_use) {
  charged_use = MemoryUse::kWeightGradients;
}
ChargeWeightGradients::~ChargeWeightGradients() {
  charged_use = previous_;
}

} // namespace laga
