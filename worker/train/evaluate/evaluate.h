// The passes of a session over data.validate and data.test, for stages and for commands, without
// effect on training: no gradients, no buckets, no randomness, no sampler position. Each sample
// counts exactly once, whatever the world size.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/reports/outside.h"
#include "worker/train/rollcall/session_roll_call.h"

namespace muster::train {

// How commands ask for a pass of evaluation.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Whether the job has data for this stage; false for a stage that is not known.
  virtual bool HasDataFor(const std::string& stage) const = 0;
  // The pass, or an error that all ranks have and that need not end the session.
  using Evaluated = absl::StatusOr<StageEvaluated>;
  // A collective: a pass over these data, and reports it as that of a stage.
  virtual absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) = 0;
};

// When the ranks ask, in the course of a pass over data, whether the pass has to end: about twice a
// second, so that a question costs little beside the rounds between two of them. Pure: from the
// same durations all ranks choose the same rounds.
class PassPace {
 public:
  // Whether the ranks ask before this round, counted from 0.
  bool Due(int64_t round) const { return round == next_; }

  // They have asked before this round. `seconds`: since the question before, or since the begin of
  // the pass, on the slowest rank.
  void Asked(int64_t round, double seconds);

 private:
  int64_t between_ = 1;  // rounds
  int64_t next_ = 1;     // a pass of one round asks nothing
};

// Threading: the session's thread.
class SessionEvaluation : public Evaluator {
 public:
  // All outlive it. `validate`, `test`: null if the job has no such data.
  SessionEvaluation(const ForwardParts& parts, const RankData* validate, const RankData* test,
                    Calls* calls)
      : parts_(parts), validate_(validate), test_(test), calls_(calls) {}

  enum class Set { kValidate, kTest };
  // A collective: the pass of a stage, which is reported. None if the job is to end: the pass was
  // interrupted.
  absl::StatusOr<std::optional<v1::Evaluation>> Run(Set set) {
    return Pass(set, Interrupts::kByAnEnd);
  }

  bool has_validation() const { return validate_ != nullptr; }
  bool HasDataFor(const std::string& stage) const override;
  absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) override;

 private:
  enum class Interrupts { kNever, kByAnEnd };
  // Runs a pass and reports its metrics (docs/reference/metrics.md). All ranks get bitwise the same
  // ones. Leaves the context in evaluation mode. Errors: the communicator's, or the data set's;
  // INVALID_ARGUMENT if there is no loss term at all, because every target is ignored.
  absl::StatusOr<std::optional<v1::Evaluation>> Pass(Set set, Interrupts interrupts);
  // What Pass reports.
  absl::StatusOr<std::optional<v1::Evaluation>> Evaluate(Set set, Interrupts interrupts);

  const ForwardParts parts_;
  const RankData* const validate_;
  const RankData* const test_;
  Calls* const calls_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
