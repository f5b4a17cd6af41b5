// What all work without backward has around it (validations, tests, predictions, samples): with
// `ema: {evaluate: true}` the averages are in place of the parameters, and a sharded model is
// gathered once, if there is memory for it (`evaluation: {reshard}`, docs/concepts/ema.md,
// docs/concepts/strategies.md). Between Begin and End:
//
//   ASSIGN_OR_RETURN(const auto scope, passes.Begin(live.training()));
//   ... forwards in live.context() (save/live_state.h) ...
//   RETURN_IF_ERROR(scope->End());
//
// Neither checkpoints nor files of weights are written while a scope is there, except by
// WithAverages. After End the parameters have the values and the memory that they had before Begin,
// bit by bit, and as many bytes are in use. A session that does not reach End, because of an error,
// ends.
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
  // If End was not called, puts the parameters back that this rank has exchanged, where that needs
  // no other rank. The session must end.
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

  // A collective. Called once.
  absl::Status End();

 private:
  friend class EvaluationPasses;
  // Both null: nothing has to be put back.
  EvaluationScope(parallel::Strategy* strategy, Averages* averages, int64_t step)
      : strategy_(strategy), averages_(averages), step_(step) {}
  absl::Status Begin(parallel::PassMemory memory);

  parallel::Strategy* const strategy_;
  Averages* const averages_;
  const int64_t step_;
  bool open_ = false;
};

// What a rank knows of its memory, in bytes.
struct EvaluationMemory {
  // What it would allocate to hold all parameters.
  uint64_t needed = 0;
  // What earlier passes have allocated for the same purpose: the process has kept this memory.
  uint64_t kept = 0;
  // What the node has available, or on a GPU what the GPU has. UINT64_MAX: not known.
  uint64_t available = 0;
  // How many ranks share that.
  uint64_t ranks = 1;
};

// Pure. True if the rank may gather all parameters of a sharded model for a pass: what it needs
// beyond what is kept is at most half of its share of what is available. The other half is left for
// activations and other programs.
bool HasMemoryForAll(const EvaluationMemory& memory);

// Makes the scopes of a session.
class EvaluationPasses {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    c10::Device device;  // of the model
    comm::Communicator* control;
    const Background* background;  // knows how many ranks share this rank's memory
    const SessionReports* reports;
    const SessionState* session_state;
    // What this rank's node or GPU has available, in bytes; null: asks the system.
    std::function<uint64_t()> available = nullptr;
  };
  explicit EvaluationPasses(Parts parts) : parts_(std::move(parts)) {}

  // A collective between two steps. `training`: null if nothing is trained and every rank has the
  // whole model. Errors: the communicators'.
  absl::StatusOr<std::unique_ptr<EvaluationScope>> Begin(Training* training);
  // For an export of the averages: they are in place of the parameters, whatever `ema.evaluate`
  // says, and nothing is gathered. A collective.
  absl::StatusOr<std::unique_ptr<EvaluationScope>> WithAverages(Training* training);

 private:
  absl::StatusOr<std::unique_ptr<EvaluationScope>> BeginWith(Training* training, bool averages,
                                                             bool gathers);
  // The same on all ranks. A collective if the job leaves it open.
  absl::StatusOr<parallel::PassMemory> ChooseMemory(const parallel::ParameterStore& store);

  const Parts parts_;
  uint64_t gathered_ = 0;  // the most that a pass of this session has gathered, in bytes
  bool told_ = false;      // that there is too little memory
};

// What all passes without backward of a session use. All outlive them.
struct ForwardParts {
  const Job* job;
  LiveState* live;
  EvaluationPasses* passes;
  comm::Communicator* control;
  const SessionState* session_state;
  const SessionReports* reports;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_SCOPE_H_
