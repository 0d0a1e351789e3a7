// How close results have to be.
#pragma once

#include "tests/kernels/problem.h"

namespace laga::kernels::test {

struct Expected {
  Results exact;
  std::map<std::string, double> bound; // of |actual - exact|, by result
};

/// The bound is twice the error of the plain computation in T: whoever beats
/// that loses nothing by using the kernels. Tensors of few numbers may have no
/// error by luck, so there is a floor:
/// * one epsilon of T, because kernels round to T what the plain computation
///   rounds, weights, their gradients and results, by half an epsilon each (16
///   in fp64, see there);
/// * four epsilons of the accumulator times the scores' size (and 1, for what
///   follows), because errors of a score are relative errors of its weight: of
///   its sum, of scaling it, of subtracting the largest, of exp().
/// Both are relative: to a tensor's largest number, as where all terms of a sum
/// are off alike (a row's by its lse), or, where the terms cancel and are off
/// each in its own way, to their root of squares.
template <class T>
Expected expect_of(const Problem& problem);

/// Where `actual` is not within the bound of `expected`: fails, naming the
/// worst index, both values and the bound.
void expect_close(const Results& actual, const Expected& expected);

/// The same numbers to the bit.
void expect_same_bits(const Results& actual, const Results& expected);

} // namespace laga::kernels::test
