// Finds a step hook that changes nothing although it costs time in every step.
#ifndef MUSTER_WORKER_TRAIN_TRAINABILITY_IDLE_HOOK_H_
#define MUSTER_WORKER_TRAIN_TRAINABILITY_IDLE_HOOK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/models/model.h"

namespace muster::train {

// Counts the calls in a row, of one session, in which the hook changed nothing. Pure.
class IdleHook {
 public:
  static constexpr int64_t kSteps = 1000;

  struct Options {
    std::string model;  // Model::name
    models::HookKind kind = models::HookKind::kValues;
    bool gathers = false;  // the parameters are sharded, and are gathered for each call
    bool calls = false;    // the ranks hold a roll call after each call
  };
  explicit IdleHook(Options options) : options_(std::move(options)) {}

  // After each call of the hook. changed: whether the hook changed a value or a flag. seconds: the
  // time of the call and of everything that is done for it. Returns a warning, once: after kSteps
  // calls in a row that changed nothing, with their cost and with what the user can do.
  std::optional<std::string> Called(bool changed, double seconds);

  // Whether the warning was returned. From then on `changed` is not used any more.
  bool told() const { return told_; }

 private:
  const Options options_;
  int64_t idle_ = 0;    // calls since the last one that changed something
  double seconds_ = 0;  // their time
  bool told_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABILITY_IDLE_HOOK_H_
