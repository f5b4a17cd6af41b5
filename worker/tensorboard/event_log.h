// Writes the event files of one session of a job, on a thread of its own. So a slow or broken file
// system neither delays nor ends training.
//
// A session has one file. The file begins with a START at the first step that the session does. At
// a START, TensorBoard's readers in Python forget values of earlier sessions of this step and of
// later steps. The data server ignores a START. For the data server, each tag with a number of such
// a step gets a value that is no number, before the START.
//
// One call writes all records that wait. Sync makes them durable. After a failed write or sync the
// file is not used any more, and the next record begins a new file. Until then records wait in
// memory (queue.h).
//
// Threading: thread-safe. Callbacks run on the log's thread, never under a lock. `on_trouble` and
// `on_dropped` run also on a thread that calls Add.
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
    // The time from a failure to the next attempt.
    absl::Duration retry = absl::Seconds(1);
    // The time after which a call of the file system is reported as trouble.
    absl::Duration slow = absl::Seconds(30);
    files::Disk* disk = &files::Disk::Real();
    // UNAVAILABLE: another process may have replaced this process, so nothing is written any more.
    // May be empty.
    std::function<absl::Status()> still_mine;
    // Called at the first failure after a success. `unsynced`: steps of which measurements may be
    // missing, because they were written and could not be synced.
    std::function<void(const absl::Status&, const std::optional<Steps>& unsynced)> on_trouble;
    // Called when records do not fit into memory any more: the oldest records are lost, beginning
    // with this step. Called once, until on_recovered.
    std::function<void(int64_t step)> on_dropped;
    // Called when the records that waited at the last trouble are written. `lost`: steps of which
    // measurements may be missing, because they did not fit into memory, or because a sync failed.
    std::function<void(const std::optional<Steps>& lost)> on_recovered;
    // Called if the files end before the step with which this session begins, so that no file has
    // the steps between. `newest`: the newest step in the files; nothing: there is none.
    std::function<void(std::optional<int64_t> newest, int64_t step)> on_gap;
  };
  explicit EventLog(Options options);
  // Ends the thread. If a call of the file system does not return, the thread is left behind. The
  // thread uses only data that it owns, and ends with the process.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Begins the session after this many optimizer steps. Nothing is written before this call.
  // `continued`: the session starts from a checkpoint of the job. Otherwise a reader forgets all
  // values of earlier sessions.
  void Begin(int64_t step, bool continued);
  void Add(const Event& event);

  // Waits until all records so far are durable, or are lost, as the callbacks say. False after
  // `timeout`, or at once while there is trouble.
  bool Sync(absl::Duration timeout);
  // Waits at the end of the session as Sync does, and also, at most `timeout`, for trouble to end.
  // Returns the steps that the files may lack.
  std::optional<Steps> Finish(absl::Duration timeout);

 private:
  class Writer;
  const std::shared_ptr<Writer> writer_;
  std::thread thread_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_LOG_H_
