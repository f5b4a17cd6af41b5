// Evaluation passes of a session over data.validate and data.test, for stages and commands. They
// have no effect on training: no gradients, no buckets, no randomness, no sampler position. Each
// sample counts exactly once for every world size.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/rollcall/session_roll_call.h"

namespace muster::train {

// The interface through which commands ask for an evaluation pass.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Whether the job has data for this stage; false for an unknown stage.
  virtual bool HasDataFor(const std::string& stage) const = 0;
  // The result of the pass, or an error that all ranks have and that need not end the session.
  using Evaluated = absl::StatusOr<StageEvaluated>;
  // Runs a pass over the data of this stage and reports the metrics. A collective.
  virtual absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) = 0;
};

// Chooses the rounds of a pass before which the ranks ask whether the pass must end. They ask about
// twice a second, so that a question costs little in relation to the rounds. Pure: from equal
// durations all ranks choose equal rounds.
class PassPace {
 public:
  // Whether the ranks ask before this round, counted from 0.
  bool Due(int64_t round) const { return round == next_; }

  // Records that the ranks have asked before this round. `seconds`: the time since the last
  // question or the begin of the pass, on the slowest rank.
  void Asked(int64_t round, double seconds);

 private:
  int64_t between_ = 1;  // rounds
  int64_t next_ = 1;     // no question in a pass of one round
};

// Threading: the session's thread.
class SessionEvaluation : public Evaluator {
 public:
  // All must outlive this object. `validate`, `test`: null if the job has no such data.
  SessionEvaluation(const ForwardDependencies& deps, const RankData* validate, const RankData* test,
                    Calls* calls)
      : deps_(deps), validate_(validate), test_(test), calls_(calls) {}

  enum class Set { kValidate, kTest };
  // Runs the pass of a stage and reports the metrics. A collective. Returns nullopt if the job must
  // end: the pass was interrupted.
  absl::StatusOr<std::optional<v1::Evaluation>> Run(Set set) {
    return Pass(set, Interrupts::kByAnEnd);
  }

  bool has_validation() const { return validate_ != nullptr; }
  bool HasDataFor(const std::string& stage) const override;
  absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) override;

 private:
  enum class Interrupts { kNever, kByAnEnd };
  // Runs a pass and reports its metrics (docs/reference/metrics.md). The metrics are bitwise equal
  // on all ranks. Leaves the context in evaluation mode. Errors: the communicator's; the data
  // set's;
  // INVALID_ARGUMENT if every target is ignored, so that there is no loss term.
  absl::StatusOr<std::optional<v1::Evaluation>> Pass(Set set, Interrupts interrupts);
  // Computes the metrics that Pass reports.
  absl::StatusOr<std::optional<v1::Evaluation>> Evaluate(Set set, Interrupts interrupts);

  const ForwardDependencies deps_;
  const RankData* const validate_;
  const RankData* const test_;
  Calls* const calls_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
