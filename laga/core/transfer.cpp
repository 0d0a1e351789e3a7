#include "laga/core/transfer.h"

#include "laga/core/check.h"

#include <algorithm>
#include <tuple>

namespace laga {

namespace {

auto key(const Transfer& transfer) {
  return std::tie(transfer.phase, transfer.name);
}

std::string described(const Transfer& transfer) {
  return detail::concat(
      name_of(transfer.phase),
      "/",
      transfer.name,
      " ",
      transfer.op,
      " in ",
      transfer.group,
      ": ",
      transfer.bytes_sent,
      " bytes sent, ",
      transfer.bytes_sent_across_nodes,
      " across nodes, payload ",
      transfer.payload_bytes);
}

} // namespace

std::vector<std::string> differences(
    std::vector<Transfer> predicted, std::vector<Transfer> measured) {
  const auto by_key = [](const Transfer& a, const Transfer& b) {
    return key(a) < key(b);
  };
  std::sort(predicted.begin(), predicted.end(), by_key);
  std::sort(measured.begin(), measured.end(), by_key);
  std::vector<std::string> lines;
  auto p = predicted.begin();
  auto m = measured.begin();
  while (p != predicted.end() || m != measured.end()) {
    if (m == measured.end() || (p != predicted.end() && key(*p) < key(*m))) {
      lines.push_back("predicted but not sent: " + described(*p++));
    } else if (p == predicted.end() || key(*m) < key(*p)) {
      lines.push_back("sent but not predicted: " + described(*m++));
    } else {
      if (*p != *m) {
        lines.push_back(
            "predicted " + described(*p) + "; measured " + described(*m));
      }
      ++p;
      ++m;
    }
  }
  return lines;
}

} // namespace laga
