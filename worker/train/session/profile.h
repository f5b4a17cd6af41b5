// Records the work of the ranks in the steps that a job names. Each such step gets a trace file
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
  // Without a config, nothing is recorded.
  Profile(const std::optional<ProfileConfig>& config, const Identity& identity);

  // Returns `parts` with communicators that record their collectives. They use the communicators of
  // `parts`, which must outlive this object. Without a config, returns `parts` unchanged.
  SessionParts Trace(const SessionParts& parts);

  // Null without a config.
  trace::Recorder* recorder() { return config_.has_value() ? &recorder_ : nullptr; }

  // BeginStep is called before the step after which `step` optimizer steps are done. EndStep is
  // called after the roll call of this step. If the job names the step, EndStep is a collective of
  // the control communicator, with the communicator's errors. A file that cannot be written is the
  // event PROFILE_NOT_WRITTEN, not an error.
  void BeginStep(int64_t step);
  absl::Status EndStep(int64_t step);

 private:
  bool Asked(int64_t step) const;

  const std::optional<ProfileConfig> config_;
  const Identity identity_;
  trace::Recorder recorder_;
  EventSink* events_ = nullptr;
  std::vector<std::unique_ptr<comm::Communicator>> traced_;  // first: control
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_PROFILE_H_
