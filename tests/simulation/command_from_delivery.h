// The conversion of a command from the coordinator's delivery to the ranks' schedule. In the
// product, the wire between both does this.
#ifndef MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_
#define MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_

#include <google/protobuf/descriptor.h>

#include "coordinator/commands/command_log.h"
#include "proto/muster/v1/command_rule.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::simulation {

inline v1::Command CommandFromDelivery(const commands::Delivery& delivery) {
  using When = commands::Delivery::When;
  const commands::Command& command = delivery.command;
  v1::Command result;
  result.set_number(command.number);
  if (delivery.when == When::kNever) return result;
  if (delivery.at_step.has_value()) result.set_at_step(*delivery.at_step);
  result.set_begun(command.applied_step.has_value());
  result.set_replay(delivery.when == When::kReplay);
  const auto* kinds = v1::Command::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds->field_count(); ++i) {
    const auto& rule = kinds->field(i)->message_type()->options().GetExtension(v1::command);
    if (rule.kind() != command.kind) continue;
    result.GetReflection()->MutableMessage(&result, kinds->field(i));
  }
  if (result.has_cancel()) result.mutable_cancel()->set_target(command.target);
  return result;
}

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COMMAND_FROM_DELIVERY_H_
