// Records what the ranks do in the steps that a job names, in a trace file for each of these steps
// (docs/how-to/profile.md).
#ifndef MUSTER_WORKER_TRAIN_SESSION_PROFILE_H_
#define MUSTER_WORKER_TRAIN_SESSION_PROFILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/trace/recorder.h"
#include "worker/train/job/job.h"
#include "worker/train/session/session_parts.h"

namespace muster::train {

// Threading: the session's thread.
class Profile {
 public:
  // Without a config nothing is ever recorded.
  Profile(const std::optional<ProfileConfig>& config, const Identity& identity);

  // Returns `parts` with communicators that record their collectives. They use the communicators of
  // `parts`, which must outlive this object. Without a config, returns `parts` unchanged.
  SessionParts Trace(const SessionParts& parts);

  // Null where nothing is recorded.
  trace::Recorder* recorder() { return config_.has_value() ? &recorder_ : nullptr; }

  // Called before the step after which `step` optimizer steps are done, and after that step once
  // its roll call is over. EndStep is a collective of the control communicator if the job names the
  // step; its errors are the communicator's. A file that cannot be written is not an error, but the
  // event PROFILE_NOT_WRITTEN.
  void BeginStep(int64_t step);
  absl::Status EndStep(int64_t step);

 private:
  bool Asked(int64_t step) const;

  const std::optional<ProfileConfig> config_;
  const Identity identity_;
  trace::Recorder recorder_;
  EventSink* events_ = nullptr;
  std::vector<std::unique_ptr<comm::Communicator>> traced_;  // the first one: for control
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_PROFILE_H_
