// Commands as the coordinator sends them, for tests.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_TEST_COMMANDS_H_
#define MUSTER_WORKER_TRAIN_REPORTS_TEST_COMMANDS_H_

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/trainability/trainability.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::train {

// Returns the command with these contents, without a number.
template <typename Contents>
v1::Command A(const Contents& contents) {
  v1::Command command;
  const auto* kinds = v1::Command::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds->field_count(); ++i) {
    if (kinds->field(i)->message_type() != Contents::descriptor()) continue;
    command.GetReflection()->MutableMessage(&command, kinds->field(i))->CopyFrom(contents);
  }
  return command;
}

inline v1::Command Numbered(int64_t number, v1::Command command,
                            std::optional<int64_t> at_step = std::nullopt) {
  command.set_number(static_cast<uint64_t>(number));
  if (at_step.has_value()) command.set_at_step(static_cast<uint64_t>(*at_step));
  return command;
}

inline v1::Command At(int64_t step, const v1::Command& command) {
  return Numbered(0, command, step);
}

inline v1::Command RateOf(double rate) {
  v1::SetLearningRateCommand set;
  set.set_learning_rate(rate);
  return A(set);
}

inline v1::Command RulesOf(const std::vector<TrainableRule>& rules, bool dry_run = false) {
  v1::SetTrainabilityCommand set;
  for (const TrainableRule& rule : rules) {
    v1::TrainableRule& added = *set.add_rules();
    rule.freeze ? added.set_freeze(rule.pattern) : added.set_unfreeze(rule.pattern);
  }
  set.set_dry_run(dry_run);
  return A(set);
}

inline v1::Command CancelOf(int64_t target) {
  v1::CancelCommand cancel;
  cancel.set_target(static_cast<uint64_t>(target));
  return A(cancel);
}

inline v1::Command StageOf(const std::string& stage) {
  v1::RunStageCommand run;
  run.set_stage(stage);
  return A(run);
}

inline v1::Command GatherTo(const std::string& path) {
  v1::GatherOptimizerStateCommand gather;
  gather.mutable_file()->set_path(path);
  return A(gather);
}

inline v1::Command ConsolidateTo(const std::string& path) {
  v1::ConsolidateCommand consolidate;
  consolidate.mutable_folder()->set_path(path);
  return A(consolidate);
}

inline v1::Command PromptOf(const std::vector<uint32_t>& prompt, uint32_t max_tokens) {
  v1::SampleCommand sample;
  sample.mutable_tokens()->Add(prompt.begin(), prompt.end());
  sample.set_max_tokens(max_tokens);
  return A(sample);
}

inline v1::Command SkipOf(uint64_t samples, bool dry_run = false) {
  v1::SkipDataCommand skip;
  skip.set_samples(samples);
  skip.set_dry_run(dry_run);
  return A(skip);
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_TEST_COMMANDS_H_
