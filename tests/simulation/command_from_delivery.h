// A command as the coordinator delivers it, as the ranks' schedule takes it:
// what the wire between them does in life.
#ifndef MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_
#define MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_

#include "coordinator/commands/command_log.h"
#include "worker/train/reports/outside.h"

namespace muster::simulation {

inline train::Command CommandFromDelivery(const commands::Delivery& delivery) {
  using When = commands::Delivery::When;
  const commands::Command& command = delivery.command;
  train::Command result{.number = static_cast<int64_t>(command.number)};
  if (delivery.when == When::kNever) return result;
  if (delivery.at_step.has_value()) result.at_step = static_cast<int64_t>(*delivery.at_step);
  result.begun = command.applied_step.has_value();
  result.replay = delivery.when == When::kReplay;
  switch (command.kind) {
    case v1::Operation::STOP:
      result.what = train::StopCommand();
      break;
    case v1::Operation::SAVE_CHECKPOINT:
      result.what = train::SaveCheckpointCommand();
      break;
    case v1::Operation::GATHER_OPTIMIZER_STATE:
      result.what = train::GatherOptimizerStateCommand();
      break;
    case v1::Operation::CONSOLIDATE:
      result.what = train::ConsolidateCommand();
      break;
    case v1::Operation::RUN_STAGE:
      result.what = train::RunStageCommand();
      break;
    case v1::Operation::SAMPLE:
      result.what = train::SampleCommand();
      break;
    case v1::Operation::PAUSE:
      result.what = train::PauseCommand();
      break;
    case v1::Operation::RESUME:
      result.what = train::ResumeCommand();
      break;
    case v1::Operation::CANCEL:
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
