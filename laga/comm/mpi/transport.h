// The process's one connection to MPI: messages to and from all ranks, the
// operations under way, and the thread that looks after them. Only
// point-to-point calls that return at once are made after the start, so that
// every wait can have a deadline.
#pragma once

#include "laga/comm/mpi/message.h"

#include <mpi.h>

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>

namespace laga::mpi {

class Operation;

/// Messages go with this tag, data with larger ones.
inline constexpr int kMessageTag = 0;

/// Which call of which group.
struct CallKey {
  uint64_t group;
  int64_t number;
  auto operator<=>(const CallKey&) const = default;
};

using Lock = std::unique_lock<std::mutex>;

class Transport {
 public:
  /// Starts MPI at the first call, which is collective. Never destroyed: MPI
  /// may write into it for as long as the process lives.
  static Transport& instance();
  /// Null: not started, or finalized.
  static Transport* if_started();

  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }
  /// By world rank: numbered from 0 in the order of their first rank.
  const std::vector<int>& node_of() const {
    return node_of_;
  }
  Lock lock() {
    return Lock(mutex_);
  }

  /// While one of these lives, its owner calls progress() again and again, and
  /// the transport's own thread sleeps.
  class Driving {
   public:
    explicit Driving(Transport& transport);
    ~Driving();
    Driving(const Driving&) = delete;
    Driving& operator=(const Driving&) = delete;

   private:
    Transport& transport_;
  };

  /// Ends MPI; all ranks have said that they are ready to.
  void finalize();
  /// Ends all ranks of the run.
  [[noreturn]] void end_run(int exit_code);

  // The caller of what follows holds the lock.

  int32_t next_world();
  /// For what peers send in one operation. They come round again after
  /// millions of operations, when the old one is long over.
  int32_t next_tag();

  /// Begins to look after an operation; hands it what peers have said before.
  void add(Operation& operation);
  void remove(const Operation& operation);

  /// Moves everything on that can be moved on; returns at once.
  void progress();

  void send(int world_rank, const Message& message);
  /// Whether all messages of this rank are on their way.
  bool all_told() const {
    return outgoing_.empty();
  }
  MPI_Request start_sending(ConstBytes bytes, int world_rank, int tag);
  MPI_Request start_receiving(Bytes bytes, int world_rank, int tag);
  /// Those that are done become MPI_REQUEST_NULL.
  void test(std::vector<MPI_Request>& requests);

  /// Tells all ranks. The first reason stays.
  void abort(int32_t world, std::string_view reason) noexcept;
  /// Null: not aborted.
  const std::string* abort_reason(int32_t world) const;
  /// Whether this rank aborted it, and was not told to.
  bool aborted_here(int32_t world) const;

  /// No further MPI call: whatever is under way stands still for ever.
  void stop(const std::string& reason);

  /// "forward/q all_to_all (#6) of world" of another rank's last call, as far
  /// as it was heard of here.
  std::string last_call(int world_rank) const;

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request;
  };

  Transport();
  void start_mpi();
  std::vector<int> find_nodes() const;
  void run();
  void listen();
  void hear(int world_rank, Message message);
  void check(int status, const char* call);

  std::mutex mutex_; // guards all below and every MPI call after the start
  std::condition_variable wake_;
  std::thread thread_;
  bool ending_ = false; // the thread is to end
  bool asleep_ = false; // the thread sleeps for long
  int driving_ = 0;

  MPI_Comm comm_ = MPI_COMM_NULL;
  bool started_here_ = false; // or by the program that we are part of
  int rank_ = 0;
  int size_ = 0;
  int largest_tag_ = 0;
  std::vector<int> node_of_;

  int32_t worlds_ = 0;
  int32_t tag_ = kMessageTag;
  std::map<CallKey, Operation*> operations_;
  // What peers say of calls that this rank has not come to.
  std::map<CallKey, std::vector<std::pair<int, Message>>> early_;
  std::vector<std::string> last_calls_; // by world rank
  struct Abort {
    std::string reason;
    bool here; // or by another rank
  };
  std::map<int32_t, Abort> aborts_; // by world
  bool stopped_ = false;
  std::string stop_reason_;

  std::vector<std::byte> incoming_; // one message
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Outgoing> outgoing_; // a list: MPI reads from its entries
};

/// The old numbers replaced by 0, 1, ... in the order of their appearance.
std::vector<int> numbered_anew(const std::vector<int>& numbers);

} // namespace laga::mpi
