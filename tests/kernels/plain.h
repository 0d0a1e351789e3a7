// Attention as six products of whole matrices, in two precisions: what is
// right, and what anybody gets who computes in T without a thought.
#pragma once

#include "tests/kernels/problem.h"

namespace laga::kernels::test {

/// In fp64 with no rounding but the one that is asked for: keys and values made
/// of a latent are numbers of T. Rows without a key: out 0, lse -inf.
template <class T>
Results exact_results(const Problem& problem);

/// Every product is summed in the accumulator, one term after the other, and
/// rounded to T: scores, probabilities, their gradients, all results. This is
/// what attention/inner's eager does. lse is of the unrounded scores, since it
/// has the accumulator's precision.
template <class T>
Results low_precision_results(const Problem& problem);

/// How large results are before anything cancels: for each result, the largest
/// root of the sum of its terms' squares. Independent errors of size e in the
/// terms make one of e times this in the result.
struct Magnitudes {
  std::map<std::string, double> results;
  double scores = 0; // the largest, cancelled or not
};
template <class T>
Magnitudes magnitudes(const Problem& problem);

} // namespace laga::kernels::test
