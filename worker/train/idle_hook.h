// Finds a step hook that does nothing: it costs time in every step.
#ifndef MUSTER_WORKER_TRAIN_IDLE_HOOK_H_
#define MUSTER_WORKER_TRAIN_IDLE_HOOK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/models/model.h"

namespace muster::train {

// Pure. In this session, and in a row.
class IdleHook {
 public:
  static constexpr int64_t kSteps = 1000;

  struct Options {
    std::string model;  // for people
    models::HookKind kind = models::HookKind::kValues;
    bool gathers = false;  // parameters lie in shards, which are gathered for the hook
    bool calls = false;    // the ranks hold a roll call after it
  };
  explicit IdleHook(Options options) : options_(std::move(options)) {}

  // After each call of the hook: whether it changed anything, and what it cost with all that is
  // done for it. Says once, after kSteps calls in a row that changed nothing, what that costs and
  // what to do; else nothing.
  std::optional<std::string> Called(bool changed, double seconds);

  // Whether anybody still has to look at what the hook changes.
  bool told() const { return told_; }

 private:
  const Options options_;
  int64_t idle_ = 0;
  double seconds_ = 0;  // of these
  bool told_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_IDLE_HOOK_H_
