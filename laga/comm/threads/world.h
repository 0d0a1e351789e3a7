// A job with its communicators, for those who start the ranks.
#pragma once

#include "laga/comm/threads/job.h"
#include "laga/comm/threads/threads.h"

namespace laga::threads {

struct World {
  std::shared_ptr<Job> job;
  std::vector<std::shared_ptr<Communicator>> communicators; // by rank
};

/// make_thread_group that shows the job.
World make_world(const ThreadGroupOptions& options);

} // namespace laga::threads
