// Writes the event files of one session of a job, on a thread of its own, so that a slow or broken
// file system neither delays nor ends training.
//
// A session has one file. The file begins with a START at the first step that the session does, by
// which TensorBoard's readers in Python forget what earlier sessions have written of this step and
// of later ones. The data server ignores a START. For it, each tag with a number of such a step
// gets a value that is no number, before the START.
//
// One call writes all records that wait. Sync makes them durable. After a failed write or sync the
// file is not used any more, and a new one is begun with the next record. Until then records wait
// in memory (queue.h).
//
// Threading: thread-safe. Callbacks run on the log's thread, `on_trouble` and `on_dropped` also
// on a thread that calls Add; never under a lock.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/files/disk.h"
#include "worker/tensorboard/event.pb.h"
#include "worker/tensorboard/queue.h"

namespace muster::tensorboard {

class EventLog {
 public:
  struct Options {
    std::string directory;  // the job's files lie in a subfolder
    std::string job;
    std::string writer;               // part of the files' names
    size_t limit = size_t{64} << 20;  // bytes of records in memory
    size_t batch = size_t{1} << 20;   // bytes that are written with one call
    // From a failure to the next attempt.
    absl::Duration retry = absl::Seconds(1);
    // A call of the file system that lasts longer is reported as trouble.
    absl::Duration slow = absl::Seconds(30);
    files::Disk* disk = &files::Disk::Real();
    // UNAVAILABLE: another process may have replaced this one; nothing is written any more. May be
    // empty.
    std::function<absl::Status()> still_mine;
    // The first failure after a success. `unsynced`: steps of which measurements may be missing,
    // because they were written, and could not be synced.
    std::function<void(const absl::Status&, const std::optional<Steps>& unsynced)> on_trouble;
    // Records do not fit into memory any more: the oldest ones are lost, beginning with this step.
    // Once, until on_recovered.
    std::function<void(int64_t step)> on_dropped;
    // What waited when something last went wrong is written. `lost`: steps of which measurements
    // may be missing, because they did not fit into memory, or because a sync failed.
    std::function<void(const std::optional<Steps>& lost)> on_recovered;
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
  void Add(const Event& event);

  // Waits until all that was added is durable, or is lost, as the callbacks say. False after
  // `timeout`, or at once while there is trouble.
  bool Sync(absl::Duration timeout);
  // The same at the end of the session, but also waits, at most `timeout`, for trouble to end.
  // Returns what may not be in the files.
  std::optional<Steps> Finish(absl::Duration timeout);

 private:
  class Writer;
  const std::shared_ptr<Writer> writer_;
  std::thread thread_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_
