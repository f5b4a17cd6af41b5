// What the training core needs from outside: a source of commands and a sink of events. worker/control
// implements both over the stream to the coordinator; tests implement them in memory.
#ifndef MUSTER_WORKER_TRAIN_OUTSIDE_H_
#define MUSTER_WORKER_TRAIN_OUTSIDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace muster::train {

struct StopCommand {};
using Command = std::variant<StopCommand>;

// The job's numbered command log, as far as it has reached this rank. Thread-safe; never blocks.
class CommandSource {
 public:
  virtual ~CommandSource() = default;

  // Number of the newest command this rank holds; it holds all before it too. 0: none.
  virtual int64_t Newest() const = 0;
  // Command `number`, 1 <= number <= Newest().
  virtual Command Get(int64_t number) const = 0;
};

struct SessionStarted {
  int64_t step = 0;  // optimizer steps done
  std::string checkpoint_path;  // empty: started without one
};
struct StageStarted {
  std::string stage;
  int64_t step = 0;
};
struct StepFinished {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over all ranks and micro-batches
  double learning_rate = 0;
  std::optional<double> grad_norm;  // before clipping
  int64_t samples = 0;              // of all ranks
  double seconds = 0;
  bool skipped = false;              // nothing was updated; `loss` may be any number
  std::optional<double> loss_scale;  // that this step's gradients were computed with; float16 only
  std::optional<double> perplexity;  // where the loss is a cross entropy over tokens
  std::optional<int64_t> tokens;     // of all ranks, for models of tokens
  // Floating-point operations of the model's forward and backward, all ranks; where the model knows.
  std::optional<double> model_flops;
};
struct Validated {
  int64_t step = 0;
  double loss = 0;  // mean over all loss terms
  int64_t samples = 0;
  std::optional<double> accuracy;    // part of the loss terms; where targets are classes or tokens
  std::optional<double> perplexity;  // where the loss is a cross entropy over tokens
};
struct CheckpointWritten {
  int64_t step = 0;
  std::string path;
};
struct CheckpointFailed {
  int64_t step = 0;
  std::string reason;
};
struct CheckpointBad {
  std::string path;
  std::string reason;
};
struct CommandApplied {
  int64_t number = 0;
  int64_t step = 0;  // optimizer steps done when it took effect
};
struct Exported {
  std::string path;
};

using Event = std::variant<SessionStarted, StageStarted, StepFinished, Validated, CheckpointWritten,
                           CheckpointFailed, CheckpointBad, CommandApplied, Exported>;

// Takes what happens. Thread-safe; never blocks on the network: events are queued in order.
class EventSink {
 public:
  virtual ~EventSink() = default;

  virtual void Report(const Event& event) = 0;
  // Where this rank is now; only the newest counts. Cheap enough for every step.
  virtual void Progress(int64_t step, const char* stage, const char* doing) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OUTSIDE_H_
