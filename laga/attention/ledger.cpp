#include "laga/attention/ledger.h"

#include <utility>

namespace laga {

void Ledger::write_down(
    const Communicator& comm,
    const Label& label,
    std::string op,
    std::span<const int64_t> sent,
    int64_t payload_bytes) {
  Transfer transfer{
      label.phase, label.name, std::move(op), comm.name(), 0, 0, payload_bytes};
  for (int peer = 0; peer < comm.size(); ++peer) {
    transfer.bytes_sent += sent[peer];
    if (comm.node_of(peer) != comm.node_of(comm.rank())) {
      transfer.bytes_sent_across_nodes += sent[peer];
    }
  }
  if (payload_bytes < 0) transfer.payload_bytes = transfer.bytes_sent;
  transfers.push_back(std::move(transfer));
}

} // namespace laga
