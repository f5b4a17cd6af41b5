// The lines of the workers' output, which wait to be sent to the coordinator. The queue is bounded:
// while the coordinator is away, the newest lines are kept.
#ifndef MUSTER_WORKER_AGENT_LOG_QUEUE_H_
#define MUSTER_WORKER_AGENT_LOG_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Splits the bytes of a program's output into lines that fit into a message.
//
// The lines are returned without their end ("\n" or "\r\n"). They are valid UTF-8, as protobuf
// strings must be (other bytes become U+FFFD). At most kMaxLineBytes of a line's own bytes are
// kept. The rest of a longer line is left out, and the line says how many bytes were left out.
class LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;

  // Returns the lines that these bytes complete.
  std::vector<std::string> Feed(const char* bytes, size_t count);
  // Returns the bytes after the last line end as a line; nothing if there are none.
  std::vector<std::string> Finish();

 private:
  std::string TakeLine();

  std::string line_;
  size_t left_out_ = 0;
};

struct LogQueueOptions {
  // The limits for all workers together; beyond them the oldest lines are dropped.
  size_t max_lines = 10000;
  size_t max_bytes = 8 << 20;
  // The limits for one batch.
  size_t batch_lines = 256;
  size_t batch_bytes = 512 << 10;
};

// Thread-safe.
class LogQueue {
 public:
  struct Batch {
    WorkerId worker;
    std::vector<std::string> lines;
  };

  explicit LogQueue(const LogQueueOptions& options) : options_(options) {}

  void Push(const WorkerId& worker, std::vector<std::string> lines);

  // Returns the next lines of the worker that has the oldest line; nullopt if there are none. The
  // first line says how many lines of this worker were dropped before it, if any.
  std::optional<Batch> Take();
  // Returns the next lines of this worker.
  std::optional<Batch> TakeFrom(const WorkerId& worker);

 private:
  struct Line {
    uint64_t sequence;
    std::string text;
  };
  struct Pending {
    std::deque<Line> lines;
    uint64_t dropped = 0;
  };
  using Workers = std::map<WorkerId, Pending>;

  Workers::iterator Oldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Batch TakeFrom(Workers::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Line Pop(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LogQueueOptions options_;

  absl::Mutex mutex_;
  // Only workers that have lines, or dropped lines that are not reported yet.
  Workers workers_ ABSL_GUARDED_BY(mutex_);
  uint64_t pushed_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t lines_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOG_QUEUE_H_
