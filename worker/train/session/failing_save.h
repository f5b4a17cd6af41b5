// A fault for tests: the save of the best checkpoint of one validation pass fails.
#ifndef MUSTER_WORKER_TRAIN_SESSION_FAILING_SAVE_H_
#define MUSTER_WORKER_TRAIN_SESSION_FAILING_SAVE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "worker/train/reports/coordinator_interface.h"

namespace muster::train {

// Watches the events of a session in `folder`. Removes the epoch file, without which no checkpoint
// is written, after two events: the pass of `step` has ended, and an earlier checkpoint is written.
// The earlier save may end later, because it runs in the background. Puts the file back after a
// failed save. The removal comes before the pass's own save. Copies share their state. Thread-safe.
class FailingSave {
 public:
  FailingSave(std::filesystem::path folder, int64_t step)
      : state_(std::make_shared<State>()), step_(step), folder_(std::move(folder)) {}

  void operator()(const Event& event) const {
    const auto epoch = folder_ / "ckpt/job/.muster-epoch";
    const auto away = folder_ / "away";
    std::lock_guard lock(state_->mutex);
    if (const auto* metrics = std::get_if<v1::StepMetrics>(&event)) {
      state_->validated |= metrics->step() == step_ && metrics->has_validation();
    }
    state_->saved |= std::holds_alternative<CheckpointWritten>(event);
    if (state_->validated && state_->saved && !state_->taken) {
      state_->taken = true;
      std::filesystem::rename(epoch, away);
    }
    if (const auto* failed = std::get_if<CheckpointFailed>(&event)) {
      ++state_->failures;
      state_->reason = failed->reason;
      std::filesystem::rename(away, epoch);
    }
  }

  int failures() const { return state_->failures; }
  const std::string& reason() const { return state_->reason; }

 private:
  struct State {
    std::mutex mutex;
    bool validated = false;
    bool saved = false;
    bool taken = false;
    int failures = 0;
    std::string reason;
  };

  std::shared_ptr<State> state_;
  int64_t step_;
  std::filesystem::path folder_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_FAILING_SAVE_H_
