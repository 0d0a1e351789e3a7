#include "laga/comm/reduce.h"
#include "laga/core/bf16.h"
#include "laga/core/check.h"

#include <algorithm>
#include <cstring>

namespace laga {

namespace {

// Accumulators of one block stay in the first-level cache, 4 KiB in fp32.
constexpr int64_t kBlock = 1024;

using Parts = std::vector<const std::byte*>;

// sum[i] = parts[0][begin + i] + parts[1][begin + i] + ..., from left to right.
// Blocks are loaded with memcpy: the bytes may have any alignment.
template <typename Number>
void add_in_order(
    const Parts& parts,
    int64_t begin,
    int64_t count,
    Accumulator<Number>* sum) {
  Number block[kBlock];
  const auto width = static_cast<int64_t>(sizeof(Number));
  for (size_t p = 0; p < parts.size(); ++p) {
    std::memcpy(
        block, parts[p] + begin * width, static_cast<size_t>(count * width));
    if (p == 0) {
      for (int64_t i = 0; i < count; ++i)
        sum[i] = widen(block[i]);
    } else {
      for (int64_t i = 0; i < count; ++i)
        sum[i] += widen(block[i]);
    }
  }
}

template <typename Number>
void round_to(Accumulator<Number>* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Number rounded;
    narrow(sum[i], rounded);
    sum[i] = widen(rounded);
  }
}

// nodes[k]: the parts of one node. A block of every part is read before that
// block of `out` is written, so `out` may be one of them.
template <typename Number>
void sum_nodes(const std::vector<Parts>& nodes, std::byte* out, int64_t count) {
  Accumulator<Number> total[kBlock];
  Accumulator<Number> node[kBlock];
  Number block[kBlock];
  const auto width = static_cast<int64_t>(sizeof(Number));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    add_in_order<Number>(nodes[0], begin, n, total);
    if (nodes.size() > 1) round_to<Number>(total, n);
    for (size_t k = 1; k < nodes.size(); ++k) {
      add_in_order<Number>(nodes[k], begin, n, node);
      round_to<Number>(node, n);
      for (int64_t i = 0; i < n; ++i)
        total[i] += node[i];
    }
    for (int64_t i = 0; i < n; ++i)
      narrow(total[i], block[i]);
    std::memcpy(out + begin * width, block, static_cast<size_t>(n * width));
  }
}

// The parts of each node in rank order, nodes in the order of their first rank.
std::vector<Parts> by_node(
    std::span<const std::byte* const> parts, std::span<const int> nodes) {
  std::vector<Parts> grouped;
  std::vector<int> seen;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto found = std::find(seen.begin(), seen.end(), nodes[p]);
    const auto k = static_cast<size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(nodes[p]);
      grouped.emplace_back();
    }
    grouped[k].push_back(parts[p]);
  }
  return grouped;
}

} // namespace

void sum_in_layout_order(
    Dtype dtype,
    std::span<const std::byte* const> parts,
    std::span<const int> nodes,
    std::byte* out,
    int64_t count) {
  LAGA_CHECK(!parts.empty(), "A sum of nothing");
  LAGA_CHECK_EQ(parts.size(), nodes.size(), "One node number per part");
  LAGA_CHECK_GE(count, 0, "Numbers to add");
  const std::vector<Parts> grouped = by_node(parts, nodes);
  switch (dtype) {
    case Dtype::kBf16:
      return sum_nodes<Bf16>(grouped, out, count);
    case Dtype::kFp32:
      return sum_nodes<float>(grouped, out, count);
    case Dtype::kFp64:
      return sum_nodes<double>(grouped, out, count);
  }
}

} // namespace laga
