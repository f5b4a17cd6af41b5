// How a session continues prompts, for stages `predict` and for commands. generate.h computes it.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_SESSION_GENERATOR_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_SESSION_GENERATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/generate.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/generator.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/live_state.h"

namespace muster::train {

// Threading: the session's thread.
class SessionGenerator : public Generator {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    LiveState* live;
    EvaluationPasses* passes;
    comm::Communicator* control;
    const SessionState* session_state;
    const SessionReports* reports;
  };
  explicit SessionGenerator(const Parts& parts) : parts_(parts) {}

  // A collective, as train::Generate.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(
      const models::GenerationRequest& request);

  absl::Status CheckSample(const v1::SampleCommand& sample) const override;
  absl::StatusOr<SampleMade> Sample(const v1::SampleCommand& sample) override;

 private:
  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_SESSION_GENERATOR_H_
