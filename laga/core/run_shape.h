// What is run: how long, how wide, over how many ranks.
#pragma once

#include "laga/core/config.h"
#include "laga/core/dtype.h"
#include "laga/core/form.h"

#include <cstdint>
#include <vector>

namespace laga {

struct RunShape {
  int64_t seq = 0;   // S, tokens of the whole sequence
  int64_t batch = 1; // b
  int ranks = 1;     // P
  Dtype dtype = Dtype::kBf16;

  int64_t local_seq() const { // s
    return seq / ranks;
  }
};

/// The rank counts that `form` can use: P divides num_heads (heads are sharded
/// over all ranks) and the sequence (shards are equal). Sorted.
std::vector<int64_t> ranks_that_work(
    const MlaConfig& config, const Form& form, int64_t seq);

/// Throws InvalidArgument where `form` cannot run `shape`, naming the
/// constraint and the rank counts that work. Nothing is ever dropped or padded.
void check_shape(
    const MlaConfig& config, const Form& form, const RunShape& shape);

} // namespace laga
