#include "laga/comm/mpi/transport.h"

#include "laga/comm/mpi/operation.h"
#include "laga/core/check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

namespace laga::mpi {

namespace {

using Clock = std::chrono::steady_clock;

// How often the thread looks. While a transfer is under way and the rank
// computes: often enough for a fast link.
constexpr std::chrono::microseconds kBusyPeriod{20};
// While the rank waits and moves everything on itself, and shortly after: so
// often that it is at hand for the next transfer without being woken, which
// would cost each small one more than it takes.
constexpr std::chrono::microseconds kReadyPeriod{200};
constexpr std::chrono::milliseconds kReadyTime{5};
// Else now and then, because MPI may hold back the end of what this rank has
// sent until it is called again.
constexpr std::chrono::milliseconds kIdlePeriod{2};

// For the rest of what was sent before the clean end.
constexpr std::chrono::seconds kFlushTime{1};

Transport* g_transport = nullptr;

} // namespace

Transport& Transport::instance() {
  if (g_transport == nullptr) g_transport = new Transport;
  return *g_transport;
}

Transport* Transport::if_started() {
  return g_transport != nullptr && g_transport->comm_ != MPI_COMM_NULL
             ? g_transport
             : nullptr;
}

Transport::Transport() {
  start_mpi();
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  int* largest_tag = nullptr;
  int found = 0;
  MPI_Comm_get_attr(
      comm_, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found);
  constexpr int kLeastMpiGuarantees = 32767;
  largest_tag_ = found != 0 ? *largest_tag : kLeastMpiGuarantees;
  node_of_ = find_nodes();
  last_calls_.assign(static_cast<size_t>(size_), "none");
  incoming_.resize(largest_message(size_));
  listen();
  thread_ = std::thread([this] { run(); });
}

void Transport::start_mpi() {
  int running = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&running);
  if (running != 0) {
    MPI_Query_thread(&level);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    started_here_ = true;
  }
  LAGA_CHECK_GE(
      level,
      MPI_THREAD_MULTIPLE,
      "MPI was started with less thread support than laga needs");
}

std::vector<int> Transport::find_nodes() const {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
  int first = rank_; // the first rank of this host stands for it
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  std::vector<int> firsts(static_cast<size_t>(size_));
  MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, comm_);
  MPI_Comm_free(&host);
  return numbered_anew(firsts);
}

void Transport::run() {
  Lock guard = lock();
  Clock::time_point ready_until = Clock::now();
  while (!ending_) {
    if (driving_ == 0) progress();
    const Clock::time_point now = Clock::now();
    if (!operations_.empty()) ready_until = now + kReadyTime;
    if (!operations_.empty() && driving_ == 0) {
      wake_.wait_for(guard, kBusyPeriod);
    } else if (now < ready_until) {
      wake_.wait_for(guard, kReadyPeriod);
    } else {
      asleep_ = true;
      wake_.wait_for(guard, kIdlePeriod);
      asleep_ = false;
    }
  }
}

Transport::Driving::Driving(Transport& transport) : transport_(transport) {
  const Lock guard = transport_.lock();
  ++transport_.driving_;
}

Transport::Driving::~Driving() {
  const Lock guard = transport_.lock();
  --transport_.driving_;
}

void Transport::finalize() {
  {
    const Lock guard = lock();
    ending_ = true;
    wake_.notify_one();
  }
  thread_.join();
  const Lock guard = lock();
  const Clock::time_point end = Clock::now() + kFlushTime;
  while (!all_told() && Clock::now() < end)
    progress();
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm_);
  if (started_here_) MPI_Finalize();
}

void Transport::end_run(int exit_code) {
  const Lock guard = lock(); // so that the thread makes no call meanwhile
  MPI_Abort(comm_, exit_code);
  std::_Exit(exit_code);
}

int32_t Transport::next_world() {
  return worlds_++;
}

int32_t Transport::next_tag() {
  tag_ = tag_ == largest_tag_ ? kMessageTag + 1 : tag_ + 1;
  return tag_;
}

void Transport::add(Operation& operation) {
  const CallKey key = operation.key();
  operations_.emplace(key, &operation);
  if (asleep_) wake_.notify_one();
  const auto early = early_.find(key);
  if (early == early_.end()) return;
  for (auto& [world_rank, message] : early->second) {
    operation.hear(world_rank, std::move(message));
  }
  early_.erase(early);
}

void Transport::remove(const Operation& operation) {
  operations_.erase(operation.key());
}

void Transport::progress() {
  int arrived = 1;
  while (arrived != 0 && !stopped_) {
    MPI_Status status;
    check(MPI_Test(&listening_, &arrived, &status), "MPI_Test");
    if (arrived == 0 || stopped_) break;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Message message =
        decode(ConstBytes(incoming_).first(static_cast<size_t>(bytes)));
    listen();
    hear(status.MPI_SOURCE, std::move(message));
  }
  for (auto entry = outgoing_.begin(); entry != outgoing_.end() && !stopped_;) {
    int sent = 0;
    check(MPI_Test(&entry->request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
    entry = sent != 0 ? outgoing_.erase(entry) : std::next(entry);
  }
  for (const auto& [key, operation] : operations_)
    operation->test();
}

void Transport::listen() {
  check(
      MPI_Irecv(
          incoming_.data(),
          static_cast<int>(incoming_.size()),
          MPI_BYTE,
          MPI_ANY_SOURCE,
          kMessageTag,
          comm_,
          &listening_),
      "MPI_Irecv");
}

void Transport::hear(int world_rank, Message message) {
  if (message.kind == Kind::kAbort) {
    aborts_.try_emplace(message.world, Abort{std::move(message.text), false});
    return;
  }
  last_calls_[static_cast<size_t>(world_rank)] =
      detail::concat(describe(message), " of ", message.group_name);
  const CallKey key{message.group, message.number};
  const auto operation = operations_.find(key);
  if (operation != operations_.end()) {
    operation->second->hear(world_rank, std::move(message));
  } else {
    early_[key].emplace_back(world_rank, std::move(message));
  }
}

void Transport::send(int world_rank, const Message& message) {
  if (stopped_) return;
  Outgoing& entry =
      outgoing_.emplace_back(Outgoing{encode(message), MPI_REQUEST_NULL});
  entry.request = start_sending(entry.bytes, world_rank, kMessageTag);
}

MPI_Request Transport::start_sending(
    ConstBytes bytes, int world_rank, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (stopped_) return request;
  const int status = MPI_Isend(
      bytes.data(),
      static_cast<int>(bytes.size()),
      MPI_BYTE,
      world_rank,
      tag,
      comm_,
      &request);
  check(status, "MPI_Isend");
  return request;
}

MPI_Request Transport::start_receiving(Bytes bytes, int world_rank, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (stopped_) return request;
  const int status = MPI_Irecv(
      bytes.data(),
      static_cast<int>(bytes.size()),
      MPI_BYTE,
      world_rank,
      tag,
      comm_,
      &request);
  check(status, "MPI_Irecv");
  return request;
}

void Transport::test(std::vector<MPI_Request>& requests) {
  if (stopped_ || requests.empty()) return;
  std::vector<int> done(requests.size());
  int done_count = 0;
  const int status = MPI_Testsome(
      static_cast<int>(requests.size()),
      requests.data(),
      &done_count,
      done.data(),
      MPI_STATUSES_IGNORE);
  check(status, "MPI_Testsome");
}

void Transport::abort(int32_t world, std::string_view reason) noexcept {
  if (aborts_.contains(world)) return;
  aborts_.emplace(world, Abort{std::string(reason), true});
  Message message;
  message.kind = Kind::kAbort;
  message.world = world;
  message.text = reason;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) send(r, message);
  }
}

const std::string* Transport::abort_reason(int32_t world) const {
  if (stopped_) return &stop_reason_;
  const auto entry = aborts_.find(world);
  return entry == aborts_.end() ? nullptr : &entry->second.reason;
}

bool Transport::aborted_here(int32_t world) const {
  const auto entry = aborts_.find(world);
  return entry != aborts_.end() && entry->second.here;
}

void Transport::stop(const std::string& reason) {
  if (stopped_) return;
  stopped_ = true;
  stop_reason_ = reason;
}

std::string Transport::last_call(int world_rank) const {
  return last_calls_[static_cast<size_t>(world_rank)];
}

// What MPI reports, it cannot repair.
void Transport::check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  stop(detail::concat(call, " failed on rank ", rank_, ": ", text.data()));
}

std::vector<int> numbered_anew(const std::vector<int>& numbers) {
  std::vector<int> seen;
  std::vector<int> result;
  for (const int number : numbers) {
    const auto found = std::find(seen.begin(), seen.end(), number);
    result.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(number);
  }
  return result;
}

} // namespace laga::mpi
