#include "tests/comm/counting.h"

#include "laga/comm/mpi/transport.h"

#include <algorithm>
#include <mutex>

namespace laga::test {

namespace {

std::mutex g_mutex;
std::vector<int64_t> g_bytes;
int64_t g_largest = 0;

void count(int count, MPI_Datatype type, int destination, int tag) {
  if (tag == mpi::kMessageTag) return;
  int width = 0;
  PMPI_Type_size(type, &width);
  const int64_t bytes = int64_t{count} * width;
  const std::lock_guard lock(g_mutex);
  const auto d = static_cast<size_t>(destination);
  if (g_bytes.size() <= d) g_bytes.resize(d + 1);
  g_bytes[d] += bytes;
  g_largest = std::max(g_largest, bytes);
}

} // namespace

std::vector<int64_t> counted_bytes(int ranks) {
  const std::lock_guard lock(g_mutex);
  g_bytes.resize(static_cast<size_t>(ranks));
  return g_bytes;
}

int64_t largest_counted() {
  const std::lock_guard lock(g_mutex);
  return g_largest;
}

void forget_largest_counted() {
  const std::lock_guard lock(g_mutex);
  g_largest = 0;
}

} // namespace laga::test

// In the place of the library's own, which PMPI_ leads to.
extern "C" int MPI_Isend(
    const void* buffer,
    int count,
    MPI_Datatype type,
    int destination,
    int tag,
    MPI_Comm comm,
    MPI_Request* request) {
  laga::test::count(count, type, destination, tag);
  return PMPI_Isend(buffer, count, type, destination, tag, comm, request);
}

extern "C" int MPI_Send(
    const void* buffer,
    int count,
    MPI_Datatype type,
    int destination,
    int tag,
    MPI_Comm comm) {
  laga::test::count(count, type, destination, tag);
  return PMPI_Send(buffer, count, type, destination, tag, comm);
}
