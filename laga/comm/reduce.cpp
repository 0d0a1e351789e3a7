#include "laga/comm/reduce.h"

#include "laga/comm/arguments.h"
#include "laga/core/check.h"

#include <algorithm>
#include <utility>

namespace laga {

Share share_of(int64_t count, int ranks, int rank) {
  LAGA_CHECK_GE(count, 0, "Numbers to share");
  LAGA_CHECK_GE(ranks, 1, "Ranks that share");
  LAGA_CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks, " ranks");
  const int64_t each = count / ranks;
  const int64_t one_more = count % ranks;
  return {
      rank * each + std::min<int64_t>(rank, one_more),
      each + (rank < one_more ? 1 : 0)};
}

ReduceScatter::ReduceScatter(
    std::shared_ptr<Communicator> comm,
    Label label,
    Dtype dtype,
    ConstBytes send,
    Bytes out,
    Bytes scratch,
    SumFunction sum)
    : comm_(std::move(comm)),
      label_(std::move(label)),
      dtype_(dtype),
      send_(send),
      out_(out),
      scratch_(scratch),
      sum_(std::move(sum)),
      bytes_sent_(static_cast<size_t>(comm_->size())) {
  const int64_t width = size_of(dtype);
  const auto send_bytes = static_cast<int64_t>(send.size());
  const std::string call = describe(label_, "reduce_scatter");
  LAGA_CHECK_EQ(send_bytes % width, 0, call, " of ", name_of(dtype));
  const int64_t count = send_bytes / width;
  const int size = comm_->size();
  const Share own = share_of(count, size, comm_->rank());
  const auto out_bytes = static_cast<int64_t>(out.size());
  LAGA_CHECK_EQ(out_bytes, own.count * width, call, ", bytes of out");
  const bool in_place = out.data() == send.data() + own.begin * width;
  LAGA_CHECK(
      in_place || !overlap(send, out),
      call,
      ": out must be the own part of send or apart from it");

  if (size == 1) {
    if (!in_place && own.count > 0) sum_parts(own.count);
    return;
  }
  LAGA_CHECK(
      !overlap(scratch, send) && !overlap(scratch, out),
      call,
      ": scratch must be apart from send and out");
  largest_share_ = share_of(count, size, 0).count;
  const int64_t fits =
      static_cast<int64_t>(scratch.size()) / width / (size - 1);
  LAGA_CHECK(
      fits > 0 || count == 0,
      call,
      ": scratch must hold size() - 1 = ",
      size - 1,
      " numbers, has ",
      scratch.size(),
      " bytes");
  chunk_ = std::min(fits, largest_share_);
  post();
}

// The numbers of rank p's share in the chunk under way.
Share ReduceScatter::chunk_of(int p) const {
  const auto count = static_cast<int64_t>(send_.size()) / size_of(dtype_);
  const Share share = share_of(count, comm_->size(), p);
  const int64_t begin = std::min(done_, share.count);
  return {share.begin + begin, std::min(chunk_, share.count - begin)};
}

// Where in the scratch rank p's numbers arrive; there is no slot for the own.
int64_t ReduceScatter::slot_of(int p) const {
  return (p < comm_->rank() ? p : p - 1) * chunk_ * size_of(dtype_);
}

void ReduceScatter::post() {
  const int size = comm_->size();
  const int64_t width = size_of(dtype_);
  const int64_t arriving = chunk_of(comm_->rank()).count * width;
  std::vector<Part> to(static_cast<size_t>(size));
  std::vector<Part> from(static_cast<size_t>(size));
  for (int p = 0; p < size; ++p) {
    if (p == comm_->rank()) continue;
    const Share chunk = chunk_of(p);
    to[static_cast<size_t>(p)] = {chunk.begin * width, chunk.count * width};
    from[static_cast<size_t>(p)] = {slot_of(p), arriving};
  }
  // Numbered, so that a rank which forgot to wait, or has another scratch,
  // meets a label that differs from its own.
  Label label = label_;
  if (chunk_ < largest_share_) {
    label.name += detail::concat(
        " chunk ",
        done_ / chunk_ + 1,
        " of ",
        (largest_share_ + chunk_ - 1) / chunk_);
  }
  work_ = comm_->all_to_all(label, send_, to, scratch_, from);
}

void ReduceScatter::sum_parts(int64_t count) {
  const int size = comm_->size();
  const int64_t width = size_of(dtype_);
  std::vector<const std::byte*> parts;
  std::vector<int> nodes;
  for (int p = 0; p < size; ++p) {
    parts.push_back(
        p == comm_->rank() ? send_.data() + chunk_of(p).begin * width
                           : scratch_.data() + slot_of(p));
    nodes.push_back(comm_->node_of(p));
  }
  sum_(dtype_, parts, nodes, out_.data() + done_ * width, count);
}

void ReduceScatter::wait() {
  while (work_) {
    work_->wait();
    const std::vector<int64_t> sent = work_->bytes_sent();
    work_.reset();
    for (size_t p = 0; p < sent.size(); ++p)
      bytes_sent_[p] += sent[p];
    const int64_t arrived = chunk_of(comm_->rank()).count;
    if (arrived > 0) sum_parts(arrived);
    done_ += chunk_;
    if (done_ < largest_share_) post();
  }
}

std::vector<int64_t> ReduceScatter::bytes_sent() const {
  return bytes_sent_;
}

std::vector<int64_t> all_reduce(
    const std::shared_ptr<Communicator>& comm,
    const Label& label,
    Dtype dtype,
    Bytes buffer,
    Bytes scratch,
    const SumFunction& sum) {
  const int64_t width = size_of(dtype);
  const auto buffer_bytes = static_cast<int64_t>(buffer.size());
  LAGA_CHECK_EQ(
      buffer_bytes % width,
      0,
      describe(label, __func__),
      " of ",
      name_of(dtype));
  const int size = comm->size();
  std::vector<Part> parts;
  for (int p = 0; p < size; ++p) {
    const Share share = share_of(buffer_bytes / width, size, p);
    parts.push_back({share.begin * width, share.count * width});
  }
  const Part& own = parts[static_cast<size_t>(comm->rank())];
  const Bytes own_share = buffer.subspan(
      static_cast<size_t>(own.offset), static_cast<size_t>(own.bytes));

  ReduceScatter reduce(comm, label, dtype, buffer, own_share, scratch, sum);
  reduce.wait();
  std::vector<int64_t> bytes_sent = reduce.bytes_sent();
  if (size == 1) return bytes_sent;

  const auto gather = comm->all_gather(label, own_share, buffer, parts);
  gather->wait();
  const std::vector<int64_t> gathered = gather->bytes_sent();
  for (size_t p = 0; p < gathered.size(); ++p)
    bytes_sent[p] += gathered[p];
  return bytes_sent;
}

} // namespace laga
