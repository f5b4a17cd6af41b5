// Passes on the events of a session, and writes their measurements to TensorBoard's event files
// (docs/how-to/tensorboard.md). One rank of a job has a sink: the rank that reports the job's
// events.
#ifndef MUSTER_WORKER_TENSORBOARD_SINK_H_
#define MUSTER_WORKER_TENSORBOARD_SINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/tensorboard/event_log.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::tensorboard {

// Threading: thread-safe. Trouble with the files is reported as a train::Notice, and is never an
// error.
class Sink : public train::EventSink {
 public:
  struct Options {
    std::string directory;  // metrics.tensorboard
    std::string job;
    int64_t generation = 0;
    int64_t ranks = 0;
    std::string node;  // of this rank
    // The checkpoint of another job with which this job begins; empty: none.
    std::string start;
    const train::CommandSource* commands = nullptr;
    const train::LeaseHolder* lease = nullptr;  // null: there is no lease
    files::Disk* disk = &files::Disk::Real();
  };
  // All objects behind the pointers outlive the sink.
  Sink(Options options, train::EventSink* next);

  void Report(const train::Event& event) override;
  void Progress(int64_t step, const char* stage, const char* doing) override {
    next_->Progress(step, stage, doing);
  }
  // Also syncs the files. A later session may start from the checkpoint that is about to count, and
  // would not repeat the steps before it.
  void Settle(absl::Duration timeout) override;

  // Ends the session. Waits, at most `timeout`, until the files are complete, and reports the steps
  // that may be missing.
  void Finish(absl::Duration timeout);

 private:
  void Write(const train::Event& event);
  void Mark(const char* tag, int64_t step, const std::string& text);
  void Started(const train::SessionStarted& started);
  void Measured(const v1::StepMetrics& metrics);
  void TrainsNow(const train::TrainabilityReport& report);
  // True if the files of an earlier session have the mark of a command that takes effect at this
  // step. `replay`: the command took effect at this step in the earlier session, too.
  bool IsMarked(int64_t step, bool replay) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Applied(const train::CommandApplied& applied);
  void Finished(const train::CommandFinished& finished);
  void Tell(const char* reason, const std::string& message);

  const Options options_;
  train::EventSink* const next_;
  absl::Mutex mutex_;
  // Absent: the session has not started.
  std::optional<int64_t> began_at_ ABSL_GUARDED_BY(mutex_);
  bool continued_ ABSL_GUARDED_BY(mutex_) = false;  // with a checkpoint of the job
  // The step of the newest entry.
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  // The steps of commands that have taken effect and not ended.
  std::map<int64_t, int64_t> running_ ABSL_GUARDED_BY(mutex_);
  // The number of trained elements after each change, by the step after which the change took
  // effect. The number is written with the first step that trains so many elements, not at the
  // change. The reason: a session that continues from the step of the change does the change again.
  std::map<int64_t, int64_t> trained_ ABSL_GUARDED_BY(mutex_);
  EventLog log_;  // last: its thread uses the other members
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_SINK_H_
