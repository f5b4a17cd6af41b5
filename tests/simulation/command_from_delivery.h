// A command as the coordinator delivers it, as the ranks' schedule takes it:
// what the wire between them does in life.
#ifndef MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_
#define MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_

#include "coordinator/commands/command_log.h"
#include "worker/train/reports/outside.h"

namespace muster::simulation {

inline train::Command CommandFromDelivery(const commands::Delivery& delivery) {
  using Kind = commands::Kind;
  using When = commands::Delivery::When;
  const commands::Command& command = delivery.command;
  train::Command result{.number = static_cast<int64_t>(command.number)};
  if (delivery.when == When::kNever) return result;
  if (delivery.at_step.has_value()) result.at_step = static_cast<int64_t>(*delivery.at_step);
  result.begun = command.applied_step.has_value();
  result.replay = delivery.when == When::kReplay;
  switch (command.kind) {
    case Kind::kStop:
      result.what = train::StopCommand();
      break;
    case Kind::kSaveCheckpoint:
      result.what = train::SaveCheckpointCommand();
      break;
    case Kind::kGatherOptimizerState:
      result.what = train::GatherOptimizerStateCommand();
      break;
    case Kind::kConsolidate:
      result.what = train::ConsolidateCommand();
      break;
    case Kind::kRunStage:
      result.what = train::RunStageCommand();
      break;
    case Kind::kSample:
      result.what = train::SampleCommand();
      break;
    case Kind::kPause:
      result.what = train::PauseCommand();
      break;
    case Kind::kResume:
      result.what = train::ResumeCommand();
      break;
    case Kind::kCancel:
      result.what = train::CancelCommand{static_cast<int64_t>(command.target)};
      break;
    default:
      result.what = train::SetLearningRateCommand{};
      break;
  }
  return result;
}

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_
