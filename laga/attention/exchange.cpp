#include "laga/attention/exchange.h"

#include "laga/attention/buffers.h"
#include "laga/attention/dtype.h"
#include "laga/comm/reduce.h"
#include "laga/core/check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

namespace laga {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// One move of one run: shared by its start and its finish node, for the forward
// and then for the backward. Holds the buffers only while bytes are moving.
class Exchange {
 public:
  Exchange(Move move, std::string name, const Context& context)
      : move_(move),
        name_(std::move(name)),
        comm_(context.comm),
        ledger_(context.ledger) {}

  at::Tensor start_forward(const at::Tensor& x) {
    const Label label{Phase::kForward, name_};
    if (move_ == Move::kAllToAll) return post_all_to_all(label, x);
    return post_all_gather(label, x);
  }

  void finish_forward() {
    finish(
        {Phase::kForward, name_},
        move_ == Move::kAllToAll ? "all_to_all" : "all_gather");
  }

  void start_backward(const at::Tensor& d_moved) {
    const Label label{Phase::kBackward, "d_" + name_};
    result_ = move_ == Move::kAllToAll ? post_all_to_all(label, d_moved)
                                       : post_reduce_scatter(label, d_moved);
  }

  at::Tensor finish_backward() {
    finish(
        {Phase::kBackward, "d_" + name_},
        move_ == Move::kAllToAll ? "all_to_all" : "reduce_scatter");
    return std::exchange(result_, {});
  }

 private:
  int64_t ranks() const {
    return comm_->size();
  }

  std::vector<Part> slices(const at::Tensor& x) const {
    const int64_t bytes = static_cast<int64_t>(x.nbytes()) / ranks();
    std::vector<Part> parts;
    for (int64_t p = 0; p < ranks(); ++p)
      parts.push_back({p * bytes, bytes});
    return parts;
  }

  at::Tensor post_all_to_all(const Label& label, const at::Tensor& x) {
    LAGA_CHECK_EQ(x.size(0), ranks(), "one slice for each rank of ", x.sizes());
    sending_ = x.contiguous();
    at::Tensor arriving = at::empty(x.sizes(), x.options());
    const auto parts = slices(arriving);
    work_ = comm_->all_to_all(
        label, bytes_of(sending_), parts, mutable_bytes_of(arriving), parts);
    return arriving;
  }

  // Gathers in place: the own shard is copied to where it belongs anyway.
  at::Tensor post_all_gather(const Label& label, const at::Tensor& x) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[0] *= ranks();
    at::Tensor all = at::empty(sizes, x.options());
    sending_ = all.narrow(0, comm_->rank() * x.size(0), x.size(0));
    sending_.copy_(x);
    shard_bytes_ = static_cast<int64_t>(x.nbytes());
    work_ = comm_->all_gather(
        label, bytes_of(sending_), mutable_bytes_of(all), slices(all));
    return all;
  }

  at::Tensor post_reduce_scatter(const Label& label, const at::Tensor& x) {
    sending_ = x.contiguous();
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[0] /= ranks();
    at::Tensor sum = at::empty(sizes, x.options());
    const int64_t arriving = static_cast<int64_t>(sum.nbytes()) * (ranks() - 1);
    scratch_ = at::empty(
        {std::min(arriving, kReduceScratchBytes)},
        x.options().dtype(at::kByte));
    reduction_.emplace(
        comm_,
        label,
        dtype_of(x),
        bytes_of(sending_),
        mutable_bytes_of(sum),
        mutable_bytes_of(scratch_));
    return sum;
  }

  void finish(const Label& label, std::string op) {
    const auto wait = [this] {
      if (reduction_) {
        reduction_->wait();
        return reduction_->bytes_sent();
      }
      work_->wait();
      return work_->bytes_sent();
    };
    ledger_->record(
        *comm_,
        label,
        std::move(op),
        wait,
        move_ == Move::kAllGather ? shard_bytes_ : -1);
    reduction_.reset();
    work_.reset();
    sending_.reset();
    scratch_.reset();
  }

  Move move_;
  std::string name_;
  std::shared_ptr<Communicator> comm_;
  std::shared_ptr<Ledger> ledger_;
  int64_t shard_bytes_ = 0; // of a gather
  // Buffers stand before the work that uses them: it must be destroyed first.
  at::Tensor sending_;
  at::Tensor scratch_;
  at::Tensor result_; // of the backward, until start's node takes it
  std::unique_ptr<Work> work_;
  std::optional<ReduceScatter> reduction_;
};

namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

struct Holder : torch::CustomClassHolder {
  explicit Holder(ExchangePtr held) : exchange(std::move(held)) {}
  ExchangePtr exchange;
};

void keep(AutogradContext* ctx, const ExchangePtr& exchange) {
  ctx->saved_data["exchange"] =
      c10::IValue::make_capsule(c10::make_intrusive<Holder>(exchange));
}
Exchange& kept(AutogradContext* ctx) {
  const auto holder = ctx->saved_data["exchange"].toCapsule();
  return *static_cast<Holder&>(*holder).exchange;
}

// The buffer that start returns is still being filled; finish hands it on.
struct StartMove : torch::autograd::Function<StartMove> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& x, const ExchangePtr& exchange) {
    keep(ctx, exchange);
    return exchange->start_forward(x);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list /*passed on*/) {
    return {kept(ctx).finish_backward(), at::Tensor()};
  }
};

struct FinishMove : torch::autograd::Function<FinishMove> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& moved,
      const ExchangePtr& exchange) {
    keep(ctx, exchange);
    exchange->finish_forward();
    return moved;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d_moved) {
    kept(ctx).start_backward(d_moved[0]);
    return {d_moved[0], at::Tensor()}; // keeps it alive until start has waited
  }
};

struct GradientFromPeers : torch::autograd::Function<GradientFromPeers> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& x, const ExchangePtr& exchange) {
    keep(ctx, exchange);
    return at::empty({1}, x.options()).expand(x.sizes());
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d_x) {
    kept(ctx).start_backward(d_x[0]);
    return {kept(ctx).finish_backward(), at::Tensor()};
  }
};

} // namespace

Pending start(
    const at::Tensor& x, Move move, std::string name, const Context& context) {
  Pending pending;
  if (context.shape.ranks == 1) {
    pending.buffer_ = x;
    return pending;
  }
  pending.exchange_ =
      std::make_shared<Exchange>(move, std::move(name), context);
  pending.buffer_ = StartMove::apply(x, pending.exchange_);
  return pending;
}

at::Tensor Pending::finish() && {
  if (!exchange_) return std::move(buffer_);
  return FinishMove::apply(std::move(buffer_), std::move(exchange_));
}

at::Tensor gradient_from_peers(
    const at::Tensor& x, std::string name, const Context& context) {
  if (context.shape.ranks == 1) return x;
  return GradientFromPeers::apply(
      x, std::make_shared<Exchange>(Move::kAllToAll, std::move(name), context));
}

} // namespace laga
