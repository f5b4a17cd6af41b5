// What happens to a job besides its steps, as texts at the step at which it happens. Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_MARKS_H_
#define MUSTER_WORKER_TENSORBOARD_MARKS_H_

#include <cstdint>
#include <string>

#include "worker/train/reports/outside.h"

namespace muster::tensorboard {

// The tags of texts.
inline constexpr char kOperationsTag[] = "marks/operations";
inline constexpr char kGenerationsTag[] = "marks/generations";
inline constexpr char kStagesTag[] = "marks/stages";
inline constexpr char kCheckpointsTag[] = "marks/checkpoints";

// An operation that takes effect: "set-lr 0.003 (operation JOB/4)". The same text when it takes
// effect again after a failure.
std::string TextOf(const v1::Command& command, const std::string& job);

// An operation that failed: "operation JOB/4 failed: ...".
std::string TextOf(const train::CommandFinished& finished, const std::string& job);

// What a change of the trained parameters did.
std::string TextOf(const train::TrainabilityChange& change, const std::string& job);

// A checkpoint: "step-50-g1, 1234567 bytes".
std::string TextOf(const train::CheckpointWritten& written);

// The begin of a generation, which is a restart if it is not the first one.
std::string TextOf(const train::SessionStarted& started, int64_t generation, int64_t ranks,
                   const std::string& node);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_MARKS_H_
