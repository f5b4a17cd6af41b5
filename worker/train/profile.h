// What the ranks do in the steps that a job names: a trace file for each (docs/profile.md).
#ifndef MUSTER_WORKER_TRAIN_PROFILE_H_
#define MUSTER_WORKER_TRAIN_PROFILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/trace/recorder.h"
#include "worker/train/job.h"
#include "worker/train/session.h"

namespace muster::train {

// Threading: the session's thread.
class Profile {
 public:
  // config: absent: nothing is ever recorded.
  Profile(const std::optional<ProfileConfig>& config, const Identity& identity);

  // Communicators over which collectives are recorded, in the place of those of `parts`, which
  // outlive this; the same ones where nothing is recorded.
  SessionParts Trace(const SessionParts& parts);

  // Null where nothing is recorded.
  trace::Recorder* recorder() { return config_.has_value() ? &recorder_ : nullptr; }

  // Before the step that makes `step` optimizer steps done, and after it, once its roll call is
  // over. The latter is a collective of the control communicator where the step is one that the job
  // names; its errors are the communicator's. Files that cannot be written are no error: the log
  // says so.
  void BeginStep(int64_t step);
  absl::Status EndStep(int64_t step);

 private:
  bool Asked(int64_t step) const;

  const std::optional<ProfileConfig> config_;
  const Identity identity_;
  trace::Recorder recorder_;
  std::unique_ptr<comm::Communicator> control_;
  std::unique_ptr<comm::Communicator> gradients_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PROFILE_H_
