#include "cli/tape_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/table.h"

namespace laga::cli {

namespace {

std::string mib(int64_t bytes) {
  return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20));
}

// "[S 4096, b 1, n/P 16, nope+r 192] x 2 B"
std::string shape_of(const TapeTensor& tensor) {
  std::string text;
  for (const Dim& dim : tensor.shape) {
    text += text.empty() ? "[" : ", ";
    const std::string size = std::to_string(dim.size);
    text += dim.name == size ? size : dim.name + " " + size;
  }
  return fmt::format("{}] x {} B", text, tensor.number_bytes);
}

} // namespace

void print_tape(
    const MemoryTape& tape,
    int moment,
    const std::string& title,
    std::FILE* stream) {
  std::vector<TapeTensor> alive = tape.alive_at(moment);
  std::stable_sort(
      alive.begin(), alive.end(), [](const TapeTensor& a, const TapeTensor& b) {
        return a.bytes() > b.bytes();
      });
  Table table(
      {{title, "tensor", true}, {title, "shape", true}, {title, "MiB"}});
  for (const TapeTensor& tensor : alive)
    table.add_row({tensor.name, shape_of(tensor), mib(tensor.bytes())});
  table.add_row({"sum", "", mib(tape.bytes_at(moment))});
  table.print(stream);
}

} // namespace laga::cli
