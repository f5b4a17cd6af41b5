// The passes of a session over data.validate and data.test, for stages and for commands. evaluate.h
// computes them.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_SESSION_EVALUATION_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_SESSION_EVALUATION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/evaluator.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/calls.h"
#include "worker/train/save/live_state.h"

namespace muster::train {

// Threading: the session's thread.
class SessionEvaluation : public Evaluator {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    LiveState* live;
    EvaluationPasses* passes;
    const RankData* validate;  // null: the job has no such data
    const RankData* test;      // likewise
    comm::Communicator* control;
    Calls* calls;
    const SessionState* session_state;
    const SessionReports* reports;
  };
  explicit SessionEvaluation(const Parts& parts) : parts_(parts) {}

  // Collectives: passes of stages, which are reported. None if the job is to end: the pass was
  // interrupted.
  absl::StatusOr<std::optional<v1::Evaluation>> Validate();
  absl::StatusOr<std::optional<v1::Evaluation>> Test();

  bool has_validation() const { return parts_.validate != nullptr; }
  bool HasDataFor(const std::string& stage) const override;
  absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) override;

 private:
  enum class Set { kValidate, kTest };
  enum class Interrupts { kNever, kByAnEnd };
  // Runs a pass and reports its metrics.
  absl::StatusOr<std::optional<v1::Evaluation>> Pass(Set set, Interrupts interrupts);

  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_SESSION_EVALUATION_H_
