// Operations as text for people.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_OPERATION_TEXT_H_
#define MUSTER_CLIENT_CLI_TERMINAL_OPERATION_TEXT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::cli {

// "set_learning_rate"
std::string KindName(v1::Operation::Kind kind);
// "version 3: froze 4 parameters (transformer.wte.weight, ...), ...". One line.
std::string ChangeText(const v1::TrainabilityChange& change);
// "operation job/3: set_learning_rate: waits for the next step". One line.
std::string OperationLine(const v1::Operation& operation);
// One line per operation, with a header.
std::string OperationTable(const std::vector<v1::Operation>& operations, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_OPERATION_TEXT_H_
