// The scope around all work without backward: validations, tests, predictions, samples. With `ema:
// {evaluate: true}`, the averages replace the parameters (docs/concepts/ema.md). A sharded model is
// gathered once, if there is memory (`evaluation: {reshard}`, docs/concepts/strategies.md). Use:
//
//   ASSIGN_OR_RETURN(const auto scope, passes.Begin(live.training()));
//   ... forwards in live.context() (save/live_state.h) ...
//   RETURN_IF_ERROR(scope->End());
//
// While a scope exists, no checkpoint and no file of weights is written, except by WithAverages.
// After End, the parameters have bitwise the same values as before Begin, in the same memory, and
// as many bytes are in use. A session that cannot call End because of an error must end.
//
// Threading: the session's thread.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_SCOPE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_SCOPE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/parameter_store.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"
#include "worker/train/save/live_state.h"
#include "worker/train/training/averages.h"
#include "worker/train/training/training.h"

namespace muster::train {

class EvaluationScope {
 public:
  // Puts back the parameters that this rank has exchanged, if End was not called and other ranks
  // are not needed. Then the session must end.
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

  // Ends the scope. A collective. Called once.
  absl::Status End();

 private:
  friend class EvaluationPasses;
  // Both pointers null: the scope changes nothing.
  EvaluationScope(parallel::Strategy* strategy, Averages* averages, int64_t step)
      : strategy_(strategy), averages_(averages), step_(step) {}
  absl::Status Begin(parallel::PassMemory memory);

  parallel::Strategy* const strategy_;
  Averages* const averages_;
  const int64_t step_;
  bool open_ = false;
};

// The memory that a rank knows of, in bytes.
struct EvaluationMemory {
  // The memory for all parameters.
  uint64_t needed = 0;
  // The memory that earlier passes have allocated for all parameters and that the process has kept.
  uint64_t kept = 0;
  // The available memory of the node, or of the GPU for a model on a GPU. UINT64_MAX: not known.
  uint64_t available = 0;
  // The number of ranks that share `available`.
  uint64_t ranks = 1;
};

// True if the rank may gather all parameters of a sharded model for a pass. The memory needed
// beyond `kept` must be at most half of the rank's share of `available`. The other half is left for
// activations and other programs. Pure.
bool HasMemoryForAll(const EvaluationMemory& memory);

// Makes the scopes of a session.
class EvaluationPasses {
 public:
  // All must outlive this object.
  struct Dependencies {
    const Job* job;
    c10::Device device;  // the model's device
    comm::Communicator* control;
    // Has the number of ranks that share this rank's memory.
    const Background* background;
    const SessionReports* reports;
    const SessionState* session_state;
    // Returns the available bytes of this rank's node or GPU; null: the system is asked.
    std::function<uint64_t()> available = nullptr;
  };
  explicit EvaluationPasses(Dependencies deps) : deps_(std::move(deps)) {}

  // Begins a scope between two steps. A collective. `training`: null if nothing is trained and
  // every rank has the whole model. Errors: the communicators'.
  absl::StatusOr<std::unique_ptr<EvaluationScope>> Begin(Training* training);
  // Begins a scope for an export of the averages: they replace the parameters for every value of
  // `ema.evaluate`, and nothing is gathered. A collective.
  absl::StatusOr<std::unique_ptr<EvaluationScope>> WithAverages(Training* training);

 private:
  absl::StatusOr<std::unique_ptr<EvaluationScope>> BeginWith(Training* training, bool averages,
                                                             bool gathers);
  // Returns the same choice on all ranks. A collective if the job leaves the choice open.
  absl::StatusOr<parallel::PassMemory> ChooseMemory(const parallel::ParameterStore& store);

  const Dependencies deps_;
  uint64_t gathered_ = 0;  // the most bytes that a pass of this session has gathered
  bool told_ = false;      // too little memory was reported
};

// The objects that all passes without backward use. All must outlive the passes.
struct ForwardDependencies {
  const Job* job;
  LiveState* live;
  EvaluationPasses* passes;
  comm::Communicator* control;
  const SessionState* session_state;
  const SessionReports* reports;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_SCOPE_H_
