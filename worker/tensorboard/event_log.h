// Writes the event files of one session of a job, on a thread of its own, so that a slow or broken
// file system neither delays nor ends training.
//
// The files are synced when Sync asks for it, and after every kSyncBytes. After a failed write or
// sync the file is not used any more, and a new one is tried, which begins with a START at the
// first step that may be lost. So TensorBoard's reader sees each step once. Until then entries wait
// in memory (backlog.h). An attempt begins with kSyncBytes of them, and what remains follows in
// such parts: so it needs little memory, holds the lock for a short time, and writes little to a
// disk that is still full.
//
// Threading: thread-safe. Callbacks run on the log's thread, `on_trouble` also on a thread that
// calls Add; never under a lock.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/files/disk.h"
#include "worker/tensorboard/backlog.h"
#include "worker/tensorboard/entry.h"

namespace muster::tensorboard {

// How long to wait after so many failures in succession, the last one included.
absl::Duration RetryAfter(int64_t failures, absl::Duration first, absl::Duration longest);

class EventLog {
 public:
  struct Options {
    std::string directory;  // the job's files lie in a subfolder
    std::string job;
    std::string writer;               // part of the files' names
    size_t limit = size_t{64} << 20;  // bytes of entries in memory
    // From a failure to the next attempt: at first, and, after it has doubled with each failure, at
    // most. In Finish it stays what it is at first.
    absl::Duration retry = absl::Seconds(1);
    absl::Duration longest_retry = absl::Seconds(30);
    // A call of the file system that lasts longer is reported as trouble.
    absl::Duration slow = absl::Seconds(30);
    files::Disk* disk = &files::Disk::Real();
    // UNAVAILABLE: another process may have replaced this one; nothing is written any more. May be
    // empty.
    std::function<absl::Status()> still_mine;
    // The first failure after a success.
    std::function<void(const absl::Status&)> on_trouble;
    // All that was held when a new file was begun is durable. `dropped`: what did not fit into
    // memory meanwhile.
    std::function<void(const std::optional<LostSteps>& dropped)> on_recovered;
    // The files end before the step with which this session begins: what is between is in no file.
    // `newest`: the newest step in them; nothing: they have none.
    std::function<void(std::optional<int64_t> newest, int64_t step)> on_gap;
  };
  explicit EventLog(Options options);
  // Ends the thread. If a call of the file system does not return, the thread is left behind: it
  // uses nothing but what it owns, and the end of the process ends it.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // The session begins after this many optimizer steps. `continued`: with a checkpoint of the job;
  // otherwise a reader forgets all that earlier sessions have written. Nothing is written before.
  void Begin(int64_t step, bool continued);
  void Add(std::vector<Entry> entries);

  // Waits until all that was added is durable. False after `timeout`, or at once while there is
  // trouble.
  bool Sync(absl::Duration timeout);
  // The same at the end of the session, but also waits, at most `timeout`, for trouble to end.
  // Returns what may not be in the files.
  std::optional<LostSteps> Finish(absl::Duration timeout);

 private:
  class Writer;
  const std::shared_ptr<Writer> writer_;
  std::thread thread_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_
