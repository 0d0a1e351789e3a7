// Counts what leaves through MPI, by standing between the backend and MPI.
#pragma once

#include <cstdint>
#include <vector>

namespace laga::test {

/// Bytes of data (not of messages) given to MPI_Isend or MPI_Send since the
/// start, by destination in MPI_COMM_WORLD, and the largest at once.
std::vector<int64_t> counted_bytes(int ranks);
int64_t largest_counted();
void forget_largest_counted();

} // namespace laga::test
