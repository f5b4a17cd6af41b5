#include "worker/train/gathering.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/exports/temporary.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/gather.h"
#include "worker/checkpoint/snapshot.h"

namespace muster::train {

using Clock = std::chrono::steady_clock;

struct Gathering::Task {
  GatherOptimizerStateCommand gather;
  int64_t command = 0;
  int64_t step = 0;
  checkpoint::State state;
  checkpoint::ModelRecords records;
  Clock::time_point begun;
  double stall_seconds = 0;  // training waited for so long; 0: until it was written
  Told told;
};

absl::Status Gathering::Gather(const GatherOptimizerStateCommand& gather, int64_t command,
                               Told told) {
  const Clock::time_point begun = Clock::now();
  RETURN_IF_ERROR(parts_.background->Await());
  parts_.reports->Progress("gathering the optimizer's state");
  command_ = command;
  cancelled_ = left_ = false;
  const checkpoint::State state = parts_.state();
  Task task{.gather = gather,
            .command = command,
            .step = parts_.session_state->step,
            .state = checkpoint::Only(state, checkpoint::IsOptimizers),
            .records = {},
            .begun = begun,
            .told = std::move(told)};
  ASSIGN_OR_RETURN(task.records, parts_.records(state));
  if (gather.hold) {
    task_ = parts_.background->Skip();
    return Write(task);
  }
  auto copy = parts_.background->Copy(task.state);
  if (!copy.ok()) {
    spdlog::warn("{}; training waits until the file is written", Message(copy.status()));
    task_ = parts_.background->Skip();
    return Write(task);
  }
  task.state = *std::move(copy);
  task.stall_seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  task_ = parts_.background->Start([this, task = std::move(task)] { return Write(task); });
  return absl::OkStatus();
}

absl::Status Gathering::Write(const Task& task) {
  const GatherOptimizerStateCommand& gather = task.gather;
  const Identity& identity = parts_.identity;
  std::string temporary;
  if (parts_.reports->leader()) {
    RemoveLeftovers(gather.path);
    temporary = exports::TemporaryPath(gather.path, identity.job, identity.generation,
                                       identity.incarnation);
  }
  // Its name has rank 0's incarnation in it.
  ASSIGN_OR_RETURN(temporary,
                   checkpoint::TellAll(*parts_.communicator, temporary, "gather's file"));
  parts_.writing->Begin(task.command,
                        checkpoint::BytesWritten(task.state, parts_.communicator->rank()));
  checkpoint::CountingDisk disk(parts_.writing);
  const auto outcome = checkpoint::GatherOptimizerState(
      {.path = gather.path,
       .temporary = temporary,
       .format = gather.format,
       .key = gather.key,
       .overwrite = gather.overwrite,
       .schedule_factor = optim::LearningRateFactor(*parts_.learning_rates, task.step),
       .step = task.step,
       .cancelled = &cancelled_},
      task.state, task.records, parts_.communicator,
      [this] { return parts_.lease == nullptr ? absl::OkStatus() : parts_.lease->StillMine(); },
      disk);
  parts_.writing->End();
  RETURN_IF_ERROR(outcome.status());
  end_ = outcome->status;
  if (!end_.ok()) {
    if (!left_) task.told(end_);
    return absl::OkStatus();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - task.begun).count();
  task.told(
      OptimizerStateGathered{.path = gather.path,
                             .step = task.step,
                             .bytes = outcome->bytes,
                             .stall_seconds = task.stall_seconds > 0 ? task.stall_seconds : seconds,
                             .seconds = seconds});
  return absl::OkStatus();
}

absl::StatusOr<bool> Gathering::Cancel(int64_t command) {
  const bool newest = command == command_ && task_ == parts_.background->newest();
  if (!newest) return false;
  cancelled_ = true;
  RETURN_IF_ERROR(parts_.background->Await());
  command_ = 0;
  return absl::IsCancelled(end_);
}

absl::Status Gathering::LeaveToNextGeneration() {
  if (command_ == 0 || task_ != parts_.background->newest()) return absl::OkStatus();
  left_ = cancelled_ = true;
  return parts_.background->Await();
}

void Gathering::RemoveLeftovers(const std::string& path) const {
  if (!parts_.reports->leader()) return;
  const Identity& identity = parts_.identity;
  const auto removed = exports::RemoveStale(path, identity.job, identity.generation);
  if (!removed.ok()) spdlog::warn("gather-optimizer-state: {}", Message(removed.status()));
}

}  // namespace muster::train
